"""What the commit logs of a store have of a journal: c_ext/FORMAT.rst, "Commit logs", in Python.

Stores of format 2 have logs. After a power cut, bytes of a journal may stand in a log alone; a
writer puts them back when it opens the queue, and who only reads lays them over what it has read.
The logs of a tree are read once: only a power cut makes them matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from qindex.brokers.tree import Tree
from qindex.native.folders import FILE_BYTES_MAX, JOURNALS
from qindex.native.frames import (
    EXTENDED,
    FRAME_BYTES,
    HEADER_COPY,
    JOURNAL_START,
    KIND_BYTES,
    SKIPPED,
    CannotReplay,
    Frame,
    Frames,
    Header,
    crc,
    journal_header,
)
from qindex.words import many

COPY: Final = 1
DATA: Final = 4
RECORDS: Final = (3, DATA)  # DELETE and DATA: of mappings, not of journals
TRANSACTION: Final = 5
_LOG: Final = re.compile(r"([1-9][0-9]{0,17})\.log")
_HEADER: Final = Struct(">8sI4x16sQ20xI")  # magic, version, identity of the store, number; a CRC
_MAGIC: Final = b"QICOMM\r\n"
_COPY: Final = Struct(">H16sQQ")  # kind, identity of the queue, epoch, offset
_PART_SIZE: Final = 4  # in front of each part of a TRANSACTION
_STORE_META: Final = Struct(">8sII16s")
# Of a copy of store.meta: newest log, its durable end; log and offset below which no COPY counts
_NAMED: Final = Struct(">64xQQ8xQQ8x")


def _newer(what: str, where: str) -> CannotReplay:
    newer = "is one that only a newer version of qindex understands"
    return CannotReplay(f"{what} of {where} {newer}: use a matching release")


def _parts(payload: bytes) -> Iterator[bytes]:
    """Those of a TRANSACTION: the payload of a COPY or of DATA each."""
    at = KIND_BYTES
    while at < len(payload):
        size = int.from_bytes(payload[at : at + _PART_SIZE], "big")
        at += _PART_SIZE
        yield payload[at : at + size]
        at += size


class Laid(NamedTuple):
    """A journal with what the logs have of it, and where that ends (0: they have nothing)."""

    data: bytes
    covered: int


class CommitLogs:
    """The COPYs in commits/N.log of the store in which a queue's folder is."""

    def __init__(self, tree: Tree, store: str) -> None:
        self._tree = tree
        self._store = store
        self._copies: dict[tuple[bytes, int], list[tuple[int, bytes]]] = {}
        self._data: list[bytes] = []
        self._newest, self._end, *self._settled = self._named()
        numbers = self._numbers()
        for self._number in numbers:
            self._read(self._number)
        if self._newest > max(numbers, default=0):
            where = f"{store}commits/{self._newest}.log"
            tree.findings.damage("missing", where, 0, "it is missing, although it was durable")

    def _numbers(self) -> list[int]:
        try:
            names = self._tree.files(f"{self._store}commits")
        except OSError:
            return []
        return sorted(int(match[1]) for name in names if (match := _LOG.fullmatch(name)))

    def _named(self) -> tuple[int, ...]:
        """What store.meta says of them (_NAMED); zeros: it says nothing."""
        meta = self._tree.read(f"{self._store}store.meta", HEADER_COPY * 2) or b""
        for at in (0, HEADER_COPY):
            head = meta[at : at + _NAMED.size]
            if len(head) == _NAMED.size and crc(0, head[:-4]) == int.from_bytes(head[-4:], "big"):
                return _NAMED.unpack(head)
        return 0, 0, 0, 0

    def lay(self, data: bytes) -> Laid:
        """O(1) for a journal that the logs do not name."""
        try:
            header = journal_header(data)
        except CannotReplay:
            return Laid(data, 0)
        copies = self._copies.get((header.identity, header.epoch)) if header else None
        if not copies:
            return Laid(data, 0)
        laid = bytearray(data)
        covered = max(offset + len(some) for offset, some in copies)
        laid.extend(bytes(max(0, covered + FRAME_BYTES - len(laid))))
        for offset, some in copies:
            laid[offset : offset + len(some)] = some
        return Laid(bytes(laid), covered)

    def _read(self, number: int) -> None:
        where = f"{self._store}commits/{number}.log"
        data = self._tree.read(where, FILE_BYTES_MAX) or b""
        identity = self._identity(data)
        if identity is None:
            self._tree.findings.damage("header", where, 0, "no header, and no store.meta: not read")
            return
        frames = Frames(data, Header(identity, 0, number, False))
        end = self._take_all(where, frames)
        lacks = number == self._newest and end < self._end
        if lacks and number in self._numbers():  # else its writer gave it up just now
            self._tree.findings.damage("cut", where, end, "its end, which was durable, is gone")

    def _take_all(self, where: str, frames: Frames) -> int:
        """Return where the frames end."""
        offset: int | None = JOURNAL_START
        end = JOURNAL_START
        while offset is not None:
            frame = frames.at(offset)
            if frame is not None:
                self._take(where, frames, frame)
                offset = end = frame.end
            elif frames.durable_below(offset) <= offset:
                return end  # or what a power cut leaves of it
            else:
                offset = self._behind_damage(where, frames, offset)
        return end

    def _behind_damage(self, where: str, frames: Frames, offset: int) -> int | None:
        behind = frames.find(offset + 1)
        size = (behind.offset if behind else len(frames.data)) - offset
        of = "among durable records of queues"
        text = many(size, f"byte {of} is damaged", f"bytes {of} are damaged")
        self._tree.findings.damage("frame", where, offset, text)
        return behind.offset if behind else None

    def _take(self, where: str, frames: Frames, frame: Frame) -> None:
        if frame.type != EXTENDED:
            return
        payload = frames.payload(frame)
        kind = int.from_bytes(payload[:KIND_BYTES], "big")
        counts = [self._number, frame.offset] >= self._settled
        if kind == COPY and len(payload) > _COPY.size:
            self._take_copy(payload, counts)
        elif kind == TRANSACTION:
            for part in _parts(payload):
                kind = int.from_bytes(part[:KIND_BYTES], "big")
                if kind == COPY and len(part) > _COPY.size:
                    self._take_copy(part, counts)
                elif kind != DATA:
                    raise _newer(
                        f"a transaction with an unknown part at byte {frame.offset}", where
                    )
        elif kind < SKIPPED and kind not in RECORDS:
            raise _newer(f"a frame of kind {kind} at byte {frame.offset}", where)

    def _take_copy(self, payload: bytes, counts: bool) -> None:
        _, identity, epoch, offset = _COPY.unpack_from(payload)
        if counts and offset < FILE_BYTES_MAX:
            copies = self._copies.setdefault((identity, epoch), [])
            copies.append((offset, payload[_COPY.size :]))

    def _identity(self, data: bytes) -> bytes | None:
        """Of the store: the log's header says it, or store.meta."""
        for at in (0, HEADER_COPY):
            head = data[at : at + _HEADER.size]
            if len(head) < _HEADER.size or crc(0, head[:-4]) != int.from_bytes(head[-4:], "big"):
                continue
            magic, _, identity, _, _ = _HEADER.unpack(head)
            if magic == _MAGIC:
                return bytes(identity)
        meta = self._tree.read(f"{self._store}store.meta", HEADER_COPY * 2) or b""
        if len(meta) < _STORE_META.size or not meta.startswith(b"QISTOR\r\n"):
            return None
        return bytes(_STORE_META.unpack_from(meta)[3])


_known: WeakKeyDictionary[Tree, dict[str, CommitLogs]] = WeakKeyDictionary()


def _store_of(folder: str) -> str:
    """The path of the store in which this folder of a queue is: "" or one that ends with /."""
    above, found, _ = folder.rpartition("queues/")
    return above if found else ""


def logs_of(tree: Tree, folder: str) -> CommitLogs:
    """Of the store in which this folder of a queue is. CannotReplay: they are of a newer format."""
    store = _store_of(folder)
    logs = _known.setdefault(tree, {})
    if store not in logs:
        logs[store] = CommitLogs(tree, store)
    return logs[store]


def places_of(folder: str) -> tuple[str, str]:
    """Where findings about a queue may be: in its folder, or in the commit logs of its store."""
    return folder, f"{_store_of(folder)}commits/"


def read_index_file(tree: Tree, where: str) -> bytes:
    """The bytes of a journal, with what the commit logs have of it, or of a segment."""
    data = tree.read(where, FILE_BYTES_MAX) or b""
    folder, _, name = where.rpartition("/")
    return logs_of(tree, folder).lay(data).data if name in JOURNALS else data
