"""A queue file of gmq v2, which is written through a mapping, and the way on behind damage in it.

::

    record   'v' | status:16 | length:32 | expire:64 | id:64 | retry:16 | body      big-endian
             length counts from expire on: 18 and the body

Behind the last record there are zeros, but for a '0' at the end of a page where the file once
ended. A record makes sense if and only if: 1. it begins with 'v'; 2. its status is known; 3. its
length is 18 at least and ends within the file. Where one makes none, the reader looks for the next
*anchor*: a record whose expire is a time and whose id is not 0, which is beyond chance. What is
between is kept as a record if only its length, or only its first byte and status, are damaged.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from struct import Struct
from typing import Final, NamedTuple

from qindex.brokers.tree import BLOCK_BYTES_MAX, Findings, Source, Walk
from qindex.words import many

NEW, READING, DELIVERED, ACKED, TIMED_OUT = range(5)

_HEAD: Final = Struct(">BHIQQH")
_HEAD_BYTES: Final = 25
_LENGTH_COUNTS: Final = 7  # bytes before those that the length counts
_LENGTH_MIN: Final = 18
_MARK: Final = ord("v")
_EXPIRE_MAX: Final = 1 << 40
_BLOCK_FIRST: Final = 1 << 12
_BREAKS_MAX: Final = 10_000
_ANCHOR: Final = re.compile(rb"v\0[\0-\4].{4}\0{3}.{5}(?!\0{8}).{8}..", re.DOTALL)
_NOT_ZERO: Final = re.compile(rb"[^\0]")
_PAGE_BYTES: Final = 4096


class Record(NamedTuple):
    """One message's state. Its body follows at offset + 25, `size` bytes."""

    offset: int
    status: int
    expire: int  # unix seconds
    msg_id: int
    retry: int
    size: int

    @property
    def body_offset(self) -> int:
        return self.offset + _HEAD_BYTES

    @property
    def end(self) -> int:
        return self.offset + _HEAD_BYTES + self.size


def read_records(source: Source, findings: Findings) -> Iterator[Record]:
    """All records of the file, in order. Memory holds one block; work is linear in its size."""
    return _Walk(source, findings).records()


class _Walk(Walk[Record]):
    def __init__(self, source: Source, findings: Findings) -> None:
        super().__init__(source, findings)
        self._breaks_left = _BREAKS_MAX

    def run(self, base: int) -> Generator[Record, None, int]:
        source = self.source
        block_bytes = _BLOCK_FIRST
        bad = False
        while base + _HEAD_BYTES <= source.size and not bad:
            block = source.read(base, block_bytes)
            block_bytes = min(block_bytes * 2, BLOCK_BYTES_MAX)
            left = source.size - base
            pos = 0
            while pos + _HEAD_BYTES <= len(block):
                mark, status, length, expire, msg_id, retry = _HEAD.unpack_from(block, pos)
                end = pos + _LENGTH_COUNTS + length
                bad = mark != _MARK or status > TIMED_OUT or length < _LENGTH_MIN or end > left
                if bad:
                    break
                if self.last is not None:
                    yield self.last
                size = length - _LENGTH_MIN
                self.last = Record(base + pos, status, expire, msg_id, retry, size)
                pos = end
            base += pos
        return base

    def way_on(self, pos: int) -> tuple[list[Record], int]:
        source, last, self.last = self.source, self.last, None
        settled = [] if last is None else [last]
        is_padding = self._is_padding(pos)
        if last is None and is_padding:
            return [], source.size
        self._breaks_left -= 1
        if self._breaks_left < 0:
            self._say("records lost", pos, f"{_BREAKS_MAX} damaged places: the rest is not read")
            return settled, source.size
        anchor = self._next_anchor(pos if last is None else last.body_offset, pos)
        is_inside = anchor is not None and anchor < pos
        if is_padding and not is_inside:
            return settled, source.size
        kept = None if is_inside else self._keep(pos, anchor)
        if kept is not None:
            return [*settled, kept], kept.end
        if last is not None and anchor is not None:
            size = anchor - last.body_offset
            one_bit = ((last.size + _LENGTH_MIN) ^ (size + _LENGTH_MIN)).bit_count() == 1
            if is_inside or one_bit:
                self._say("length", last.offset, f"a body of {last.size} bytes has {size}")
                return [last._replace(size=size)], anchor
        end = source.size if anchor is None else anchor
        self._say(
            "records lost", pos, f"{many(end - pos, 'byte makes', 'bytes make')} no sense: skipped"
        )
        return settled, end

    def _keep(self, pos: int, anchor: int | None) -> Record | None:
        """The record at `pos`, which is damaged, if the rest of its head tells what it was."""
        head = self.source.read(pos, _HEAD_BYTES)
        if len(head) < _HEAD_BYTES:
            return None
        mark, status, length, expire, msg_id, retry = _HEAD.unpack(head)
        if expire >= _EXPIRE_MAX or not msg_id:
            return None
        end = pos + _LENGTH_COUNTS + length
        if length >= _LENGTH_MIN and (end == anchor or (anchor is None and self._is_padding(end))):
            self._say("record", pos, "its first byte or its status is damaged: taken as delivered")
            status = status if status <= TIMED_OUT else DELIVERED
            return Record(pos, status, expire, msg_id, retry, length - _LENGTH_MIN)
        size = (anchor or 0) - pos - _HEAD_BYTES
        if mark == _MARK and status <= TIMED_OUT and size >= 0:
            self._say("length", pos, f"a length of {length} is wrong: the body has {size} bytes")
            return Record(pos, status, expire, msg_id, retry, size)
        return None

    def _is_padding(self, offset: int) -> bool:
        """Only zeros to the end, but for what stands at the ends of pages."""
        if offset > self.source.size:
            return False
        for base, block in self.source.blocks(offset):
            for found in _NOT_ZERO.finditer(block):
                at_end_of_page = (base + found.start() + 1) % _PAGE_BYTES == 0
                if found[0] != b"0" or not at_end_of_page:
                    return False
        return True

    def _next_anchor(self, start: int, bad: int) -> int | None:
        """The first one from `start` on that is not at `bad`; 24 bytes more show its whole head."""
        for base, block in self.source.blocks(start, overlap=_HEAD_BYTES - 1):
            at = 0
            while found := _ANCHOR.search(block, at):
                at = found.start() + 1
                offset = base + at - 1
                length = int.from_bytes(block[at + 2 : at + 6], "big")
                ends = offset + _LENGTH_COUNTS + length <= self.source.size
                if length >= _LENGTH_MIN and ends and offset != bad:
                    return offset
        return None

    def _say(self, kind: str, offset: int, text: str) -> None:
        self.findings.damage(kind, self.source.where, offset, text)
