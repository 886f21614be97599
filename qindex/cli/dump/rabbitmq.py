"""Records of RabbitMQ's index files (version 1), in the lines of qindex dump."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from qindex.brokers.rabbitmq.index import (
    SLOTS_MAX,
    Journal,
    Segment,
    journal_stretches,
    segment_stretches,
)
from qindex.brokers.rabbitmq.log import VERBS, journal_records, segment_records
from qindex.brokers.tree import Findings, Tree
from qindex.native.frames import fields_of


def is_rabbitmq(file: Path) -> bool:
    """By the name beside it; before 3.7 there is none, but a node around it."""
    node = file.parent.parent.parent
    return (file.parent / ".queue_name").is_file() or (
        file.parent.parent.name == "queues" and (node / "msg_store_persistent").is_dir()
    )


def rabbitmq_lines(file: Path) -> Iterator[str]:
    """One for each record, and one for each row of bytes that are none."""
    findings = Findings()
    with closing(Tree(file.parent, findings)) as tree:
        source = tree.try_open(file.name)
        if source is None:
            return
        with source:
            is_journal = file.name == "journal.jif"
            if is_journal:
                stretches = list(journal_stretches(source, Journal(), findings))
            else:
                stretches = list(segment_stretches(source, SLOTS_MAX, Segment(), findings))
            told = {finding.offset: finding.text for finding in findings.kept}
            behind = 0
            for start, end in stretches:
                if start > behind:
                    yield _bad(behind, start, told)
                behind = end
                if is_journal:
                    for offset, kind, seq, fields in journal_records(source, start, end):
                        yield _line(offset, VERBS[kind], seq, fields, transient=kind == 1)
                else:
                    for offset, bits, slot, fields in segment_records(source, start, end):
                        verb = "publish" if bits >= 2 else "event"
                        yield _line(offset, verb, slot, fields, transient=bits == 2)
            if behind < source.size:
                yield _bad(behind, source.size, told)


def _bad(start: int, end: int, told: dict[int, str]) -> str:
    return f"{start:10}  BAD      {end - start} bytes: {told.get(start, 'no record')}"


def _line(offset: int, verb: str, number: int, raw: bytes, *, transient: bool) -> str:
    if not raw:
        return f"{offset:10}  {verb:<7}  {'':10} {number:12}"
    fields = fields_of(raw)
    kind = "transient" if transient else "persistent"
    sizes = f"size {fields.size}  embedded {fields.embedded}"
    rest = f"msg_id {fields.msg_id.hex()}  expiry_us {fields.expiry_us}"
    return f"{offset:10}  publish  {kind:10} {number:12}  {sizes}  {rest}"
