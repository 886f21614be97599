"""What the journals and segments of qindex's own stores say, entry by entry: the table records.

A batch is of as many files and directories as it takes, because ten thousand small directories
would else be ten thousand batches. Of a directory no more is read than the columns need: the store
is opened only for the names of its queues and for the size of its segments.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

import qindex
from qindex._core import ffi, lib
from qindex.brokers.tree import Source, Tree
from qindex.errors import raise_error
from qindex.native.folders import FILE_BYTES_MAX, JOURNALS
from qindex.spark import columns
from qindex.spark.columns import Bytes
from qindex.spark.plan import Unit
from qindex.spark.tables import Choice, fill, log, segment_of, slot_of, spread, spread_names

# A record's columns, and what the core calls them.
_RAW: Final = {
    "kind": "kind",
    "req_id": "req_id",
    "expires_at": "expiry_us",
    "published_at": "published_us",
    "size": "size",
    "embedded": "embedded",
    "due": "due_us",
    "priority": "priority",
    "delivery_count": "count",
    "msg_id": "msg_id",
    "offset": "offset",
}
RECORD_KINDS: Final = (
    "publish",
    "transient",
    "deliver",
    "ack",
    "time",
    "event",
    "count",
    "purge",
)
_KINDS: Final = pa.array(RECORD_KINDS)
_ROOM_MIN: Final = 1 << 16
_ENTRIES: Final = 16384  # per segment, where the store cannot say


@dataclass(slots=True)
class _File:
    """Where rows come from, and what all of them have in common."""

    unit: Unit
    where: str
    queue: str | None
    entries: int


def records(
    units: Iterable[Unit], names: Sequence[str], choice: Choice
) -> Iterator[pa.RecordBatch]:
    """All of these directories, file by file. What cannot be read is left out, and logged."""
    wanted = {_RAW[name] for name in names if name in _RAW}
    if choice.cuts_req_ids or not {"segment", "slot"}.isdisjoint(names):
        wanted.add("req_id")
    for batch, parts in columns.records_of(_files(units, names, choice), wanted):
        made = _as_records(names, batch, parts)
        yield made.filter(_between(batch, choice)) if choice.cuts_req_ids else made


def _files(
    units: Iterable[Unit], names: Sequence[str], choice: Choice
) -> Iterator[tuple[_File, Bytes]]:
    needs_store = choice.queues or not {"queue", "segment", "slot"}.isdisjoint(names)
    files = _IndexFiles()
    for unit in units:
        queues, entries = queue_folders(unit.folder) if needs_store else ({}, _ENTRIES)
        for where, data in files.of(unit, _wanted(unit, queues, choice)):
            queue = queues.get(where.rpartition("/")[0])
            if choice.wants(queue):
                yield _File(unit, where, queue, entries), data


def _wanted(unit: Unit, queues: Mapping[str, str], choice: Choice) -> Sequence[str] | None:
    """Files, or folders of queues, that have to be looked at; None: all of the store."""
    if unit.files:
        return [f for f in unit.files if choice.wants(queues.get(f.rpartition("/")[0]))]
    if choice.wants(None):
        return None
    return [folder for folder, queue in queues.items() if choice.wants(queue)]


class _IndexFiles:
    """The journals and segments of one store after the other, in memory that stays the same."""

    def __init__(self) -> None:
        self._files = ffi.gc(lib.qi_index_files_new() or _no_memory(), lib.qi_index_files_free)
        self._found = ffi.new("qi_index_file *")

    def of(self, unit: Unit, wanted: Sequence[str] | None) -> Iterator[tuple[str, Bytes]]:
        """Where each is in the store, and its bytes, valid until the next one."""
        names = ffi.NULL if wanted is None else b"".join(os.fsencode(w) + b"\0" for w in wanted)
        path, count = os.fsencode(unit.folder), len(wanted or ())
        _tell(unit, lib.qi_index_files_begin(self._files, path, names, count))
        while code := lib.qi_index_files_next(self._files, self._found):
            if _tell(unit, code):
                where = os.fsdecode(ffi.string(self._found.where))
                yield where, ffi.buffer(self._found.bytes, self._found.size)


def _no_memory() -> NoReturn:
    raise MemoryError


def _tell(unit: Unit, code: int) -> bool:
    """An error is logged, and then it is false; a lack of memory is not the store's."""
    try:
        if code < 0:
            raise_error(code)
    except (qindex.QindexError, OSError) as error:
        log.warning("%s: %s", unit.source, error)
        return False
    return True


