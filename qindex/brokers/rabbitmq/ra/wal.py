"""Ra's write-ahead log: the records of one N.wal file, in order, and on behind damage.

::

    "RAWA" | version:8 = 1, then records to the end of the file, or to zeros:

    T:1 | K:1 | ref:22                 K = 0: the record names its server, K = 1: `ref` was named
    uid_bytes:16 | uid                 only if K = 0
    checksum:32 | data_bytes:32        Adler-32 from `index` to the end of the data; 0: unchecked
    index:64 | term:64 | data          data: an Erlang term

Numbers are big-endian. T says that the log of this server begins anew here, behind a snapshot. A
record is valid if and only if: 1. it is whole, 2. its checksum matches or is 0, 3. its server is
known. Ra does not start if a record in the middle is not valid; this reader goes on behind it.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Generator, Iterator
from struct import Struct
from typing import Final, NamedTuple

from qindex._core import ffi, lib
from qindex.brokers.rabbitmq.ra.wal_resync import Resync
from qindex.brokers.tree import Findings, Source

_FIXED: Final = Struct(">IIQQ")  # checksum, data_bytes, index, term
_SIZE: Final = Struct(">H")

HEADER_BYTES: Final = 5
FIXED_BYTES: Final = _FIXED.size
KNOWN_BYTES: Final = 3 + FIXED_BYTES
_BLOCK: Final = 1 << 20
_UID_BYTES_MAX: Final = 1024
_new: Final = tuple.__new__  # of a named tuple: twice as fast as by its name


class Record(NamedTuple):
    """An entry of some server's log, and where its data is."""

    uid: bytes  # b"?N" if the record that names the server N of this file is destroyed
    index: int  # type: ignore[assignment]
    term: int
    offset: int
    size: int
    sound: bool  # False: the checksum does not match; index and term are what fits best
    restarts: bool


class Stretch(NamedTuple):
    """Many valid records of one server and one term, whose indexes follow each other."""

    uid: bytes
    first: int
    term: int
    offsets: array[int]
    sizes: array[int]

    def records(self) -> Iterator[Record]:
        """One by one."""
        rows = zip(self.offsets, self.sizes, strict=True)
        for index, (offset, size) in enumerate(rows, self.first):
            yield Record(self.uid, index, self.term, offset, size, True, False)


class Head(NamedTuple):
    """A record without its data."""

    uid: bytes | None  # None: K = 1
    ref: int
    checksum: int
    size: int
    index: int  # type: ignore[assignment]
    term: int
    offset: int  # of the data
    restarts: bool

    @property
    def end(self) -> int:
        return self.offset + self.size


