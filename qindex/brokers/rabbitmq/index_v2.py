"""RabbitMQ's queue index, version 2: the N.qi and N.qs files of one queue directory.

::

    N.qi   "RCQI" | version:8 = 2 | from_seq:64 | to_seq:64 | 43 zeros       64 bytes
           entry of each seq, at 64 + 32 * (seq - from_seq):
           status:8 | flags:8 | 0:8 | place:8 + 16 B | body_bytes:32 | expiry_us:64
    N.qs   "RCQS" ...                                                        64 bytes
           term_bytes:32 | flags:8 | crc:16 | 0:8 | term

status: 1 live, 0 acked or never written. Lowest bit of flags: persistent; has a checksum. place: 0
in memory only; 1 in the message store, the 16 bytes are the id; 2 in N.qs, they are offset:64 |
term_bytes:32 | 0:32. The checksum is the low half of the term's CRC-32.

Nothing is live in a file beyond its last whole entry. Files may be sparse, since what was acked
before it was flushed was never written.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

from qindex._core import ffi, lib
from qindex.brokers.rabbitmq.erlang import ErlangError, end_of
from qindex.brokers.rabbitmq.index import SEQ_MAX, SLOTS_MAX
from qindex.brokers.rabbitmq.message import MessageError
from qindex.brokers.tree import Findings, Source, Tree

_HEADER: Final = Struct(">4sBQQ43x")
_ENTRY: Final = Struct(">BBBB16sIQ")
_STORED: Final = Struct(">IBHB").unpack
_STORED_HEAD_BYTES: Final = 8
_ENTRIES_DEFAULT: Final = 4096
_BLOCK: Final = SLOTS_MAX * _ENTRY.size
_FILE_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,14})\.qi")


def index_files(names: list[str]) -> list[int]:
    """The numbers of the .qi files among the names."""
    return sorted(int(name[:-3]) for name in names if _FILE_NAME.fullmatch(name))


def read_index_file(
    tree: Tree, where: str, number: int, live: Any, findings: Findings
) -> Iterator[tuple[Any, int]]:
    """Writes live entries to the array `live`, a part of the file at a time.

    Each time: the qi_rabbit_slots of the part, valid until the next one is asked for, and how many
    entries the file has room for.
    """
    source = tree.try_open(f"{where}/{number}.qi")
    if source is None:
        return
    stored_bytes = tree.size(f"{where}/{number}.qs")
    slots = ffi.new("qi_rabbit_slots *")
    with source:
        from_seq, entries = _bounds(source, number, findings)
        end = min(source.size, _HEADER.size + entries * _ENTRY.size)
        pos = _HEADER.size
        while pos + _ENTRY.size <= end:
            block = source.read(pos, min(_BLOCK, end - pos))
            if not block:
                break  # it became shorter while it was read
            seq = from_seq + (pos - _HEADER.size) // _ENTRY.size
            count = len(block) // _ENTRY.size
            lib.qi_rabbit_read_slots(block, count, seq, stored_bytes, live, slots)
            yield slots, entries
            pos += slots.used * _ENTRY.size
            if slots.bad:
                findings.damage("records lost", source.where, pos, "an entry makes no sense")
                pos += _ENTRY.size
        if (source.size - _HEADER.size) % _ENTRY.size and source.size < end + _ENTRY.size:
            findings.suspected("torn tail", source.where, end, "the last entry is cut")
        rest = source.read(end, _BLOCK) if _HEADER.size < end < source.size else b""
        if any(rest[_ENTRY.size - 1 :]):
            text = f"{len(rest):,} bytes behind the last entry that the header allows"
            findings.damage("header", source.where, end, text)


def entry_offset(tree: Tree, where: str, number: int, seq: int, findings: Findings) -> int | None:
    """Where the entry of `seq` is in N.qi; None if it is not in this file."""
    source = tree.try_open(f"{where}/{number}.qi")
    if source is None:
        return None
    with source:
        from_seq, entries = _bounds(source, number, findings)
        offset = _HEADER.size + (seq - from_seq) * _ENTRY.size
        inside = from_seq <= seq < from_seq + entries and offset + _ENTRY.size <= source.size
        return offset if inside else None


def read_slot(tree: Tree, where: str, offset: int) -> bytes:
    """The bytes of one slot; none if the file cannot be read."""
    source = tree.try_open(where)
    if source is None:
        return b""
    with source:
        return source.read(offset, _ENTRY.size)


def acked_seqs(tree: Tree, where: str, number: int, findings: Findings) -> Iterator[int]:
    """The acked messages that N.qi still tells of: they were written before they were acked."""
    source = tree.try_open(f"{where}/{number}.qi")
    if source is None:
        return
    with source:
        from_seq, entries = _bounds(source, number, findings)
        end = min(source.size, _HEADER.size + entries * _ENTRY.size)
        for pos in range(_HEADER.size, end, _BLOCK):
            block = source.read(pos, min(_BLOCK, end - pos))
            seq = from_seq + (pos - _HEADER.size) // _ENTRY.size
            for start in range(0, len(block) - _ENTRY.size + 1, _ENTRY.size):
                if block[start] == 0 and any(block[start : start + _ENTRY.size]):
                    yield seq + start // _ENTRY.size


def _bounds(source: Source, number: int, findings: Findings) -> tuple[int, int]:
    """(seq of the first entry, how many entries there can be)"""
    head = source.read(0, _HEADER.size)
    if len(head) < _HEADER.size:
        findings.suspected("torn tail", source.where, 0, "the header is cut")
        return 0, 0
    magic, version, from_seq, to_seq = _HEADER.unpack(head)
    entries = to_seq - from_seq
    is_sound = magic == b"RCQI" and version == 2 and entries > 0 and to_seq <= SEQ_MAX
    if is_sound and from_seq == number * entries:
        return from_seq, entries
    text = f"the header makes no sense: {_ENTRIES_DEFAULT} entries per file are assumed"
    findings.damage("header", source.where, 0, text)
    return number * _ENTRIES_DEFAULT, _ENTRIES_DEFAULT


def read_stored_term(source: Source, offset: int, term_bytes: int) -> bytes:
    """The term at `offset` of a .qs file; MessageError if it is not what was written."""
    head = source.read(offset - _STORED_HEAD_BYTES, _STORED_HEAD_BYTES)
    if len(head) < _STORED_HEAD_BYTES:
        raise MessageError("its place in the queue's store is cut")
    size, flags, crc, _ = _STORED(head)
    if size != term_bytes:
        raise MessageError(f"the index says {term_bytes} bytes, the queue's store {size}")
    data = source.read(offset, term_bytes)
    term = _without_padding(data)
    if flags & 1 and crc not in (zlib.crc32(data) & 0xFFFF, zlib.crc32(term) & 0xFFFF):
        raise MessageError("its checksum is wrong")
    return term


def _without_padding(data: bytes) -> bytes:
    """From RabbitMQ 3.12 on the size is an estimate, and zeros fill what the term does not need."""
    if data.endswith(b"\0"):
        with contextlib.suppress(ErlangError):
            end = end_of(data)
            if not any(data[end:]):
                return data[:end]
    return data
