"""Files of RabbitMQ as the terms in them: a term is exchanged, lengths and checksums put right.

`split()` gives the file's terms, and what makes a file of as many terms. What stands around a term
stays as it is, but for its length and checksum. A record without a term counts as an empty one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from qindex.brokers.rabbitmq.erlang import ErlangError, skip

Split: TypeAlias = tuple[list[bytes], Callable[[list[bytes]], bytes]]


def wal(data: bytes) -> Split:
    """Ra's shared log."""
    heads, terms, pos = [], [], 5
    while pos + 27 <= len(data):
        size = 3 if data[pos] & 0x40 else 5 + int.from_bytes(data[pos + 3 : pos + 5])
        place = pos + size
        end = place + 24 + int.from_bytes(data[place + 4 : place + 8])
        heads.append((data[pos:place], data[place + 8 : place + 24]))
        terms.append(data[place + 24 : end])
        pos = end

    def joined(terms: list[bytes]) -> bytes:
        out = data[:5]
        for (head, numbers), term in zip(heads, terms, strict=True):
            checked = numbers + term
            out += head + struct.pack(">II", zlib.adler32(checked), len(term)) + checked
        return out

    return terms, joined


def segment(data: bytes) -> Split:
    """Ra's segment: a table of places, and the entries behind it."""
    version, count = struct.unpack_from(">HH", data, 4)
    slot = struct.Struct(">QQQII" if version == 2 else ">QQIII")
    if len(data) < 8 + count * slot.size:
        return [], lambda _: data  # a new one, which has but its head
    slots = [slot.unpack_from(data, 8 + n * slot.size) for n in range(count)]
    used = [each for each in slots if each[2]]

    def joined(terms: list[bytes]) -> bytes:
        start = 8 + count * slot.size
        table = entries = b""
        for each, term in zip(used, terms, strict=True):
            place = start + len(entries)
            table += slot.pack(*each[:2], place, len(term), zlib.crc32(term))
            entries += term
        return data[:8] + table.ljust(start - 8, b"\0") + entries

    return [data[each[2] : each[2] + each[3]] for each in used], joined


def snapshot(data: bytes) -> Split:
    """Ra's snapshot: what it is of, and the state."""
    start = 13 + int.from_bytes(data[9:13])

    def joined(terms: list[bytes]) -> bytes:
        rest = struct.pack(">I", len(terms[0])) + terms[0] + terms[1]
        return data[:5] + struct.pack(">I", zlib.crc32(rest)) + rest

    return [data[13:start], data[start:]], joined


def store_v1(data: bytes) -> Split:
    """N.rdq: messages behind their length and key."""
    keys, terms, pos = [], [], 0
    while pos + 8 <= len(data):
        end = pos + 8 + int.from_bytes(data[pos : pos + 8])
        keys.append(data[pos + 8 : pos + 24])
        terms.append(data[pos + 24 : end])
        pos = end + 1

    def joined(terms: list[bytes]) -> bytes:
        pairs = zip(keys, terms, strict=True)
        return b"".join(struct.pack(">Q", 16 + len(t)) + key + t + b"\xff" for key, t in pairs)

    return terms, joined


def store_v2(data: bytes) -> Split:
    """N.qs: messages behind size, flags and checksum."""
    heads, terms, pos = [], [], 64
    while pos + 8 <= len(data) and (size := int.from_bytes(data[pos : pos + 4])):
        heads.append((data[pos + 4], data[pos + 7]))
        terms.append(data[pos + 8 : pos + 8 + size])
        pos += 8 + size

    def joined(terms: list[bytes]) -> bytes:
        out = data[:64]
        for (flags, last), term in zip(heads, terms, strict=True):
            crc = zlib.crc32(term) & 0xFFFF
            out += struct.pack(">IBHB", len(term), flags, crc, last) + term
        return out

    return terms, joined


def log(data: bytes) -> Split:
    """A log of Mnesia."""
    terms, pos = [], 8
    while pos + 8 <= len(data):
        end = pos + 8 + int.from_bytes(data[pos : pos + 4])
        terms.append(data[pos + 8 : end])
        pos = end

    def joined(terms: list[bytes]) -> bytes:
        return data[:8] + b"".join(struct.pack(">I", len(t)) + b"bWLA" + t for t in terms)

    return terms, joined


def dets(data: bytes) -> Split:
    """The objects of a dets file, found by their mark."""
    pieces, terms, pos = [], [], 0
    while (mark := data.find(b"\x12\x34\x56\x78", pos)) >= 0:
        end = mark + 4 + int.from_bytes(data[mark + 4 : mark + 8])
        if data[mark + 8 : mark + 9] == b"\x83" and end <= len(data):
            pieces.append(data[pos : mark - 4])
            terms.append(data[mark + 8 : end])
            pos = end
        else:
            pieces.append(data[pos : mark + 4])
            terms.append(b"")
            pos = mark + 4
    rest = data[pos:]

    def joined(terms: list[bytes]) -> bytes:
        out = b""
        for piece, term in zip(pieces, terms, strict=True):
            size = struct.pack(">I", len(term) + 4)
            out += piece + (size + b"\x12\x34\x56\x78" + size + term if term else b"")
        return out + rest

    return terms, joined


def _embedded(data: bytes, long_head: int, short_head: int, is_long: Callable[[int], int]) -> Split:
    """Records of a version 1 index, some with a message in them."""
    heads, terms, pos = [], [], 0
    while pos < len(data):
        if not is_long(data[pos]):
            heads.append(data[pos : pos + short_head])
            terms.append(b"")
            pos += short_head
            continue
        place = pos + long_head
        end = place + 4 + int.from_bytes(data[place : place + 4])
        heads.append(data[pos:place])
        terms.append(data[place + 4 : end])
        pos = end

    def joined(terms: list[bytes]) -> bytes:
        out = b""
        for head, term in zip(heads, terms, strict=True):
            out += head
            if len(head) == long_head:
                out += struct.pack(">I", len(term)) + term
        return out

    return terms, joined


_BY_NAME: dict[str, Callable[[bytes], Split]] = {
    ".jif": lambda data: _embedded(data, 36, 8, lambda byte: not byte >> 7),
    ".idx": lambda data: _embedded(data, 30, 2, lambda byte: byte >> 7),
    ".qs": store_v2,
    ".rdq": store_v1,
    ".wal": wal,
    ".dat": snapshot,
    ".dets": dets,
    **dict.fromkeys((".LOG", ".DCD", ".DCL"), log),
}


def split(file: Path) -> Split | None:
    """The terms of the file; None if its kind has none, or it has no record at all."""
    data = file.read_bytes()
    if data[:4] == b"RASG":
        return segment(data)
    known = _BY_NAME.get(file.suffix)
    if known is None or (known is snapshot and file.name != "snapshot.dat") or len(data) < 16:
        return None
    return known(data)


def values(term: bytes) -> Iterator[tuple[int, int]]:
    """Where each value of the term begins and ends, those with values in them, too."""
    left = [1] if term[:1] == b"\x83" and term[1:2] != b"P" else []
    while left:
        pos = left.pop()
        try:
            yield pos, skip(term, pos)
        except ErlangError:
            continue
        tag, size = term[pos], int.from_bytes(term[pos + 1 : pos + 5])
        if tag == 104:
            count, pos = term[pos + 1], pos + 2
        else:
            count, pos = {105: size, 108: size + 1, 116: 2 * size}.get(tag, 0), pos + 5
        for _ in range(count):
            left.append(pos)
            pos = skip(term, pos)
