"""The slots of a queue, as its files have them: published, delivered, acked, in cells of a map."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import qindex
from qindex._core import lib
from qindex.brokers.rabbitmq.index import Journal, Segment, read_journal, read_segment
from qindex.brokers.rabbitmq.index_v2 import acked_seqs, index_files
from qindex.brokers.rabbitmq.node import Part
from qindex.brokers.rabbitmq.queue import Counts, scan_v2
from qindex.brokers.tree import Findings, Tree
from qindex.look.screen import CommandError
from qindex.look.sources import NodeSource, Source, StoreSource
from qindex.look.text import printable
from qindex.native.folders import FILE_BYTES_MAX, segment_number
from qindex.native.frames import Purge
from qindex.native.records import LANE, journals_in, purge_of, records

COLUMNS: Final = 64
ROWS_MAX: Final = 128
V2_ENTRIES: Final = 4096  # of a file of RabbitMQ's version 2, unless configured otherwise
KINDS: Final = ("published", "delivered", "acked", "live")
_PUBLISH, _DELIVER, _ACK = 1, 2, 4
_IS: Final = {  # for bytes.translate(): 1 where the flags say so
    "published": bytes(bool(flags & _PUBLISH) for flags in range(256)),
    "delivered": bytes(bool(flags & _DELIVER) for flags in range(256)),
    "acked": bytes(bool(flags & _ACK) for flags in range(256)),
    "live": bytes(flags & _PUBLISH and not flags & _ACK for flags in range(256)),
}
_OF_STATE: Final = {  # of an entry of RabbitMQ's
    lib.QI_RABBIT_PUBLISHED: _PUBLISH,
    lib.QI_RABBIT_DELIVERED: _PUBLISH | _DELIVER,
    lib.QI_RABBIT_ACKED: _PUBLISH | _DELIVER | _ACK,
}
_ACKED: Final = bytes(flags | _ACK if flags & _PUBLISH else flags for flags in range(256))


@dataclass(slots=True)
class SlotMap:
    """Rows of cells, each of `cell_slots` ReqIds, from `first` on, of the lane with most segments.

    A cell counts records that are in the files; -1: there is no file for these ReqIds, since all of
    them were acked. A message that came and went within one journal leaves no record.
    """

    queue: str
    first: int
    segment_slots: int
    cell_slots: int
    cells: dict[str, list[list[int]]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        told = asdict(self)
        told["first_req_id"] = str(told.pop("first"))
        return told


@dataclass(slots=True)
class _Slots:
    """`flags` of a segment: a ReqId in it, and a byte for each slot from there on."""

    title: str
    entries: int
    numbers: list[int]
    flags: Callable[[int], tuple[int, bytearray]]


def slot_map(source: Source, name: str) -> SlotMap:
    """Cost: reads the whole index of the queue; memory for a journal and a segment."""
    if isinstance(source, StoreSource):
        slots = _slots_of_store(source, name)
    elif isinstance(source, NodeSource):
        slots = _slots_of_node(source, name)
    else:
        raise CommandError(f"slots cannot read {source.format} directories: they have none")
    first = slots.numbers[0] * slots.entries if slots.numbers else 0
    end = (slots.numbers[-1] + 1) * slots.entries if slots.numbers else 0
    cell_slots = 1
    while cell_slots * COLUMNS * ROWS_MAX < end - first:
        cell_slots *= 2
    rows = -(-(end - first) // (COLUMNS * cell_slots))
    found = SlotMap(slots.title, first, slots.entries, cell_slots)
    for kind in KINDS:
        found.cells[kind] = [[-1] * COLUMNS for _ in range(rows)]
        found.totals[kind] = 0
    for number in slots.numbers:
        _begin(found, number * slots.entries)
        _add(found, *slots.flags(number))
    return found


def _begin(found: SlotMap, base: int) -> None:
    """A segment that is there: its cells are 0, not unknown."""
    start = base - found.first
    for cell in range(
        start // found.cell_slots, (start + found.segment_slots - 1) // found.cell_slots + 1
    ):
        for kind in KINDS:
            row = found.cells[kind][cell // COLUMNS]
            row[cell % COLUMNS] = max(0, row[cell % COLUMNS])


def _add(found: SlotMap, base: int, flags: bytearray) -> None:
    start = base - found.first
    for kind, is_set in _IS.items():
        bits = flags.translate(is_set)
        found.totals[kind] += bits.count(1)
        place = 0
        while place < len(bits):
            cell = (start + place) // found.cell_slots
            end = (cell + 1) * found.cell_slots - start
            row = found.cells[kind][cell // COLUMNS]
            row[cell % COLUMNS] += bits.count(1, place, end)
            place = end


# --- a store ------------------------------------------------------------------------------------


def _slots_of_store(source: StoreSource, name: str) -> _Slots:
    entries = source.store.stats().segment_entries
    tree = Tree(source.root, Findings())  # it goes with what is returned
    folder = source.store.queue_directory(name)
    journal, purges = _read_journals(tree, folder)
    files: dict[int, list[str]] = {}
    for file in tree.files(folder):
        if (number := segment_number(file)) is not None:
            files.setdefault(number, []).append(f"{folder}/{file}")
    in_journal: dict[int, list[int]] = {}
    for req_id in journal:
        in_journal.setdefault(req_id // entries, []).append(req_id)

    def flags(number: int) -> tuple[int, bytearray]:
        ids = in_journal.get(number, [])
        base, end = number * entries, (number + 1) * entries
        if number not in files:  # of a journal that names many segments: not a byte for each slot
            base, end = min(ids), max(ids) + 1
        found = bytearray(end - base)
        for where in files.get(number, ()):
            _read_segment(tree.read(where, FILE_BYTES_MAX) or b"", found)
        for req_id in ids:
            found[req_id - base] |= journal[req_id]
        purges.apply(base, found)
        return base, found

    lanes: dict[int, list[int]] = {}
    for number in sorted(files.keys() | in_journal.keys()):
        lanes.setdefault(number * entries // LANE, []).append(number)
    lane, numbers = max(lanes.items(), key=lambda item: len(item[1]), default=(0, []))
    title = printable(name) + (f", lane {lane}" if len(lanes) > 1 else "")
    return _Slots(title, entries, numbers, flags)


class _Purges:
    """Each acks what is below its limit, but for what it keeps."""

    def __init__(self, purges: list[Purge]) -> None:
        limits = sorted(purge.below for purge in purges)
        kept = Counter(req_id for purge in purges for req_id in purge.kept)
        self._limit = limits[-1] if limits else 0
        self._kept = sorted(  # by all purges that it was below
            req_id
            for req_id, times in kept.items()
            if times == len(limits) - bisect_right(limits, req_id % LANE)
        )

    def apply(self, base: int, flags: bytearray) -> None:
        """To the flags of ReqIds from `base` on."""
        count = min(len(flags), max(0, self._limit - base % LANE))
        before = bytes(flags[:count])
        flags[:count] = before.translate(_ACKED)
        first, last = (bisect_left(self._kept, req_id) for req_id in (base, base + count))
        for req_id in self._kept[first:last]:
            flags[req_id - base] = before[req_id - base]


def _read_journals(tree: Tree, folder: str) -> tuple[dict[int, int], _Purges]:
    """(flags by ReqId, purges)"""
    journal: dict[int, int] = {}
    purges: list[Purge] = []
    bits = {"publish": _PUBLISH, "deliver": _DELIVER, "ack": _ACK}
    for file in journals_in(tree, folder):
        data, found = file.read()
        for record in found:
            if record.verb in bits:
                journal[record.req_id] = journal.get(record.req_id, 0) | bits[record.verb]
            elif record.verb == "purge":
                purges.append(purge_of(data, record))
    return journal, _Purges(purges)


def _read_segment(data: bytes, flags: bytearray) -> None:
    with suppress(qindex.FormatError):  # gone meanwhile, or without a header: check tells it
        for record in records(data):
            slot = record.req_id
            if record.verb not in ("publish", "event") or slot >= len(flags):
                continue  # more slots than a segment has: check tells it
            if record.verb == "publish":
                flags[slot] |= _PUBLISH
            else:
                flags[slot] |= _ACK if flags[slot] & _DELIVER else _DELIVER


# --- a RabbitMQ node ----------------------------------------------------------------------------


def _slots_of_node(source: NodeSource, name: str) -> _Slots:
    """Of a priority queue, the sub-queue with the most messages."""
    if name not in source.queues or not source.queues[name].parts:
        raise CommandError(f"there is no index of {printable(name)!r}: it has no directory")
    parts = source.queues[name].parts
    part = max(parts, key=lambda part: part.counts.published)
    title = printable(name) if part.priority is None else f"{name}, priority {part.priority}"
    names = source.node.tree.files(part.where)
    if numbers := index_files(names):
        return _slots_of_v2(source, part, title, numbers)
    return _slots_of_v1(source, part, title, names, source.queues[name].vhost.segment_entry_count)


def _slots_of_v1(
    source: NodeSource, part: Part, title: str, names: list[str], entries: int
) -> _Slots:
    tree, findings = source.node.tree, Findings()
    journal = _read_journal_of_v1(tree, f"{part.where}/journal.jif", findings)
    numbers = {number for name in names if (number := segment_number(name)) is not None}
    numbers |= {seq // entries for seq, flags in journal.items() if flags & _PUBLISH}
    in_journal: dict[int, list[int]] = {}
    for seq in journal:
        in_journal.setdefault(seq // entries, []).append(seq)
    segment = Segment()

    def flags(number: int) -> tuple[int, bytearray]:
        segment.clear()
        if (file := tree.try_open(f"{part.where}/{number}.idx")) is not None:
            with file:
                read_segment(file, entries, segment, findings)
        found, base = bytearray(entries), number * entries
        for slot, state in segment.states():
            found[slot] = _OF_STATE[state]
        for seq in in_journal.get(number, ()):
            found[seq - base] |= journal[seq]
        return base, found

    return _Slots(title, entries, sorted(numbers), flags)


def _read_journal_of_v1(tree: Tree, where: str, findings: Findings) -> dict[int, int]:
    """Flags by seq."""
    journal = Journal()
    if (file := tree.try_open(where)) is not None:
        with file:
            journal = read_journal(file, findings)
    found = {seq: _PUBLISH for seq, _ in journal.publishes()}
    for seq, is_ack in journal.marks():
        found[seq] = found.get(seq, 0) | (_ACK if is_ack else _DELIVER)
    return found


def _slots_of_v2(source: NodeSource, part: Part, title: str, numbers: list[int]) -> _Slots:
    """Version 2 keeps no delivers."""
    tree, findings = source.node.tree, Findings()

    def flags(number: int) -> tuple[int, bytearray]:
        base = number * V2_ENTRIES
        found = bytearray(V2_ENTRIES)
        for batch in scan_v2(tree, part.where, [number], findings, Counts()):
            for seq, *_ in batch.rows():
                if 0 <= seq - base < V2_ENTRIES:
                    found[seq - base] = _PUBLISH
        for seq in acked_seqs(tree, part.where, number, findings):
            if 0 <= seq - base < V2_ENTRIES:
                found[seq - base] = _PUBLISH | _ACK
        return base, found

    return _Slots(title, V2_ENTRIES, numbers, flags)
