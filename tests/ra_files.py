"""A writer of Ra's files and of Erlang terms, for tests: the formats from the other side."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

from qindex.brokers.rabbitmq.erlang import Atom, ImproperList, Opaque


def term(value: Any) -> bytes:
    """As term_to_binary() has it."""
    return b"\x83" + encode(value)


def encode(value: Any) -> bytes:  # noqa: C901
    match value:
        case Atom():
            raw = value.encode()
            return b"w" + bytes([len(raw)]) + raw
        case int() if 0 <= value <= 255:
            return b"a" + bytes([value])
        case int() if -(2**31) <= value < 2**31:
            return b"b" + struct.pack(">i", value)
        case int():
            raw = abs(value).to_bytes((value.bit_length() + 7) // 8, "little")
            return b"n" + bytes([len(raw), value < 0]) + raw
        case float():
            return b"F" + struct.pack(">d", value)
        case bytes():
            return b"m" + struct.pack(">I", len(value)) + value
        case Opaque(tag, data):
            return bytes([tag]) + data
        case ImproperList(items, tail):
            parts = b"".join(map(encode, items))
            return b"l" + struct.pack(">I", len(items)) + parts + encode(tail)
        case tuple():
            return b"h" + bytes([len(value)]) + b"".join(map(encode, value))
        case []:
            return b"j"
        case list() if all(type(each) is int and 0 <= each <= 255 for each in value):
            return b"k" + struct.pack(">H", len(value)) + bytes(value)
        case list():
            parts = b"".join(map(encode, value))
            return b"l" + struct.pack(">I", len(value)) + parts + b"j"
        case dict():
            pairs = b"".join(encode(key) + encode(each) for key, each in value.items())
            return b"t" + struct.pack(">I", len(value)) + pairs
    raise AssertionError(value)


def pid(number: int, node: str = "rabbit@host", creation: int = 7) -> Opaque:
    return Opaque(88, encode(Atom(node)) + struct.pack(">III", number, 0, creation))


class Wal:
    """One N.wal: `add()` the records, then `data` is the file."""

    def __init__(self) -> None:
        self.data = b"RAWA\x01"
        self.places: list[int] = []  # where each record begins
        self._refs: dict[str, int] = {}

    def add(
        self, uid: str, index: int, data: bytes, number: int = 1, restarts: bool = False
    ) -> None:
        """An entry of this server; `number` is its term."""
        self.places.append(len(self.data))
        known = uid in self._refs
        ref = self._refs.setdefault(uid, len(self._refs))
        head = (restarts << 23 | known << 22 | ref).to_bytes(3, "big")
        if not known:
            head += struct.pack(">H", len(uid)) + uid.encode()
        checked = struct.pack(">QQ", index, number) + data
        self.data += head + struct.pack(">II", zlib.adler32(checked), len(data)) + checked


def segment(entries: list[tuple[int, int, bytes]], *, version: int = 2, slots: int = 16) -> bytes:
    """A segment with (index, term, data) of each entry."""
    shape = struct.Struct(">QQQII" if version == 2 else ">QQIII")
    start = 8 + slots * shape.size
    table = b""
    data = b""
    for index, number, each in entries:
        table += shape.pack(index, number, start + len(data), len(each), zlib.crc32(each))
        data += each
    return b"RASG" + struct.pack(">HH", version, slots) + table.ljust(start - 8, b"\0") + data


def snapshot(index: int, number: int, state: Any, machine_version: int = 2) -> bytes:
    """A snapshot.dat, or the same as a checkpoint."""
    meta = term(
        {
            Atom("index"): index,
            Atom("term"): number,
            Atom("cluster"): [],
            Atom("machine_version"): machine_version,
        }
    )
    rest = struct.pack(">I", len(meta)) + meta + term(state)
    return b"RASN\x01" + struct.pack(">I", zlib.crc32(rest)) + rest


def snapshot_folder(index: int, number: int) -> str:
    return f"{number:016X}_{index:016X}"


def dets(objects: list[Any]) -> bytes:
    """A table in which the objects are found by their mark."""
    head = b"\0\0\x15\x38\0\xab\xcd\xef" + struct.pack(">III", 1, 1, 9)
    data = head.ljust(5464, b"\0")
    for each in objects:
        raw = term(each)
        item = struct.pack(">I", len(raw) + 4) + raw
        data += struct.pack(">I", len(item)) + b"\x12\x34\x56\x78" + item
    return data


def put(root: Path, files: dict[str, bytes]) -> Path:
    """Writes files by their paths below `root`."""
    for name, data in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return root


def flip(data: bytes, place: int, bit: int = 0) -> bytes:
    """The same with one bit changed."""
    place %= len(data)
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
