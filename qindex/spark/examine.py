"""What an audit finds in one directory: its queues, its files, and what is wrong with them.

    examination = examine(unit, Limits())
    examination.findings, examination.queues, examination.files     rows of these tables

Nothing is written, and damage never raises: what cannot be read is a finding. Who examines what
others left is examine_foreign.py, a store of qindex examine_native.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import qindex
from qindex.brokers.tree import UnknownFormat
from qindex.spark.plan import Unit
from qindex.spark.search import NATIVE, UNKNOWN

log: Final = logging.getLogger("qindex.spark")

# kind: how bad it is, and what it means
KINDS: Final = {
    "lost": ("damage", "a live message whose body or record is in no file"),
    "damaged body": ("damage", "a live message whose stored body is not what was published"),
    "unreadable": ("damage", "a message, a queue or a directory that cannot be read"),
    "not recognised": ("damage", "a path that was named, or may be a broker's, and was not read"),
    "damaged file": ("damage", "bytes that make no sense, or are missing"),
    "not read": ("damage", "a queue of a type that qindex cannot read, with what it holds"),
    "suspected": ("damage", "files as a loss would leave them, if nothing else explains them"),
    "ack without publish": ("damage", "a delivery or an ack of a message that nobody published"),
    "references": ("damage", "a stored body has more references than it was published for"),
    "duplicate": ("damage", "one stored message more than once in the same queue"),
    "account": ("damage", "the counts that the broker wrote down differ from what is there"),
    "expired": ("warning", "messages past their expiry that are still kept"),
    "stuck": ("warning", "delivered, never acked, and the queue has gone on without them"),
    "poison": ("warning", "delivered again and again, and never acked"),
    "orphan bodies": ("note", "stored bodies that no live message names: garbage"),
    "note": ("note", "something that explains itself"),
}
PER_QUEUE_MAX: Final = 100  # findings of one kind about single messages; the rest is one finding


@dataclass(frozen=True, slots=True)
class Limits:
    """From when on something is a finding."""

    stuck_behind: int = 10_000  # ReqIds behind the last one that was delivered or acked
    poison_deliveries: int = 5
    check_bodies: bool = True
    now_us: int | None = None  # decides what has expired; None: the moment of reading


@dataclass(slots=True)
class Examination:
    """Rows of the tables of these names, without source, broker and format."""

    unit: Unit
    queues: list[dict[str, Any]] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)

    def find(self, kind: str, text: str, **where: Any) -> None:
        """One finding. `where`: vhost, queue, req_id, count (1), file, offset."""
        severity = KINDS[kind][0]
        row = {"kind": kind, "severity": severity, "count": 1, "text": text, **where}
        self.findings.append(row)

    def find_each(self, kind: str, text: str, req_ids: Iterable[int], **where: Any) -> None:
        """One finding per message, as far as there are not too many; then one for the rest."""
        ids = sorted(req_ids)
        for req_id in ids[:PER_QUEUE_MAX]:
            self.find(kind, text, req_id=req_id, **where)
        if rest := ids[PER_QUEUE_MAX:]:
            more = f"{text}; and so {len(rest):,} more, from this one on"
            self.find(kind, more, req_id=rest[0], **{**where, "count": len(rest)})

    def find_all(self, kind: str, text: str, req_ids: Iterable[int], **where: Any) -> None:
        """One finding for all of them, if there are any; it names the first."""
        if ids := list(req_ids):
            self.find(kind, text, req_id=min(ids), count=len(ids), **where)


def examine(unit: Unit, limits: Limits) -> Examination:
    """Reads one directory whole. Cost: all of the index, and all bodies if they are checked."""
    examination = Examination(unit)
    if unit.format == UNKNOWN:
        examination.find("not recognised", unit.problem, file="", offset=0)
        return examination
    try:
        if unit.format == NATIVE:
            from qindex.spark.examine_native import examine_store

            examine_store(examination, limits)
        else:
            from qindex.spark.examine_foreign import examine_node

            examine_node(examination, limits)
    except (qindex.QindexError, UnknownFormat, OSError) as error:
        examination.find("unreadable", str(error), file="", offset=0)
    except MemoryError:
        raise
    except Exception as error:  # a mistake of a reader: the others are examined all the same
        log.exception("%s: a mistake in qindex", unit.source)
        text = f"a mistake in qindex, not examined to the end: {type(error).__name__}: {error}"
        examination.find("unreadable", text, file="", offset=0)
    return examination
