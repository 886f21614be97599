"""The segment files of RabbitMQ's streams: chunks, one behind the other (osiris 1.0 to 1.13).

::

    "OSIL" version:u32 = 1 | chunk | chunk | ... to the end of the file

A chunk's header has 48 bytes, big-endian; after it come a Bloom filter, the data and a trailer::

    0x50  type:u8  entries:u16  records:u32  timestamp_ms:i64  epoch:u64  first_offset:u64
    crc32_of_data:u32  data_bytes:u32  trailer_bytes:u32  filter_bytes:u8  0 0 0

A chunk is valid if and only if: 1. its header has a known type and sizes that end within the file,
and 2. the checksum of its data matches. The checksum does not cover header, filter and trailer.

Every chunk takes as many offsets as it has records; so do the tracking chunks, which hold no
messages. The index files are not read: RabbitMQ takes a stream without them for an empty one, but
everything they say stands in the segments, too.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

from qindex.brokers.rabbitmq.streams.entries import count_records
from qindex.brokers.tree import BLOCK_BYTES_MAX, Findings, Source
from qindex.words import many

MAGIC: Final = b"OSIL\x00\x00\x00\x01"
USER, DELTA, SNAPSHOT = 0, 1, 2
HEADER_BYTES: Final = 48
CHUNK_BYTES_MAX: Final = 256 << 20  # a longer one is passed over: it would have to be in memory

_HEADER: Final = Struct(">BBHIqQQIIIB3s")
_CANDIDATE: Final = re.compile(rb"\x50[\x00-\x02]")
_OFFSET_JUMP_MAX: Final = 1 << 40  # behind damage, a chunk this far ahead is chance
# Looking for the next chunk behind damage checksums what looks like one. Hostile bytes can look
# like many long ones: so much of a file's size may be checksummed before the search gives up.
_SEARCH_FACTOR: Final = 8


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk's header, and where it stands. `is_whole`: its data match their checksum."""

    file: str
    position: int
    kind: int
    entries: int
    records: int
    timestamp_ms: int
    epoch: int
    first_offset: int
    data_at: int
    data_bytes: int
    trailer_bytes: int
    is_whole: bool = True
    is_cut: bool = False  # the file ends within its data

    @property
    def end_offset(self) -> int:
        """The offset behind its last record."""
        return self.first_offset + self.records

    @property
    def data_end(self) -> int:
        return self.data_at + self.data_bytes

    @property
    def end(self) -> int:
        """Where the next chunk begins."""
        return self.data_end + self.trailer_bytes


def scan_segment(
    source: Source, expected: int, findings: Findings, ends_at: int | None = None
) -> Iterator[Chunk]:
    """The chunks of one file in the order of their places; on behind damage, which is reported.

    `expected` is the offset at which the file should begin, `ends_at` that at which the next file
    does. A chunk whose data are damaged or cut
    is given, too, marked. Cost: one reading of the file; behind damage up to 8 more.
    """
    return _Scan(source, expected, findings, ends_at).chunks()


