"""One file of beanstalkd's binlog, version 7.

::

    file     version:32 = 7 | records | zeros up to the size that was reserved     little-endian
    record   name_size:32 | tube's name | job | body           when a job is put, or moved here
             0:32 | job                                        when its state changes
    job      id:64 pri:32 -:32 delay:64 ttr:64 body_size:32 -:32 created:64 deadline:64
             reserves:32 timeouts:32 releases:32 buries:32 kicks:32 state:8 -:24

Times are nanoseconds, created and deadline since 1970. A body ends with CR LF, which its size
counts. A record makes sense if and only if: 1. its name is one of a tube, or empty; 2. its id is
not 0 and its state is known; 3. its body ends within the file, with CR LF. Where one makes none,
the reader goes on at the next *anchor*: a place where all that is fixed in a record is right, which
is beyond chance. If only the size of a body is wrong, the anchor behind tells the right one.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from struct import Struct
from typing import Final, NamedTuple

from qindex.brokers.tree import BLOCK_BYTES_MAX, Findings, Source
from qindex.words import many

DELETED, READY, RESERVED, BURIED, DELAYED = range(5)
VERSION: Final = 7
_OLD_VERSION: Final = 5

_JOB: Final = Struct("<QIIqqiIqqIIIIIB3x")
_SIZE: Final = Struct("<I").unpack_from
_VERSION_BYTES: Final = 4
_NAME_BYTES_MAX: Final = 200
_HEAD_BYTES_MAX: Final = 4 + _NAME_BYTES_MAX + _JOB.size
_BLOCK_FIRST: Final = 1 << 13
_BREAKS_MAX: Final = 10_000
_NAME: Final = re.compile(rb"[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]*")
# A job: an id, created from 2001 to 2115, all that is never used zero.
_ANCHOR: Final = re.compile(
    rb"(?!\0{6}).{6}\0\0.{4}\0{4}.{7}[\0-\x7f].{7}[\0-\x7f].{3}[\0-\x3f]\0{4}"
    rb".{7}[\x0d-\x3f].{28}[\0-\4]\0{3}",
    re.DOTALL,
)


class Record(NamedTuple):
    """What a job was when this was written. The body follows at `body_offset` if it has a tube."""

    file: str
    tube: bytes  # empty: only the state changed
    body_offset: int
    body_size: int  # without CR LF
    job_id: int
    pri: int
    ttr_ns: int
    created_ns: int
    due_ns: int  # of a delayed one
    counts: tuple[int, ...]  # reserves, timeouts, releases, buries, kicks
    state: int

    @property
    def end(self) -> int:
        return self.body_offset + (self.body_size + 2 if self.tube else 0)


def read_records(source: Source, findings: Findings) -> Iterator[Record]:
    """All records of the file, in order. Memory holds one block; work is linear in its size."""
    version = source.read(0, _VERSION_BYTES)
    if version != VERSION.to_bytes(_VERSION_BYTES, "little"):
        told = int.from_bytes(version, "little")
        text = f"version {told}, and {VERSION} is what is read"
        findings.damage("version", source.where, 0, text)
        first = source.read(_VERSION_BYTES, _HEAD_BYTES_MAX)
        if told == _OLD_VERSION and (len(first) < 4 or _parse(first, 0, 0, "") is None):
            return
    walk = _Walk(source, findings)
    pos = _VERSION_BYTES
    while pos < source.size:
        pos = yield from walk.run(pos)
        if pos < source.size:
            kept, pos = walk.way_on(pos)
            if kept is not None:
                yield kept


def _record_of(block: bytes, job_at: int) -> int | None:
    """Where the record begins, in front of a job."""
    for size in range(min(_NAME_BYTES_MAX, job_at - 4) + 1):
        at = job_at - size - 4
        fits = block[at] == size and block[at + 1 : at + 4] == b"\0\0\0"
        if fits and (size == 0 or _NAME.fullmatch(block, at + 4, job_at)):
            return at
    return None


def _parse(block: bytes, pos: int, base: int, file: str) -> Record | None:
    """The record at `pos` of a block that has its head; without a look at its body."""
    (name_size,) = _SIZE(block, pos)
    start = pos + 4 + name_size
    if name_size > _NAME_BYTES_MAX or start + _JOB.size > len(block):
        return None
    tube = block[pos + 4 : start]
    job_id, pri, _, _, ttr, size, _, created, due, *counts, state = _JOB.unpack_from(block, start)
    if not job_id or state > DELAYED or (tube and (size < 2 or not _NAME.fullmatch(tube))):
        return None
    body_at = base + start + _JOB.size
    return Record(
        file, tube, body_at, size - 2, job_id, pri, ttr, created, due, tuple(counts), state
    )


class _Walk:
    def __init__(self, source: Source, findings: Findings) -> None:
        self.source = source
        self.findings = findings
        self._breaks_left = _BREAKS_MAX

    def run(self, base: int) -> Generator[Record, None, int]:
        """Records up to where they make no sense, or to the end of the file: where."""
        source = self.source
        block_bytes = _BLOCK_FIRST
        while base < source.size:
            block = source.read(base, block_bytes)
            block_bytes = min(block_bytes * 2, BLOCK_BYTES_MAX)
            at_end = base + len(block) >= source.size
            pos = 0
            while pos + (4 + _JOB.size if at_end else _HEAD_BYTES_MAX) <= len(block):
                record = _parse(block, pos, base, source.where)
                if record is None or not self._ends_well(record, block, base):
                    return base + pos
                yield record
                pos = record.end - base
            base += pos
            if at_end and pos < len(block):
                return base
        return base

    def _ends_well(self, record: Record, block: bytes, base: int) -> bool:
        if not record.tube:
            return True
        end = record.end
        if end > self.source.size:
            return False
        if end - base <= len(block):
            return block[end - base - 2 : end - base] == b"\r\n"
        return self.source.read(end - 2, 2) == b"\r\n"

    def way_on(self, pos: int) -> tuple[Record | None, int]:
        """Behind `pos`, where no record makes sense: what could be saved, and where to go on."""
        source = self.source
        zeros_end = self.source.zeros_end(pos)
        if zeros_end == source.size:
            return None, zeros_end
        self._breaks_left -= 1
        if self._breaks_left < 0:
            self._say("records lost", pos, f"{_BREAKS_MAX} damaged places: the rest is not read")
            return None, source.size
        anchor = self._next_anchor(max(pos + 1, zeros_end - 12))
        if anchor is None:
            self._say(
                "records lost",
                pos,
                f"the last {many(source.size - pos, 'byte is', 'bytes are')} no record",
            )
            return None, source.size
        here = _parse(source.read(pos, _HEAD_BYTES_MAX), 0, pos, source.where)
        if here is not None and here.tube and source.read(anchor - 2, 2) == b"\r\n":
            size = anchor - here.body_offset - 2
            if size >= 0:
                self._say("length", pos, f"a body of {here.body_size} bytes has {size}")
                return here._replace(body_size=size), anchor
        self._say(
            "records lost",
            pos,
            f"{many(anchor - pos, 'byte makes', 'bytes make')} no sense: skipped",
        )
        return None, anchor

    def _next_anchor(self, start: int) -> int | None:
        for base, block in self.source.blocks(start, overlap=_HEAD_BYTES_MAX - 1):
            at = 0
            while found := _ANCHOR.search(block, at):
                at = found.start() + 1
                record_at = _record_of(block, found.start())
                if record_at is not None:
                    return base + record_at
        return None

    def _say(self, kind: str, offset: int, text: str) -> None:
        self.findings.damage(kind, self.source.where, offset, text)
