"""One server's log, merged from its segments and from the log that it shares with others.

What is written later counts. An entry that is written again with the same term is the same entry,
by the rules of Raft, so that nothing is lost by keeping the copy that came first; the other one is
kept aside in case the first cannot be read. An entry with another term is one that a new leader put
in its place: it voids what stood there and all that stood above.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from qindex._core import ffi, lib
from qindex.brokers.rabbitmq.ra.runs import Columns, Place, Run
from qindex.brokers.rabbitmq.ra.segments import ENTRY_BYTES_MAX
from qindex.brokers.tree import Findings, Source, Tree
from qindex.words import many

_READ_AHEAD: Final = 256 * 1024


class Entry(NamedTuple):
    """One entry as it is stored: `data` is an Erlang term, not decoded yet."""

    index: int  # type: ignore[assignment]
    term: int
    data: bytes
    where: str
    offset: int
    sound: bool  # False: a checksum does not match


class Block(NamedTuple):
    """Entries that lie close together in one file, and the bytes of the file from `base` on.

    `bad`: those whose checksum does not match. What is not in the bytes is for Log.entry().
    """

    run: Run
    columns: Columns
    base: int
    data: bytes
    bad: list[int]


@dataclass(slots=True)
class Log:
    """The entries of one server by index. Entries may be missing anywhere: `holes()`."""

    uid: str
    tree: Tree
    findings: Findings
    runs: list[Run] = field(default_factory=list)  # by index, without overlaps
    spare: list[Run] = field(default_factory=list)
    voided: int = 0  # entries that another leader's took the place of

    @property
    def first(self) -> int:
        return self.runs[0].first if self.runs else 0

    @property
    def last(self) -> int:
        """0: the log is empty."""
        return self.runs[-1].last if self.runs else 0

    @property
    def last_term(self) -> int:
        return self.runs[-1].term if self.runs else 0

    def __len__(self) -> int:
        return sum(len(run) for run in self.runs)

    # --- building ---------------------------------------------------------------------------------

    def append(self, run: Run) -> None:
        """Entries that were written behind all that were appended before."""
        if not len(run):
            return
        if run.first > self.last:
            self.runs.append(run)
            return
        at = bisect_left(self.runs, run.first, key=lambda each: each.last)
        rest: Run | None = run
        while rest is not None and at < len(self.runs) and self.runs[at].first <= rest.last:
            old = self.runs[at]
            if old.term != rest.term:
                if not rest.sound:
                    self.spare.append(rest)
                    return
                self._void(rest.first, by=rest)
                at = len(self.runs)
            else:
                rest = self._beside(at, old, rest)
                at = bisect_left(self.runs, old.last, key=lambda each: each.last) + 1
        if rest is not None:
            self.runs.insert(at, rest)

    def _void(self, index: int, by: Run) -> None:
        """Drops `index` and all above: `by` stands there. No leader goes back to an older term."""
        kept: list[Run] = []
        newer = 0
        for run in self.runs:
            part = run.part(run.first, index - 1) if run.first < index else None
            voided = len(run) - (len(part) if part is not None else 0)
            self.voided += voided
            newer += voided if run.term > by.term else 0
            if part is not None:
                kept.append(part)
        self.runs = kept
        if newer:
            text = (
                f"{many(newer, 'entry', 'entries')} of a newer term than {by.term} are not taken,"
            )
            text += f" since this file, with entry {by.first} and more, was written later: it, or"
            text += " the one before, is of another time"
            self.findings.suspected("older term", by.where, 0, text)

    def _beside(self, at: int, old: Run, new: Run) -> Run | None:
        """Puts what of `new` is not in `old`, of the same term, before it: what is behind it."""
        before = new.part(new.first, old.first - 1) if new.first < old.first else None
        inside = new.part(old.first, old.last)
        if before is not None:
            self.runs.insert(at, before)
            at += 1
        if inside is not None:
            if not old.sound and inside.sound:
                self.runs[at] = inside
                self.spare.append(old)
            elif len(old) == old.last - old.first + 1:
                self.spare.append(inside)
            else:
                self._fill(at, old, inside)
        return new.part(old.last + 1, new.last) if new.last > old.last else None

    def _fill(self, at: int, old: Run, new: Run) -> None:
        """Both have gaps: the entries of `new` that `old` lacks go into these."""
        have = {place.index for place in old.places(old.first, old.last)}
        pieces: list[Run] = []
        done = old.first
        wanted = [p.index for p in new.places(new.first, new.last) if p.index not in have]
        for index in wanted:
            parts = (old.part(done, index - 1), new.part(index, index))
            pieces += [part for part in parts if part is not None]
            done = index + 1
        rest = old.part(done, old.last)
        self.runs[at : at + 1] = [*pieces, rest] if rest is not None else pieces
        self.spare.append(new)

    # --- reading ----------------------------------------------------------------------------------

    def holes(self, first: int, last: int | None = None) -> list[tuple[int, int]]:
        """The indexes from `first` to `last` (without it, of the log) that no file has."""
        missing: list[tuple[int, int]] = []
        expected, last = first, self.last if last is None else last
        for run in self.runs:
            if run.last < expected:
                continue
            if run.first > expected:
                missing.append((expected, min(run.first - 1, last)))
            if len(run) < run.last - run.first + 1:
                at = max(expected, run.first)
                for place in run.places(at, run.last):
                    if place.index > at:
                        missing.append((at, place.index - 1))
                    at = place.index + 1
            expected = run.last + 1
            if expected > last:
                break
        if expected <= last:
            missing.append((expected, last))
        return [(low, high) for low, high in missing if low <= min(high, last)]

    def term_at(self, index: int) -> int:
        """The term of the entry; 0 if there is none."""
        at = bisect_left(self.runs, index, key=lambda run: run.last)
        return self.runs[at].term if at < len(self.runs) and self.runs[at].first <= index else 0

    def has(self, index: int) -> bool:
        """Whether any file has the entry."""
        at = bisect_left(self.runs, index, key=lambda run: run.last)
        if at == len(self.runs) or self.runs[at].first > index:
            return False
        run = self.runs[at]
        return len(run) == run.last - run.first + 1 or any(run.places(index, index))

    def place(self, index: int) -> tuple[str, int] | None:
        """The file that has the entry, and the bytes of its data."""
        at = bisect_left(self.runs, index, key=lambda run: run.last)
        if at == len(self.runs) or self.runs[at].first > index:
            return None
        place = next(self.runs[at].places(index, index), None)
        return None if place is None else (self.runs[at].where, place.size)

    def entries(self, first: int = 0) -> Iterator[Entry]:
        """All from index `first` on, in order. One whose data cannot be read is a finding."""
        for run in self.runs:
            if run.last >= first:
                yield from self._entries_of(run, max(first, run.first), run.last)

    def entry(self, index: int) -> Entry | None:
        """The one at this index."""
        at = bisect_left(self.runs, index, key=lambda run: run.last)
        if at == len(self.runs) or self.runs[at].first > index:
            return None
        return next(self._entries_of(self.runs[at], index, index), None)

    def entry_of(self, block: Block, at: int) -> Entry | None:
        """The entry at this place of a block."""
        run, columns = block.run, block.columns
        index, offset, size = columns.indexes[at], columns.offsets[at], columns.sizes[at]
        start = offset - block.base
        if start < 0 or start + size > len(block.data) or at in block.bad:
            return self.entry(index)
        data = block.data[start : start + size]
        return Entry(index, run.term, data, run.where, offset, True)

    def _entries_of(self, run: Run, first: int, last: int) -> Iterator[Entry]:
        for columns in run.columns(first, last):
            yield from self._read(run, [*columns.places()])

    def blocks(self, first: int, last: int) -> Iterator[Block]:
        """The places and bytes of the entries from index `first` to `last`, in order."""
        for run in self.runs:
            if run.last < first or run.first > last:
                continue
            for columns in run.columns(max(first, run.first), min(last, run.last)):
                start = 0
                while start < len(columns):
                    stop = _together(columns, start) if run.sound else start
                    if stop > start:
                        yield self._read_block(run, columns.part(start, stop))
                    else:
                        stop = start + 1
                        yield Block(run, columns.part(start, stop), 0, b"", [])
                    start = stop

    def _read_block(self, run: Run, columns: Columns) -> Block:
        base = columns.offsets[0]
        end = columns.offsets[-1] + columns.sizes[-1]
        source = self.tree.kept_open(run.where)
        data = b"" if source is None else source.read(base, end - base)
        bad = [] if columns.crcs is None else _bad(data, base, columns, columns.crcs)
        return Block(run, columns, base, data, bad)

    def _read(self, run: Run, group: list[Place]) -> Iterator[Entry]:
        """Reads places that lie close together at once."""
        where, term, sound = run.where, run.term, run.sound
        source = self.tree.kept_open(where)
        if source is None:
            return
        block, base = b"", 0
        for number, (index, offset, size, crc) in enumerate(group):
            at = offset - base
            if at < 0 or at + size > len(block):
                source = self.tree.kept_open(where)
                if source is None:
                    return
                block, base = self._block(source, group, number), offset
                at = 0
            data = block[at : at + size]
            if len(data) < size:
                self.findings.damage("entry", where, offset, f"entry {index} cannot be read")
                continue
            if crc and zlib.crc32(data) != crc:
                other = self._spare(index, term)
                text = f"entry {index}: the checksum does not match"
                if other is not None:
                    text += f"; its copy in {other.where} is taken"
                self.findings.damage("entry", where, offset, text)
                yield other or Entry(index, term, data, where, offset, False)
            else:
                yield Entry(index, term, data, where, offset, sound)

    def _block(self, source: Source, group: list[Place], number: int) -> bytes:
        """The bytes of the place of this number, and of those behind it if they lie close."""
        start, size = group[number].offset, group[number].size
        if size > ENTRY_BYTES_MAX:
            text = f"entry {group[number].index} has {size} bytes, more than {ENTRY_BYTES_MAX}"
            self.findings.damage("entry", source.where, start, f"{text}: it is not read")
            return b""
        end = wanted = start + size
        used = size
        for place in group[number + 1 :]:
            used += place.size
            wanted = place.offset + place.size
            if place.offset < start or wanted - start > min(_READ_AHEAD, 4 * used + 4096):
                break
            end = max(end, wanted)
        return source.read(start, end - start)

    def _spare(self, index: int, term: int) -> Entry | None:
        for run in self.spare:
            if run.term == term and run.sound and run.first <= index <= run.last:
                place = next(run.places(index, index), None)
                source = self.tree.kept_open(run.where)
                if place is None or source is None or place.size > ENTRY_BYTES_MAX:
                    continue
                data = source.read(place.offset, place.size)
                if len(data) == place.size and place.crc in (0, zlib.crc32(data)):
                    return Entry(index, term, data, run.where, place.offset, True)
        return None


def _bad(data: bytes, base: int, columns: Columns, crcs: Sequence[int]) -> list[int]:
    """The places whose bytes in `data`, which is the file from `base` on, have another checksum."""
    count = len(columns)
    wrong = ffi.new("uint32_t[]", count)
    found = lib.qi_ra_check_entries(
        data,
        len(data),
        base,
        count,
        ffi.from_buffer("uint64_t[]", columns.offsets),
        ffi.from_buffer("uint32_t[]", columns.sizes),
        ffi.from_buffer("uint32_t[]", crcs if isinstance(crcs, array) else array("I", crcs)),
        wrong,
    )
    return list(wrong[0:found])


def _together(columns: Columns, start: int) -> int:
    """Behind the entries from this one on that can be read at once; `start` if not even it can."""
    offsets, sizes = columns.offsets, columns.sizes
    stop = len(columns)
    while stop > start:
        spread = offsets[stop - 1] + sizes[stop - 1] - offsets[start]
        used = sum(sizes[start:stop])
        if used <= spread <= min(_READ_AHEAD, 4 * used + 4096):
            return stop
        stop = start + (stop - start) // 2
    return start
