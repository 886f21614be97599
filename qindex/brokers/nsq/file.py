"""One data file of NSQ's diskqueue, and the way on behind a damaged place in it.

::

    record   size:32 | body: size B          big-endian, one behind the other

There is no checksum and no mark, so a damaged body cannot be told. A record makes sense if and only
if: 1. its size is whole; 2. its body ends within the file; 3. no second empty record follows an
empty one, which is what a zeroed place looks like. Where one makes none, the size before it or its
own may be wrong, or it may be lost. The reader goes on at the next *anchor*: a place from which
several records in a row make sense, or all to the end. If one bit, changed in the size before or in
its own, would lead there, that bit is taken to be the damage.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from qindex.brokers.tree import BLOCK_BYTES_MAX, Findings, Source, Tree, Walk
from qindex.words import many

_SIZE: Final = Struct(">I").unpack_from
_SIZE_BYTES: Final = 4
_BLOCK_FIRST: Final = 1 << 12
# An anchor's first record is below 16 MiB and not empty.
_CANDIDATE: Final = re.compile(rb"\0(?!\0\0\0)(?s:...)")
_ANCHOR_RECORDS: Final = 4
_INSIDE_BYTES_MAX: Final = 16 << 20  # a longer record is not searched for others
_BREAKS_MAX: Final = 10_000
_CANDIDATES_MAX: Final = 1 << 16  # and one for each 64 bytes of the file


class Record(NamedTuple):
    """Where a body is."""

    offset: int
    size: int


def read_records(source: Source, findings: Findings, durable_end: int) -> Iterator[Record]:
    """All records of the file that make sense, in order.

    What is wrong below `durable_end` is damage, what is wrong behind it the tail of a crash. Memory
    holds one block; work is linear in the file's size.
    """
    return _Walk(source, findings, durable_end).records()


class _Walk(Walk[Record]):
    def __init__(self, source: Source, findings: Findings, durable_end: int) -> None:
        super().__init__(source, findings)
        self.durable_end = durable_end
        self._block = b""
        self._block_at = 0
        self._breaks_left = _BREAKS_MAX
        self._candidates_left = _CANDIDATES_MAX + source.size // 64

    def run(self, base: int) -> Generator[Record, None, int]:
        source = self.source
        block_bytes = _BLOCK_FIRST
        bad = False
        while base < source.size and not bad:
            block = source.read(base, block_bytes)
            block_bytes = min(block_bytes * 2, BLOCK_BYTES_MAX)
            left = source.size - base
            at_end = len(block) >= left
            pos = 0
            # Four bytes more than a size, to see two empty records in a row.
            while pos + 8 <= len(block) or (at_end and pos + _SIZE_BYTES <= len(block)):
                (size,) = _SIZE(block, pos)
                end = pos + _SIZE_BYTES + size
                bad = end > left or (size == 0 and block[end : end + 4] == b"\0\0\0\0")
                if bad:
                    break
                if self.last is not None:
                    yield self.last
                self.last = Record(base + pos + _SIZE_BYTES, size)
                pos = end
            bad = bad or (at_end and pos < left)
            base += pos
        return base

    def way_on(self, pos: int) -> tuple[list[Record], int]:
        source, last, self.last = self.source, self.last, None
        settled = [] if last is None else [last]
        zeros_end = self.source.zeros_end(pos)
        if zeros_end == source.size:
            self._say("zeros", pos, f"{zeros_end - pos} zero bytes at the end")
            return settled, zeros_end
        has_zeros = zeros_end - pos >= 8
        start = max(pos + 1, zeros_end - 3) if has_zeros else pos + 1
        if last is not None and not has_zeros and last.size <= _INSIDE_BYTES_MAX:
            start = last.offset
        anchor = self._next_anchor(start, pos)
        self._breaks_left -= 1
        if anchor is None:
            self._say(
                "records lost",
                pos,
                f"the last {many(source.size - pos, 'byte is', 'bytes are')} no record",
            )
            return settled, source.size
        # Its own size first: that of the last record may be one bit off by chance, this one hardly.
        here, size = Record(pos + _SIZE_BYTES, self._size_at(pos)), anchor - pos - _SIZE_BYTES
        if not has_zeros and size >= 0 and _one_bit(here.size, size):
            self._say_length(here, size)
            return [*settled, Record(here.offset, size)], anchor
        if last is not None and not has_zeros:
            size = anchor - last.offset
            if anchor < pos or _one_bit(last.size, size):
                self._say_length(last, size)
                return [Record(last.offset, size)], anchor
        self._say(
            "records lost",
            pos,
            f"{many(anchor - pos, 'byte makes', 'bytes make')} no sense: skipped",
        )
        return settled, anchor

    def _say(self, kind: str, offset: int, text: str) -> None:
        say = self.findings.damage if offset < self.durable_end else self.findings.note
        say(kind, self.source.where, offset, text)

    def _say_length(self, record: Record, size: int) -> None:
        text = f"a record says {record.size} bytes, but the next one begins after {size}"
        self.findings.damage("length", self.source.where, record.offset - _SIZE_BYTES, text)

    def _next_anchor(self, start: int, bad: int) -> int | None:
        """The first anchor from `start` on; None, too, if the search was too long for one file."""
        failed = bytearray(max(bad - start, 0))
        for base, block in self.source.blocks(start, overlap=3):
            self._block_at, self._block = base, block
            at = 0
            while found := _CANDIDATE.search(block, at):
                if self._candidates_left <= 0 or self._breaks_left <= 0:
                    return None
                self._candidates_left -= 1
                at = found.start() + 1
                if self._is_anchor(base + at - 1, bad, failed):
                    return base + at - 1
        return None

    def _is_anchor(self, offset: int, bad: int, failed: bytearray) -> bool:
        """Records in a row from here on make sense, past the bad place.

        `failed` has a mark for each place before that one, counted back from there, from which they
        were seen not to.
        """
        end = self.source.size
        chained = 0
        while offset != end and (offset <= bad or chained < _ANCHOR_RECORDS):
            if offset < bad:
                if failed[offset - bad]:
                    return False
                failed[offset - bad] = 1
            size = self._size_at(offset)
            following = offset + _SIZE_BYTES + size
            if offset == bad or following > end or (size == 0 and self._size_at(following) == 0):
                return False
            offset = following
            chained += 1
        return True

    def _size_at(self, offset: int) -> int:
        """The size that stands there; more than the file has, if it is cut."""
        pos = offset - self._block_at
        if not 0 <= pos <= len(self._block) - _SIZE_BYTES:
            raw = self.source.read(offset, _SIZE_BYTES)
            return int.from_bytes(raw, "big") if len(raw) == _SIZE_BYTES else self.source.size
        size: int = _SIZE(self._block, pos)[0]
        return size


def _one_bit(one: int, other: int) -> bool:
    return (one ^ other).bit_count() == 1


def records_behind(folder: Path, file: str, offset: int) -> int:
    """How many whole messages a data file has from `offset` on; 0: it is not there."""
    log = Findings()
    tree = Tree(folder, log)
    try:
        source = tree.try_open(file)
        if source is None:
            return 0
        with source:
            return sum(record.offset > offset for record in read_records(source, log, 0))
    finally:
        tree.close()
