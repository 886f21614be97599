"""An audit's join: what the messages of a store name, and what its message files hold.

Message files are read byte by byte, one after the other, each joined with what names it. What the
join does not find is asked for once more through the engine, because a writer may have moved it
meanwhile: its word is the last. Memory: one message file, and 44 bytes per reference.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

import qindex
from qindex._core import lib
from qindex.brokers.tree import Tree
from qindex.native.messages import FRAME_BYTES, MessageFiles, read_msg_id
from qindex.spark import columns
from qindex.spark.examine import Examination, Limits
from qindex.spark.store_rows import MESSAGE_FILE_BYTES_MAX, has, long

_REFERENCES: Final = pa.schema(
    [
        ("msg_id", pa.binary(16)),
        ("file", pa.int64()),  # where it was born
        ("req_id", pa.int64()),
        ("size", pa.int64()),  # of the body
        ("queue", pa.int32()),
    ]
)
_FRAMES: Final = pa.schema([("kind", pa.uint8()), ("size", pa.int64()), ("msg_id", pa.binary(16))])


class References:
    """The stored bodies that live messages name, of all queues."""

    def __init__(self) -> None:
        self.queues: list[str] = []
        self._parts: list[pa.RecordBatch] = []

    def add(self, queue: str, batch: pa.RecordBatch) -> None:
        if batch["msg_id"].null_count == batch.num_rows:
            return
        some = batch.filter(pc.is_valid(batch["msg_id"]))
        if not self.queues or self.queues[-1] != queue:
            self.queues.append(queue)
        number = pa.repeat(pa.scalar(len(self.queues) - 1, pa.int32()), some.num_rows)
        arrays = [some["msg_id"], some["file"], some["req_id"], some["size"], number]
        self._parts.append(pa.RecordBatch.from_arrays(arrays, schema=_REFERENCES))

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self._parts, _REFERENCES)


def examine_bodies(
    examination: Examination,
    limits: Limits,
    store: qindex.Store,
    tree: Tree,
    references: References,
) -> None:
    """Message files, references, and what of either has no counterpart."""
    files = MessageFiles(tree)
    named = references.table()
    if limits.check_bodies:
        by_file = _by_file(named, files)
        missing = [
            _examine_file(examination, files, number, by_file.get(number, named.slice(0, 0)))
            for number in sorted(files.files.keys() | by_file.keys())
        ]
        if missing:
            _tell_missing(examination, store, pa.concat_tables(missing), references)
    _count_references(examination, named, references)
    for found in tree.findings.kept:
        examination.find("damaged file", found.text, file=found.where, offset=found.offset)


def _by_file(named: pa.Table, files: MessageFiles) -> dict[int, pa.Table]:
    """The references by the file in which their bodies are now."""
    if not named.num_rows:
        return {}
    births = pc.unique(named["file"]).to_pylist()
    homes = pa.array([files.holder(birth) for birth in births], pa.int64())
    home = pc.take(homes, pc.index_in(named["file"], pa.array(births, pa.int64())))
    ordered = named.set_column(1, "file", home).sort_by("file")
    found, start = {}, 0
    for run in pc.value_counts(ordered["file"]).to_pylist():
        found[run["values"]] = ordered.slice(start, run["counts"])
        start += run["counts"]
    return found


def _examine_file(
    examination: Examination, files: MessageFiles, number: int, named: pa.Table
) -> pa.Table:
    """Tells one file; gives the references whose frame is not there or not sound (`damaged`)."""
    frames = _frames(examination, files, number)
    wanted = pc.is_in(frames["msg_id"], pc.unique(named["msg_id"]))
    if number in files.files:
        _tell_file(examination, files, number, frames, frames.filter(wanted))
    is_sound = pc.equal(frames["kind"], pa.scalar(lib.QI_ROW_SOUND, pa.uint8()))
    sound = pc.unique(frames["msg_id"].filter(is_sound))
    missing = named.filter(pc.invert(pc.is_in(named["msg_id"], sound)))
    damaged = pc.is_in(missing["msg_id"], pc.unique(frames["msg_id"]))
    return missing.append_column("damaged", damaged)


def _frames(examination: Examination, files: MessageFiles, number: int) -> pa.Table:
    """All frames of a file; none if there is no such file."""
    if number not in files.files:
        return _FRAMES.empty_table()
    where = files.files[number].where
    data = files.tree.read(where, MESSAGE_FILE_BYTES_MAX) or b""
    walk = columns.bodies(files.identity, number, data, _FRAMES.names)
    frames = pa.Table.from_batches(walk, _FRAMES)
    if walk.damaged:
        text = f"{walk.damaged:,} bytes between the frames are no frame"
        examination.find("damaged file", text, file=where, offset=0)
    return frames


def _tell_file(
    examination: Examination, files: MessageFiles, number: int, frames: pa.Table, live: pa.Table
) -> None:
    file = files.files[number]
    orphans = frames.num_rows - live.num_rows
    live_bytes, all_bytes = _frame_bytes(live), _frame_bytes(frames)
    examination.files.append(
        {
            "file": file.where,
            "kind": "messages",
            "bytes": file.size,
            "frames": frames.num_rows,
            "orphans": orphans,
            "live_bytes": live_bytes,
            "garbage_bytes": all_bytes - live_bytes,
        }
    )
    if orphans:
        text = f"{all_bytes - live_bytes:,} bytes of {file.size:,}"
        examination.find("orphan bodies", text, count=orphans, file=file.where, offset=0)


def _frame_bytes(frames: pa.Table) -> int:
    payloads: int = pc.sum(frames["size"]).as_py() or 0
    count: int = frames.num_rows
    return payloads + FRAME_BYTES * count


def _tell_missing(
    examination: Examination, store: qindex.Store, missing: pa.Table, references: References
) -> None:
    """Those that the engine cannot read either."""
    rows = {row["queue"]: row for row in examination.queues}
    for number in pc.unique(missing["queue"]).to_pylist():
        name = references.queues[number]
        of_queue = missing.filter(pc.equal(missing["queue"], long(number)))
        handle = store.queue(name, create=False)._handle
        req_ids = [req_id for req_id in of_queue["req_id"].to_pylist() if _is_lost(handle, req_id)]
        of_queue = of_queue.filter(pc.is_in(of_queue["req_id"], pa.array(req_ids, pa.int64())))
        for mask, kind, text in (
            (of_queue["damaged"], "damaged body", "its checksum is wrong"),
            (pc.invert(of_queue["damaged"]), "lost", "its body is in no message file"),
        ):
            ids = of_queue["req_id"].filter(mask).to_pylist()
            examination.find_each(kind, text, ids, queue=name)
        rows[name]["live"] -= len(req_ids)
        rows[name]["lost"] += len(req_ids)
        rows[name]["live_bytes"] -= pc.sum(of_queue["size"]).as_py() or 0


def _is_lost(handle: Any, req_id: int) -> bool:
    """Not acked, and not to be read."""
    walk = columns.Messages(handle, start=req_id, stop=req_id + 1, rows=1, with_bodies=True)
    without = [pc.any(has(batch, lib.QI_NO_BODY)).as_py() for batch in walk]
    return bool(walk.unreadable) or any(without)


def _count_references(examination: Examination, named: pa.Table, references: References) -> None:
    """One body is named once per queue at most, and by no more queues than it was published to."""
    if not named.num_rows:
        return
    counts = named.group_by("msg_id").aggregate([("req_id", "count"), ("req_id", "min")])
    several = counts.filter(pc.greater(counts["req_id_count"], long(1)))
    if not several.num_rows:
        return
    suspects = named.filter(pc.is_in(named["msg_id"], several["msg_id"]))
    per_queue = suspects.group_by(["queue", "msg_id"]).aggregate(
        [("req_id", "count"), ("req_id", "min")]
    )
    again = per_queue.filter(pc.greater(per_queue["req_id_count"], long(1)))
    for row in again.to_pylist():
        examination.find(
            "duplicate",
            f"{row['req_id_count']} times the same stored message in this queue",
            queue=references.queues[row["queue"]],
            req_id=row["req_id_min"],
            count=row["req_id_count"] - 1,
        )
    for row in several.to_pylist():
        told = read_msg_id(row["msg_id"])
        if told.queues < 256 and row["req_id_count"] > told.queues:
            text = f"{row['req_id_count']} messages name it, it was published to {told.queues}"
            where = {"file": f"messages/{told.file}.qms", "offset": told.offset}
            examination.find("references", text, req_id=row["req_id_min"], **where)
