"""What the index of a RabbitMQ queue shows of losses that leave no broken record behind.

A file that was cut between two records, or that is gone, makes sense as it is. What tells of it:

* gaps. A queue gives its seqs out one by one and is consumed in order. Seqs that are neither
  published nor acked, behind messages that are live, were acked out of turn - or they are lost.
  Acks at random leave short gaps, and consumers that hold some messages while others go on leave
  long ones behind these few: only what is too long for the one and has too many live messages
  before it for the other is suspected.
* records that no node writes: marks without a publish, two messages with one seq, an ack of what
  was never delivered, publishes of persistent messages in an order that goes back.
* bodies in N.qs that no entry of N.qi names. An entry is made before its body, and N.qi is deleted
  before N.qs, so that a missing N.qi is damage. Entries wait in memory until they are written,
  so that bodies behind the last entry are either of messages that nobody had confirmed, or lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from typing import Any, Final

from qindex._core import ffi, lib
from qindex.brokers.rabbitmq.index import Journal, Segment
from qindex.brokers.rabbitmq.orphans import stored_bodies
from qindex.brokers.tree import Findings, Tree

GAP_MIN: Final = 32  # seqs; acks at random leave shorter ones everywhere
UNACKED_USUAL: Final = 300  # messages that consumers hold while others go on
_ONE_IN: Final = 1e6  # so many queues have one gap by chance that is suspected
SLOTS_NOW: Final = 2048  # of each virtual host that 3.8.17 or a later one has made


@dataclass(slots=True)
class Slots:
    """What segments tell about how many entries each of them has."""

    beyond: int = 0  # records of slots that segments of this size do not have
    lost_marks: int = 0  # marks in journals of messages that are nowhere
    clashes: int = 0  # what no node writes
    full_now: int = 0  # segments that ended at SLOTS_NOW, and others came behind
    past_now: int = 0  # segments that have more
    later: int = 0  # segments that are not the first of their queue
    marks: int = 0


@dataclass(slots=True)
class Doubts:
    """Of one scan of one queue's directory; `slots` is for all queues of a virtual host."""

    tree: Tree
    where: str
    findings: Findings
    slots: Slots
    has_journal: bool = True  # a directory of version 1
    settled: bool = False  # the node was stopped in order, and said how many messages there are
    gaps: Any = field(default_factory=lambda: ffi.new("qi_rabbit_gaps *"))

    def __post_init__(self) -> None:
        self.gaps.length_min = GAP_MIN

    # --- version 1 ---

    def missing_journal(self) -> None:
        text = "journal.jif is not there: a node makes it with the directory, and keeps it"
        self.findings.suspected("missing", self.where, 0, text)

    def journal(self, journal: Journal, where: str) -> None:
        table = journal.table
        if table.disorder:
            text = f"{_many(table.disorder, 'publish', 'publishes')} with a seq that goes back:"
            text += " the message is not where it was"
            self.findings.damage("disorder", where, table.disorder_at, text)
        self.slots.marks += table.mark_count

    def segment(
        self, segment: Segment, number: int, slots: int, file: str, *, is_there: bool, is_last: bool
    ) -> None:
        """A segment with what the journal has of it. `is_last`: there is no file behind it."""
        table = segment.table
        lib.qi_rabbit_segment_gaps(table, number, slots, self.gaps)
        orphans = table.orphans
        was_deleted = not is_there and not table.count and not is_last
        if orphans and was_deleted:
            text = (
                f"{number}.idx is not there, but acks name {_many(orphans, 'message')} of it: the"
            )
            text += " node was killed just when it had deleted it, or it is lost"
            self.findings.suspected("ack without publish", file, 0, text)
        elif orphans:
            text = f"{_many(orphans, 'message')} that deliveries or acks name, but nobody published"
            self.findings.damage("ack without publish", file, 0, text)
        base = number * slots
        if table.clashes:
            text = f"{_many(table.clashes, 'message')} with the seq of another, such as"
            self.findings.damage("clash", file, 0, f"{text} {base + table.clash}: one is lost")
        if table.foreign and table.own > 4 * (table.foreign + table.plain):
            text = f"{_many(table.foreign, 'mark')} of another message than the one before: what"
            self.findings.damage("mark", file, 0, f"{text} was marked may be acked, or not")
        if table.bare_acks:
            text = f"{_many(table.bare_acks, 'message')} acked but never delivered, such as seq"
            text += f" {base + table.bare_ack}; an ack may have been a delivery"
            self.findings.suspected("ack without delivery", file, 0, text)
        if table.twice:
            text = f"{_many(table.twice, 'message')} delivered twice: one may have been an ack"
            self.findings.suspected("delivered twice", file, 0, text)
        self._count_slots(table, base, is_there=is_there, is_last=is_last)

    def _count_slots(self, table: Any, base: int, *, is_there: bool, is_last: bool) -> None:
        slots = self.slots
        slots.beyond += table.beyond
        slots.lost_marks += table.orphans
        slots.clashes += table.clashes + table.bare_acks
        if not is_there:
            return
        slots.later += base > 0
        slots.past_now += table.top > SLOTS_NOW
        slots.full_now += table.top == SLOTS_NOW and not is_last

    def empty_segment(self, number: int, file: str, *, in_journal: bool) -> None:
        """N.idx has no byte: a node makes it for the records that it writes at once."""
        text = f"{number}.idx is empty: a node writes messages when it makes it"
        if in_journal:
            self.findings.note("empty", file, 0, f"{text}; the journal has them")
        else:
            self.findings.suspected("empty", file, 0, f"{text}, and the journal has none of them")

    # --- version 2 ---

    def live(self, entries: Any, count: int, slots: int) -> None:
        """Entries of a file that has room for `slots`: what its header says, any number."""
        lib.qi_rabbit_live_gaps(entries, count, min(slots, 0xFFFFFFFF), self.gaps)

    def half_acked(self, number: int, count: int) -> None:
        text = f"{_many(count, 'message')} that only a first byte of zero calls acked: an ack is 32"
        text += " of them; a node does that to what it cannot read"
        self.findings.suspected("half acked", f"{self.where}/{number}.qi", 0, text)

    def bodies(self, number: int, named: int, end: int, used: int, zeros: int) -> None:
        """Of N.qs: live entries name so many bytes, the last entry's term ends at `end`.

        Of the entries in N.qi so many are in use, the others are zeros.
        """
        where = f"{self.where}/{number}.qs"
        if self.settled:
            return
        if self.tree.size(where) <= _QS_HEAD_BYTES + named:
            return
        source = self.tree.try_open(where)
        if source is None:
            return
        with source:
            start = end if used else 0
            count = size = 0
            for _, term_bytes in stored_bodies(source, {}, max(start, _QS_HEAD_BYTES)):
                count, size = count + 1, size + term_bytes
        if count:
            bodies = f"{_many(count, 'body', 'bodies')} ({size:,} bytes) that no entry names"
            text = f"{bodies}, behind the last one that has an entry" if used else bodies
            text += "; entries were not written yet when the node was killed, or they are lost"
            could_be_acked = used and count <= zeros and self.gaps.live < min(count, UNACKED_USUAL)
            tell = self.findings.note if could_be_acked else self.findings.suspected
            tell("bodies without entries", where, start, text)

    def missing_index(self, number: int) -> None:
        """N.qs is there, N.qi is not."""
        where = f"{self.where}/{number}.qs"
        source = self.tree.try_open(where)
        if source is None:
            return
        with source:
            sizes = [term_bytes for _, term_bytes in stored_bodies(source, {}, _QS_HEAD_BYTES)]
        if sizes:
            text = f"{number}.qi is not there: {_many(len(sizes), 'body', 'bodies')}"
            text += f" ({sum(sizes):,} bytes) that no entry names"
            self.findings.damage("missing", where, 0, text)

    # --- both ---

    def end(self) -> None:
        if self.settled:
            return
        for gap in suspicious(self.gaps):
            text = f"{gap.length:,} messages from seq {gap.first:,} on have no record, behind"
            text += f" {gap.live:,} live: acked out of turn, before they were written, or lost"
            is_usual = gap.live < min(gap.length, UNACKED_USUAL)
            tell = self.findings.note if is_usual else self.findings.suspected
            tell("gap", self.where, 0, text)


_QS_HEAD_BYTES: Final = 64


def suspicious(gaps: Any) -> list[Any]:
    """Gaps that are too long to be there by chance among the others, the longest first."""
    missing, present = gaps.missing, gaps.present
    found = []
    for gap in sorted((gaps.gaps[i] for i in range(gaps.count)), key=lambda gap: -gap.length):
        missing -= gap.length
        share = missing / (missing + present)
        longest = log(_ONE_IN * (missing + present)) / -log(share) if share > 0 else 0
        if gap.length < max(GAP_MIN, longest):
            break
        found.append(gap)
    return found


def _many(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"
