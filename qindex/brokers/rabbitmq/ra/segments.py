"""Ra's segment files: entries of one server that left the shared log.

::

    "RASG" | version:16 = 1 or 2 | slots:16
    slots * {index:64 | term:64 | offset:32 or :64 | data_bytes:32 | crc:32}    unused ones are zero
    data

Offsets are 32 bits wide in version 1, 64 in version 2, and count from the start of the file. The
checksum is the CRC-32 of the data, 0 if there is none. Whoever writes a segment writes data first,
then slots, so that a file that is cut has slots without data.

A slot is used if and only if: 1. it is not all zeros, 2. its data is whole and behind the slots.
Behind slots that were overwritten the data itself is walked: each is a term, one behind the other.
"""

from __future__ import annotations

import re
import zlib
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from qindex._core import ffi, lib
from qindex.brokers.rabbitmq import erlang
from qindex.brokers.rabbitmq.ra.runs import COLUMNS_MAX, Columns, Place
from qindex.brokers.tree import Findings, Source, Tree
from qindex.words import many

HEADER_BYTES: Final = 8
_HEADER: Final = Struct(">4sHH")
_SLOT: Final = {1: Struct(">QQIII"), 2: Struct(">QQQII")}
_NAME: Final = re.compile(r"([0-9]{8}|[0-9]{16})\.segment")
_INDEX_MAX: Final = 1 << 48
CARVED_BYTES_MAX: Final = 256 << 20
ENTRY_BYTES_MAX: Final = 256 << 20
_CACHED: Final = 8


class Slot(NamedTuple):
    index: int  # type: ignore[assignment]
    term: int
    offset: int
    size: int
    crc: int


_NO_SLOT: Final = Slot(0, 0, 0, 0, 0)


def segment_files(names: list[str]) -> list[str]:
    """The segments among these names, the oldest first. Links are none of them."""
    found = [name for name in names if _NAME.fullmatch(name)]
    return sorted(found, key=lambda name: int(name.partition(".")[0]))


