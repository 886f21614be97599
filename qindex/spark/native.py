"""Messages and bodies of a store of qindex: columns from the core, with names and states."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

import qindex
from qindex._core import lib
from qindex.cli.messages import STATES, Found
from qindex.formats.foreign import Findings, Tree
from qindex.formats.native_messages import MessageFiles
from qindex.spark import columns
from qindex.spark.plan import Unit
from qindex.spark.tables import LOST, Choice, fill, headers_as_json, log

MESSAGE_FILE_BYTES_MAX: Final = 1 << 33
_FALSE: Final = pa.scalar(False)
# What the core has to give: to choose rows and to tell of them, and for a column.
_ALWAYS: Final = frozenset(("kind", "req_id", "expiry_us"))
_RAW: Final = {
    "priority": ("priority",),
    "due": ("due_us",),
    "delivery_count": ("count",),
    "msg_id": ("msg_id",),
    "size": ("size",),
    "file": ("file",),
    "offset": ("file", "offset"),
}


def messages(unit: Unit, names: Sequence[str], choice: Choice) -> Iterator[pa.RecordBatch]:
    """What is alive, queue by queue."""
    try:
        with qindex.open(unit.folder, read_only=True, create=False) as store:
            entries = store.stats().segment_entries
            moved = moved_files(unit, names)
            for name in [unit.queue] if unit.queue is not None else store.queues():
                if not choice.wants(name):
                    continue
                try:
                    queue = store.queue(name, create=False)
                except (qindex.StoreCorrupt, qindex.QueueMissing) as error:
                    log.warning("%s: %s: %s", unit.source, name, error)
                    continue
                tell = partial(log.warning, "%s: %s: %s", unit.source, name)
                yield from queue_messages(unit, queue, names, choice, entries, moved, tell)
    except (qindex.QindexError, OSError) as error:
        log.warning("%s: %s", unit.source, error)


def queue_messages(
    unit: Unit,
    queue: qindex.Queue,
    names: Sequence[str],
    choice: Choice,
    entries: int,
    moved: dict[int, int],
    tell: Callable[[str], object],
) -> Iterator[pa.RecordBatch]:
    """What is alive in one queue. `tell` hears of each message that cannot be read; it may raise.

    `entries`: per segment; `moved`: see moved_files().
    """
    with_bodies = "body" in names or "headers" in names
    walk = columns.Messages(
        queue._handle,
        _ALWAYS.union(*(_RAW[name] for name in names if name in _RAW)),
        start=max(unit.first, choice.first),
        stop=min(unit.stop, choice.last + 1),
        with_bodies=with_bodies,
        rows=max(1, min(columns.ROWS, len(queue), unit.stop - unit.first)),
    )
    for batch in walk:
        lost = batch["req_id"].filter(has(batch, lib.QI_NO_BODY))
        for req_id in lost.to_pylist() if LOST not in choice.states else ():
            tell(f"the body of message {req_id} cannot be read")
        mask = _chosen(batch, choice)
        chosen = batch if mask is None else batch.filter(mask)
        yield _as_messages(unit, queue.name, names, chosen, entries, moved)
    for _, text in walk.unreadable:
        tell(text)


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


def segment_of(req_id: pa.Array, entries: int) -> pa.Array:
    return pc.divide(req_id, long(entries))


def _slot_of(req_id: pa.Array, entries: int) -> pa.Array:
    return pc.subtract(req_id, pc.multiply(segment_of(req_id, entries), long(entries)))


def _states(batch: pa.RecordBatch) -> pa.Array:
    told = pc.if_else(has(batch, lib.QI_REDELIVERED), "delivered", "ready")
    told = pc.if_else(has(batch, lib.QI_DELAYED), "delayed", told)
    told = pc.if_else(is_expired(batch["expiry_us"]), "expired", told)
    told = pc.if_else(has(batch, lib.QI_DEAD_LETTER), "dead", told)
    return pc.if_else(has(batch, lib.QI_NO_BODY), LOST, told)


def _chosen(batch: pa.RecordBatch, choice: Choice) -> pa.Array | None:
    """None: all rows."""
    masks = []
    none_expires = batch["expiry_us"].null_count == batch.num_rows
    wanted = {*choice.states, "expired"} if none_expires else choice.states
    if not wanted >= set(STATES) or pc.any(has(batch, lib.QI_NO_BODY)).as_py():
        masks.append(pc.is_in(_states(batch), pa.array(sorted(choice.states))))
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
    unit: Unit,
    name: str,
    names: Sequence[str],
    batch: pa.RecordBatch,
    entries: int,
    moved: dict[int, int],
) -> pa.RecordBatch:
    req_id = batch["req_id"]
    values: dict[str, Any] = {
        "queue": name,
        "req_id": req_id,
        "segment": lambda: segment_of(req_id, entries),
        "slot": lambda: _slot_of(req_id, entries),
        "state": lambda: _states(batch),
        "priority": lambda: batch["priority"],
        "due": lambda: batch["due_us"],
        "expires_at": batch["expiry_us"],
        "delivery_count": lambda: batch["count"],
        "redelivered": lambda: has(batch, lib.QI_REDELIVERED),
        "persistent": lambda: pc.invert(has(batch, lib.QI_TRANSIENT)),
        "msg_id": lambda: batch["msg_id"],
        "size": lambda: batch["size"],
        "file": lambda: _files(batch["file"], moved),
        "offset": lambda: pc.if_else(_is_moved(batch["file"], moved), None, batch["offset"]),
    }
    if "body" in names:
        values["body"] = batch["body"]
    if "headers" in names:
        values["headers"] = lambda: _headers(batch["headers"])
    wanted = {
        key: value() if callable(value) else value for key, value in values.items() if key in names
    }
    return fill(unit, "messages", names, batch.num_rows, wanted)


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


def _is_moved(file: pa.Array, moved: dict[int, int]) -> pa.Array:
    return pc.is_in(file, pa.array(list(moved), pa.int64()))


def _files(file: pa.Array, moved: dict[int, int]) -> pa.Array:
    """Their names; null for a message that stands in the index."""
    births = pc.unique(file).to_pylist()
    found = [None if b is None else f"messages/{moved.get(b, b)}.qms" for b in births]
    at = pc.index_in(file, pa.array(births, pa.int64()))
    return pc.take(pa.array(found, pa.string()), at)


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
                    "file": where,
                    "offset": batch["offset"],
                }
                yield fill(unit, "bodies", names, batch.num_rows, values)
    except OSError as error:
        log.warning("%s: %s", unit.source, error)
    finally:
        tree.close()
