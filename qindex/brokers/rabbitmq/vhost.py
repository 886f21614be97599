"""One virtual host of a dead RabbitMQ node: the indexes of its queues, joined with its store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from qindex._core import ffi, lib
from qindex.brokers.rabbitmq.definitions import RecoveryTerms
from qindex.brokers.rabbitmq.doubts import Doubts, Slots
from qindex.brokers.rabbitmq.index import SEQ_MAX
from qindex.brokers.rabbitmq.index_v2 import read_stored_term
from qindex.brokers.rabbitmq.message import Content, MessageError, read_message
from qindex.brokers.rabbitmq.queue import Batch, Counts, Live, scan_queue
from qindex.brokers.rabbitmq.store import MessageStore
from qindex.brokers.tree import Source

if TYPE_CHECKING:
    from qindex.brokers.rabbitmq.node import Node, Queue

EXPIRY_US_FIRST: Final = 1_167_609_600_000_000  # 2007: there was no RabbitMQ before
SEQS_MAX: Final = 10_000  # that are kept to be told
SEQ_ROWS_MAX: Final = 12
SECTOR: Final = 512
_SECTOR_OF_ZEROS: Final = bytes(SECTOR)


@dataclass(slots=True)
class Part:
    """One directory of a queue: all of it, or what it holds of one priority."""

    folder: str
    where: str
    priority: int | None
    index_version: int
    terms: RecoveryTerms | None  # None: not stopped in order
    durable: bool = False  # the definitions say so of its queue
    has_ttl: bool | None = None  # its queue gives messages an expiry; None: not known
    counts: Counts = field(default_factory=Counts)


@dataclass(slots=True)
class Vhost:
    name: str
    node: Node
    folder: str
    where: str  # empty before RabbitMQ 3.7: its queues stand in the node's own directory
    segment_entry_count: int
    queues: list[Queue] = field(default_factory=list)
    store: MessageStore = field(default_factory=MessageStore)
    orphan_bodies: int = 0  # stored, but no queue wants them
    orphan_bytes: int = 0

    def path(self, name: str) -> str:
        """Of what is in its directory."""
        return f"{self.where}/{name}" if self.where else name

    def live(self, part: Part) -> Iterator[Live]:
        """The messages of one directory that the node would give back."""
        for batch in self.batches(part, Counts()):
            for live in batch.rows():
                if live[3][5]:
                    yield live

    def count(self, part: Part, slots: Slots | None = None) -> None:
        """Reads the index of one directory for its counts, and marks the bodies that it wants."""
        slots = Slots() if slots is None else slots
        settled = part.terms is not None and part.terms.persistent_count is not None
        is_old = part.index_version == 1
        doubts = Doubts(self.node.tree, part.where, self.node.log, slots, is_old, settled)
        for _ in self.batches(part, part.counts, doubts):
            pass

    def batches(self, part: Part, counts: Counts, doubts: Doubts | None = None) -> Iterator[Batch]:
        """The index joined with the message store. The counts are complete at the end."""
        log, places, mark = self.node.log, self.store.places, doubts is not None
        next_deliver = part.terms.next_deliver_seq if part.terms else None
        below = min(max(0, next_deliver or 0), SEQ_MAX + 1)  # a damaged one may be any number
        found = ffi.new("qi_rabbit_counts *")
        missing: list[int] = []
        found.expiry_min = EXPIRY_US_FIRST
        for batch in scan_queue(
            self.node.tree, part.where, self.segment_entry_count, log, counts, doubts
        ):
            entries, count = batch.entries, batch.count
            if part.durable:
                found.relabelled += self._relabel(batch)
            lib.qi_rabbit_count(entries, count, places, mark, part.durable, below, found)
            if found.body_missing > len(missing) < SEQS_MAX:
                missing += batch.missing()
            yield batch
        for name in _COUNTED:
            setattr(counts, name, getattr(counts, name) + getattr(found, name))
        if part.terms is None:
            counts.redelivered += found.live
        else:
            counts.redelivered += found.delivered if next_deliver is None else found.below
        if doubts is not None:
            self._tell(part, found, missing)

    def _relabel(self, batch: Batch) -> int:
        """Makes persistent what the index calls transient, but the message itself persistent."""
        entries, count, index, relabelled = batch.entries, batch.count, 0, 0
        while (index := lib.qi_rabbit_next_transient(entries, count, index)) < count:
            entry = entries + index
            beside = entry.flags & lib.QI_RABBIT_BESIDE
            source = self.node.tree.kept_open(batch.beside if beside else batch.file)
            index += 1
            if source is None:
                continue
            with contextlib.suppress(MessageError):
                if read_term(source, entry.term_offset, entry.term_bytes).persistent:
                    entry.flags |= lib.QI_RABBIT_PERSISTENT
                    relabelled += 1
        return relabelled

    def _tell(self, part: Part, found: Any, missing: list[int]) -> None:
        """What the counts show of damage."""
        log = self.node.log
        if found.body_missing:
            many = "1 message" if found.body_missing == 1 else f"{found.body_missing:,} messages"
            log.damage("body missing", part.where, 0, f"{many} without a body: {seqs(missing)}")
        if found.early:
            report = f"{found.early:,} expiry times before there was a RabbitMQ are ignored, seq"
            log.damage("expiry", part.where, 0, f"{report} {found.first_early:,} first")
        if found.relabelled:
            report = f"{found.relabelled:,} persistent messages that the index calls transient:"
            log.damage("transient", part.where, 0, f"{report} they are taken for persistent")
        told = part.terms.persistent_count if part.terms else None
        here = found.live + found.body_missing
        if told is not None and told != here:
            report = f"stopped with {told:,} persistent {'message' if told == 1 else 'messages'},"
            report += f" {here:,} {'is' if here == 1 else 'are'} here"
            log.damage("count", part.where, 0, report)


_COUNTED: Final = (
    "transient", "body_missing", "live", "live_body_bytes", "stored", "expiring",
)  # fmt: skip


def seqs(numbers: list[int]) -> str:
    """`seq 1`, `seqs 1-7, 9, 12 ...`: the first ones."""
    rows: list[list[int]] = []
    for number in numbers[:SEQS_MAX]:
        if rows and rows[-1][1] == number - 1:
            rows[-1][1] = number
        else:
            rows.append([number, number])
    told = [str(first) if first == last else f"{first}-{last}" for first, last in rows]
    more = " ..." if len(numbers) > SEQS_MAX or len(told) > SEQ_ROWS_MAX else ""
    one = "seq" if len(numbers) == 1 else "seqs"
    return f"{one} {', '.join(told[:SEQ_ROWS_MAX])}{more}"


def read_term(source: Source, offset: int, term_bytes: int) -> Content:
    """The message whose term is there; MessageError if it is not what was written."""
    if source.where.endswith(".qs"):
        return read_message(read_stored_term(source, offset, term_bytes))
    return read_message(source.read(offset, term_bytes))


def has_lost_sector(data: bytes, offset: int) -> bool:
    """In a term are zeros from one sector's start to another's, and nowhere else around them.

    `offset` is where it stands in the file. That is what a disk leaves that lost them. A body of
    its own hardly has them just so.
    """
    start = data.find(_SECTOR_OF_ZEROS)
    if start < 0:
        return False
    end = len(data) - len(data[start:].lstrip(b"\0"))
    return (offset + start) % SECTOR == 0 and (offset + end) % SECTOR == 0
