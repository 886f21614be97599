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
from qindex.formats.foreign import Findings, Tree
from qindex.spark import columns
from qindex.spark.examine import Examination, Limits
from qindex.spark.examine_bodies import References, examine_bodies
from qindex.spark.native import has, is_expired, long
from qindex.spark.records import JOURNALS, FileRoom, index_files, is_index_file, published
from qindex.spark.tables import segment_of

_NUMBER: Final = re.compile(r"[0-9]+")
_INDEX_ONLY: Final = 56  # offsets in store.meta
_CLEAN: Final = 57
_COUNT_BITS: Final = 52  # of a ReqId; above them is its lane
_NEEDED: Final = ("kind", "req_id", "size", "expiry_us", "count", "msg_id", "file")
_FOLDER: Final = re.compile(r"[0-9a-f]{32}")


def examine_store(examination: Examination, limits: Limits) -> None:
    """All queues, then all message files, then what the engine found meanwhile."""
    tree = Tree(examination.unit.folder, Findings())
    try:
        flags = _flags(tree)
        if flags[_INDEX_ONLY]:
            text = "an index alone (QueueIndex): its bodies are elsewhere, it is not examined"
            examination.find("note", text, file="store.meta", offset=_INDEX_ONLY)
            return
        with qindex.open(examination.unit.folder, read_only=True, create=False) as store:
            queues = _Queues(examination, limits, store, tree, ended_cleanly=flags[_CLEAN])
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
        *,
        ended_cleanly: bool,
    ) -> None:
        self.examination = examination
        self.names = store.queues()
        self.folders = {store.queue_directory(name): name for name in self.names}
        self.references = References()
        self._limits = limits
        self._store = store
        self._tree = tree
        self._entries = store.stats().segment_entries
        self._ended_cleanly = ended_cleanly
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
        except (qindex.StoreCorrupt, qindex.QueueMissing) as error:
            row["error"] = str(error)
            self.examination.find("unreadable", str(error), queue=name, file=folder, offset=0)
            return
        row["recovery_us"] = int((time.perf_counter() - started) * 1e6)
        row["journal_bytes"] = stats.journal_bytes
        row["next_req_id"] = stats.next_req_id
        found, newest = _published(self._tree, folder, files, self._entries, self._room)
        if self._ended_cleanly:  # else ReqIds are skipped, and the next one says nothing about age
            newest[0] = stats.next_req_id - 1
        self._examine_messages(queue, row, found, newest)

    def _examine_messages(
        self, queue: qindex.Queue, row: dict[str, Any], found: int, newest: dict[int, int]
    ) -> None:
        """`found`: how many the files tell of; `newest`: of each lane the last ReqId."""
        totals = _Totals()
        walk = columns.Messages(queue._handle, _NEEDED, rows=max(1, min(columns.ROWS, len(queue))))
        for batch in walk:
            self.references.add(queue.name, batch)
            totals.add(batch, self._limits, newest)
        where = {"queue": queue.name, "file": self._store.queue_directory(queue.name), "offset": 0}
        for req_id, text in walk.unreadable:
            self.examination.find("unreadable", text, req_id=req_id, **where)
        totals.tell(self.examination, self._limits, queue.name)
        row["live"], row["live_bytes"] = totals.live, totals.live_bytes
        row["delivered"] = totals.delivered
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

    live: int = 0
    live_bytes: int = 0
    delivered: int = 0
    ids: dict[str, list[int]] = field(
        default_factory=lambda: {"expired": [], "stuck": [], "poison": []}
    )

    def add(self, batch: pa.RecordBatch, limits: Limits, newest: dict[int, int]) -> None:
        """Of most batches two sums say all: nothing was delivered and nothing expires."""
        self.live += batch.num_rows
        self.live_bytes += pc.sum(batch["size"]).as_py() or 0
        deliveries = pc.max(batch["count"]).as_py() or 0
        masks = {}
        if deliveries > 0:
            delivered = has(batch, lib.QI_DELIVERED)
            self.delivered += pc.sum(delivered).as_py() or 0
            masks["stuck"] = pc.and_(delivered, _is_behind(batch, newest, limits.stuck_behind))
        if deliveries >= limits.poison_deliveries:
            masks["poison"] = pc.greater_equal(batch["count"], long(limits.poison_deliveries))
        if batch["expiry_us"].null_count < batch.num_rows:
            masks["expired"] = is_expired(batch["expiry_us"])
        for kind, mask in masks.items():
            waits = pc.invert(has(batch, lib.QI_DEAD_LETTER))  # of dead letters nothing is expected
            self.ids[kind] += batch["req_id"].filter(pc.and_(mask, waits)).to_pylist()

    def tell(self, examination: Examination, limits: Limits, queue: str) -> None:
        for kind, text in (
            ("expired", "past their expiry"),
            ("stuck", f"delivered, not acked, more than {limits.stuck_behind:,} ReqIds ago"),
            ("poison", f"delivered {limits.poison_deliveries} times or more"),
        ):
            examination.find_all(kind, text, self.ids[kind], queue=queue)


