"""An audit of a store of qindex: what its index says, joined with what its message files hold.

The index is read through the engine, so that a store that is in use may be examined, too; message
files are read byte by byte. What the join does not find is asked for once more through the engine,
because a writer may have moved it meanwhile: its word is the last.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

import qindex
from qindex._core import lib
from qindex.formats.foreign import Findings, Tree
from qindex.formats.native_messages import MessageFiles, read_msg_id
from qindex.spark import columns
from qindex.spark.examine import Examination, Limits
from qindex.spark.native import (
    FILE_BYTES_MAX,
    JOURNALS,
    MESSAGE_FILE_BYTES_MAX,
    has,
    index_files,
    is_expired,
    is_index_file,
)

_FRAME_BYTES: Final = 25
_NUMBER: Final = re.compile(r"[0-9]+")
_FOLDER: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(slots=True)
class _References:
    """The stored bodies that live messages name, of all queues."""

    queues: list[str] = field(default_factory=list)
    parts: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        some = batch.filter(pc.is_valid(batch["msg_id"]))
        if some.num_rows:
            number = pa.repeat(pa.scalar(len(self.queues) - 1, pa.int32()), some.num_rows)
            columns_ = {"msg_id": some["msg_id"], "req_id": some["req_id"], "queue": number}
            self.parts.append(pa.RecordBatch.from_pydict(columns_))

    def table(self) -> pa.Table:
        schema = pa.schema(
            [("msg_id", pa.binary(16)), ("req_id", pa.int64()), ("queue", pa.int32())]
        )
        return pa.Table.from_batches(self.parts, schema).combine_chunks()


def examine_store(examination: Examination, limits: Limits) -> None:
    """All queues, then all files."""
    source = examination.unit.source
    tree = Tree(source, Findings())
    references = _References()
    try:
        with qindex.open(source, read_only=True, create=False) as store:
            sizes = _index_sizes(examination, tree)
            for name in store.queues():
                _examine_queue(examination, limits, store, name, tree, sizes, references)
            _examine_bodies(examination, limits, store, tree, references)
            _tell_findings(examination, store)
            _tell_nameless(examination, store, tree)
    finally:
        tree.close()


# --- queues -------------------------------------------------------------------------------------


def _folders(tree: Tree) -> list[str]:
    """Of queues; a store without one may have no folder for them."""
    try:
        return tree.folders("queues")
    except OSError:
        return []


def _index_sizes(examination: Examination, tree: Tree) -> dict[str, dict[str, int]]:
    """folder -> file -> bytes; the files are told at the same time."""
    sizes: dict[str, dict[str, int]] = {}
    for where in index_files(tree) if _folders(tree) else ():
        folder, _, name = where.rpartition("/")
        if is_index_file(where):
            size = tree.size(where)
            sizes.setdefault(folder, {})[name] = size
            kind = "journal" if name in JOURNALS else "segment"
            examination.files.append({"file": where, "kind": kind, "bytes": size})
    return sizes


def _examine_queue(
    examination: Examination,
    limits: Limits,
    store: qindex.Store,
    name: str,
    tree: Tree,
    sizes: dict[str, dict[str, int]],
    references: _References,
) -> None:
    folder = store.queue_directory(name)
    files = sizes.get(folder, {})
    row: dict[str, Any] = {
        "queue": name,
        "index_bytes": sum(files.values()),
        "segments": len(files.keys() - set(JOURNALS)),
    }
    examination.queues.append(row)
    started = time.perf_counter()
    try:
        queue = store.queue(name, create=False)
        stats = queue.stats()
    except (qindex.StoreCorrupt, qindex.QueueMissing) as error:
        row["error"] = str(error)
        examination.find("unreadable", str(error), queue=name, file=folder, offset=0)
        return
    row["recovery_us"] = int((time.perf_counter() - started) * 1e6)
    row["journal_bytes"] = stats.journal_bytes
    row["next_req_id"] = stats.next_req_id
    references.queues.append(name)
    found, highest = _published(tree, folder, files, store.stats().segment_entries)
    # After an unclean end ReqIds are skipped, so that the next one says nothing about age.
    newest = stats.next_req_id - 1 if _ended_cleanly(tree) else highest
    totals = _Totals()
    walk = columns.Messages(queue._handle, rows=max(1, min(columns.ROWS, len(queue))))
    for batch in walk:
        references.add(batch)
        totals.add(batch, limits, newest)
    for req_id, text in walk.unreadable:
        examination.find("unreadable", text, queue=name, req_id=req_id, file=folder, offset=0)
    totals.tell(examination, limits, name)
    row["live"], row["live_bytes"] = totals.live, totals.live_bytes
    row["lost"] = len(walk.unreadable)  # and those without a body, when bodies are looked for
    row["delivered"] = totals.delivered
    row["found"] = max(found, totals.live + len(walk.unreadable))
    row["gone"] = row["found"] - totals.live - len(walk.unreadable)


@dataclass(slots=True)
class _Totals:
    """Of a queue's live messages."""

    live: int = 0
    live_bytes: int = 0
    delivered: int = 0
    ids: dict[str, list[int]] = field(
        default_factory=lambda: {"expired": [], "stuck": [], "poison": []}
    )

    def add(self, batch: pa.RecordBatch, limits: Limits, newest: int) -> None:
        delivered = has(batch, lib.QI_DELIVERED)
        behind = pc.greater(pc.subtract(newest, batch["req_id"]), limits.stuck_behind)
        self.live += batch.num_rows
        self.live_bytes += pc.sum(batch["size"]).as_py() or 0
        self.delivered += pc.sum(delivered).as_py() or 0
        for kind, mask in (
            ("expired", is_expired(batch["expiry_us"])),
            ("stuck", pc.and_(delivered, behind)),
            ("poison", pc.greater_equal(batch["count"], limits.poison_deliveries)),
        ):
            if pc.any(mask).as_py():
                self.ids[kind] += batch["req_id"].filter(mask).to_pylist()

    def tell(self, examination: Examination, limits: Limits, queue: str) -> None:
        for kind, text in (
            ("expired", "past their expiry"),
            ("stuck", f"delivered, not acked, more than {limits.stuck_behind:,} ReqIds ago"),
            ("poison", f"delivered {limits.poison_deliveries} times or more"),
        ):
            examination.find_all(kind, text, self.ids[kind], queue=queue)


