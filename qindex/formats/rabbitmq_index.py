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
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, TypeAlias

from qindex.formats import rabbitmq_salvage
from qindex.formats.foreign import BLOCK_BYTES_MAX, Findings, Source
from qindex.formats.rabbitmq_salvage import Publish, Salvage, WayOn

# msg_id, expiry_us, body_bytes, term_bytes, term_offset, persistent
Entry: TypeAlias = tuple[bytes, int, int, int, int, bool]

SLOTS_MAX: Final = 1 << 14
SEQ_MAX: Final = (1 << 48) - 1  # more messages than a queue can have seen; two zero bytes to check
EXPIRY_US_MAX: Final = 1 << 54  # in the year 2540; a TTL is 49 days at most

_BLOCK_FIRST: Final = 1 << 12  # small, since damage may be near; see Source.blocks
_SEQ: Final = (1 << 62) - 1
_U64: Final = Struct(">Q").unpack_from
_U16: Final = Struct(">H").unpack_from
_PUBLISH: Final = Struct(">16sQII").unpack_from
_PUBLISH_BYTES: Final = 32
_JOURNAL_HEAD: Final = 8 + _PUBLISH_BYTES
_SEGMENT_HEAD: Final = 2 + _PUBLISH_BYTES
_NO_ID: Final = bytes(16)
_TERM: Final = 0x83

# The state of a slot: a publish, then one more for each 01 record that follows.
PUBLISHED, DELIVERED, ACKED = 1, 2, 3


@dataclass(slots=True)
class Journal:
    published: dict[int, Entry] = field(default_factory=dict)
    delivered: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)
    records: int = 0


@dataclass(slots=True)
class Segment:
    published: dict[int, Entry] = field(default_factory=dict)  # by slot
    state: bytearray = field(default_factory=lambda: bytearray(SLOTS_MAX))
    records: int = 0
    orphans: int = 0


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
    salvage = Salvage(source, rabbitmq_salvage.JOURNAL)
    start = 0
    pos, last = _read_journal_records(source, start, journal)
    yield start, pos
    while pos < source.size:
        start = _journal_way_on(salvage, pos, last, journal, findings)
        pos, last = _read_journal_records(source, start, journal)
        yield start, pos


def _read_journal_records(source: Source, base: int, journal: Journal) -> tuple[int, int | None]:
    """Reads until a record makes no sense, or to the end of the file: (where, the last publish).

    The publish counts as last only if no other record stands between it and `where`.
    """
    published, delivered, acked = journal.published, journal.delivered, journal.acked
    last: int | None = None
    block_bytes = _BLOCK_FIRST
    while base < source.size:
        block = source.read(base, block_bytes)
        block_bytes = min(block_bytes * 2, BLOCK_BYTES_MAX)
        left = source.size - base
        # Away from the end of the file a whole head fits behind `stop`; at the end zeros are put
        # behind it, and no record is taken that ends beyond `left`.
        stop = len(block) - _JOURNAL_HEAD
        if len(block) == left:
            stop, block = left, block + bytes(_JOURNAL_HEAD + 1)
        pos, records = 0, 0
        while pos < stop:
            (head,) = _U64(block, pos)
            seq = head & _SEQ
            if seq > SEQ_MAX:
                break
            if head >> 63:
                end = pos + 8
                if end > left:
                    break
                (acked if head >> 62 == 3 else delivered).add(seq)
                last = None
            else:
                msg_id, expiry_us, body_bytes, term_bytes = _PUBLISH(block, pos + 8)
                term_at = pos + _JOURNAL_HEAD
                end = term_at + term_bytes
                if end > left or expiry_us > EXPIRY_US_MAX or msg_id == _NO_ID:
                    break
                if term_bytes and block[term_at] != _TERM:
                    break
                published[seq] = (
                    msg_id, expiry_us, body_bytes, term_bytes, base + term_at, not head >> 62
                )  # fmt: skip
                last = seq
            pos = end
            records += 1
        journal.records += records
        base += pos
        if pos < stop:
            break
    return base, last


def _journal_way_on(
    salvage: Salvage, pos: int, last: int | None, journal: Journal, findings: Findings
) -> int:
    source = salvage.source
    before = _with_term(journal.published.get(last) if last is not None else None)
    head = source.read(pos, _JOURNAL_HEAD)
    here: Entry | None = None
    seq, bare = 0, False
    if len(head) == _JOURNAL_HEAD and head[0] < 0x80:
        seq = _U64(head)[0] & _SEQ
        here = _publish_at(head, 8, pos, persistent=head[0] < 0x40)
        if seq > SEQ_MAX or here[0] == _NO_ID:
            here = None
        else:
            behind = source.read(pos + _JOURNAL_HEAD, 8)
            delivers = behind == (seq | 1 << 63).to_bytes(8, "big")
            bare = delivers or salvage.is_anchor(pos + _JOURNAL_HEAD)
    way = salvage.way_on(pos, before, _publish(here), bare)
    if way.last_bytes is not None and last is not None:
        journal.published[last] = _resized(journal.published[last], way.last_bytes)
    if way.here_bytes is not None and here is not None:
        journal.published[seq] = _resized(here, way.here_bytes)
        journal.records += 1
    _report(way, source, pos, findings)
    return way.pos


# --- segments --------------------------------------------------------------------------------


def read_segment(source: Source, slots: int, findings: Findings) -> Segment:
    """All records of one .idx file, whose slots are below `slots`. Linear in the size."""
    segment = Segment()
    for _ in segment_stretches(source, slots, segment, findings):
        pass
    return segment


