"""The driver's half of the sink: staged files into the store, each batch exactly once.

One process at a time may write to a store, and one frame of one queue is what a crash leaves whole
(H11). So a batch, which may go to many queues, cannot be one atomic write. It is made exact by what
is written down before, in `store/spark/<write>/state.json`, always replaced as a whole:

1. With the store open for writing, and so with its lock, every ReqId that the batch will get is
   known: nobody else publishes. The state says, durably: this batch puts these rows of these files
   into these queues, from these ReqIds on.
2. Each part (a partition's rows of one queue) is published as one frame. The store is synced.
3. The state says, durably: this batch is done. The store is closed, the staged files are removed.

Killed before 1, nothing has happened. Killed after 3, a retry sees that it is done. Killed between,
a part is in its queue if a message lives at its ReqIds, until a consumer acks it. So who opens the
store next for writing, whatever for, settles that before anything else: qindex.open() calls
settle(), and the state says, durably, which parts are missing. The retry publishes these, from
their files. ReqIds are never used twice, so a part is never taken for another.

This holds for kills and for power cuts: what is not durable comes before what says that it is, and
what an opening shows is durable.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import qindex
from qindex._core import ffi, lib
from qindex.begun import FOLDER, STATE, State, Unit, load_state, make_folder, save_state
from qindex.errors import raise_error
from qindex.spark.sink_stage import Staged
from qindex.spark.stream_store import lane_of, open_to_write

FRAME_BYTES_MAX: Final = 128 * 1024 * 1024
RECORD_BYTES: Final = 40  # what the engine adds to a message
log: Final = logging.getLogger("qindex.spark")
_WHY: Final = "the sink publishes a batch into it when Spark commits it"


class Write:
    """One streaming query, or one df.write, into one store."""

    def __init__(self, store: str, name: str, lock_wait: float = 0) -> None:
        self.store = store
        self.folder = Path(store, FOLDER, name)
        self._lock_wait = lock_wait

    def commit(self, batch: int, files: Iterable[Staged]) -> None:
        """Publish these files, in order; nothing if this batch, or a later one, is done.

        A batch that was begun and not finished is finished first, from its own files.
        Raises StoreLocked, DiskFull: then the state stands as it is, for the next try.
        """
        state = load_state(self.folder)
        if state is not None and not state.done:
            state = self._publish(None)
        if state is None or state.batch < batch:
            units = [unit for staged in files for unit in self._units(staged)]
            self._publish(State(batch, False, units))
        self.sweep(batch)

    def sweep(self, batch: int) -> None:
        """Remove the staged files of this batch and of those before it."""
        for path in self.folder.glob("*-*-*.arrow"):
            if int(path.name.partition("-")[0]) <= batch:
                path.unlink(missing_ok=True)

    def abort(self, files: Iterable[Staged]) -> None:
        """Remove what this attempt has staged, unless its publishing has begun."""
        state = load_state(self.folder)
        needed = set() if state is None else {unit.file for unit in state.units}
        for staged in files:
            if staged.name and staged.name not in needed:
                (self.folder / staged.name).unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove everything, for a write that nobody will try again; not if it is half done."""
        state = load_state(self.folder)
        if state is None or state.done:
            shutil.rmtree(self.folder, ignore_errors=True)

    # --- the three steps -------------------------------------------------------------------------

    def _publish(self, state: State | None) -> State:
        """None: what the state says is to be finished."""
        if state is not None and not state.units:
            return self._done(state)
        with open_to_write(self.store, self._lock_wait, _WHY) as store:
            state = state or self._known()  # which was settled as the store was opened
            state = replace(state, units=_place(store, state.units))
            self._save(state)
            self._publish_units(store, state)
            store.sync()
            return self._done(state)

    def _publish_units(self, store: qindex.Store, state: State) -> None:
        files: dict[str, Any] = {}
        for number, unit in enumerate(state.units):
            if _next_req_id(store, unit) != unit.first:
                # A time has come nearer, so that its lane is another one: see FORMAT.rst.
                store.sync()
                state = replace(state, units=_place(store, state.units[number:]))
                self._save(state)
                self._publish_units(store, state)
                return
            try:
                _publish_unit(store, unit, self._batches(files, unit))
            except qindex.DiskFull:
                # Nothing was changed, so what is left is known, whoever makes room in the store.
                store.sync()  # what is not left has to be there after a power cut, too
                left = [replace(unit, first=-1) for unit in state.units[number:]]
                with suppress(OSError):
                    self._save(replace(state, units=left))
                raise

    def _done(self, state: State) -> State:
        state = State(state.batch, True, [])
        self._save(state)
        return state

    def _units(self, staged: Staged) -> list[Unit]:
        """A part of a file is one unit, or several if one frame cannot hold it."""
        if not staged.name:
            return []
        path = self.folder / staged.name
        if not path.is_file() or path.stat().st_size != staged.size:
            raise FileNotFoundError(
                f"{path} is not here as a task wrote it: the store's directory has to be the same"
                " one on all machines of the cluster"
            )
        units = []
        batches = _open(path)
        for part in staged.parts:
            held, place = 0, part.place
            for number in part.batches:
                batch = batches.get_batch(number)
                size = batch.nbytes + RECORD_BYTES * batch.num_rows
                if held == 0 or held + size > FRAME_BYTES_MAX:
                    units.append(Unit(staged.name, place.queue, [], 0, -1, *place[1:]))
                    held = 0
                units[-1].batches.append(number)
                units[-1].rows += batch.num_rows
                held += size
        return units

    def _batches(self, files: dict[str, Any], unit: Unit) -> list[Any]:
        if unit.file not in files:
            files.clear()  # units come file by file
            files[unit.file] = _open(self.folder / unit.file)
        return [files[unit.file].get_batch(number) for number in unit.batches]

    def _save(self, state: State) -> None:
        make_folder(self.folder)
        save_state(self.folder, state)

    def _known(self) -> State:
        state = load_state(self.folder)
        if state is None:
            raise FileNotFoundError(f"{self.folder}/{STATE} was removed by somebody")
        return state


