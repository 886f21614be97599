"""What lies in the folder of a queue: which file is what, and whose folder it is."""

from __future__ import annotations

import re
from struct import Struct
from typing import Final, NamedTuple

from qindex.brokers.tree import Tree
from qindex.native.frames import HEADER_BYTES, HEADER_COPY, crc

JOURNALS: Final = ("journal.jif", "journal.alt")
FILE_BYTES_MAX: Final = 1 << 30  # of a journal or a segment: FORMAT.rst, section 8
PAST: Final = re.compile(r"past\.([1-9][0-9]{0,18})\.(?:jif|(0|[1-9][0-9]{0,18})\.(?:idx|alt))")
_SEGMENT: Final = re.compile(r"(0|[1-9][0-9]{0,18})\.(?:idx|alt)")
_META: Final = Struct(">8sII16s")  # magic, version, bytes of the name, identity; the name; a CRC
_META_MAGIC: Final = b"QIQUEU\r\n"
_RENAMED: Final = 2  # the version that has a second name
_NEXT: Final = Struct(">32sI")  # the folder that it is for, bytes of the name; the name; a CRC
_META_BYTES_MAX: Final = 1 << 20


class QueueMeta(NamedTuple):
    """What queue.meta says."""

    identity: bytes
    name: str


def segment_number(where: str) -> int | None:
    """Which segment a file holds; None: it is no segment. There may be two files of one."""
    found = _SEGMENT.fullmatch(where.rpartition("/")[2])
    return int(found[1]) if found else None


def is_index_file(where: str) -> bool:
    """A journal or a segment."""
    return where.rpartition("/")[2] in JOURNALS or segment_number(where) is not None


def is_flushed(journal: bytes | bytearray) -> bool:
    """It has no header: what it held is in the segments."""
    copies = (journal[at : at + HEADER_BYTES] for at in (0, HEADER_COPY))
    return not any(map(any, copies))


def read_meta(tree: Tree, folder: str) -> QueueMeta | None:
    """From the first valid copy in queue.meta; None: there is none."""
    data = tree.read(f"{folder}/queue.meta", _META_BYTES_MAX) or b""
    for start in (0, len(data) // 2):
        copy = data[start:]
        if len(copy) < _META.size or not copy.startswith(_META_MAGIC):
            continue
        _, version, name_bytes, identity = _META.unpack_from(copy)
        end = _META.size + name_bytes
        if not _is_sealed(copy, end):
            continue
        name = copy[_META.size : end]
        if version == _RENAMED:  # a rename was cut off: which name counts, the folder says
            if len(copy) < end + 4 + _NEXT.size:
                continue
            place, name_bytes = _NEXT.unpack_from(copy, end + 4)
            begin = end + 4 + _NEXT.size
            end = begin + name_bytes
            if not _is_sealed(copy, end):
                continue
            if place.decode("ascii", "replace") == folder.rpartition("/")[2]:
                name = copy[begin:end]
        return QueueMeta(identity, name.decode("utf-8", "surrogatepass"))
    return None


def _is_sealed(copy: bytes, end: int) -> bool:
    """Behind `end` stands the CRC of what is before it."""
    return len(copy) >= end + 4 and crc(0, copy[:end]) == int.from_bytes(copy[end : end + 4], "big")