def segment_stretches(
    source: Source, slots: int, segment: Segment, findings: Findings
) -> Iterator[tuple[int, int]]:
    """As journal_stretches()."""
    salvage = Salvage(source, rabbitmq_salvage.SEGMENT)
    start = 0
    pos, last = _read_segment_records(source, start, slots, segment, damaged=False)
    yield start, pos
    while pos < source.size:
        start = _segment_way_on(salvage, pos, last, slots, segment, findings)
        pos, last = _read_segment_records(source, start, slots, segment, damaged=True)
        yield start, pos


def _read_segment_records(
    source: Source, base: int, slots: int, segment: Segment, *, damaged: bool
) -> tuple[int, int | None]:
    """Reads until a record makes no sense, or to the end: (where, the slot of the last publish).

    In a sound file each 01 record has its publish before it. In a `damaged` one the publish may be
    lost; then the record is an orphan.
    """
    published, state = segment.published, segment.state
    last: int | None = None
    block_bytes = _BLOCK_FIRST
    while base < source.size:
        block = source.read(base, block_bytes)
        block_bytes = min(block_bytes * 2, BLOCK_BYTES_MAX)
        left = source.size - base
        stop = len(block) - _SEGMENT_HEAD  # as in _read_journal_records
        if len(block) == left:
            stop, block = left, block + bytes(_SEGMENT_HEAD + 1)
        pos, records = 0, 0
        while pos < stop:
            (head,) = _U16(block, pos)
            slot = head & 0x3FFF
            if head >= 0x8000:
                msg_id, expiry_us, body_bytes, term_bytes = _PUBLISH(block, pos + 2)
                term_at = pos + _SEGMENT_HEAD
                end = term_at + term_bytes
                if end > left or expiry_us > EXPIRY_US_MAX or slot >= slots:
                    break
                if term_bytes and block[term_at] != _TERM:
                    break
                published[slot] = (
                    msg_id, expiry_us, body_bytes, term_bytes, base + term_at, head >= 0xC000
                )  # fmt: skip
                state[slot] = state[slot] or PUBLISHED
                last = slot
            else:
                end = pos + 2
                if head < 0x4000 or slot >= slots or end > left:
                    break
                if PUBLISHED <= state[slot] <= DELIVERED:
                    state[slot] += 1
                elif damaged and not state[slot]:
                    segment.orphans += 1
                else:
                    break
            pos = end
            records += 1
        segment.records += records
        base += pos
        if pos < stop:
            break
    return base, last


def _segment_way_on(
    salvage: Salvage, pos: int, last: int | None, slots: int, segment: Segment, findings: Findings
) -> int:
    source = salvage.source
    before = _with_term(segment.published.get(last) if last is not None else None)
    head = source.read(pos, _SEGMENT_HEAD)
    here: Entry | None = None
    slot, bare = 0, False
    if len(head) == _SEGMENT_HEAD and head[0] >= 0x80:
        slot = _U16(head)[0] & 0x3FFF
        here = _publish_at(head, 2, pos, persistent=head[0] >= 0xC0)
        if slot >= slots or here[0] == _NO_ID:
            here = None
        else:
            behind = source.read(pos + _SEGMENT_HEAD, 2)
            delivers = behind == (slot | 0x4000).to_bytes(2, "big")
            bare = delivers or salvage.is_anchor(pos + _SEGMENT_HEAD)
    way = salvage.way_on(pos, before, _publish(here), bare)
    if way.last_bytes is not None and last is not None and before is not None:
        _take_back(source, before.term_offset + before.term_bytes, pos, segment)
        segment.published[last] = _resized(segment.published[last], way.last_bytes)
    if way.here_bytes is not None and here is not None:
        segment.published[slot] = _resized(here, way.here_bytes)
        segment.state[slot] = segment.state[slot] or PUBLISHED
        segment.records += 1
    _report(way, source, pos, findings)
    return way.pos


def _take_back(source: Source, start: int, end: int, segment: Segment) -> None:
    """Undoes the 01 records that were read out of a term because its length was wrong."""
    while start < end:
        block = source.read(start, min(end - start, BLOCK_BYTES_MAX))
        for (head,) in struct.iter_unpack(">H", block[: len(block) & ~1]):
            slot = head & 0x3FFF
            if segment.state[slot] > PUBLISHED:
                segment.state[slot] -= 1
            else:
                segment.orphans -= 1
            segment.records -= 1
        start += len(block)


# --- both ------------------------------------------------------------------------------------


def _publish_at(head: bytes, offset: int, pos: int, *, persistent: bool) -> Entry:
    msg_id, expiry_us, body_bytes, term_bytes = _PUBLISH(head, offset)
    return msg_id, expiry_us, body_bytes, term_bytes, pos + offset + _PUBLISH_BYTES, persistent


def _publish(entry: Entry | None) -> Publish | None:
    return None if entry is None else Publish(entry[4], entry[3])


def _with_term(entry: Entry | None) -> Publish | None:
    return None if entry is None or entry[3] == 0 else Publish(entry[4], entry[3])


def _resized(entry: Entry, term_bytes: int) -> Entry:
    msg_id, expiry_us, body_bytes, _, term_offset, persistent = entry
    return msg_id, expiry_us, body_bytes, term_bytes, term_offset, persistent


def _report(way: WayOn, source: Source, pos: int, findings: Findings) -> None:
    report = findings.damage if way.is_damage else findings.note
    report(way.kind, source.where, pos, way.text)
