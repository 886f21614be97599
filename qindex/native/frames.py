"""Frames, records and segment entries of qindex's own files: c_ext/FORMAT.rst, sections 3 to 5.

Written from the document, not from the core, which it is compared with. No I/O. Lengths are
checked before they are used; what is behind damage is found again by its checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from qindex._core import ffi, lib

JOURNAL_MAGIC: Final = b"QIJRNL\r\n"
PAST_MAGIC: Final = b"QIPAST\r\n"  # of a journal that is history
SEGMENT_MAGIC: Final = b"QISEGM\r\n"
JOURNAL_START, SEGMENT_START = 8192, 64
HEADER_COPY: Final = 4096
HEADER_BYTES: Final = 64
FRAME_BYTES: Final = 8
VERSION_NEWEST: Final = 2  # of the format, in the headers of journals and segments
FIELDS_BYTES: Final = 32
REQ_ID_MASK: Final = (1 << 62) - 1

RECORDS, MARK, MANIFEST, SESSION, CLOSE, PURGE, ENTRIES, SUMMARY, LANES = range(1, 10)
NAMES: Final = (
    "",
    "records",
    "mark",
    "manifest",
    "session",
    "close",
    "purge",
    "entries",
    "summary",
    "lanes",
)
EXTENDED: Final = 15  # its payload begins with a kind, 2 bytes
KIND_BYTES: Final = 2
SKIPPED: Final = 0x8000  # who does not know a kind below this must not go on
NAME_OF: Final = {**dict(enumerate(NAMES)), EXTENDED: "extended"}  # by a frame's type
_TYPES: Final = frozenset([*range(RECORDS, LANES + 1), EXTENDED])
COUNT_MASK: Final = (1 << 52) - 1  # a ReqId without its lane
PRIORITIES: Final = 256  # the first lanes; the others are of delayed messages
DEAD_US: Final = (1 << 56) - 256  # a time from here on: a dead letter, and why
TIME: Final = 4  # as a kind: the ReqId of lane 1023 and count 0, then what it is about, and a time
_TIME_HEAD: Final = 2 << 62 | 1023 << 52
SIDE: Final = 5  # as a kind: the same lane, and another count: the kind and size of a side record
_SIDE_SIZE_BITS: Final = 36
LEASE: Final = 1  # of a side record: 8 bytes of microseconds
MOMENT: Final = 0x8001  # a frame's kind in journals: what follows was published at this time
MOMENTS: Final = 0x8002  # and in segments: rows of (first slot, time), for the batch that follows
UNCOUNTED: Final = 0x8000  # of a side record: so many deliveries (4) do not count
PUBLISHED: Final = 0x8001  # of a side record: when a message that was moved was published
DEATHS: Final = 0x8002  # how it died in queues that it has moved out of
DIED: Final = 0x8010  # and why (times.REASONS): how it died where it is

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_U64: Final = Struct(">Q")
_HEADER: Final = Struct(">8sII16sQQ12sI")
_MANIFEST: Final = Struct(">QQQQHHQI")
_SEGMENT: Final = Struct(">QIHHQQHH")
_SESSION: Final = Struct(">QQHHQ")
_FIELDS: Final = Struct(">16sQII")
_LANE_TABLE: Final = (1, 0)  # one lane, number 0
_SEARCH_FACTOR: Final = 16  # what may be spent on checksums behind damage, in sizes of the file


class Frame(NamedTuple):
    offset: int
    type: int
    length: int  # of the payload

    @property
    def end(self) -> int:
        return self.offset + FRAME_BYTES + self.length


class Fields(NamedTuple):
    """What a publish says behind its ReqId or slot."""

    msg_id: bytes
    expiry_us: int
    size: int  # of the body
    embedded: int


class ManifestSegment(NamedTuple):
    number: int
    alt: bool
    length: int
    unacked: int
    transient: int
    epoch: int


class Manifest(NamedTuple):
    flushed_epoch: int
    session: int
    floor: int
    previous_tail: int
    reserved: int
    segments: tuple[ManifestSegment, ...]


class Purge(NamedTuple):
    """Acks all whose count, the ReqId without its lane, is below, but for some ReqIds."""

    below: int
    kept: frozenset[int]

    def takes(self, req_id: int) -> bool:
        return req_id & COUNT_MASK < self.below and req_id not in self.kept


class Header(NamedTuple):
    """Of a journal: `number` is 0; of a segment: its number. `is_past`: a journal of history."""

    identity: bytes
    number: int
    epoch: int
    is_past: bool
    version: int = 1
    created_us: int = 0  # of a journal: when it was begun


class CannotReplay(Exception):
    """What would have to be known is not there; the text says what to do."""


def crc(start: int, data: bytes) -> int:
    value: int = lib.qi_crc32c(start, data, len(data))
    return value


def journal_header(data: bytes) -> Header | None:
    """The valid copy with the higher epoch."""
    copies = (_journal_copy(data[at : at + HEADER_BYTES]) for at in (0, HEADER_COPY))
    return max(filter(None, copies), key=lambda header: header.epoch, default=None)


def _journal_copy(head: bytes) -> Header | None:
    if len(head) < HEADER_BYTES:
        return None
    magic, version, _, identity, epoch, created_us, _, checksum = _HEADER.unpack(head)
    if magic not in (JOURNAL_MAGIC, PAST_MAGIC) or crc(0, head[:60]) != checksum:
        return None
    return Header(identity, 0, epoch, magic == PAST_MAGIC, _known(version), created_us)


def _known(version: int) -> int:
    if 1 <= version <= VERSION_NEWEST:
        return version
    known = f"this qindex reads versions 1 to {VERSION_NEWEST}"
    raise CannotReplay(f"it has format version {version}, {known}: use a matching release")


def segment_header(head: bytes) -> Header | None:
    if len(head) < HEADER_BYTES:
        return None
    magic, version, _, identity, number, epoch, _, checksum = _HEADER.unpack(head[:HEADER_BYTES])
    if magic != SEGMENT_MAGIC or crc(0, head[:60]) != checksum:
        return None
    return Header(identity, number, epoch, False, _known(version))


class Frames:
    """The frames of one file, in memory."""

    def __init__(self, data: bytes, header: Header) -> None:
        self.data = data
        self._seed = crc(0, header.identity + _U64.pack(header.number) + _U64.pack(header.epoch))
        self._bytes = ffi.from_buffer(data)
        self._effort = _SEARCH_FACTOR * len(data)

    def at(self, offset: int) -> Frame | None:
        """The frame there, if it is valid."""
        if offset + FRAME_BYTES > len(self.data):
            return None
        (word,) = _U32.unpack_from(self.data, offset)
        kind, length = word >> 28, word & 0xFFFFFFF
        if kind not in _TYPES or length < (KIND_BYTES if kind == EXTENDED else 1):
            return None
        if length > len(self.data) - offset - FRAME_BYTES:
            return None
        value = lib.qi_crc32c(self._seed, _U64.pack(offset), 8)
        value = lib.qi_crc32c(value, self._bytes + offset, 4)
        value = lib.qi_crc32c(value, self._bytes + offset + FRAME_BYTES, length)
        self._effort -= length
        if value != _U32.unpack_from(self.data, offset + 4)[0]:
            return None
        return Frame(offset, kind, length)

    def find(self, offset: int) -> Frame | None:
        """The next valid frame at or behind `offset`, as far as the effort for one file goes."""
        read, last = _U32.unpack_from, len(self.data) - FRAME_BYTES
        while offset < last and self._effort > 0:
            (word,) = read(self.data, offset)
            fits = word >> 28 in _TYPES and word & 0xFFFFFFF <= last - offset
            if fits and (frame := self.at(offset)) is not None:
                return frame
            offset += 1
        return None

    def payload(self, frame: Frame) -> bytes:
        return self.data[frame.offset + FRAME_BYTES : frame.end]

    def durable_below(self, offset: int) -> int:
        """The highest offset that a valid MARK or CLOSE behind `offset` says was durable."""
        best = 0
        for word in (_U32.pack(MARK << 28 | 16), _U32.pack(CLOSE << 28 | 28)):
            at = self.data.find(word, offset)
            while at >= 0:
                if (frame := self.at(at)) is not None:
                    best = max(best, mark_of(self.payload(frame)))
                at = self.data.find(word, at + 1)
        return best


def mark_of(payload: bytes) -> int:
    """Of MARK and CLOSE: the journal was durable below this offset."""
    offset: int = _U64.unpack_from(payload)[0]
    return offset


def manifest_of(payload: bytes) -> Manifest | None:
    if len(payload) < _MANIFEST.size:
        return None
    flushed, session, floor, tail, lanes, lane, reserved, count = _MANIFEST.unpack_from(payload)
    if (lanes, lane) != _LANE_TABLE or len(payload) != _MANIFEST.size + count * _SEGMENT.size:
        return None
    segments = tuple(
        ManifestSegment(number, bool(word >> 31), word & 0x7FFFFFFF, unacked, transient, epoch)
        for number, word, unacked, transient, epoch, _, _, _ in _SEGMENT.iter_unpack(
            payload[_MANIFEST.size :]
        )
    )
    return Manifest(flushed, session, floor, tail, reserved, segments)


def session_of(payload: bytes) -> tuple[int, int] | None:
    """(session, floor)"""
    if len(payload) != _SESSION.size:
        return None
    session, floor, lanes, lane, _ = _SESSION.unpack(payload)
    return (session, floor) if (lanes, lane) == _LANE_TABLE else None


def purge_of(payload: bytes) -> Purge:
    numbers = [number for (number,) in _U64.iter_unpack(payload[: len(payload) & ~7])]
    return Purge(numbers[0] if numbers else 0, frozenset(numbers[1:]))


def fields_of(data: bytes) -> Fields:
    return Fields._make(_FIELDS.unpack_from(data))


SIDE_BYTES: Final = 16  # of a side record in a journal, and its bytes
_SIDE_ENTRY: Final = Struct(">HI")  # in a segment: kind, size


def side_of(word: int) -> tuple[int, int]:
    """(kind, size) of the side record in a journal that begins with this word."""
    what = word & COUNT_MASK
    return what >> _SIDE_SIZE_BITS, what & ((1 << _SIDE_SIZE_BITS) - 1)


def side_data(payload: bytes, at: int) -> bytes:
    """Kind (2), size (4) and the bytes of the side record there, as in a segment."""
    kind, size = side_of(_U64.unpack_from(payload, at)[0])
    return _SIDE_ENTRY.pack(kind, size) + payload[at + SIDE_BYTES : at + SIDE_BYTES + size]


def uncounted_of(data: bytes) -> int | None:
    """Of the `side_data` of a side record: how many deliveries do not count; None: no matter."""
    is_uncounted = len(data) >= _SIDE_ENTRY.size + 4 and kind_of(data) == UNCOUNTED
    return _U32.unpack_from(data, _SIDE_ENTRY.size)[0] if is_uncounted else None


def refuse_side(kind: int, size: int) -> None:
    """CannotReplay if only a newer version knows what it means, and nobody may go on without."""
    if kind < SKIPPED and (kind, size) != (LEASE, 8):
        newer = "only a newer version of qindex understands"
        raise CannotReplay(f"a side record of kind {kind} is one that {newer}")


def kind_of(payload: bytes) -> int:
    """Of an EXTENDED frame."""
    return int.from_bytes(payload[:KIND_BYTES], "big")


def records_of(payload: bytes, inside: int = 0) -> Iterator[tuple[int, int, int]]:
    """(offset in the payload, kind, ReqId) of each record; ends early if one does not fit.

    A record of kind TIME has its time 16 bytes behind its offset.
    """
    while inside + 8 <= len(payload):
        (word,) = _U64.unpack_from(payload, inside)
        kind, end = word >> 62, inside + 8
        if word == _TIME_HEAD:
            if inside + 24 > len(payload):
                return
            yield inside, TIME, _U64.unpack_from(payload, end)[0] & REQ_ID_MASK
            inside += 24
            continue
        if word >> 52 == _TIME_HEAD >> 52:
            what, size = side_of(word)
            if not what or inside + SIDE_BYTES + size > len(payload):
                return
            refuse_side(what, size)
            yield inside, SIDE, _U64.unpack_from(payload, end)[0] & REQ_ID_MASK
            inside += SIDE_BYTES + size
            continue
        if kind < 2:
            if end + FIELDS_BYTES > len(payload):
                return
            end += FIELDS_BYTES + _U32.unpack_from(payload, end + 28)[0]
        if end > len(payload):
            return
        yield inside, kind, word & REQ_ID_MASK
        inside = end


class Entry(NamedTuple):
    """Of a segment: a publish; or `fields_at` is -1, and `times` is -1 for a deliver or ack.

    -2 - n as `times`: of the message's deliveries n do not count.
    """

    slot: int
    fields_at: int
    persistent: bool
    times: int


def entries_of(payload: bytes) -> Iterator[Entry]:
    """Each entry; `fields_at` is an offset in the payload."""
    at = 0
    while at + 2 <= len(payload):
        (head,) = _U16.unpack_from(payload, at)
        slot, at = head & 0x3FFF, at + 2
        if head >> 15:
            if at + FIELDS_BYTES > len(payload):
                return
            fields_at, at = at, at + FIELDS_BYTES + _U32.unpack_from(payload, at + 28)[0]
            if at > len(payload):
                return
            yield Entry(slot, fields_at, bool(head & 0x4000), 0)
        elif head >> 14:
            yield Entry(slot, -1, False, -1)
        else:
            if at + 2 > len(payload):
                return
            (times,) = _U16.unpack_from(payload, at)
            at += 2
            if times == 1:
                if at + _SIDE_ENTRY.size > len(payload):
                    return
                kind, size = _SIDE_ENTRY.unpack_from(payload, at)
                refuse_side(kind, size)
                at += _SIDE_ENTRY.size
                if kind == UNCOUNTED and size >= 4 and at + size <= len(payload):
                    yield Entry(slot, -1, False, -2 - _U32.unpack_from(payload, at)[0])
                at += size  # all others are no matter of what is live
            elif times:
                yield Entry(slot, -1, False, times)
            else:
                at += 8  # when it is due: no matter of what is live


def priority_of(req_id: int) -> int | None:
    """What its lane says; None: no priority, or it is delayed."""
    lane = req_id // (COUNT_MASK + 1)
    return lane if 0 < lane < PRIORITIES else None
