"""One queue directory of RabbitMQ: which of its messages are live, in order, segment by segment.

Memory holds the journal and one segment, however long the queue is.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Final, TypeAlias

from qindex.formats.foreign import Findings, Tree
from qindex.formats.rabbitmq_index import (
    ACKED,
    DELIVERED,
    Entry,
    Journal,
    Segment,
    read_journal,
    read_segment,
)
from qindex.formats.rabbitmq_index_v2 import index_files, read_index_file

# seq, was it delivered (RabbitMQ before 3.10), the file that names it, its entry
Live: TypeAlias = tuple[int, bool, str, Entry]

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


def scan_queue(
    tree: Tree, where: str, slots: int, findings: Findings, counts: Counts
) -> Iterator[Live]:
    """Every message that was published and not acked, by seq. Counts as it goes along."""
    try:
        names = tree.files(where)
    except OSError as error:
        findings.damage("missing", where, 0, f"cannot be listed: {error.strerror}")
        return
    old = any(name == "journal.jif" or _SEGMENT_NAME.fullmatch(name) for name in names)
    numbers = index_files(names)
    if not numbers:
        yield from _scan_v1(tree, where, names, slots, findings, counts)
    elif not old:
        yield from _scan_v2(tree, where, numbers, findings, counts)
    else:
        # An interrupted conversion: a message may have got to the one and still be in the other.
        seen = -1
        v1 = _scan_v1(tree, where, names, slots, findings, counts)
        v2 = _scan_v2(tree, where, numbers, findings, counts)
        for live in heapq.merge(v2, v1, key=itemgetter(0)):
            if live[0] == seen:
                counts.published -= 1
            else:
                seen = live[0]
                yield live


def _scan_v2(
    tree: Tree, where: str, numbers: list[int], findings: Findings, counts: Counts
) -> Iterator[Live]:
    counts.segments += len(numbers)
    for number in numbers:
        for seq, file, entry in read_index_file(tree, where, number, findings):
            counts.segment_records += 1
            counts.published += 1
            if entry is None:
                counts.acked += 1
            else:
                yield seq, False, file, entry


def _scan_v1(
    tree: Tree, where: str, names: list[str], slots: int, findings: Findings, counts: Counts
) -> Iterator[Live]:
    journal = Journal()
    numbers = set()
    for name in names:
        if name == "journal.jif":
            source = tree.try_open(f"{where}/{name}")
            if source is not None:
                with source:
                    journal = read_journal(source, findings)
        elif _SEGMENT_NAME.fullmatch(name):
            numbers.add(int(name[:-4]))
    counts.journal_records += journal.records
    counts.segments += len(numbers)
    in_journal: dict[int, list[int]] = {}
    for seq in sorted(journal.published):
        in_journal.setdefault(seq // slots, []).append(seq)
    orphans = (journal.delivered | journal.acked) - journal.published.keys()
    counts.orphan_marks += len(orphans)
    for number in sorted(numbers | in_journal.keys()):
        segment = Segment()
        source = tree.try_open(f"{where}/{number}.idx") if number in numbers else None
        if source is not None:
            with source:
                segment = read_segment(source, slots, findings)
        counts.segment_records += segment.records
        counts.orphan_marks += segment.orphans
        base = number * slots
        if orphans:
            counts.orphan_marks -= sum(base + slot in orphans for slot in segment.published)
        seqs = [base + slot for slot in segment.published]
        seqs = sorted({*seqs, *in_journal.get(number, ())})
        yield from _live(seqs, base, segment, journal, f"{where}/{number}.idx", counts)


def _live(
    seqs: list[int], base: int, segment: Segment, journal: Journal, file: str, counts: Counts
) -> Iterator[Live]:
    journal_file = f"{file.rpartition('/')[0]}/journal.jif"
    counts.published += len(seqs)
    for seq in seqs:
        state = segment.state[seq - base]
        if state == ACKED or seq in journal.acked:
            counts.acked += 1
            continue
        delivered = state == DELIVERED or seq in journal.delivered
        entry = segment.published.get(seq - base)
        if entry is None:
            yield seq, delivered, journal_file, journal.published[seq]
        else:
            yield seq, delivered, file, entry
