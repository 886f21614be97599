"""The two containers in which Erlang keeps terms in files: disk_log and dets.

Rules of this file: only as much as it takes to read what a broker left behind; damage ends the
reading, it never raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from qindex.brokers.rabbitmq import erlang
from qindex.brokers.rabbitmq.erlang import Term
from qindex.brokers.tree import Findings, Source
from qindex.words import many

_U32: Final = Struct(">I").unpack_from

_LOG_MAGIC: Final = b"\x01\x02\x03\x04"
_LOG_ITEM: Final = b"bWLA"
_ITEM_HEAD_BYTES_MAX: Final = 4 + 4 + 16 + 1  # and the first byte of the term
_LOG_ITEM_BIG: Final = 65528  # from this size on the digest of the size follows, 16 bytes

_DETS_ACTIVE: Final = b"\x12\x34\x56\x78"
_DETS_COOKIE: Final = b"\x00\xab\xcd\xef"
_DETS_VERSION: Final = (9).to_bytes(4, "big")
DETS_BYTES_MIN: Final = 5432  # its head, the lists of free space and the first table of tables

TERM_BYTES_MAX: Final = 16 * 1024 * 1024
FILE_BYTES_MAX: Final = 256 * 1024 * 1024


def log_terms(source: Source, findings: Findings) -> Iterator[Term]:
    """The terms of a disk_log (mnesia's .LOG, .DCD, .DCL), to its end or to where it is torn.

    The file is 8 bytes of head, then items: size:32 | "bWLA" | term.
    """
    if source.read(0, 4) != _LOG_MAGIC:
        if source.size:
            findings.damage("no log", source.where, 0, "this is no disk_log")
        return
    pos = 8
    while pos < source.size:
        head = source.read(pos, 8)
        size = _U32(head)[0] if len(head) == 8 else 0
        start = pos + 8 + (16 if size >= _LOG_ITEM_BIG else 0)
        if head[4:] != _LOG_ITEM or start + size > source.size or size > TERM_BYTES_MAX:
            following = _next_item(source, pos + 1)
            if following is None:
                text = "the log ends here, in the middle of an item"
                findings.note("torn tail", source.where, pos, text)
                return
            text = many(following - pos, "byte is", "bytes are")
            findings.damage("bad item", source.where, pos, f"{text} no item of the log")
            pos = following
            continue
        try:
            yield erlang.decode(source.read(start, size))
        except erlang.ErlangError as error:
            findings.damage("bad item", source.where, pos, str(error))
        pos = start + size


def _next_item(source: Source, pos: int) -> int | None:
    """Where the next item begins that fits into the file and holds a term."""
    for base, block in source.blocks(pos, overlap=_ITEM_HEAD_BYTES_MAX):
        mark = block.find(_LOG_ITEM, 4)
        while mark >= 0:
            size = _U32(block, mark - 4)[0]
            start = mark + 4 + (16 if size >= _LOG_ITEM_BIG else 0)
            fits = size <= TERM_BYTES_MAX and base + start + size <= source.size
            if fits and block[start : start + 1] == b"\x83":
                return base + mark - 4
            mark = block.find(_LOG_ITEM, mark + 1)
    return None


def dets_objects(source: Source, findings: Findings) -> Iterator[Term]:
    """The objects of a dets file, in no order, found by their mark instead of through its tables.

    A collection is bytes:32 | 0x12345678 | objects; an object is size:32 | term, where size counts
    itself.
    """
    data = source.read(0, FILE_BYTES_MAX)
    mark = data.find(_DETS_ACTIVE)
    while mark >= 0:
        pos = mark + 4
        while pos + 5 <= len(data) and data[pos + 4] == erlang.VERSION:
            size = _U32(data, pos)[0]
            if not 4 < size <= min(len(data) - pos, TERM_BYTES_MAX):
                break
            try:
                yield erlang.decode(data[pos + 4 : pos + size])
            except erlang.ErlangError as error:
                findings.damage("bad object", source.where, pos, str(error))
                break
            pos += size
        mark = data.find(_DETS_ACTIVE, pos)


def is_dets(source: Source) -> bool:
    """Whether the file is a dets table that was not cut: one without objects is one, too.

    The head is bytes_free:32 | 0xABCDEF | closed:32 | type:32 | version:32 = 9 | ...
    """
    head = source.read(0, 20)
    is_head = head[4:8] == _DETS_COOKIE and head[16:20] == _DETS_VERSION
    return is_head and source.size >= DETS_BYTES_MIN
