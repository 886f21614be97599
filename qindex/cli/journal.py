"""A queue's journals as records, in the order in which they were written; also of a live store.

The core reads the bytes (dump.c). What a flush has moved to the segments is not in a journal any
more, so this is the recent past only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, NamedTuple

from qindex._core import ffi, lib
from qindex.cli.dump import JOURNALS, dump_lines
from qindex.formats.foreign import Tree

_START: Final = 8192
_COPY: Final = 4096
_HEADER: Final = Struct(">8s24xQQ12xI")
_MAGIC: Final = b"QIJRNL\r\n"
_FRAME_BYTES: Final = 8
_U64: Final = Struct(">Q")
_CLOCK: Final = Struct(">8xQ")


LANE: Final = 1 << 52  # a ReqId is a lane (0: no priority, no delay) and a count


class Record(NamedTuple):
    """`verb`: publish, deliver, ack; clock: it was `us`; purge: acks all whose count is below
    req_id, in all lanes, but `kept`.

    damage: bytes that are no frame (at the end: what a crash cut off).
    """

    verb: str
    req_id: int = 0
    us: int = 0
    kept: frozenset[int] = frozenset()


@dataclass(slots=True)
class Journal:
    """A journal file that counts: it has a header. `offset`: how far it was read."""

    tree: Tree
    where: str
    epoch: int
    created_us: int
    offset: Any

    @classmethod
    def at(cls, tree: Tree, where: str) -> Journal | None:
        source = tree.try_open(where)
        if source is None:
            return None
        with source:
            found = _epoch_and_clock(source.read(0, _START))
        return found and cls(tree, where, *found, ffi.new("uint64_t *", 0))

    def records(self, end: int | None = None) -> Iterator[Record]:
        """Those not read yet, up to `end`; none if the file was flushed or removed meanwhile."""
        data = self._read(end)
        found = _epoch_and_clock(data)
        if found and found[0] == self.epoch:
            for line in dump_lines(data, self.offset):
                record = _record(line, data)
                if record is not None:
                    yield record

    def _read(self, end: int | None) -> bytearray:
        """Headers and what is new at their places, zeros between: the checksums want the places.

        Read, not mapped: a writer may cut the file meanwhile, which would be a SIGBUS.
        """
        source = self.tree.try_open(self.where)
        if source is None:
            return bytearray()
        start = max(_START, self.offset[0] & ((1 << 36) - 1))
        with source:
            data = bytearray(source.size if end is None else min(source.size, end))
            head, news = source.read(0, _START), source.read(start, len(data) - start)
        data[: len(head)] = head
        data[start : start + len(news)] = news
        return data


def _epoch_and_clock(head: bytes | bytearray) -> tuple[int, int] | None:
    """The epoch of the header's newest valid copy, and when it was created."""
    found = []
    for copy in (0, _COPY):
        header = bytes(head[copy : copy + _HEADER.size])
        if len(head) >= _START and header.startswith(_MAGIC):
            _, epoch, created_us, crc = _HEADER.unpack(header)
            if lib.qi_crc32c(0, header, _HEADER.size - 4) == crc:
                found.append((epoch, created_us))
    return max(found, default=None)


def journals_in(tree: Tree, folder: str) -> list[Journal]:
    """Those that count, the older one first: two while a flush is under way, or was cut off."""
    found = [Journal.at(tree, f"{folder}/{name}") for name in JOURNALS]
    return sorted((each for each in found if each), key=lambda journal: journal.epoch)


def _record(line: str, data: bytearray) -> Record | None:
    words = line.split(None, 4)
    verb = words[1]
    if verb == "publish":
        return Record(verb, int(words[3]))
    if verb in ("deliver", "ack"):
        return Record(verb, int(words[2]))
    if verb in ("mark", "close"):
        (clock_us,) = _CLOCK.unpack_from(data, int(words[0]) + _FRAME_BYTES)
        return Record("clock", us=clock_us) if clock_us else None  # no sync yet in its session
    if verb == "purge":
        first = int(words[0]) + _FRAME_BYTES
        payload = data[first : first + int(words[2])]
        limit, *kept = (number for (number,) in _U64.iter_unpack(payload))
        return Record(verb, limit, kept=frozenset(kept))
    return Record("damage") if verb == "BAD" else None