class _Scan:
    """One walk through a file. `budget`: so many bytes may still be checksummed in searches."""

    def __init__(
        self, source: Source, expected: int, findings: Findings, ends_at: int | None
    ) -> None:
        self.source = source
        self.expected = expected
        self.ends_at = ends_at
        self.findings = findings
        self.budget = _SEARCH_FACTOR * source.size

    def chunks(self) -> Iterator[Chunk]:
        source, pos = self.source, self._start()
        while pos < source.size:
            chunk = chunk_at(source, pos)
            if chunk is None or not (chunk.is_whole or self._is_followed(chunk)):
                if _is_zero(source, pos):
                    text = f"{many(source.size - pos, 'byte')} of zeros where chunks may have been"
                    self.findings.suspected("zero tail", source.where, pos, text)
                    return
                found = self._search(pos + 1)
                chunk = self._damaged(pos, chunk, found)
                if chunk is None:
                    if found is None:
                        return
                    pos = found.position
                    continue
                pos = source.size if found is None else found.position
            else:
                pos = self._behind(chunk)
            chunk = self._mended(chunk, pos)
            self.expected = chunk.end_offset
            yield chunk

    def _start(self) -> int:
        if self.source.size == 0 or self.source.read(0, len(MAGIC)) == MAGIC:
            return len(MAGIC)
        text = "the file does not begin as a segment of a stream does: chunks are searched for"
        self.findings.damage("segment header", self.source.where, 0, text)
        return 0

    def _is_followed(self, chunk: Chunk) -> bool:
        """Whether a chunk with wrong data ends where the next one begins: its sizes are right."""
        if chunk.is_cut:
            return False
        if chunk.end == self.source.size:
            return True
        following = chunk_at(self.source, chunk.end)
        return following is not None and following.first_offset == chunk.end_offset

    def _behind(self, chunk: Chunk) -> int:
        """Where the chunk behind this one begins. The size of a trailer has no checksum."""
        end, size = chunk.end, self.source.size
        if end > size:
            self._tell_trailer_is_short(chunk)
        if not chunk.trailer_bytes or end == size or chunk_at(self.source, end) is not None:
            return min(end, size)
        found = self._search(chunk.data_end)
        if found is None or (found.position > end and _is_zero(self.source, end)):
            return min(end, size)
        text = f"the size of a trailer, {chunk.trailer_bytes}, is wrong: the next chunk is nearer"
        if found.position > end:
            text = f"{many(found.position - end, 'byte that is', 'bytes that are')} no chunk"
        self.findings.damage("trailer", chunk.file, chunk.position, text)
        return found.position

    def _tell_trailer_is_short(self, chunk: Chunk) -> None:
        """Its file ends before it does. A kill can leave that, but only in the last file."""
        here = max(0, self.source.size - chunk.data_end)
        text = f"of a trailer of {many(chunk.trailer_bytes, 'byte')} {here} are here: what clients"
        text += " had stored may be older than it was"
        if self.ends_at is None:
            self.findings.note("trailer", chunk.file, chunk.position, text)
        else:
            self.findings.damage("trailer", chunk.file, chunk.position, text)

    def _damaged(self, pos: int, chunk: Chunk | None, found: Chunk | None) -> Chunk | None:
        """What can be given of the bytes from `pos` up to the next chunk, `found`."""
        end = self.source.size if found is None else found.position
        repaired = self._repaired(pos, end)
        if repaired is not None:
            text = "a damaged header, whose data are whole up to the next chunk"
            self.findings.damage("chunk header", self.source.where, pos, text)
            return repaired
        if chunk is not None and chunk.is_cut and found is None and self.budget >= 0:
            return chunk
        text = f"{many(end - pos, 'byte that is', 'bytes that are')} no chunk"
        if self.budget < 0:
            text += "; the search for the next chunk was given up"
        elif found is not None:
            text += f": reading goes on at byte {end}"
        self.findings.damage("chunk lost", self.source.where, pos, text)
        return None

    def _repaired(self, pos: int, end: int) -> Chunk | None:
        """A chunk with one wrong field: its checksum matches if its data end where the next begins.

        The fields that no checksum covers are taken from the data and from the chunk before.
        """
        source = self.source
        raw = source.read(pos, HEADER_BYTES)
        if len(raw) < HEADER_BYTES:
            return None
        _, kind, _, records, timestamp, epoch, first, crc, _, trailer, bloom, _ = _HEADER.unpack(
            raw
        )
        kind = kind if kind in (USER, DELTA, SNAPSHOT) else USER
        first = first if first < 1 << 62 else self.expected
        for filter_bytes, trailer_bytes in {(bloom, trailer), (0, trailer), (bloom, 0)}:
            data_at, data_end = pos + HEADER_BYTES + filter_bytes, end - trailer_bytes
            if not 0 < data_end - data_at <= CHUNK_BYTES_MAX:
                continue
            if _checksum(source, data_at, data_end) != crc:
                continue
            if kind == USER:
                records = count_records(source.read(data_at, data_end - data_at))
            return Chunk(
                source.where, pos, kind, 1, records, abs(timestamp), epoch, first,
                data_at, data_end - data_at, trailer_bytes,
            )  # fmt: skip
        return None

    def _mended(self, chunk: Chunk, next_at: int) -> Chunk:
        """The chunk with the offset and the number of records that its neighbours prove."""
        following = self._next_offset(chunk, next_at)
        if following is None or following == chunk.end_offset:
            return chunk
        records = following - self.expected
        if not 0 < records < 1 << 32:
            return chunk
        if chunk.first_offset != self.expected and records == chunk.records:
            text = f"the header says offset {chunk.first_offset}, its neighbours {self.expected}"
            mended = replace(chunk, first_offset=self.expected)
        elif chunk.first_offset == self.expected and records == self._held(chunk):
            counted = many(chunk.records, "record")
            text = f"the header says {counted}, {many(records, 'is', 'are')} here"
            mended = replace(chunk, records=records)
        else:
            return chunk
        self.findings.damage("chunk header", chunk.file, chunk.position, text)
        return mended

    def _next_offset(self, chunk: Chunk, next_at: int) -> int | None:
        """The offset behind `chunk` as the next chunk, the next file or its own data tell it."""
        if next_at < self.source.size:
            raw = self.source.read(next_at, HEADER_BYTES)
            header = _header_at(raw, self.source, next_at)
            return None if header is None else header[0].first_offset
        if self.ends_at is not None:
            return self.ends_at
        held = self._held(chunk)
        return None if held is None else chunk.first_offset + held

    def _held(self, chunk: Chunk) -> int | None:
        """How many messages are in the chunk, if its data can be trusted."""
        if chunk.kind != USER or not chunk.is_whole:
            return None
        return count_records(self.source.read(chunk.data_at, chunk.data_bytes))

    def _search(self, pos: int) -> Chunk | None:
        """The next valid chunk at or behind `pos`."""
        source = self.source
        for start, block in source.blocks(pos, overlap=HEADER_BYTES - 1):
            for match in _CANDIDATE.finditer(block):
                at = match.start()
                header = _header_at(block[at : at + HEADER_BYTES], source, start + at)
                if header is None or header[0].is_cut:
                    continue
                chunk, crc = header
                if chunk.first_offset > self.expected + _OFFSET_JUMP_MAX:
                    continue
                self.budget -= chunk.data_bytes
                if self.budget < 0:
                    return None
                if _checksum(source, chunk.data_at, chunk.data_end) == crc:
                    return chunk
        return None


