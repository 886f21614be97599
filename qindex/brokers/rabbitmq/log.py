"""The journal of a RabbitMQ queue (index version 1) as a log: journal.jif on its segments.

The segments are step 0. A flush moves records from the journal into them and then empties it, so
that a step says what is new; after a crash in between the segments have it already, and the records
change nothing. Records are decoded one by one here, while the readers that recovery uses take them
together: `qindex replay --verify` compares the two.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from struct import Struct
from typing import Final

from qindex.brokers.rabbitmq.index import Journal, Segment, journal_stretches, segment_stretches
from qindex.brokers.tree import BLOCK_BYTES_MAX, Findings, Source, Tree
from qindex.native.frames import Fields, Purge, fields_of
from qindex.native.replay import (
    ACKED,
    DELIVERED,
    DELIVERY,
    PUBLISHED,
    TRANSIENT,
    Place,
    Record,
    Slots,
    live_in,
)
from qindex.native.replay import Segment as Told

FIELDS_BYTES: Final = 32
_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,14})\.idx")
_U64: Final = Struct(">Q").unpack_from
_U16: Final = Struct(">H").unpack_from
_TERM_BYTES: Final = Struct(">I").unpack_from
_SEQ: Final = (1 << 62) - 1
VERBS: Final = ("publish", "publish", "deliver", "ack")


class Window:
    """Bytes of a file at any offset, a block in memory at a time."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._start, self._block = 0, b""

    def read(self, offset: int, length: int) -> bytes:
        at = offset - self._start
        if at < 0 or at + length > len(self._block):
            self._start, at = offset, 0
            self._block = self._source.read(offset, BLOCK_BYTES_MAX)
        return self._block[at : at + length]


def journal_records(source: Source, pos: int, end: int) -> Iterator[tuple[int, int, int, bytes]]:
    """(offset, kind, seq, a publish's fields) of the records in a stretch without damage."""
    window = Window(source)
    while pos + 8 <= end:
        (head,) = _U64(window.read(pos, 8))
        start, fields = pos, b""
        pos += 8
        if not head >> 63:
            fields = window.read(pos, FIELDS_BYTES)
            if len(fields) < FIELDS_BYTES:
                return
            pos += FIELDS_BYTES + _TERM_BYTES(fields, 28)[0]
        yield start, head >> 62, head & _SEQ, fields


def segment_records(source: Source, pos: int, end: int) -> Iterator[tuple[int, int, int, bytes]]:
    """(offset, the two first bits, slot, a publish's fields), likewise."""
    window = Window(source)
    while pos + 2 <= end:
        (head,) = _U16(window.read(pos, 2))
        start, fields = pos, b""
        pos += 2
        if head >> 15:
            fields = window.read(pos, FIELDS_BYTES)
            if len(fields) < FIELDS_BYTES:
                return
            pos += FIELDS_BYTES + _TERM_BYTES(fields, 28)[0]
        yield start, head >> 14, head & 0x3FFF, fields


class RabbitMQLog:
    """As replay.Log. `folder` is one directory of the queue, relative to the tree."""

    floor = 0

    def __init__(self, tree: Tree, folder: str, slots: int, findings: Findings) -> None:
        self.tree = tree
        self.folder = folder
        self.slots = slots
        self.findings = findings
        self.journal = f"{folder}/journal.jif"
        numbers = [int(m[1]) for name in tree.files(folder) if (m := _NAME.fullmatch(name))]
        self._read = {number: self._read_file(number) for number in sorted(numbers)}
        self.uncounted: dict[int, int] = {}
        self.segments = {number: Told(live_in(slots), 0) for number, slots in self._read.items()}
        self._stretches = self._sound_stretches()

    def _sound_stretches(self) -> list[tuple[int, int]]:
        source = self.tree.try_open(self.journal)
        if source is None:
            return []
        with source:
            return list(journal_stretches(source, Journal(), self.findings))

    def records(self, place: Place) -> Iterator[Record]:
        source = self.tree.try_open(self.journal)
        if source is None:
            return
        with source:
            for start, end in self._stretches:
                if end <= place[1]:
                    continue
                for offset, kind, seq, fields in journal_records(source, max(start, place[1]), end):
                    yield Record((0, offset, 0), offset, VERBS[kind], seq, fields, kind == 1)

    def file_of(self, record: Record) -> str:
        return self.journal

    def purge_of(self, record: Record) -> Purge:
        return Purge(0, frozenset())  # RabbitMQ acks one by one

    def floor_of(self, record: Record) -> int:
        return 0

    def read_segment(self, number: int) -> Slots:
        slots = self._read.get(number)
        return array("I", bytes(4 * self.slots)) if slots is None else slots[:]

    def _read_file(self, number: int) -> Slots:
        slots = array("I", bytes(4 * self.slots))
        source = self.tree.try_open(f"{self.folder}/{number}.idx")
        if source is None:
            return slots
        with source:
            stretches = list(segment_stretches(source, self.slots, Segment(), self.findings))
            for start, end in stretches:
                for _, prefix, slot, _ in segment_records(source, start, end):
                    if slot >= self.slots:
                        continue
                    bits = slots[slot]
                    if prefix >= 2:
                        bits |= PUBLISHED if prefix == 3 else PUBLISHED | TRANSIENT
                    elif bits & DELIVERED:
                        bits |= ACKED
                    else:
                        bits = (bits | DELIVERED) + DELIVERY
                    slots[slot] = bits
        return slots

    def embedded_of(self, record: Record) -> bytes:
        """Its payload is an Erlang term: qindex trace and peek show what is in it."""
        return b""

    def publishes_of(self, number: int) -> Iterator[tuple[int, Fields, bytes, int]]:
        """(seq, fields, nothing, not known when) of what a segment holds."""
        for seq, fields, _, _ in self.terms_of(number):
            yield seq, fields_of(fields), b"", 0

    def terms_of(self, number: int) -> Iterator[tuple[int, bytes, str, int]]:
        """(seq, raw fields, file, offset of the term) of the publishes that a segment holds."""
        where = f"{self.folder}/{number}.idx"
        source = self.tree.try_open(where)
        if source is None:
            return
        with source:
            stretches = list(segment_stretches(source, self.slots, Segment(), self.findings))
            for start, end in stretches:
                for offset, _, slot, fields in segment_records(source, start, end):
                    if fields:
                        term = offset + 2 + FIELDS_BYTES
                        yield number * self.slots + slot, fields, where, term
