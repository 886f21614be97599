"""Messages and bodies of a store of qindex: columns from the core, with names and states."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

import qindex
from qindex._core import lib
from qindex.brokers.tree import Findings, Tree
from qindex.look.messages import STATES, Found
from qindex.look.stores import UNREADABLE, unlisted
from qindex.native.messages import MessageFiles
from qindex.spark import columns
from qindex.spark.headers import headers_as_json
from qindex.spark.plan import Unit
from qindex.spark.tables import (
    LOST,
    Choice,
    fill,
    log,
    segment_of,
    slot_of,
    spread,
    spread_names,
)

MESSAGE_FILE_BYTES_MAX: Final = 1 << 33
_FALSE: Final = pa.scalar(False)
# What the core has to give: to choose rows and to tell of them, and for a column.
_ALWAYS: Final = frozenset(("kind", "req_id", "expiry_us"))
_RAW: Final = {
    "priority": ("priority",),
    "due": ("due_us",),
    "published_at": ("published_us",),
    "delivery_count": ("count",),
    "msg_id": ("msg_id",),
    "size": ("size",),
    "file": ("file",),
    "offset": ("file", "offset"),
}


@dataclass(slots=True)
class Rows:
    """What all messages of a queue have in common."""

    unit: Unit
    queue: str
    entries: int  # per segment
    moved: dict[int, int]  # see moved_files()
    tell: Callable[[str], object]  # hears of each message that cannot be read; may raise


def messages(
    units: Iterable[Unit], names: Sequence[str], choice: Choice
) -> Iterator[pa.RecordBatch]:
    """What is alive, store by store and queue by queue, those of small ones together."""
    return batches_of(_ranges(units, names, choice), names, choice)


def _ranges(
    units: Iterable[Unit], names: Sequence[str], choice: Choice
) -> Iterator[columns.Range[Rows]]:
    for unit in units:
        try:
            with qindex.open(unit.folder, read_only=True, create=False) as store:
                yield from _ranges_in(store, unit, names, choice)
        except (qindex.QindexError, OSError) as error:
            log.warning("%s: %s", unit.source, error)


def _ranges_in(
    store: qindex.Store, unit: Unit, names: Sequence[str], choice: Choice
) -> Iterator[columns.Range[Rows]]:
    entries, moved = store.stats().segment_entries, moved_files(unit, names)
    listed = store.queues()
    if unit.first == 0 and unit.queue in (None, *listed[:1]):  # of a store's parts, one says it
        for text in unlisted(store):
            log.warning("%s: %s", unit.source, text)
    for name in [unit.queue] if unit.queue is not None else listed:
        if not choice.wants(name):
            continue
        try:
            queue = store.queue(name, create=False)
        except (*UNREADABLE, qindex.QueueMissing) as error:
            log.warning("%s: %s: %s", unit.source, name, error)
            continue
        tell = partial(log.warning, "%s: %s: %s", unit.source, name)
        yield from range_of(queue, Rows(unit, name, entries, moved, tell), choice)


def range_of(queue: qindex.Queue, rows: Rows, choice: Choice) -> Iterator[columns.Range[Rows]]:
    """The one of this queue; behind it, `rows` is told what could not be read."""
    start, stop = max(rows.unit.first, choice.first), min(rows.unit.stop, choice.last + 1)
    asked = columns.Range(rows, queue._handle, start, stop)
    yield asked
    for _, text in asked.unreadable:
        rows.tell(text)


def batches_of(
    ranges: Iterable[columns.Range[Rows]], names: Sequence[str], choice: Choice
) -> Iterator[pa.RecordBatch]:
    """What is alive in them."""
    wanted = _ALWAYS.union(*(_RAW[name] for name in names if name in _RAW))
    with_bodies = "body" in names or "headers" in names
    for batch, parts in columns.messages_of(ranges, wanted, with_bodies=with_bodies):
        if LOST not in choice.states:
            _tell_lost(batch, parts)
        mask = _chosen(batch, choice)
        if mask is None:
            yield _as_messages(names, batch, parts, choice)
        elif left := _left(parts, mask):
            yield _as_messages(names, batch.filter(mask), left, choice)


def _tell_lost(batch: pa.RecordBatch, parts: Sequence[tuple[Rows, int]]) -> None:
    lost = has(batch, lib.QI_NO_BODY)
    if not pc.any(lost).as_py():
        return
    for rows, start, count in _places(parts):
        its = batch["req_id"].slice(start, count).filter(lost.slice(start, count))
        for req_id in its.to_pylist():
            rows.tell(f"the body of message {req_id} cannot be read")


def _left(parts: Sequence[tuple[Rows, int]], mask: pa.Array) -> list[tuple[Rows, int]]:
    """How many rows of each part are chosen, where any is."""
    counts = ((rows, mask.slice(start, count).true_count) for rows, start, count in _places(parts))
    return [(rows, count) for rows, count in counts if count]


def _places(parts: Sequence[tuple[Rows, int]]) -> Iterator[tuple[Rows, int, int]]:
    """Where the rows of each part begin, and how many they are."""
    start = 0
    for rows, count in parts:
        yield rows, start, count
        start += count


def has(batch: pa.RecordBatch, flag: int) -> pa.Array:
    return pc.not_equal(pc.bit_wise_and(batch["kind"], _byte(flag)), _byte(0))


def long(value: int) -> pa.Scalar:
    """For comparisons: to find a type for a plain number, Arrow tries to import a module."""
    return pa.scalar(value, pa.int64())


def _byte(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint8())


def is_expired(expiry: pa.Array, now_us: int | None = None) -> pa.Array:
    """By the clock of this machine; false where there is no expiry."""
    now = pa.scalar(int(time.time() * 1e6) if now_us is None else now_us, expiry.type)
    return pc.fill_null(pc.less_equal(expiry, now), _FALSE)


def _states(batch: pa.RecordBatch, now_us: int | None) -> pa.Array:
    told = pc.if_else(has(batch, lib.QI_DELIVERED), "unacked", "ready")
    told = pc.if_else(has(batch, lib.QI_DELAYED), "delayed", told)
    told = pc.if_else(is_expired(batch["expiry_us"], now_us), "expired", told)
    told = pc.if_else(has(batch, lib.QI_DEAD_LETTER), "dead", told)
    return pc.if_else(has(batch, lib.QI_NO_BODY), LOST, told)


def _chosen(batch: pa.RecordBatch, choice: Choice) -> pa.Array | None:
    """None: all rows."""
    masks = []
    none_expires = batch["expiry_us"].null_count == batch.num_rows
    wanted = {*choice.states, "expired"} if none_expires else choice.states
    if not wanted >= set(STATES) or pc.any(has(batch, lib.QI_NO_BODY)).as_py():
        masks.append(pc.is_in(_states(batch, choice.now_us), pa.array(sorted(choice.states))))
    expiry = batch["expiry_us"]
    for bound, compare in (
        (choice.expires_after_us, pc.greater_equal),
        (choice.expires_before_us, pc.less),
    ):
        if bound is not None:
            masks.append(pc.fill_null(compare(expiry, pa.scalar(bound, expiry.type)), _FALSE))
    mask = None
    for each in masks:
        mask = each if mask is None else pc.and_(mask, each)
    return mask


def _as_messages(
    names: Sequence[str],
    batch: pa.RecordBatch,
    parts: Sequence[tuple[Rows, int]],
    choice: Choice,
) -> pa.RecordBatch:
    req_id = batch["req_id"]
    values = {
        "queue": lambda: spread_names(parts, lambda rows: rows.queue),
        "req_id": req_id,
        "segment": lambda: segment_of(req_id, _entries(parts)),
        "slot": lambda: slot_of(req_id, _entries(parts)),
        "state": lambda: _states(batch, choice.now_us),
        "priority": lambda: batch["priority"],
        "due": lambda: batch["due_us"],
        "expires_at": batch["expiry_us"],
        "published_at": lambda: batch["published_us"],
        "delivery_count": lambda: batch["count"],
        "redelivered": lambda: has(batch, lib.QI_REDELIVERED),
        "persistent": lambda: pc.invert(has(batch, lib.QI_TRANSIENT)),
        "msg_id": lambda: batch["msg_id"],
        "size": lambda: batch["size"],
        "file": lambda: _by_part(batch, parts, _files),
        "offset": lambda: _by_part(batch, parts, _offsets),
        "body": lambda: batch["body"],
        "headers": lambda: _headers(batch["headers"]),
    }
    return fill("messages", names, [(rows.unit, count) for rows, count in parts], values)


def _headers(tables: pa.Array) -> pa.Array:
    """Field tables as JSON, null for none; only those that are something are looked at."""
    some = pc.greater(pc.binary_length(tables), 0)
    decoded = [
        headers_as_json(Found("", 0, "", False, 0, True, 0, raw, b"").headers)
        for raw in tables.filter(some).to_pylist()
    ]
    nothing = pa.nulls(len(tables), pa.string())
    return pc.replace_with_mask(nothing, some, pa.array(decoded, pa.string()))


def moved_files(unit: Unit, names: Sequence[str]) -> dict[int, int]:
    """Birth file -> the file that a compaction put its messages into; or none."""
    if not {"file", "offset"}.intersection(names):
        return {}
    tree = Tree(unit.folder, Findings())
    try:
        return MessageFiles(tree).moved
    finally:
        tree.close()


def _by_part(
    batch: pa.RecordBatch,
    parts: Sequence[tuple[Rows, int]],
    value: Callable[[pa.RecordBatch, dict[int, int]], pa.Array],
) -> pa.Array:
    """A value that depends on what a compaction of each store has moved."""
    if not any(rows.moved for rows, _ in parts):
        return value(batch, {})
    arrays = [value(batch.slice(start, n), rows.moved) for rows, start, n in _places(parts)]
    return pa.concat_arrays(arrays)


def _offsets(batch: pa.RecordBatch, moved: dict[int, int]) -> pa.Array:
    """In the files where they were born; null for what was moved."""
    is_moved = pc.is_in(batch["file"], pa.array(list(moved), pa.int64()))
    return pc.if_else(is_moved, None, batch["offset"])


def _files(batch: pa.RecordBatch, moved: dict[int, int]) -> pa.Array:
    """Their names; null for a message that stands in the index."""
    births = pc.unique(batch["file"]).to_pylist()
    found = [None if b is None else f"messages/{moved.get(b, b)}.qms" for b in births]
    at = pc.index_in(batch["file"], pa.array(births, pa.int64()))
    return pc.take(pa.array(found, pa.string()), at)


def _entries(parts: Sequence[tuple[Rows, int]]) -> pa.Array:
    return spread(parts, lambda rows: rows.entries, pa.int64())


# --- bodies -------------------------------------------------------------------------------------


def bodies(unit: Unit, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """What message files hold, file by file."""
    tree = Tree(unit.folder, Findings())
    try:
        files = MessageFiles(tree)
        for number in sorted(files.files):
            where = files.files[number].where
            if unit.files and where not in unit.files:
                continue
            data = tree.read(where, MESSAGE_FILE_BYTES_MAX) or b""
            for batch in columns.bodies(files.identity, number, data):
                values = {
                    "msg_id": batch["msg_id"],
                    "size": batch["size"],
                    "published_to": batch["count"],
                    "sound": pc.equal(batch["kind"], _byte(lib.QI_ROW_SOUND)),
                    "file": pa.repeat(where, batch.num_rows),
                    "offset": batch["offset"],
                }
                yield fill("bodies", names, [(unit, batch.num_rows)], values)
    except OSError as error:
        log.warning("%s: %s", unit.source, error)
    finally:
        tree.close()