def chunk_at(source: Source, pos: int) -> Chunk | None:
    """What stands at `pos`, if its header makes sense. Reads the data for their checksum."""
    header = _header_at(source.read(pos, HEADER_BYTES), source, pos)
    if header is None:
        return None
    chunk, crc = header
    if chunk.is_cut or _checksum(source, chunk.data_at, chunk.data_end) == crc:
        return chunk
    return replace(chunk, is_whole=False)


def _header_at(raw: bytes, source: Source, pos: int) -> tuple[Chunk, int] | None:
    if len(raw) < HEADER_BYTES:
        return None
    (
        magic, kind, entries, records, timestamp, epoch, first,
        crc, data_bytes, trailer_bytes, filter_bytes, reserved,
    ) = _HEADER.unpack(raw)  # fmt: skip
    makes_sense = (
        magic == 0x50
        and kind in (USER, DELTA, SNAPSHOT)
        and 0 < entries <= records
        and timestamp >= 0
        and first + records < 1 << 63
        and reserved == b"\0\0\0"
        and data_bytes >= entries  # each takes four bytes at least, or is a batch
        and data_bytes <= CHUNK_BYTES_MAX
    )
    if not makes_sense:
        return None
    data_at = pos + HEADER_BYTES + filter_bytes
    is_cut = data_at + data_bytes > source.size
    if is_cut:
        data_bytes = max(0, source.size - data_at)
    chunk = Chunk(
        source.where, pos, kind, entries, records, timestamp, epoch, first,
        data_at, data_bytes, trailer_bytes, not is_cut, is_cut,
    )  # fmt: skip
    return chunk, crc


def _checksum(source: Source, pos: int, end: int) -> int:
    crc = 0
    while pos < end:
        block = source.read(pos, min(BLOCK_BYTES_MAX, end - pos))
        if not block:
            break
        crc = zlib.crc32(block, crc)
        pos += len(block)
    return crc


def _is_zero(source: Source, pos: int) -> bool:
    while block := source.read(pos, BLOCK_BYTES_MAX):
        if block.count(0) != len(block):
            return False
        pos += len(block)
    return True
