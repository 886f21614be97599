"""qindex's own message files as bytes, for tools that explain a directory: FORMAT.rst, section 6.

The engine serves messages; this says where one lies and whether it is sound, also in a directory
that the engine refuses. Reads little: headers, birth tables, one frame. Changes nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from qindex._core import lib
from qindex.brokers.tree import BLOCK_BYTES_MAX, Source, Tree

FRAME_BYTES: Final = 25  # what a frame has beside its payload
START: Final = 64

_HEADER: Final = Struct(">8sII16sQQQII")
_META: Final = Struct(">8sII16s")
_MSG_ID: Final = Struct(">IIIB3s")
_PAIR: Final = Struct(">II")
_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,9})\.qms")


class MsgId(NamedTuple):
    """Birthplace and length, as a MsgId says them; `queues` of 256 or more is 256."""

    file: int
    offset: int
    length: int
    queues: int

    @property
    def share(self) -> int:
        """The bytes that one reference counts."""
        return 0 if self.queues == 256 else (self.length + FRAME_BYTES) // self.queues


def read_msg_id(msg_id: bytes) -> MsgId:
    file, offset, length, queues, _ = _MSG_ID.unpack(msg_id)
    return MsgId(file, offset, length, queues + 1)


@dataclass(slots=True)
class MessageFile:
    number: int
    where: str
    size: int
    used: int  # without the zeros behind the last frame: room that was allocated in advance
    compacted: bool
    sound: bool  # the header is valid
    births: dict[int, tuple[int, int]]  # of a compacted one: file -> which entries of its table
    table: int  # where that table begins


class MessageFiles:
    """The message files below a store's directory, as they are when this is made."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.files: dict[int, MessageFile] = {}
        try:
            names = tree.files("messages")
        except OSError:
            names = []
        numbers = [int(found[1]) for name in names if (found := _NAME.fullmatch(name))]
        self.identity = store_identity(tree) or _identity_in_files(tree, numbers) or bytes(16)
        for number in numbers:
            file = self._read(number)
            if file is not None:
                self.files[file.number] = file
        self.moved = {
            birth: number for number in sorted(self.files) for birth in self.files[number].births
        }

    def _read(self, number: int) -> MessageFile | None:
        where = f"messages/{number}.qms"
        source = self.tree.try_open(where)
        if source is None:
            return None
        with source:
            head = source.read(0, START)
            file = MessageFile(number, where, source.size, used_bytes(source), False, False, {}, 0)
            if len(head) < START:
                return file
            magic, _, kind, identity, its_number, _, frame_bytes, _, crc = _HEADER.unpack(head)
            file.sound = (
                magic == b"QIMSGS\r\n"
                and (identity, its_number) == (self.identity, number)
                and lib.qi_crc32c(0, head, START - 4) == crc
            )
            if file.sound and kind == 1:
                file.compacted = True
                self._read_births(file, source, START + frame_bytes)
        return file

    def _read_births(self, file: MessageFile, source: Source, start: int) -> None:
        head = source.read(start, 4)
        groups = int.from_bytes(head, "big")
        if len(head) < 4 or groups * _PAIR.size > source.size - start:
            return
        part = head + source.read(start + 4, groups * _PAIR.size)
        crc = int.from_bytes(source.read(start + len(part), 4), "big")
        if crc != self._crc(file.number, start, part):
            self.tree.findings.damage("births", file.where, start, "the birth table is damaged")
            file.sound = False
            return
        file.table = start + len(part) + 4
        first = 0
        for birth, frames in _PAIR.iter_unpack(part[4:]):
            file.births[birth] = (first, first + frames)
            first += frames

    def _crc(self, number: int, offset: int, data: bytes) -> int:
        seed = lib.qi_crc32c(0, self.identity + number.to_bytes(8, "big") + bytes(8), 32)
        seed = lib.qi_crc32c(seed, offset.to_bytes(8, "big"), 8)
        return lib.qi_crc32c(seed, data, len(data))

    def holder(self, birth: int) -> int:
        """The file in which the messages that were born in file `birth` are now."""
        return self.moved.get(birth, birth)

    def locate(self, msg_id: bytes) -> tuple[str, int] | None:
        """(file, offset) of the frame of this message; None: no file has it.

        Files whose header or birth table is damaged are searched from end to end.
        """
        told = read_msg_id(msg_id)
        file = self.files.get(self.holder(told.file))
        if file is not None and told.file in file.births:
            return self._moved(file, told)
        if file is not None and self._is_at(file.where, told.offset, msg_id):
            return file.where, told.offset
        for other in self.files.values():
            if not other.sound and (offset := self._search(other.where, msg_id)) is not None:
                return other.where, offset
        return None if file is None else (file.where, told.offset)

    def _moved(self, file: MessageFile, told: MsgId) -> tuple[str, int] | None:
        source = self.tree.kept_open(file.where)
        if source is None:
            return None
        low, high = file.births[told.file]
        table = source.read(file.table + low * _PAIR.size, (high - low) * _PAIR.size)
        pairs = list(_PAIR.iter_unpack(table))
        place = bisect_left(pairs, (told.offset, 0))
        if place < len(pairs) and pairs[place][0] == told.offset:
            return file.where, pairs[place][1]
        return None

    def _is_at(self, where: str, offset: int, msg_id: bytes) -> bool:
        source = self.tree.kept_open(where)
        return source is not None and source.read(offset + 8, 16) == msg_id

    def _search(self, where: str, msg_id: bytes) -> int | None:
        source = self.tree.kept_open(where)
        if source is not None:
            for base, block in source.blocks(0, overlap=len(msg_id)):
                at = block.find(msg_id)
                if at >= 0 and base + at >= 8:
                    return base + at - 8
        return None

    def state(self, msg_id: bytes, where: str, offset: int) -> str:
        """What is at that place: "sound", or what is wrong with it. Reads the whole message."""
        source = self.tree.kept_open(where)
        length = read_msg_id(msg_id).length
        data = b"" if source is None else source.read(offset, length + FRAME_BYTES)
        if len(data) < length + FRAME_BYTES:
            return "the file ends before it"
        if data[8:24] != msg_id or int.from_bytes(data[:4], "big") != length:
            return "another message, or none, is at its place"
        number = int(where.rpartition("/")[2].removesuffix(".qms"))
        crc = self._crc(number, offset, data[:4] + data[8 : 24 + length])
        if crc != int.from_bytes(data[4:8], "big") or data[-1] != 0xFF:
            return "its checksum is wrong"
        return "sound"