class WalFile:
    """One N.wal. `records()` once; `ids` are the names of the servers by their `ref`."""

    def __init__(self, source: Source, findings: Findings) -> None:
        self.source = source
        self.findings = findings
        self.ids: dict[int, bytes] = {}
        self._last: dict[int, tuple[int, int]] = {}  # index and term of each server's last record
        self.breaks: list[int] = []  # where reading went on behind bytes that are no record
        self.is_whole = True  # so far every byte was part of a record
        self._has_checksums = False
        self._buffer = b""
        self._base = 0
        self._found = ffi.new("qi_ra_records *")

    def records(self) -> Iterator[Record]:
        """All records that can be told, one by one: see pieces()."""
        for piece in self.pieces():
            if isinstance(piece, Stretch):
                yield from piece.records()
            else:
                yield piece

    def pieces(self) -> Iterator[Record | Stretch]:
        """All records that can be told, many at once. Linear in the size of the file."""
        source = self.source
        if source.size < HEADER_BYTES or source.read(0, HEADER_BYTES) != b"RAWA\1":
            empty = not source.size
            text = "the file is empty" if empty else "this is no write-ahead log of version 1"
            self.findings.damage("wal", source.where, 0, text)
        resync = Resync(self)
        pos = HEADER_BYTES
        while pos < source.size:
            pos = yield from self._run(pos)
            if pos < source.size:
                self.is_whole = False
                settled, pos = resync.way_on(pos)
                if settled is not None:
                    yield settled
                else:
                    self.breaks.append(pos)

    def _run(self, pos: int) -> Generator[Record | Stretch, None, int]:
        """Valid records from `pos` to the first that is not: where that is."""
        size_max = self.source.size
        while True:
            pos = yield from self._known(pos)
            head = self.head_at(pos)
            if head is None or head.end > size_max or not self.is_valid(head):
                return pos
            if head.uid is not None:
                head = self._named(head, pos)
                self.ids[head.ref] = head.uid or b""
            self._last[head.ref] = (head.index, head.term)
            uid = self.uid(head.ref)
            yield Record(uid, head.index, head.term, head.offset, head.size, True, head.restarts)
            pos = head.end

    def _known(self, pos: int) -> Generator[Record | Stretch, None, int]:
        """Valid records that do not name their server, up to one that is not or is very long."""
        found, last = self._found, self._last
        names: dict[int, bytes] = {}
        while self._is_loaded(pos):
            buffer, base = self._buffer, self._base
            found.pos, found.has_checksums = pos - base, self._has_checksums
            count = lib.qi_ra_read_records(buffer, len(buffer), found)
            if not count:
                break
            self._has_checksums, pos = found.has_checksums, base + found.pos
            refs, offsets = ffi.unpack(found.refs, count), ffi.unpack(found.offsets, count)
            indexes, terms = ffi.unpack(found.indexes, count), ffi.unpack(found.terms, count)
            sizes, restarts = ffi.unpack(found.sizes, count), ffi.unpack(found.restarts, count)
            if _follow_each_other(refs, indexes, terms, restarts):
                last[refs[0]] = (indexes[-1], terms[0])
                places = array("Q", [base + offset for offset in offsets]), array("I", sizes)
                yield Stretch(self.uid(refs[0]), indexes[0], terms[0], *places)
                continue
            rows = zip(refs, indexes, terms, offsets, sizes, restarts, strict=True)
            for ref, index, term, offset, size, restart in rows:
                uid = names.get(ref)
                if uid is None:
                    uid = names[ref] = self.uid(ref)
                last[ref] = (index, term)
                yield _new(Record, (uid, index, term, base + offset, size, True, restart))
        return pos

    def _is_loaded(self, pos: int) -> bool:
        """Whether the buffer has a record at `pos` that does not name its server, whole."""
        head = self.load(pos, KNOWN_BYTES)
        if len(head) < KNOWN_BYTES or not head[0] & 0x40:
            return False
        size = KNOWN_BYTES + int.from_bytes(head[7:11], "big")
        return size <= _BLOCK and len(self.load(pos, size)) == size

    def _named(self, head: Head, pos: int) -> Head:
        """The head with the number that it has to have: they count up from 0.

        Behind a damaged place some may be missing; then one that is taken is wrong.
        """
        expected = max(self.ids, default=-1) + 1
        if self.is_whole:
            wrong = head.ref != expected
        else:
            wrong = self.ids.get(head.ref, head.uid) != head.uid
        if not wrong:
            return head
        text = f"server number {head.ref} where {expected} comes next"
        self.findings.damage("wal", self.source.where, pos, text)
        return head._replace(ref=expected)

    def uid(self, ref: int) -> bytes:
        """The server's name; a stand-in if the record with it is destroyed."""
        found = self.ids.get(ref)
        return b"?%d" % ref if found is None else found

    def last(self, ref: int) -> tuple[int, int] | None:
        """Index and term of the server's last record so far."""
        return self._last.get(ref)

    def note_last(self, head: Head) -> None:
        """The record was found behind damage."""
        if head.uid is not None:
            self.ids[head.ref] = head.uid
        self._last[head.ref] = (head.index, head.term)

    def head_at(self, pos: int) -> Head | None:
        """The record's head at `pos`; None if the file ends in it."""
        head = self.load(pos, KNOWN_BYTES)
        if len(head) < 5:
            return None
        ref = int.from_bytes(head[:3], "big")
        restarts, known, ref = ref >> 23 == 1, ref >> 22 & 1, ref & 0x3FFFFF
        uid, start = None, 3
        if not known:
            uid_bytes: int = _SIZE.unpack_from(head, 3)[0]
            if uid_bytes > _UID_BYTES_MAX:
                return None
            head = self.load(pos, 5 + uid_bytes + FIXED_BYTES)
            uid, start = head[5 : 5 + uid_bytes], 5 + uid_bytes
        if len(head) < start + FIXED_BYTES:
            return None
        checksum, size, index, term = _FIXED.unpack_from(head, start)
        return Head(uid, ref, checksum, size, index, term, pos + start + FIXED_BYTES, restarts)

    def is_valid(self, head: Head) -> bool:
        """Whether the checksum matches. Only a file without any checksum may leave one out."""
        if head.end > self.source.size:
            return False
        if not head.checksum:
            return not self._has_checksums and (head.size > 0 or head.index > 0)
        if self.adler(head, head.index, head.term) != head.checksum:
            return False
        self._has_checksums = True
        return True

    def adler(self, head: Head, index: int, term: int) -> int:
        """The checksum that the record has to have with this index and this term."""
        value = zlib.adler32(index.to_bytes(8, "big") + term.to_bytes(8, "big"))
        pos = head.offset
        while pos < head.end:
            data = self.source.read(pos, min(_BLOCK, head.end - pos))
            if not data:
                break
            value = zlib.adler32(data, value)
            pos += len(data)
        return value

    def load(self, pos: int, count: int) -> bytes:
        """`count` bytes at `pos`, fewer at the end of the file."""
        at = pos - self._base
        if at < 0 or at + count > len(self._buffer):
            self._buffer, self._base = self.source.read(pos, max(_BLOCK, count)), pos
            at = 0
        return self._buffer[at : at + count]


def _follow_each_other(
    refs: list[int], indexes: list[int], terms: list[int], restarts: list[bool]
) -> bool:
    count = len(refs)
    is_one = refs.count(refs[0]) == count and terms.count(terms[0]) == count
    return is_one and not any(restarts) and indexes == [*range(indexes[0], indexes[0] + count)]