def _published(tree: Tree, folder: str, files: dict[str, int], entries: int) -> tuple[int, int]:
    """How many messages the files of a queue tell of, acked ones too; the highest ReqId of them.

    A message may stand in a journal and in a segment. Memory: the ReqIds of the journals.
    """
    journals = _publishes(tree, [f"{folder}/{name}" for name in files.keys() & set(JOURNALS)])
    in_journals = pc.divide(journals, entries)
    of_segment: dict[int, list[str]] = {n: [] for n in pc.unique(in_journals).to_pylist()}
    for name in files.keys() - set(JOURNALS):
        of_segment.setdefault(int(name.partition(".")[0]), []).append(f"{folder}/{name}")
    count, highest = 0, 0
    for number, wheres in of_segment.items():
        here = journals.filter(pc.equal(in_journals, number))
        ids = pa.chunked_array([*_publishes(tree, wheres).chunks, *here.chunks], pa.int64())
        count += pc.count_distinct(ids).as_py()
        highest = max(highest, pc.max(ids).as_py() or 0)
    return count, highest


def _publishes(tree: Tree, wheres: Iterable[str]) -> pa.ChunkedArray:
    """The ReqIds of all publishes in these journals or segments."""
    chunks = []
    for where in wheres:
        data = tree.read(where, FILE_BYTES_MAX) or b""
        for batch in columns.records(data, ("kind", "req_id")):
            is_publish = pc.less_equal(batch["kind"], pa.scalar(lib.QI_ROW_TRANSIENT, pa.uint8()))
            chunks.append(batch["req_id"].filter(is_publish))
    return pa.chunked_array(chunks, pa.int64())


def _ended_cleanly(tree: Tree) -> bool:
    """FORMAT.rst, section 2: byte 57 of store.meta."""
    source = tree.try_open("store.meta")
    if source is None:
        return False
    with source:
        return source.read(57, 1) == b"\1"


# --- bodies -------------------------------------------------------------------------------------


def _examine_bodies(
    examination: Examination,
    limits: Limits,
    store: qindex.Store,
    tree: Tree,
    references: _References,
) -> None:
    files = MessageFiles(tree)
    named = references.table()
    frames = []
    if limits.check_bodies:
        for number in sorted(files.files):
            frames += [_frames(examination, files, tree, number, named)]
        _join(examination, store, named, pa.concat_tables(frames) if frames else None, references)
    _count_references(examination, named, references)
    for found in tree.findings.kept:
        examination.find("damaged file", found.text, file=found.where, offset=found.offset)


def _frames(
    examination: Examination, files: MessageFiles, tree: Tree, number: int, named: pa.Table
) -> pa.Table:
    """The frames of one file that are named: their MsgIds, and are they sound. Tells the file."""
    file = files.files[number]
    data = tree.read(file.where, MESSAGE_FILE_BYTES_MAX) or b""
    walk = columns.bodies(files.identity, number, data)
    parts = list(walk)
    schema = pa.schema([("kind", pa.uint8()), ("size", pa.int64()), ("msg_id", pa.binary(16))])
    table = pa.Table.from_batches([part.select(schema.names) for part in parts], schema)
    wanted = pc.is_in(table["msg_id"], pc.unique(named["msg_id"]))
    live = table.filter(wanted)
    row: dict[str, Any] = {"file": file.where, "kind": "messages", "bytes": file.size}
    row["frames"], row["orphans"] = table.num_rows, table.num_rows - live.num_rows
    row["live_bytes"] = _frame_bytes(live)
    row["garbage_bytes"] = _frame_bytes(table) - row["live_bytes"]
    examination.files.append(row)
    if row["orphans"]:
        text = f"{row['garbage_bytes']:,} bytes of {file.size:,}"
        examination.find("orphan bodies", text, count=row["orphans"], file=file.where, offset=0)
    if walk.damaged:
        text = f"{walk.damaged:,} bytes between the frames are no frame"
        examination.find("damaged file", text, file=file.where, offset=0)
    return live