def store_identity(tree: Tree) -> bytes:
    """Of the first valid copy in store.meta: one is at 0, and one in the middle; b"": of none."""
    source = tree.try_open("store.meta")
    if source is None:
        return b""
    with source:
        for offset in (0, source.size // 2):
            meta = source.read(offset, START)
            if len(meta) == START and meta.startswith(b"QISTOR\r\n"):
                crc = int.from_bytes(meta[-4:], "big")
                if crc == lib.qi_crc32c(0, meta, START - 4):
                    identity: bytes = _META.unpack_from(meta)[3]
                    return identity
    return b""


def _identity_in_files(tree: Tree, numbers: list[int]) -> bytes:
    """Of the first message file with a valid header: for a store without a store.meta."""
    for number in numbers:
        source = tree.try_open(f"messages/{number}.qms")
        if source is None:
            continue
        with source:
            head = source.read(0, START)
        if len(head) == START and head.startswith(b"QIMSGS\r\n"):
            _, _, _, identity, its_number, _, _, _, crc = _HEADER.unpack(head)
            if its_number == number and lib.qi_crc32c(0, head, START - 4) == crc:
                return bytes(identity)
    return b""


def used_bytes(source: Source) -> int:
    """The size without trailing zeros. Frames end with 0xFF, so that they are none."""
    end = source.size
    while end > 0:
        start = max(0, end - BLOCK_BYTES_MAX)
        rest = source.read(start, end - start).rstrip(b"\0")
        if rest:
            return start + len(rest)
        end = start
    return 0