def _open(path: Path) -> Any:
    import pyarrow as pa

    return pa.ipc.open_file(pa.memory_map(str(path)))


def _place(store: qindex.Store, units: Iterable[Unit]) -> list[Unit]:
    """The units with the ReqIds that they will get, in this order.

    Each lane of a queue counts for itself: priorities, and times that are near each other.
    """
    placed = []
    following: dict[tuple[str, int], int] = {}
    for unit in units:
        first = _next_req_id(store, unit)
        first = following.get((unit.queue, lane_of(first)), first)
        placed.append(replace(unit, first=first))
        following[unit.queue, lane_of(first)] = first + unit.rows
    return placed


def _next_req_id(store: qindex.Store, unit: Unit) -> int:
    queue = store._find_queue(unit.queue, create=True)
    found: int = lib.qi_next_req_id(queue._handle, unit.flags, unit.due_us)
    if found < 0:
        raise_error(found)
    return found


def _publish_unit(store: qindex.Store, unit: Unit, batches: list[Any]) -> None:
    """One frame, from Arrow's memory."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def joined(name: str) -> Any:
        return pa.concat_arrays([batch.column(name) for batch in batches])

    queue = store._find_queue(unit.queue, create=True)
    bodies, headers = joined("body"), joined("headers")
    tables = _bytes_of(headers)
    first = lib.qi_publish_many_at(
        queue._handle,
        unit.first,
        unit.rows,
        _bytes_of(bodies),
        _memory("uint32_t[]", pc.binary_length(bodies)),
        tables,
        _memory("uint32_t[]", pc.binary_length(headers)) if tables else ffi.NULL,
        unit.flags,
        0,
        unit.due_us,
        _memory("uint8_t[]", joined("flags")),
        _memory("uint64_t[]", joined("expiry_us")),
    )
    if first < 0:
        raise_error(first)


def _memory(kind: str, array: Any) -> Any:
    """The values of an array without nulls."""
    width = array.type.bit_width // 8
    start = array.offset * width
    return ffi.from_buffer(kind, memoryview(array.buffers()[1])[start : start + len(array) * width])


def _bytes_of(array: Any) -> Any:
    """The bytes of a binary array, end to end."""
    _, offsets, data = array.buffers()
    ends = memoryview(offsets).cast("i")
    start, stop = ends[array.offset], ends[array.offset + len(array)]
    return ffi.from_buffer(memoryview(data)[start:stop]) if stop > start else b""
