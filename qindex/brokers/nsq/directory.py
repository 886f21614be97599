"""A data directory of NSQ, or of whoever uses its diskqueue: what is unread, and in which order.

::

    NAME.diskqueue.000003.dat        records, see file.py; deleted when completely read
    NAME.diskqueue.000002.dat.bad    set aside, because a record in it could not be read
    NAME.diskqueue.meta.dat          "DEPTH\nREADFILE,READPOS\nWRITEFILE,WRITEPOS\n"

The metadata are written now and then, so a process that was killed has read and written more than
they say. What stands behind the write position counts; where the metadata are old, missing, or
speak of other files, every message says `redelivered`. So do the messages of .bad files, which come
in the order of their numbers: nobody knows how far those were read.

nsqd itself puts 26 bytes before a body. They become the headers timestamp_ns, attempts and id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple

from qindex.brokers.nsq.file import read_records
from qindex.brokers.reader import Account, Message, Node, names_in
from qindex.brokers.tree import BODY_BYTES_MAX, Findings, Source, Tree

_DATA_NAME: Final = re.compile(r"(.+)\.diskqueue\.([0-9]{6,18})\.dat(\.bad)?", re.DOTALL)
_META_NAME: Final = re.compile(r"(.+)\.diskqueue\.meta\.dat", re.DOTALL)
_META: Final = re.compile(rb"(-?[0-9]{1,18})\n" + rb"([0-9]{1,18}),([0-9]{1,18})\n" * 2)
_META_BYTES_MAX: Final = 128
_FILES_MAX: Final = 10_000
_NSQD_HEAD: Final = Struct(">QH16s")
_NSQD_ID: Final = re.compile(rb"[0-9a-f]{16}")
# 2001 to 2070. Text is later: "00000000" would be in 2080.
_NSQD_YEARS: Final = range(978_307_200 * 10**9, 3_155_760_000 * 10**9)


class Meta(NamedTuple):
    """What was noted last. A place is a file's number and an offset in it."""

    depth: int
    read: tuple[int, int]
    write: tuple[int, int]


class Part(NamedTuple):
    """One data file. They sort as they were written: a .bad one before its successor."""

    number: int
    is_data: bool
    name: str

    @property
    def is_bad(self) -> bool:
        return not self.is_data


@dataclass(slots=True)
class Queue:
    name: str
    tree: Tree
    log: Findings
    parts: list[Part] = field(default_factory=list)
    meta: Meta | None = None
    account: Account = field(default_factory=Account)
    unreadable: int = 0
    is_old: bool = True
    """The metadata do not fit to the files, so more may have been read than they say."""

    group: str = ""
    vanishes: bool = False

    def messages(self) -> Iterator[Message]:
        """The unread messages, those that were written first first."""
        self.unreadable = 0
        for part, source, offset, size in self._live():
            if size > BODY_BYTES_MAX:
                self.unreadable += 1
                text = f"a message of {size} bytes is more than {BODY_BYTES_MAX}"
                self.log.damage("message lost", part.name, offset, text)
                continue
            headers, body = split_nsqd(source.read(offset, size))
            redelivered = self.is_old or part.is_bad or headers.get("attempts", 0) > 0
            yield Message(body, headers, redelivered, part.name, offset - 4)

    def _live(self) -> Iterator[tuple[Part, Source, int, int]]:
        """Unread records. Makes the account, which is complete when they are all had."""
        account = Account(gone={"read": 0}, lost={"damaged": 0}, marks={"redelivered": 0})
        counted = 0  # of the unread ones, by the metadata's depth
        for part in self.parts:
            source = self.tree.try_open(part.name)
            if source is None:
                continue
            unread_from, synced_end = self._bounds(part, source.size)
            doubtful = self.is_old or part.is_bad
            counted_end = -1 if part.is_bad else synced_end
            read = live = body_bytes = 0
            with source:
                for offset, size in read_records(source, self.log, synced_end):
                    end = offset + size
                    if end <= unread_from:
                        read += 1
                        continue
                    if offset - 4 < unread_from:
                        text = f"the read position {unread_from} is inside a record"
                        self.log.damage("metadata", part.name, offset - 4, text)
                    live += 1
                    body_bytes += size
                    counted += end <= counted_end
                    yield part, source, offset, size
            account.add(
                Account(
                    read + live,
                    live,
                    body_bytes,
                    {"read": read},
                    {},
                    {"redelivered": doubtful * live},
                )
            )
        self._compare(account, counted)
        self.account = account

    def _bounds(self, part: Part, size: int) -> tuple[int, int]:
        """Up to where the file was read, and up to where it was written, when that was noted."""
        meta = self.meta
        if part.is_bad or meta is None:
            return 0, 0 if part == self.parts[-1] else size
        place = (part.number, size)
        unread_from = size if place < meta.read else 0
        if part.number == meta.read[0]:
            unread_from = meta.read[1]
        if part.number == meta.write[0]:
            return unread_from, meta.write[1]
        return unread_from, size if place < meta.write else 0

    def _compare(self, account: Account, counted: int) -> None:
        """Without .bad files, of which nobody knows how far they were read, the depth is exact."""
        if self.meta is None or any(part.is_bad for part in self.parts):
            return
        missing = self.meta.depth - counted
        text = f"the metadata count {self.meta.depth} unread messages, {counted} are here"
        if missing > 0:
            account.found += missing
            account.lost["damaged"] = missing
            self.log.damage("count", meta_name(self.name), 0, text)
        elif missing < 0:
            self.log.note("count", meta_name(self.name), 0, text)

    def count(self) -> None:
        """Looks at the metadata, and reads all records once."""
        self.meta = self._read_meta()
        sizes = {part.number: self._size(part) for part in self.parts if not part.is_bad}
        if self.meta is None:
            self.is_old = True
        else:
            self._look_for_files(self.meta, sizes)
        for _ in self._live():
            pass

    def _read_meta(self) -> Meta | None:
        where = meta_name(self.name)
        raw = self.tree.read(where, _META_BYTES_MAX)
        if raw is None:
            self.log.damage("missing", where, 0, "no metadata: nothing tells what was read")
            return None
        meta = parse_meta(raw)
        if meta is None or meta.read > meta.write or meta.depth < 0:
            self.log.damage("metadata", where, 0, "no sense in them: nothing tells what was read")
            return None
        return meta

    def _size(self, part: Part) -> int:
        source = self.tree.try_open(part.name)
        if source is None:
            return 0
        with source:
            return source.size

    def _look_for_files(self, meta: Meta, sizes: dict[int, int]) -> None:
        number, end = meta.write
        size = sizes.get(number, 0)
        self.is_old = size != end or max(sizes, default=0) > number
        if size < end:
            text = f"{size} bytes, where the metadata have written {end}"
            self.log.damage("cut", data_name(self.name, number), size, text)
        missing = [
            n for n in range(meta.read[0], min(number, meta.read[0] + _FILES_MAX)) if n not in sizes
        ]
        bad = {part.number for part in self.parts if part.is_bad}
        for n in missing:
            if n not in bad:
                self.log.damage("missing", data_name(self.name, n), 0, "the file is not there")
                self.is_old = True