def _frame_bytes(table: pa.Table) -> int:
    payloads: int = pc.sum(table["size"]).as_py() or 0
    frames: int = table.num_rows
    return payloads + _FRAME_BYTES * frames


def _join(
    examination: Examination,
    store: qindex.Store,
    named: pa.Table,
    frames: pa.Table | None,
    references: _References,
) -> None:
    """References whose frame is nowhere, or not sound."""
    if not named.num_rows:
        return
    sound = pa.array([], pa.binary(16))
    if frames is not None:
        is_sound = pc.equal(frames["kind"], pa.scalar(lib.QI_ROW_SOUND, pa.uint8()))
        sound = pc.unique(frames["msg_id"].filter(is_sound))
    missing = named.filter(pc.invert(pc.is_in(named["msg_id"], sound)))
    present = pa.array([], pa.binary(16)) if frames is None else pc.unique(frames["msg_id"])
    for number, name in enumerate(references.queues):
        of_queue = missing.filter(pc.equal(missing["queue"], number))
        lost = list(_still_missing(store, name, of_queue["req_id"].to_pylist()))
        if not lost:
            continue
        of_queue = of_queue.filter(pc.is_in(of_queue["req_id"], pa.array(lost, pa.int64())))
        damaged = pc.is_in(of_queue["msg_id"], present)
        for mask, kind, text in (
            (damaged, "damaged body", "its checksum is wrong"),
            (pc.invert(damaged), "lost", "its body is in no message file"),
        ):
            ids = of_queue["req_id"].filter(mask).to_pylist()
            examination.find_each(kind, text, ids, queue=name)
        for row in examination.queues:
            if row["queue"] == name:
                row["live"] -= len(lost)
                row["lost"] += len(lost)


def _still_missing(store: qindex.Store, name: str, req_ids: list[int]) -> Iterator[int]:
    """Those that the engine cannot read either."""
    if not req_ids:
        return
    handle = store.queue(name, create=False)._handle
    for req_id in req_ids:
        walk = columns.Messages(handle, start=req_id, stop=req_id + 1, rows=1, with_bodies=True)
        without = [pc.any(has(batch, lib.QI_NO_BODY)).as_py() for batch in walk]
        if walk.unreadable or any(without):
            yield req_id


def _count_references(examination: Examination, named: pa.Table, references: _References) -> None:
    """One body is named once per queue at most, and by no more queues than it was published to."""
    if not named.num_rows:
        return
    counts = named.group_by("msg_id").aggregate([("req_id", "count"), ("req_id", "min")])
    several = counts.filter(pc.greater(counts["req_id_count"], 1))
    if not several.num_rows:
        return
    suspects = named.filter(pc.is_in(named["msg_id"], several["msg_id"]))
    per_queue = suspects.group_by(["queue", "msg_id"]).aggregate(
        [("req_id", "count"), ("req_id", "min")]
    )
    again = per_queue.filter(pc.greater(per_queue["req_id_count"], 1))
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


# --- what the engine found ----------------------------------------------------------------------


def _tell_findings(examination: Examination, store: qindex.Store) -> None:
    folders = {store.queue_directory(name): name for name in store.queues()}
    rows = {row["queue"]: row for row in examination.queues}
    for found in store.findings:
        queue = folders.get("/".join(found.where.split("/")[:2]))
        where = {"queue": queue, "file": found.where, "offset": found.offset}
        numbers = [int(number) for number in _NUMBER.findall(found.text)]
        if "without a publish" in found.text:
            examination.find("ack without publish", found.text, count=numbers[0], **where)
        elif "messages should be here" in found.text and numbers[0] > numbers[1]:
            lost = numbers[0] - numbers[1]
            examination.find("lost", found.text, count=lost, **where)
            if queue in rows:
                _add_lost(rows[queue], lost)
        else:
            kind = "note" if found.severity == "note" else "damaged file"
            examination.find(kind, found.text, **where)


def _add_lost(row: dict[str, Any], count: int) -> None:
    """Messages that no record tells of any more."""
    row["lost"] += count
    row["found"] += count


def _tell_nameless(examination: Examination, store: qindex.Store, tree: Tree) -> None:
    """Folders of queues whose name cannot be read: the store does not know that they exist."""
    known = {store.queue_directory(name) for name in store.queues()}
    for name in _folders(tree):
        folder = f"queues/{name}"
        if _FOLDER.fullmatch(name) and folder not in known:
            text = "no queue.meta says whose folder this is: its messages are not served"
            examination.find("unreadable", text, file=f"{folder}/queue.meta", offset=0)
