"""From paths to tasks: directories are found, weighed by their bytes, split and packed.

A task is a list of units, a unit a directory or a part of one. Ten thousand small directories
become a few tasks; one huge queue becomes many, by segments. Nothing of a file but its size is
looked at, and of a huge store its queues' names.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import qindex
from qindex.native.folders import segment_number
from qindex.spark import remote
from qindex.spark.columns import REQ_ID_STOP
from qindex.spark.leftovers import list_folder
from qindex.spark.paths import expand, is_named
from qindex.spark.search import GONE, NATIVE, UNKNOWN, Place, Search

T = TypeVar("T")
TARGET_BYTES: Final = 512 << 20  # of a count, 0.7 s of work: a task costs 20 ms before any
_SPLIT_MIN: Final = 16 << 20  # less is not worth a task of its own
UNIT_BYTES: Final = 64 << 10  # what opening a directory costs, in bytes that could be read instead


class Unit(NamedTuple):
    """What one task reads of one directory. `files`: only these; `queue`: only this one.

    `copy`: where a copy of it is, if `source` is elsewhere: see remote.py.
    """

    source: str
    broker: str
    format: str
    bytes: int
    queue: str | None = None
    first: int = 0  # ReqIds, of `queue`
    stop: int = REQ_ID_STOP
    files: tuple[str, ...] = ()
    copy: str = ""
    problem: str = ""  # why it is not read; only of the format UNKNOWN
    members: tuple[str, ...] = ()  # directories of other nodes of its RabbitMQ cluster

    @property
    def folder(self) -> str:
        """Where to read it."""
        return self.copy or self.source


def find(paths: Iterable[str], format_name: str | None = None) -> list[Unit]:
    """A unit for each directory of a known format at these paths, or not far below them.

    Also one, of the format UNKNOWN and with a `problem`, for each path that was named and leads to
    none, and for each directory below that may be one: parts of it are there, it may not be
    listed, or it is a link, which is not followed. And one for each path that leads to nothing
    that exists; FileNotFoundError: none of them leads to anything.

    Paths may have wildcards (paths.py). Of a URL each directory is one unit, whatever is in it.
    Cost: 25 us for a small store, on two cores.
    """
    found: dict[str, Place] = {}
    named: list[str] = []
    matched: list[str] = []
    gone: list[str] = []
    for given in paths:
        path = remote.as_local(given)
        if path is None:
            there = list(remote.directories(given))
            if not there:
                gone.append(given)
                continue
            kind = remote.REMOTE + (format_name or "")
            found.update({url: Place(kind, size) for url, size in there})
            continue
        places = expand(path)
        if not places:
            gone.append(path)
        (named if is_named(path) else matched).extend(places)
    if gone and not (found or named or matched):
        raise FileNotFoundError(2, GONE, gone[0])
    found.update(Search(named, matched).run(format_name))
    found.update({path: Place(UNKNOWN, 0, GONE) for path in gone})
    sources = sorted(found)
    return [
        Unit(source, name, place.format, place.bytes, problem=place.problem)
        for source, name in zip(sources, _names(sources), strict=True)
        for place in (found[source],)
    ]


def _folders_in(path: str) -> list[str]:
    try:
        return list_folder(path).folders
    except OSError:
        return []


def _names(sources: Sequence[str]) -> list[str]:
    """Each path without what all of them have in common: unique, and short."""
    if len(sources) < 2:
        return [Path(source).name for source in sources]
    elsewhere = {"://" in source for source in sources}
    if len(elsewhere) > 1:
        return list(sources)
    common = os.path.commonpath(sources)
    if elsewhere == {True} or common in sources:
        return [os.path.relpath(source, common) for source in sources]
    return [source.removeprefix(common).lstrip("/") for source in sources]


def plan(
    units: Sequence[Unit],
    table: str,
    *,
    target_bytes: int = TARGET_BYTES,
    tasks_min: int = 1,
) -> list[list[Unit]]:
    """Tasks of about `target_bytes`; a multiple of `tasks_min`, if there is enough to read.

    Else some cores of so many would wait for the last tasks of the others.
    """
    tasks_min = max(tasks_min, 1)
    total = sum(unit.bytes + UNIT_BYTES for unit in units)
    count = tasks_min * max(1, round(total / (tasks_min * max(target_bytes, 1))))
    # Parts as big as a task: bigger ones would be packed two to one task and one to the next.
    part_bytes = max(total // count, min(_SPLIT_MIN, target_bytes), 1)
    parts = [part for unit in units for part in _split(unit, table, part_bytes)]
    return pack(parts, min(count, len(parts)))


def pack(units: Sequence[Unit], count: int) -> list[list[Unit]]:
    """Into `count` tasks, each unit to the lightest so far, the heaviest unit first."""
    tasks: list[list[Unit]] = [[] for _ in range(count)]
    heap = [(0, number) for number in range(count)]
    for unit in sorted(units, key=lambda unit: -unit.bytes):
        weight, number = heapq.heappop(heap)
        tasks[number].append(unit)
        heapq.heappush(heap, (weight + unit.bytes + UNIT_BYTES, number))
    return [task for task in tasks if task]


# --- splitting one huge store -------------------------------------------------------------------


def _split(unit: Unit, table: str, target_bytes: int) -> list[Unit]:
    if unit.format != NATIVE or unit.bytes <= target_bytes:
        return [unit]
    if table == "records":
        folders = [f"queues/{name}" for name in _folders_in(f"{unit.source}/queues")]
        return _by_file(unit, folders, target_bytes)
    if table == "bodies":
        return _by_file(unit, ["messages"], target_bytes)
    if table == "messages":
        return _by_queue(unit, target_bytes)
    return [unit]


def _by_file(unit: Unit, folders: Sequence[str], target_bytes: int) -> list[Unit]:
    files = [
        (size, f"{folder}/{name}")
        for folder in folders
        for name, size in _sizes_in(f"{unit.source}/{folder}").items()
    ]
    return [
        unit._replace(bytes=weight, files=tuple(chosen))
        for weight, chosen in _grouped(files, target_bytes)
    ]


def _grouped(items: Iterable[tuple[int, T]], target_bytes: int) -> Iterator[tuple[int, list[T]]]:
    """(bytes, items), each cut as near to a multiple of the target as items allow."""
    chosen: list[T] = []
    weight = at = 0
    stop = target_bytes
    for size, item in items:
        if chosen and at + size // 2 >= stop:
            yield weight, chosen
            chosen, weight = [], 0
            stop += target_bytes * max(1, -(-(at - stop) // target_bytes))
        chosen.append(item)
        weight += size
        at += size
    if chosen:
        yield weight, chosen


def _by_queue(unit: Unit, target_bytes: int) -> list[Unit]:
    """A unit per queue, or per some segments of one; bodies in message files count by share."""
    try:
        with qindex.open(unit.source, read_only=True, create=False) as store:
            entries = store.stats().segment_entries
            folders = {name: store.queue_directory(name) for name in store.queues()}
    except qindex.QindexError:
        return [unit]  # whoever reads it says why
    sizes = {name: _sizes_in(f"{unit.source}/{folder}") for name, folder in folders.items()}
    index_bytes = max(1, sum(sum(each.values()) for each in sizes.values()))
    share = unit.bytes / index_bytes  # of all bytes, for each byte of index
    parts = []
    for name, each in sizes.items():
        whole = unit._replace(queue=name, bytes=int(sum(each.values()) * share))
        parts += _by_segment(whole, each, entries, share, target_bytes)
    return parts or [unit]  # no queue has a name: whoever reads it says so


def _by_segment(
    unit: Unit, sizes: dict[str, int], entries: int, share: float, target_bytes: int
) -> list[Unit]:
    """Each part reads the journal again, which is small. The first and the last have no bound."""
    segments: dict[int, int] = {}
    for file, size in sizes.items():
        if (number := segment_number(file)) is not None:
            segments[number] = segments.get(number, 0) + int(size * share)
    groups = list(
        _grouped(((segments[number], number) for number in sorted(segments)), target_bytes)
    )
    if len(groups) < 2:
        return [unit]
    firsts = [0, *(numbers[0] * entries for _, numbers in groups[1:])]
    stops = [*firsts[1:], unit.stop]
    return [
        unit._replace(bytes=weight, first=first, stop=stop)
        for (weight, _), first, stop in zip(groups, firsts, stops, strict=True)
    ]


def _sizes_in(folder: str) -> dict[str, int]:
    try:
        with os.scandir(folder) as entries:
            return {
                entry.name: entry.stat(follow_symlinks=False).st_size
                for entry in entries
                if entry.is_file(follow_symlinks=False)
            }
    except OSError:
        return {}