class SegmentFile:
    """One N.segment; `slots` and `version` are what its header says, 0 if it is none."""

    def __init__(self, source: Source, findings: Findings) -> None:
        self.source = source
        self.findings = findings
        self.version = self.slots = 0
        head = source.read(0, HEADER_BYTES)
        if len(head) == HEADER_BYTES:
            magic, version, slots = _HEADER.unpack(head)
            if magic == b"RASG" and version in _SLOT:
                self.version, self.slots = version, slots
        self._ask_first_slot()
        if not self.version:
            findings.damage("segment", source.where, 0, "this is no segment of version 1 or 2")

    def _ask_first_slot(self) -> None:
        """The data of the first slot begins where the slots end, whatever the header says."""
        for version in [self.version] if self.version else [2, 1]:
            shape = _SLOT[version]
            data = self.source.read(HEADER_BYTES, shape.size)
            if len(data) < shape.size:
                return
            slot = Slot._make(shape.unpack(data))
            slots, rest = divmod(slot.offset - HEADER_BYTES, shape.size)
            sane = not rest and 0 < slots < 1 << 16 and max(slot.index, slot.term) < _INDEX_MAX
            if sane and slot.offset + slot.size <= self.source.size:
                if (version, slots) != (self.version, self.slots):
                    text = f"the header is damaged; by the first slot there are {slots}"
                    self.findings.damage("segment", self.source.where, 0, text)
                self.version, self.slots = version, slots
                return

    @property
    def data_start(self) -> int:
        return HEADER_BYTES + self.slots * _SLOT[self.version].size

    def regular(self) -> tuple[int, Columns] | None:
        """The term and all slots, if each goes on behind the one before it and fills the file.

        That is the usual case. None if there is anything to look at, or no slot at all. Cost: a
        fifth of rows().
        """
        if not self.version:
            return None
        size = self.slots * _SLOT[self.version].size
        table, found = self.source.read(HEADER_BYTES, size), ffi.new("qi_ra_slots *")
        if len(table) < size:
            return None
        used = lib.qi_ra_read_slots(table, size, self.version, self.source.size, found)
        if not used:
            return None
        offsets = array("Q", ffi.buffer(found.offsets)[: 8 * used])
        sizes = array("I", ffi.buffer(found.sizes)[: 4 * used])
        crcs = array("I", ffi.buffer(found.crcs)[: 4 * used])
        indexes = range(found.first, found.first + used)
        return found.term, Columns(indexes, offsets, sizes, crcs)

    def rows(self) -> Iterator[Slot]:
        """Every slot that is used, in the order in which they were written."""
        if not self.version:
            return
        regular = self.regular()
        if regular is not None:
            term, columns = regular
            for index, offset, size, crc in columns.places():
                yield Slot(index, term, offset, size, crc)
            return
        shape = _SLOT[self.version]
        table = self.source.read(HEADER_BYTES, self.slots * shape.size)
        every = list(
            map(Slot._make, shape.iter_unpack(table[: len(table) // shape.size * shape.size]))
        )
        size, start = self.source.size, self.data_start
        filled, zeros = start, 0
        before: Slot | None = None
        for number, slot in enumerate(every):
            if not slot.offset and not any(slot):
                zeros += 1
                continue
            after = every[number + 1] if number + 1 < len(every) else _NO_SLOT
            end = slot.offset + slot.size
            if after.offset != end and after.offset:
                slot = self._mended(number, before, slot, after)
                end = slot.offset + slot.size
            elif slot.term > after.term > 0 or (before is not None and not _goes_on(before, slot)):
                slot = self._mended(number, before, slot, after)
            if slot.offset < start or end > size or max(slot.index, slot.term) >= _INDEX_MAX:
                self._tell(number, slot, "its data is not in the file")
                zeros += 1  # whatever stands there instead
                continue
            if zeros:
                yield from self._behind_zeros(before, filled, slot)
                zeros = 0
            yield slot
            before, filled = slot, end
        if filled < size and zeros:
            yield from self._behind_zeros(before, filled, None)

    def _mended(self, number: int, before: Slot | None, slot: Slot, after: Slot) -> Slot:
        """The slot as its neighbours make it, where these agree that one of its fields is wrong.

        No checksum covers a slot. It is true as it stands if a new leader wrote it, or in a log
        with gaps.
        """
        if before is None:
            before = Slot(-9, after.term, self.data_start, 0, 0)
        if not after.offset:
            return slot
        changes = {}
        if after.index == before.index + 2 != slot.index + 1:
            changes["index"] = before.index + 1
        if before.term == after.term != slot.term:
            changes["term"] = before.term
        filled = before.offset + before.size
        place = (slot.offset, slot.size)
        for offset, size in ((filled, slot.size), (filled, after.offset - filled)):
            if (offset, size) != place and offset + size == after.offset and size > 0:
                data = self.source.read(offset, min(size, ENTRY_BYTES_MAX))
                if slot.crc and zlib.crc32(data) == slot.crc:
                    changes["offset"], changes["size"] = offset, size
        if changes:
            told = ", ".join(f"{name} {value}" for name, value in changes.items())
            self._tell(number, slot, f"its slot is damaged; by its neighbours it has {told}")
        return slot._replace(**changes)

    def _tell(self, number: int, slot: Slot, text: str) -> None:
        place = HEADER_BYTES + number * _SLOT[self.version].size
        self.findings.damage("segment", self.source.where, place, f"entry {slot.index}: {text}")

    def _behind_zeros(self, before: Slot | None, start: int, after: Slot | None) -> Iterator[Slot]:
        """Entries whose slots were overwritten: in the data between two whose slots are there."""
        end = self.source.size if after is None else after.offset
        if not 0 < end - start <= CARVED_BYTES_MAX:
            return
        carved, stopped = self._carve(start, end)
        where = self.source.where
        if carved and before is not None and (after is None or after.index > before.index):
            first = before.index + 1
        elif carved and after is not None and after.index >= len(carved):
            first = after.index - len(carved)
        else:
            if carved or stopped != end:
                text = (
                    f"{many(end - start, 'byte')} of data without a slot that tells whose they are"
                )
                self.findings.damage("segment", where, start, text)
            return
        if after is not None and first + len(carved) != after.index:
            counted = many(len(carved), "entry", "entries")
            text = f"{counted} without slots, {many(after.index - first, 'is', 'are')} missing"
            self.findings.damage("segment", where, start, text)
            return
        term = (before or after or _NO_SLOT).term
        text = f"entries {first} to {first + len(carved) - 1} have no slots: their data was walked"
        self.findings.damage("segment", where, start, text)
        for number, (offset, size) in enumerate(carved):
            yield Slot(first + number, term, offset, size, 0)

    def _carve(self, start: int, end: int) -> tuple[list[tuple[int, int]], int]:
        """The terms that follow each other from `start`, and where that ends."""
        data = self.source.read(start, end - start)
        found, pos = [], 0
        while pos < len(data) and data[pos] == erlang.VERSION:
            try:
                behind = erlang.end_of(data, pos)
            except erlang.ErlangError:
                break
            found.append((start + pos, behind - pos))
            pos = behind
        return found, start + pos


def _goes_on(before: Slot, slot: Slot) -> bool:
    return slot.index == before.index + 1 and slot.term == before.term


class SegmentCache:
    """Places of entries in the segments that were asked for last, by term and index."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._kept: OrderedDict[str, dict[int, Columns]] = OrderedDict()

    def columns(self, where: str, term: int) -> Columns:
        """By index; of an index that was written twice the later one."""
        kept = self._kept.get(where)
        if kept is None:
            kept = self._kept[where] = self._read(where)
            if len(self._kept) > _CACHED:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(where)
        return kept.get(term, _NO_COLUMNS)

    def keep(self, where: str, term: int, columns: Columns) -> None:
        """What was read just now, and may be asked for soon."""
        self._kept[where] = {term: columns}
        if len(self._kept) > _CACHED:
            self._kept.popitem(last=False)

    def _read(self, where: str) -> dict[int, Columns]:
        source = self._tree.kept_open(where)
        if source is None:
            return {}
        segment = SegmentFile(source, Findings())
        regular = segment.regular()
        if regular is not None:
            return dict([regular])
        by_term: dict[int, list[Slot]] = {}
        for slot in segment.rows():
            by_term.setdefault(slot.term, []).append(slot)
        return {term: _columns(slots) for term, slots in by_term.items()}


def _columns(slots: list[Slot]) -> Columns:
    """By index; of an index that was written twice the later one."""
    if any(a.index >= b.index for a, b in pairwise(slots)):
        later = {slot.index: slot for slot in slots}
        slots = [later[index] for index in sorted(later)]
    indexes, _, offsets, sizes, crcs = zip(*slots, strict=True)
    return Columns(indexes, array("Q", offsets), array("I", sizes), crcs)


_NO_COLUMNS: Final = Columns((), array("Q"), array("I"), ())


class SegmentRun:
    """A run of one segment: its slots are read again when they are wanted."""

    __slots__ = ("_cache", "_count", "first", "last", "sound", "term", "where")

    def __init__(self, cache: SegmentCache, where: str, term: int, first: int) -> None:
        self._cache = cache
        self.where = where
        self.term = term
        self.first = first
        self.last = first - 1
        self.sound = True
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, index: int) -> None:
        """One more; `index` is greater than the last one."""
        self.last = index
        self._count += 1

    def add_all(self, columns: Columns) -> None:
        """These, without gaps."""
        self.last = columns.indexes[-1]
        self._count += len(columns)

    def places(self, first: int, last: int) -> Iterator[Place]:
        for columns in self.columns(first, last):
            yield from columns.places()

    def columns(self, first: int, last: int) -> Iterator[Columns]:
        every = self._cache.columns(self.where, self.term)
        first, last = max(first, self.first), min(last, self.last)
        start, end = bisect_left(every.indexes, first), bisect_left(every.indexes, last + 1)
        for at in range(start, end, COLUMNS_MAX):
            yield every.part(at, min(at + COLUMNS_MAX, end))

    def part(self, first: int, last: int) -> SegmentRun | None:
        if first <= self.first and last >= self.last:
            return self
        indexes = [place.index for place in self.places(first, last)]
        if not indexes:
            return None
        kept = SegmentRun(self._cache, self.where, self.term, indexes[0])
        kept.last, kept._count = indexes[-1], len(indexes)
        return kept