def parse_meta(raw: bytes) -> Meta | None:
    found = _META.fullmatch(raw)
    if found is None:
        return None
    depth, read_file, read_pos, write_file, write_pos = map(int, found.groups())
    return Meta(depth, (read_file, read_pos), (write_file, write_pos))


def meta_name(name: str) -> str:
    return f"{name}.diskqueue.meta.dat"


def data_name(name: str, number: int) -> str:
    return f"{name}.diskqueue.{number:06}.dat"


def data_number(name: str, file: str) -> int | None:
    """The number of a queue's data file; None if it is none, or a .bad one."""
    found = _DATA_NAME.fullmatch(file)
    if found is None or found[1] != name or file != data_name(name, int(found[2])):
        return None
    return int(found[2])


def split_nsqd(record: bytes) -> tuple[dict[str, Any], bytes]:
    """Headers and body if nsqd wrote the record, which its id and time tell; else the record."""
    if len(record) >= _NSQD_HEAD.size:
        timestamp_ns, attempts, msg_id = _NSQD_HEAD.unpack_from(record)
        if timestamp_ns in _NSQD_YEARS and _NSQD_ID.fullmatch(msg_id):
            headers = {"timestamp_ns": timestamp_ns, "attempts": attempts, "id": msg_id.decode()}
            return headers, record[_NSQD_HEAD.size :]
    return {}, record


def is_here(folder: Path) -> bool:
    return any(_DATA_NAME.fullmatch(n) or _META_NAME.fullmatch(n) for n in names_in(folder))


def open_at(folder: Path) -> Node:
    """Finds the queues by the names of their files and reads all records once, without bodies."""
    log = Findings()
    tree = Tree(folder, log)
    queues: dict[str, Queue] = {}

    def queue(name: str) -> Queue:
        return queues.setdefault(name, Queue(name, tree, log))

    try:
        for file in tree.files():
            if data := _DATA_NAME.fullmatch(file):
                number, is_bad = int(data[2]), data[3] is not None
                if file == data_name(data[1], number) + ".bad" * is_bad:
                    queue(data[1]).parts.append(Part(number, not is_bad, file))
            elif meta := _META_NAME.fullmatch(file):
                queue(meta[1])
        for each in queues.values():
            each.parts.sort()
            each.count()
    except BaseException:
        tree.close()
        raise
    return Node("nsq", folder.name, tree, log, list(queues.values()))
