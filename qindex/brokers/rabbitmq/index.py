"""RabbitMQ's queue index, version 1: the journal.jif and N.idx files of one queue directory.

::

    journal   publish  00 persistent, 01 transient | seq:62 | PUBLISH
              deliver  10 | seq:62
              ack      11 | seq:62
    segment   publish  1 | persistent:1 | slot:14 | PUBLISH
              deliver  01 | slot:14      the first of a slot
              ack      01 | slot:14      the second of a slot
    PUBLISH   msg_id:16 B | expiry_us:64 | body_bytes:32 | term_bytes:32 | term

seq = N * entries per segment + slot. A message whose term_bytes are 0 has its body in the shared
message store, under its msg_id. All integers are big-endian.

A message is live if and only if a publish of its seq is in the journal or in its segment, and an
ack is in neither. The order of records says nothing: a flush writes its slots backwards, and a
crash between a flush and the end of the journal leaves records in both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, TypeAlias

from qindex._core import ffi, lib
from qindex.brokers.rabbitmq import resync
from qindex.brokers.rabbitmq.pieces import Pieces, check
from qindex.brokers.rabbitmq.resync import Publish, Salvage, WayOn
from qindex.brokers.tree import BLOCK_BYTES_MAX, Findings, Source

# msg_id (empty: unknown), expiry_us, body_bytes, term_bytes, term_offset, persistent
Entry: TypeAlias = tuple[bytes, int, int, int, int, bool]

SLOTS_MAX: Final = lib.QI_RABBIT_SLOTS_MAX
SEQ_MAX: Final = (1 << 48) - 1  # more messages than a queue can have seen; two zero bytes to check
EXPIRY_US_MAX: Final = 1 << 54  # in the year 2540; a TTL is 49 days at most

_SEQ: Final = (1 << 62) - 1
_U64: Final = Struct(">Q").unpack_from
_U16: Final = Struct(">H").unpack_from
_PUBLISH: Final = Struct(">16sQII").unpack_from
_PUBLISH_BYTES: Final = 32
_JOURNAL_HEAD: Final = 8 + _PUBLISH_BYTES
_SEGMENT_HEAD: Final = 2 + _PUBLISH_BYTES
_NO_ID: Final = bytes(16)
_ENTRY: Final = Struct("=16sQQQIIHHI")  # a qi_rabbit_entry

# seq, state, flags, entry
Row: TypeAlias = tuple[int, int, int, Entry]


def rows(entries: Any, count: int) -> Iterator[Row]:
    """An array of qi_rabbit_entry as values."""
    size = ffi.sizeof("qi_rabbit_entry")
    for (
        msg_id,
        seq,
        expiry_us,
        offset,
        body_bytes,
        term_bytes,
        state,
        flags,
        _,
    ) in _ENTRY.iter_unpack(ffi.buffer(entries, count * size)):
        if flags & lib.QI_RABBIT_BESIDE and msg_id == _NO_ID:
            msg_id = b""  # version 2 has none beside a term in N.qs
        persistent = flags & 1 == 1
        yield seq, state, flags, (msg_id, expiry_us, body_bytes, term_bytes, offset, persistent)


class Journal:
    """The records of a journal.jif; `table` is a qi_rabbit_journal. 56 bytes a publish."""

    def __init__(self) -> None:
        self.table = ffi.gc(lib.qi_rabbit_journal_new(), lib.qi_rabbit_journal_free)
        if not self.table:
            raise MemoryError

    @property
    def records(self) -> int:
        count: int = self.table.records
        return count

    def publishes(self) -> Iterator[tuple[int, Entry]]:
        """(seq, entry) in the order of the file."""
        for seq, _, _, entry in rows(self.table.publishes, self.table.publish_count):
            yield seq, entry

    def marks(self) -> Iterator[tuple[int, bool]]:
        """(seq, is it an ack, not a deliver) in the order of the file."""
        count = self.table.mark_count
        for mark in ffi.unpack(self.table.marks, count) if count else ():
            yield mark >> 1, mark & 1 == 1


class Segment:
    """The records of an N.idx file; `table` is a qi_rabbit_segment."""

    def __init__(self) -> None:
        self.table = ffi.new("qi_rabbit_segment *")

    def clear(self) -> None:
        lib.qi_rabbit_segment_clear(self.table)

    def publishes(self) -> Iterator[tuple[int, Entry]]:
        """(slot, entry) in no order."""
        for slot, _, _, entry in rows(self.table.entries, self.table.count):
            yield slot, entry

    def states(self) -> Iterator[tuple[int, int]]:
        """(slot, QI_RABBIT_PUBLISHED ...) in no order."""
        for slot, state, _, _ in rows(self.table.entries, self.table.count):
            yield slot, state


# --- journal ---------------------------------------------------------------------------------


def read_journal(source: Source, findings: Findings) -> Journal:
    """All records; behind a bad one it goes on where the next good one is. Linear in the size."""
    journal = Journal()
    for _ in journal_stretches(source, journal, findings):
        pass
    return journal


def journal_stretches(
    source: Source, journal: Journal, findings: Findings
) -> Iterator[tuple[int, int]]:
    """Reads into `journal`; (start, end) of each row of records without damage in between."""
    salvage = Salvage(source, resync.JOURNAL)
    pieces = Pieces(source)
    start = 0
    pos = _read_journal_records(pieces, start, journal)
    yield start, pos
    while pos < source.size:
        start = _journal_way_on(salvage, pos, journal, findings)
        pos = _read_journal_records(pieces, start, journal)
        yield start, pos


def _read_journal_records(pieces: Pieces, start: int, journal: Journal) -> int:
    """Reads until a record makes no sense, or to the end of the file: where."""
    journal.table.last = 0
    for piece in pieces.walk(start):
        check(lib.qi_rabbit_journal_scan(journal.table, piece))
    return pieces.offset


def _journal_way_on(salvage: Salvage, pos: int, journal: Journal, findings: Findings) -> int:
    source = salvage.source
    table = journal.table
    last = table.publishes[table.last - 1] if table.last else None
    head = source.read(pos, _JOURNAL_HEAD)
    here: Publish | None = None
    bare = False
    if len(head) == _JOURNAL_HEAD and head[0] < 0x80:
        seq = _U64(head)[0] & _SEQ
        if seq <= SEQ_MAX and _PUBLISH(head, 8)[0] != _NO_ID:
            here = Publish(pos + _JOURNAL_HEAD, _PUBLISH(head, 8)[3])
            behind = source.read(pos + _JOURNAL_HEAD, 8)
            delivers = behind == (seq | 1 << 63).to_bytes(8, "big")
            bare = delivers or salvage.is_anchor(pos + _JOURNAL_HEAD)
    way = salvage.way_on(pos, _with_term(last), here, bare)
    if way.last_bytes is not None and last is not None:
        last.term_bytes = way.last_bytes
    if way.here_bytes is not None:
        entry = _new_entry(head, 8, pos, way.here_bytes)
        entry.seq = _U64(head)[0] & _SEQ
        entry.flags = lib.QI_RABBIT_BESIDE | (head[0] < 0x40)
        check(lib.qi_rabbit_journal_publish(table, entry))
    _report(way, source, pos, findings)
    return way.pos


# --- segments --------------------------------------------------------------------------------


def read_segment(source: Source, slots: int, segment: Segment, findings: Findings) -> None:
    """All records of one .idx file, whose slots are below `slots`. Linear in the size."""
    for _ in segment_stretches(source, slots, segment, findings):
        pass


def segment_stretches(
    source: Source, slots: int, segment: Segment, findings: Findings
) -> Iterator[tuple[int, int]]:
    """As journal_stretches()."""
    salvage = Salvage(source, resync.SEGMENT)
    pieces = Pieces(source)
    start = 0
    pos = _read_segment_records(pieces, start, slots, segment, damaged=False)
    yield start, pos
    while pos < source.size:
        start = _segment_way_on(salvage, pos, slots, segment, findings)
        pos = _read_segment_records(pieces, start, slots, segment, damaged=True)
        yield start, pos


def _read_segment_records(
    pieces: Pieces, start: int, slots: int, segment: Segment, *, damaged: bool
) -> int:
    """Reads until a record makes no sense, or to the end of the file: where.

    In a sound file each 01 record has its publish before it. In a `damaged` one the publish may be
    lost; then the record is an orphan.
    """
    segment.table.last = segment.table.behind = 0
    for piece in pieces.walk(start):
        lib.qi_rabbit_segment_scan(segment.table, piece, slots, damaged)
    return pieces.offset


def _segment_way_on(
    salvage: Salvage, pos: int, slots: int, segment: Segment, findings: Findings
) -> int:
    source = salvage.source
    table = segment.table
    last = table.entries[table.last - 1] if table.last else None
    before = _with_term(last)
    head = source.read(pos, _SEGMENT_HEAD)
    here: Publish | None = None
    slot, bare = 0, False
    if len(head) == _SEGMENT_HEAD and head[0] >= 0x80:
        slot = _U16(head)[0] & 0x3FFF
        if slot < slots and _PUBLISH(head, 2)[0] != _NO_ID:
            here = Publish(pos + _SEGMENT_HEAD, _PUBLISH(head, 2)[3])
            behind = source.read(pos + _SEGMENT_HEAD, 2)
            delivers = behind == (slot | 0x4000).to_bytes(2, "big")
            bare = delivers or salvage.is_anchor(pos + _SEGMENT_HEAD)
    way = salvage.way_on(pos, before, here, bare)
    if way.last_bytes is not None and last is not None and before is not None:
        _take_back(source, before.term_offset + before.term_bytes, pos, table)
        last.term_bytes = way.last_bytes
    if way.here_bytes is not None:
        entry = _new_entry(head, 2, pos, way.here_bytes)
        entry.flags = head[0] >= 0xC0
        lib.qi_rabbit_segment_publish(table, slot, entry)
    _report(way, source, pos, findings)
    return way.pos


def _take_back(source: Source, start: int, end: int, table: Any) -> None:
    """Undoes the 01 records that were read out of a term because its length was wrong."""
    while start < end:
        block = source.read(start, min(end - start, BLOCK_BYTES_MAX))
        for (head,) in struct.iter_unpack(">H", block[: len(block) & ~1]):
            place = table.at[head & 0x3FFF]
            if place and table.entries[place - 1].state > lib.QI_RABBIT_PUBLISHED:
                table.entries[place - 1].state -= 1
            else:
                table.orphans -= 1
            table.records -= 1
        start += len(block)


# --- both ------------------------------------------------------------------------------------


def _new_entry(head: bytes, offset: int, pos: int, term_bytes: int) -> Any:
    """The publish whose fields are at `offset` of `head`, which was read at `pos`."""
    entry = ffi.new("qi_rabbit_entry *")
    msg_id, entry.expiry_us, entry.body_bytes, _ = _PUBLISH(head, offset)
    entry.msg_id[0:16] = msg_id
    entry.term_offset = pos + offset + _PUBLISH_BYTES
    entry.term_bytes = term_bytes
    entry.state = lib.QI_RABBIT_PUBLISHED
    return entry


def _with_term(last: Any | None) -> Publish | None:
    if last is None or last.term_bytes == 0:
        return None
    return Publish(last.term_offset, last.term_bytes)


def _report(way: WayOn, source: Source, pos: int, findings: Findings) -> None:
    report = findings.damage if way.severity == "damage" else findings.suspected
    report(way.kind, source.where, pos, way.text)
