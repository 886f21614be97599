"""Where entries are: many of one server, of one term, in one file, by ascending index.

A run holds no data, and of a segment not even the places, so that a log of millions of entries is a
few hundred objects.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

COLUMNS_MAX: Final = 512  # entries at once


class Place(NamedTuple):
    """Where an entry's data is. crc is its CRC-32, 0: unchecked or checked already."""

    index: int  # type: ignore[assignment]
    offset: int
    size: int
    crc: int


class Columns(NamedTuple):
    """Places of many entries. `crcs` is None where they were checked already."""

    indexes: Sequence[int]
    offsets: array[int]
    sizes: array[int]
    crcs: Sequence[int] | None

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, start: int, stop: int) -> Columns:
        crcs = self.crcs
        return Columns(
            self.indexes[start:stop],
            self.offsets[start:stop],
            self.sizes[start:stop],
            None if crcs is None else crcs[start:stop],
        )

    def places(self, start: int = 0) -> Iterator[Place]:
        """One by one."""
        crcs = self.crcs
        for at in range(start, len(self.offsets)):
            crc = 0 if crcs is None else crcs[at]
            yield Place(self.indexes[at], self.offsets[at], self.sizes[at], crc)


class Run(Protocol):
    """Entries of one term in one file."""

    where: str
    term: int
    first: int
    last: int
    sound: bool  # False: the checksum of its one entry does not match

    def __len__(self) -> int: ...
    def places(self, first: int, last: int) -> Iterator[Place]:
        """Those from index `first` to `last`."""

    def columns(self, first: int, last: int) -> Iterator[Columns]:
        """The same, COLUMNS_MAX at once."""

    def part(self, first: int, last: int) -> Run | None:
        """The same without the others; None if none is left."""


class WalRun:
    """A run of a write-ahead log: twelve bytes an entry, twenty if the indexes have gaps."""

    __slots__ = ("first", "indexes", "last", "offsets", "sizes", "sound", "term", "where")

    def __init__(self, where: str, term: int, first: int, sound: bool = True) -> None:
        self.where = where
        self.term = term
        self.first = first
        self.last = first - 1
        self.sound = sound
        self.offsets = array("Q")
        self.sizes = array("I")
        self.indexes: array[int] | None = None  # None: without gaps

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, index: int, offset: int, size: int) -> None:
        """One more; `index` is greater than the last one."""
        if index != self.last + 1 and self.indexes is None:
            self.indexes = array("Q", range(self.first, self.last + 1))
        if self.indexes is not None:
            self.indexes.append(index)
        self.last = index
        self.offsets.append(offset)
        self.sizes.append(size)

    def goes_on(self, index: int, term: int) -> bool:
        """Whether a valid entry with this index and term is the next one of this run."""
        return index == self.last + 1 and term == self.term and self.sound

    def extend(self, offsets: array[int], sizes: array[int]) -> None:
        """Many more, without gaps, of a run without any."""
        self.last += len(offsets)
        self.offsets.extend(offsets)
        self.sizes.extend(sizes)

    def _slots(self, first: int, last: int) -> tuple[int, int]:
        if self.indexes is None:
            return max(0, first - self.first), min(len(self), last - self.first + 1)
        return bisect_left(self.indexes, first), bisect_left(self.indexes, last + 1)

    def places(self, first: int, last: int) -> Iterator[Place]:
        for columns in self.columns(first, last):
            yield from columns.places()

    def columns(self, first: int, last: int) -> Iterator[Columns]:
        start, end = self._slots(first, last)
        for at in range(start, end, COLUMNS_MAX):
            stop = min(at + COLUMNS_MAX, end)
            indexes: Sequence[int] = range(self.first + at, self.first + stop)
            if self.indexes is not None:
                indexes = self.indexes[at:stop]
            yield Columns(indexes, self.offsets[at:stop], self.sizes[at:stop], None)

    def part(self, first: int, last: int) -> WalRun | None:
        start, end = self._slots(first, last)
        if start >= end:
            return None
        if (start, end) == (0, len(self)):
            return self
        kept = WalRun(self.where, self.term, self.first + start, self.sound)
        kept.offsets, kept.sizes = self.offsets[start:end], self.sizes[start:end]
        kept.last = self.first + end - 1
        if self.indexes is not None:
            kept.indexes = self.indexes[start:end]
            kept.first, kept.last = kept.indexes[0], kept.indexes[-1]
        return kept