def _is_behind(batch: pa.RecordBatch, newest: dict[int, int], behind: int) -> pa.Array:
    """Has its lane given out so many ReqIds since? Most batches are of one lane."""
    lanes = pc.shift_right(batch["req_id"], long(_COUNT_BITS))
    found = pa.repeat(pa.scalar(False), batch.num_rows)
    for lane in pc.unique(lanes).to_pylist():
        old = pc.less(batch["req_id"], long(newest.get(lane, 0) - behind))
        found = pc.or_(found, pc.and_(old, pc.equal(lanes, long(lane))))
    return found


def _published(
    tree: Tree, folder: str, files: dict[str, int], entries: int, room: FileRoom
) -> tuple[int, dict[int, int]]:
    """How many messages the files of a queue tell of, acked ones too; each lane's last ReqId.

    A message may stand in a journal and in a segment. Memory: the ReqIds of the journals.
    """
    in_journals = _by_segment(published(tree, folder, set(files) & set(JOURNALS), room), entries)
    of_segment: dict[int, list[str]] = {number: [] for number in in_journals}
    for name in set(files) - set(JOURNALS):
        of_segment.setdefault(int(name.partition(".")[0]), []).append(name)
    count, newest = 0, {0: 0}
    for number, names in of_segment.items():
        ids = published(tree, folder, names, room)
        if number in in_journals:
            ids = pa.chunked_array([*ids.chunks, *in_journals[number].chunks], pa.int64())
        count += pc.count_distinct(ids).as_py()
        highest = pc.max(ids).as_py() or 0
        lane = highest >> _COUNT_BITS
        newest[lane] = max(newest.get(lane, 0), highest)
    return count, newest


def _by_segment(req_ids: pa.ChunkedArray, entries: int) -> dict[int, pa.ChunkedArray]:
    """Of most queues nothing is in the journals."""
    if not len(req_ids):
        return {}
    segments = segment_of(req_ids, long(entries))
    return {
        number: req_ids.filter(pc.equal(segments, long(number)))
        for number in pc.unique(segments).to_pylist()
    }


def _flags(tree: Tree) -> dict[int, bool]:
    """Two bytes of store.meta: FORMAT.rst, section 2."""
    head = b""
    source = tree.try_open("store.meta")
    if source is not None:
        with source:
            head = source.read(0, _CLEAN + 1)
    return {at: head[at : at + 1] == b"\1" for at in (_INDEX_ONLY, _CLEAN)}


# --- what the engine found ----------------------------------------------------------------------


def _tell_findings(examination: Examination, store: qindex.Store, folders: dict[str, str]) -> None:
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


def _tell_nameless(examination: Examination, tree: Tree, known: dict[str, str]) -> None:
    """Folders of queues whose name cannot be read: the store does not know that they exist."""
    for name in _folders(tree):
        folder = f"queues/{name}"
        if _FOLDER.fullmatch(name) and folder not in known:
            text = "no queue.meta says whose folder this is: its messages are not served"
            examination.find("unreadable", text, file=f"{folder}/queue.meta", offset=0)
