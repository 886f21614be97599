"""One queue directory of RabbitMQ: which of its messages are live, in order, segment by segment.

Memory holds the journal and one segment, however long the queue is.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, Final, TypeAlias

from qindex._core import ffi, lib
from qindex.brokers.rabbitmq.doubts import Doubts
from qindex.brokers.rabbitmq.index import (
    SLOTS_MAX,
    Entry,
    Journal,
    Row,
    Segment,
    read_journal,
    read_segment,
    rows,
)
from qindex.brokers.rabbitmq.index_v2 import index_files, read_index_file
from qindex.brokers.tree import Findings, Tree

# seq, was it delivered (RabbitMQ before 3.10), the file that names it, its entry
Live: TypeAlias = tuple[int, bool, str, Entry]

_STORED_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,14})\.qs")
_SEGMENT_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,14})\.idx")


@dataclass(slots=True)
class Counts:
    """An account of a queue that adds up: published = acked + transient + body_missing + live."""

    published: int = 0
    acked: int = 0
    transient: int = 0  # not acked, but never meant to survive a restart
    body_missing: int = 0
    live: int = 0
    live_body_bytes: int = 0
    stored: int = 0  # of the live ones; the others are embedded in the index
    expiring: int = 0  # of the live ones
    redelivered: int = 0  # of the live ones
    orphan_marks: int = 0  # delivers and acks in the journal whose publish is nowhere
    journal_records: int = 0
    segment_records: int = 0
    segments: int = 0

    def add(self, other: Counts) -> None:
        for count in fields(Counts):
            setattr(self, count.name, getattr(self, count.name) + getattr(other, count.name))


@dataclass(slots=True)
class Batch:
    """Messages that were published and not acked, by seq: an array of qi_rabbit_entry.

    It is valid until the next one is asked for.
    """

    entries: Any
    count: int
    file: str  # that names them
    beside: str  # the file with the terms of those that are QI_RABBIT_BESIDE

    def rows(self) -> Iterator[Live]:
        """Those that are not QI_RABBIT_MISSING, which is for who counted them to set."""
        for row in rows(self.entries, self.count):
            if not row[2] & lib.QI_RABBIT_MISSING:
                yield self._live(row)

    def row(self, index: int) -> Live:
        """The one of that number among all."""
        (row,) = rows(self.entries + index, 1)
        return self._live(row)

    def _live(self, row: Row) -> Live:
        seq, state, flags, entry = row
        file = self.beside if flags & lib.QI_RABBIT_BESIDE else self.file
        return seq, state == lib.QI_RABBIT_DELIVERED, file, entry

    def missing(self) -> list[int]:
        """The seqs of those that are QI_RABBIT_MISSING."""
        entries = rows(self.entries, self.count)
        return [seq for seq, _, flags, _ in entries if flags & lib.QI_RABBIT_MISSING]


def scan_queue(
    tree: Tree,
    where: str,
    slots: int,
    findings: Findings,
    counts: Counts,
    doubts: Doubts | None = None,
) -> Iterator[Batch]:
    """Every message that was published and not acked, by seq. Counts as it goes along.

    `doubts` gets what may show that something is missing: only who counts needs that.
    """
    try:
        names = tree.files(where)
    except OSError as error:
        findings.damage("missing", where, 0, f"cannot be listed: {error.strerror}")
        return
    old = any(name == "journal.jif" or _SEGMENT_NAME.fullmatch(name) for name in names)
    numbers = index_files(names)
    if doubts is not None:
        stored = {int(name[:-3]) for name in names if _STORED_NAME.fullmatch(name)}
        for number in sorted(stored.difference(numbers)):
            doubts.missing_index(number)
    if not numbers:
        yield from _scan_v1(tree, where, names, slots, findings, counts, doubts)
    elif not old:
        yield from scan_v2(tree, where, numbers, findings, counts, doubts)
    else:  # both halves have gaps
        v1 = _scan_v1(tree, where, names, slots, findings, counts)
        v2 = scan_v2(tree, where, numbers, findings, counts)
        yield from _merged(v1, v2, counts)


def _merged(v1: Iterator[Batch], v2: Iterator[Batch], counts: Counts) -> Iterator[Batch]:
    """An interrupted conversion: what got to the one may still be in the other. Not quick."""
    seen = -1
    entries = ffi.new("qi_rabbit_entry[1]")
    both = heapq.merge(_one_by_one(v2), _one_by_one(v1), key=itemgetter(0))
    for seq, entry, file, beside in both:
        if seq == seen:
            counts.published -= 1
        else:
            seen = seq
            ffi.buffer(entries)[:] = entry
            yield Batch(entries, 1, file, beside)


def _one_by_one(batches: Iterator[Batch]) -> Iterator[tuple[int, bytes, str, str]]:
    size = ffi.sizeof("qi_rabbit_entry")
    for batch in batches:
        for index in range(batch.count):
            entry = batch.entries + index
            yield entry.seq, ffi.buffer(entry, size)[:], batch.file, batch.beside


def scan_v2(
    tree: Tree,
    where: str,
    numbers: list[int],
    findings: Findings,
    counts: Counts,
    doubts: Doubts | None = None,
) -> Iterator[Batch]:
    """scan_queue() of these files of version 2."""
    counts.segments += len(numbers)
    live = ffi.new("qi_rabbit_entry[]", SLOTS_MAX)
    for number in numbers:
        named = end = used = zeros = 0
        for part, room in read_index_file(tree, where, number, live, findings):
            count, published = part.live, part.published
            counts.segment_records += published
            counts.published += published
            counts.acked += published - count
            named, end, used = named + part.named, max(end, part.end), used + published
            zeros += part.used - published
            if doubts is not None:
                doubts.live(live, count, room)
                if part.half_acked:
                    doubts.half_acked(number, part.half_acked)
            yield Batch(live, count, f"{where}/{number}.qi", f"{where}/{number}.qs")
        if doubts is not None:
            doubts.bodies(number, named, end, used, zeros)
    if doubts is not None:
        doubts.end()


def _scan_v1(
    tree: Tree,
    where: str,
    names: list[str],
    slots: int,
    findings: Findings,
    counts: Counts,
    doubts: Doubts | None = None,
) -> Iterator[Batch]:
    journal_file = f"{where}/journal.jif"
    source = tree.try_open(journal_file) if "journal.jif" in names else None
    if source is None:
        journal = Journal()
    else:
        with source:
            journal = read_journal(source, findings)
    if doubts is not None:
        doubts.journal(journal, journal_file)
        if source is None and doubts.has_journal:
            doubts.missing_journal()
    counts.journal_records += journal.records
    numbers = sorted((int(n[:-4]) for n in names if _SEGMENT_NAME.fullmatch(n)), reverse=True)
    counts.segments += len(numbers)
    lib.qi_rabbit_journal_sort(journal.table)
    segment = Segment()
    live = ffi.new("qi_rabbit_entry[]", SLOTS_MAX)
    while True:
        number = lib.qi_rabbit_journal_next(journal.table, slots)
        segment.clear()
        is_there = is_empty = False
        if numbers and (number < 0 or numbers[-1] <= number):
            number = numbers.pop()
            source = tree.try_open(f"{where}/{number}.idx")
            if source is not None:
                is_there, is_empty = True, source.size == 0
                with source:
                    read_segment(source, slots, segment, findings)
        elif number < 0:
            break
        counts.segment_records += segment.table.records
        count = lib.qi_rabbit_segment_merge(segment.table, journal.table, number, slots, live)
        counts.orphan_marks += segment.table.orphans
        counts.published += segment.table.count
        counts.acked += segment.table.count - count
        file = f"{where}/{number}.idx"
        if doubts is not None:
            named = file if is_there else journal_file
            is_last = not numbers
            doubts.segment(segment, number, slots, named, is_there=is_there, is_last=is_last)
            if is_empty:
                doubts.empty_segment(number, file, in_journal=segment.table.count > 0)
        if count:
            yield Batch(live, count, file, journal_file)
    if doubts is not None:
        doubts.end()
