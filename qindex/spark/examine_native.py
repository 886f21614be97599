"""An audit of a store of qindex: its queues, and what the engine tells of it.

The index is read through the engine, so that a store that is in use may be examined, too; records
are read once more as bytes, for what is gone. Bodies are examine_bodies.py's.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

import qindex
from qindex._core import lib
from qindex.brokers.tree import Findings, Tree
from qindex.look.stores import UNREADABLE
from qindex.native.folders import JOURNALS, is_index_file, segment_number
from qindex.spark import columns
from qindex.spark.examine import Examination, Limits
from qindex.spark.examine_bodies import References, examine_bodies
from qindex.spark.records import FileRoom, index_files, published
from qindex.spark.store_rows import has, is_expired, long
from qindex.spark.tables import segment_of

_UNCLEAN: Final = slice(40, 48)  # offsets in store.meta
_INDEX_ONLY: Final = 56
_CLEAN: Final = 57
_COUNT_BITS: Final = 52  # of a ReqId; above them is its lane
_NEEDED: Final = ("kind", "req_id", "size", "expiry_us", "count", "msg_id", "file")
_FOLDER: Final = re.compile(r"[0-9a-f]{32}")


def examine_store(examination: Examination, limits: Limits) -> None:
    """All queues, then all message files, then what the engine found meanwhile."""
    tree = Tree(examination.unit.folder, Findings())
    try:
        head = _head(tree)
        if head.index_only:
            text = "an index alone (QueueIndex): its bodies are elsewhere, it is not examined"
            examination.find("note", text, file="store.meta", offset=_INDEX_ONLY)
            return
        with qindex.open(examination.unit.folder, read_only=True, create=False) as store:
            queues = _Queues(examination, limits, store, tree, head)
            for name in queues.names:
                queues.examine(name)
            examine_bodies(examination, limits, store, tree, queues.references)
            _tell_findings(examination, store, queues.folders)
            _tell_nameless(examination, tree, queues.folders)
    finally:
        tree.close()


class _Queues:
    """The queues of one store, and what all of them share."""

    def __init__(
        self,
        examination: Examination,
        limits: Limits,
        store: qindex.Store,
        tree: Tree,
        head: _Head,
    ) -> None:
        self.examination = examination
        self.names = store.queues()
        self.folders = {store.queue_directory(name): name for name in self.names}
        self.references = References()
        self._limits = limits
        self._store = store
        self._tree = tree
        self._entries = store.stats().segment_entries
        self._head = head
        self._room = FileRoom()
        self._sizes = _index_sizes(examination, tree)

    def examine(self, name: str) -> None:
        folder = self._store.queue_directory(name)
        files = self._sizes.get(folder, {})
        row: dict[str, Any] = {
            "queue": name,
            "index_bytes": sum(files.values()),
            "segments": len(files.keys() - set(JOURNALS)),
        }
        self.examination.queues.append(row)
        started = time.perf_counter()
        try:
            queue = self._store.queue(name, create=False)
            stats = queue.stats()
        except (*UNREADABLE, qindex.QueueMissing) as error:
            row["error"] = str(error)
            self.examination.find("unreadable", str(error), queue=name, file=folder, offset=0)
            return
        row["recovery_us"] = int((time.perf_counter() - started) * 1e6)
        row["journal_bytes"] = stats.journal_bytes
        row["next_req_id"] = stats.next_req_id
        totals = _Totals(self._limits)
        walk = columns.Messages(queue._handle, _NEEDED, rows=max(1, min(columns.ROWS, len(queue))))
        for batch in walk:
            self.references.add(queue.name, batch)
            totals.add(batch)
        where = {"queue": name, "file": folder, "offset": 0}
        for req_id, text in walk.unreadable:
            self.examination.find("unreadable", text, req_id=req_id, **where)
        found, begun = _published(self._tree, folder, files, self._entries, self._room, totals)
        if self._head.skips_none:
            _add_unseen(begun, totals, stats.next_req_id if self._head.clean else 0)
        totals.tell(self.examination, name, begun)
        row["live"], row["live_bytes"] = totals.live, totals.live_bytes
        row["unacked"] = totals.delivered
        row["lost"] = len(walk.unreadable)  # and those without a body, when bodies are looked for
        row["found"] = max(found, totals.live + row["lost"])
        row["gone"] = row["found"] - totals.live - row["lost"]


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


@dataclass(slots=True)
class _Totals:
    """Of a queue's live messages."""

    limits: Limits
    live: int = 0
    live_bytes: int = 0
    delivered: int = 0
    ids: dict[str, list[int]] = field(default_factory=lambda: {"expired": [], "poison": []})
    had: list[pa.Array] = field(default_factory=list)  # ReqIds of the delivered ones, sorted
    # Lane -> the first message that waits for its first delivery.
    waiting: dict[int, int] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Of most batches two sums say all: nothing was delivered and nothing expires."""
        self.live += batch.num_rows
        self.live_bytes += pc.sum(batch["size"]).as_py() or 0
        deliveries = pc.max(batch["count"]).as_py() or 0
        # Of dead letters nothing is expected.
        waits, masks = pc.invert(has(batch, lib.QI_DEAD_LETTER)), {}
        if deliveries > 0:
            delivered = has(batch, lib.QI_DELIVERED)
            self.delivered += pc.sum(delivered).as_py() or 0
            self.had.append(batch["req_id"].filter(pc.and_(delivered, waits)))
        if deliveries >= self.limits.poison_deliveries:
            masks["poison"] = pc.greater_equal(batch["count"], long(self.limits.poison_deliveries))
        if batch["expiry_us"].null_count < batch.num_rows:
            masks["expired"] = is_expired(batch["expiry_us"])
        self._note_waiting(batch, waits, masks.get("expired"))
        for kind, mask in masks.items():
            self.ids[kind] += batch["req_id"].filter(pc.and_(mask, waits)).to_pylist()

    def _note_waiting(
        self, batch: pa.RecordBatch, waits: pa.Array, expired: pa.Array | None
    ) -> None:
        """Once for each lane: the batches come in the order of ReqIds."""
        if not batch.num_rows:
            return
        lanes = {batch["req_id"][row].as_py() >> _COUNT_BITS for row in (0, batch.num_rows - 1)}
        if len(lanes) == 1 and lanes <= self.waiting.keys():
            return
        fresh = pc.and_(waits, pc.invert(has(batch, lib.QI_DELIVERED | lib.QI_DELAYED)))
        if expired is not None:
            fresh = pc.and_not(fresh, expired)
        for lane, ids in _by_lane(batch["req_id"].filter(fresh)):
            self.waiting.setdefault(lane, ids[0].as_py())

    def tell(self, examination: Examination, queue: str, begun: dict[int, int]) -> None:
        """`begun`: of each lane the last ReqId that was delivered or is gone."""
        behind = self.limits.stuck_behind
        stuck: list[int] = []
        for part in self.had:
            for lane, had in _by_lane(part):
                stuck += had.filter(pc.less(had, long(begun.get(lane, 0) - behind))).to_pylist()
        for kind, text, of_kind in (
            ("expired", "past their expiry", self.ids["expired"]),
            ("stuck", f"delivered, not acked, and {behind:,} ReqIds behind what came after", stuck),
            (
                "poison",
                f"delivered {self.limits.poison_deliveries} times or more",
                self.ids["poison"],
            ),
        ):
            examination.find_all(kind, text, of_kind, queue=queue)


def _by_lane(req_ids: pa.Array) -> list[tuple[int, pa.Array]]:
    """Sorted ReqIds, apart by lane. Most are of one lane."""
    if not len(req_ids):
        return []
    if req_ids[0].as_py() >> _COUNT_BITS == req_ids[-1].as_py() >> _COUNT_BITS:
        return [(req_ids[0].as_py() >> _COUNT_BITS, req_ids)]
    lanes = pc.shift_right(req_ids, long(_COUNT_BITS))
    return [
        (lane, req_ids.filter(pc.equal(lanes, long(lane)))) for lane in pc.unique(lanes).to_pylist()
    ]


def _published(
    tree: Tree,
    folder: str,
    files: dict[str, int],
    entries: int,
    room: FileRoom,
    totals: _Totals,
) -> tuple[int, dict[int, int]]:
    """How many messages the files of a queue tell of, acked ones too; and of each lane the last
    ReqId that was delivered or is gone, as far as the files tell.

    Messages are delivered in the order of their ReqIds, so that this is what comes before the first
    one that waits. It counts nothing that only waits: a backlog says nothing about the age of what
    is in front of it. A message may stand in a journal and in a segment. Memory: the ReqIds of the
    journals.
    """
    in_journals = _by_segment(published(tree, folder, set(files) & set(JOURNALS), room), entries)
    of_segment: dict[int, list[str]] = {number: [] for number in in_journals}
    for name in files:
        if (number := segment_number(name)) is not None:
            of_segment.setdefault(number, []).append(name)
    count, begun = 0, {0: 0}
    for part in totals.had:
        begun.update({lane: ids[-1].as_py() for lane, ids in _by_lane(part)})
    for number, names in of_segment.items():
        ids = published(tree, folder, names, room)
        if number in in_journals:
            ids = pa.chunked_array([*ids.chunks, *in_journals[number].chunks], pa.int64())
        count += pc.count_distinct(ids).as_py()
        lane = number * entries >> _COUNT_BITS
        if lane in totals.waiting:
            ids = ids.filter(pc.less(ids, long(totals.waiting[lane])))
        begun[lane] = max(begun.get(lane, 0), pc.max(ids).as_py() or 0)
    return count, begun


def _add_unseen(begun: dict[int, int], totals: _Totals, next_req_id: int) -> None:
    """What no file tells of any more, in a store that has never skipped a ReqId.

    `next_req_id`: of lane 0; 0: not known exactly.
    """
    for lane, first in totals.waiting.items():
        begun[lane] = max(begun.get(lane, 0), first - 1)
    if 0 not in totals.waiting:
        begun[0] = max(begun[0], next_req_id - 1)


def _by_segment(req_ids: pa.ChunkedArray, entries: int) -> dict[int, pa.ChunkedArray]:
    """Of most queues nothing is in the journals."""
    if not len(req_ids):
        return {}
    segments = segment_of(req_ids, long(entries))
    return {
        number: req_ids.filter(pc.equal(segments, long(number)))
        for number in pc.unique(segments).to_pylist()
    }


@dataclass(frozen=True, slots=True)
class _Head:
    """What store.meta says: FORMAT.rst, section 2."""

    index_only: bool
    clean: bool  # the last session ended with close: the next ReqIds are known exactly
    skips_none: bool  # no session has ended otherwise: ReqIds are skipped then


def _head(tree: Tree) -> _Head:
    head = b""
    source = tree.try_open("store.meta")
    if source is not None:
        with source:
            head = source.read(0, _CLEAN + 1)
    is_set = {at: head[at : at + 1] == b"\1" for at in (_INDEX_ONLY, _CLEAN)}
    return _Head(is_set[_INDEX_ONLY], is_set[_CLEAN], not any(head[_UNCLEAN]) and bool(head))


# --- what the engine found ----------------------------------------------------------------------


def _tell_findings(examination: Examination, store: qindex.Store, folders: dict[str, str]) -> None:
    rows = {row["queue"]: row for row in examination.queues}
    for found in store.findings:
        queue = folders.get(found.folder)
        where = {"queue": queue, "file": found.where, "offset": found.offset}
        if found.orphans:
            examination.find("ack without publish", found.text, count=found.orphans, **where)
        elif found.lost:
            examination.find("lost", found.text, count=found.lost, **where)
            if queue in rows:
                _add_lost(rows[queue], found.lost)
        else:
            kind = "note" if found.severity == "note" else "damaged file"
            examination.find(kind, found.text, **where)


def _add_lost(row: dict[str, Any], count: int) -> None:
    """Messages that no record tells of any more."""
    row["lost"] += count
    row["found"] += count


def _tell_nameless(examination: Examination, tree: Tree, known: dict[str, str]) -> None:
    """Folders of queues whose name cannot be read: the store does not know that they exist."""
    for name in _folders(tree):
        folder = f"queues/{name}"
        if _FOLDER.fullmatch(name) and folder not in known:
            text = "no queue.meta says whose folder this is: its messages are not served"
            examination.find("unreadable", text, file=f"{folder}/queue.meta", offset=0)