class FileRoom:
    """The memory that one file after the other is read into: fresh memory costs as much again."""

    def __init__(self) -> None:
        self._room = memoryview(b"")

    def read(self, source: Source) -> memoryview | None:
        """A journal or a segment, valid until the next one is read; None: nothing is in it.

        A journal that was flushed has no header, but still its length.
        """
        is_journal = source.where.endswith(JOURNALS)
        if is_journal and not columns.is_index(source.read(0, columns.INDEX_HEAD)):
            return None
        size = source.capped(FILE_BYTES_MAX)
        if size > len(self._room):
            self._room = memoryview(bytearray(max(size, _ROOM_MIN)))
        return self._room[: source.read_into(0, self._room[:size])]


def _between(batch: pa.RecordBatch, choice: Choice) -> pa.Array:
    first, last = pa.scalar(choice.first, pa.int64()), pa.scalar(choice.last, pa.int64())
    req_id = batch["req_id"]
    return pc.and_(pc.greater_equal(req_id, first), pc.less_equal(req_id, last))


def _as_records(
    names: Sequence[str], batch: pa.RecordBatch, parts: Sequence[tuple[_File, int]]
) -> pa.RecordBatch:
    """`parts`: whose rows these are."""
    req_id = partial(batch.column, "req_id")
    values = {
        **{name: partial(batch.column, raw) for name, raw in _RAW.items()},
        "queue": lambda: spread_names(parts, lambda file: file.queue),
        "file": lambda: spread_names(parts, lambda file: file.where),
        "kind": lambda: _KINDS.take(batch["kind"]),
        "segment": lambda: segment_of(req_id(), _entries(parts)),
        "slot": lambda: slot_of(req_id(), _entries(parts)),
    }
    return fill("records", names, [(file.unit, rows) for file, rows in parts], values)


def _entries(parts: Sequence[tuple[_File, int]]) -> pa.Array:
    return spread(parts, lambda file: file.entries, pa.int64())


def queue_folders(source: str) -> tuple[dict[str, str], int]:
    """(folder -> the queue's name, entries per segment); of a store beyond opening: none, 16384."""
    try:
        with qindex.open(source, read_only=True, create=False) as store:
            folders = {store.queue_directory(name): name for name in store.queues()}
            return folders, store.stats().segment_entries
    except (qindex.QindexError, OSError):
        return {}, _ENTRIES


def published(tree: Tree, folder: str, names: Iterable[str], room: FileRoom) -> pa.ChunkedArray:
    """The ReqIds of all publishes in these journals and segments of a queue's folder."""
    wanted = set(names)
    chunks = []

    def files() -> Iterator[tuple[None, memoryview]]:
        for source in tree.sources(folder, wanted.__contains__) if wanted else ():
            with source:
                if data := room.read(source):
                    yield None, data

    for batch, _ in columns.records_of(files(), ("kind", "req_id")):
        is_publish = pc.less_equal(batch["kind"], pa.scalar(lib.QI_ROW_TRANSIENT, pa.uint8()))
        chunks.append(batch["req_id"].filter(is_publish))
    return pa.chunked_array(chunks, pa.int64())


def index_files(tree: Tree) -> Iterator[str]:
    """All files in the folders of queues."""
    for folder in tree.folders("queues"):
        for name in tree.files(f"queues/{folder}"):
            yield f"queues/{folder}/{name}"
