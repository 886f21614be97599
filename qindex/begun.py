"""Batches of a Spark sink that were begun and not finished: `store/spark/<write>/state.json`.

A batch is several frames, so a crash may leave only some of them. (qindex.spark.sink_commit says
how each batch is published exactly once in spite of that.) The state names the ReqIds of each part
before the first part is published. A part is in its queue if a message lives at its ReqIds. After a
consumer has acked those, nobody can tell any more. So qindex.open() calls settle() before a
consumer can get a message: the state then says, durably, which parts are missing.

The engine does not look at `store/spark`. PySpark and Arrow are not needed here.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from qindex._core import ffi, lib
from qindex.errors import QueueMissing, StoreCorrupt, raise_error
from qindex.private import FOLDER_MODE, sync_folder
from qindex.queue import Queue
from qindex.store import Store

FOLDER: Final = "spark"
STATE: Final = "state.json"
log: Final = logging.getLogger("qindex.spark")


@dataclass
class Unit:
    """One frame: rows of one staged file for one queue, of one priority and time.

    `first` is the ReqId of the first row; -1: the rows were not published.
    """

    file: str
    queue: str
    batches: list[int]
    rows: int
    first: int = -1
    priority: int = 0
    due_us: int = 0

    @property
    def flags(self) -> int:
        return self.priority << int(lib.QI_PRIORITY_SHIFT)


@dataclass
class State:
    """The state of a write. If it is not done, `units` are those that are being published."""

    batch: int
    done: bool
    units: list[Unit]


def settle(store: Store) -> None:
    """Write down which parts of each cut-off batch are in the store, before a message is acked.

    Raises OSError if that cannot be written: then the store must not be used. Space for it was
    allocated before. Cost: a small file for each write.
    """
    for path in Path(store.path, FOLDER).glob(f"*/{STATE}"):
        try:
            _settle(store, path.parent)
        except (ValueError, KeyError, TypeError) as error:  # the sink stops; consumers need not
            log.warning("%s is damaged: %r", path, error)


def _settle(store: Store, folder: Path) -> None:
    state = load_state(folder)
    if state is None or state.done or all(unit.first < 0 for unit in state.units):
        return
    missing = [replace(unit, first=-1) for unit in state.units if not _is_there(store, unit)]
    save_state(folder, replace(state, units=missing))


def _is_there(store: Store, unit: Unit) -> bool:
    """True if any message of the unit is alive."""
    if unit.first < 0:
        return False
    try:
        queue = store._find_queue(unit.queue, create=False)
        return unit.first <= first_live(queue, unit.first) < unit.first + unit.rows
    except QueueMissing:
        return False
    except StoreCorrupt as error:
        log.warning("%s: what of a batch is in %r is lost: %s", store.path, unit.queue, error)
        return True


def first_live(queue: Queue, start: int) -> int:
    """The first ReqId from `start` on that is alive; -1: there is none."""
    return find_live(queue, start, ffi.new("qi_message *"))


def find_live(queue: Queue, start: int, message: Any) -> int:
    """The same, and its fields in `message`: perhaps none of them if it is damaged."""
    message.flags = message.dead = message.expiry_us = 0
    code = lib.qi_browse(queue._handle, start, False, message, ffi.NULL, 0)
    if code == lib.QI_EMPTY:
        return -1
    if code < 0 and code != lib.QI_E_ROOM:  # no room for the body: that is what we want
        try:
            raise_error(code)
        except StoreCorrupt as error:
            if error.req_id is None:
                raise
            return error.req_id  # damaged, but there
    return int(message.req_id)


def load_state(folder: Path) -> State | None:
    try:
        found = json.loads((folder / STATE).read_text())
    except FileNotFoundError:
        return None
    units = [Unit(**unit) for unit in found["units"]]
    return State(found["batch"], found["done"], units)


def save_state(folder: Path, state: State) -> None:
    """Write the state durably. If a batch is begun, also allocate the space for its settling."""
    draft = folder / "state.new"
    _write(draft, json.dumps(asdict(state)))
    draft.replace(folder / STATE)
    if any(unit.first >= 0 for unit in state.units):
        size = (folder / STATE).stat().st_size
        _write(draft, " " * (size + 2 * len(state.units)))
    sync_folder(folder)


def _write(draft: Path, text: str) -> None:
    """Overwrite the file in place: on most file systems that takes no new space."""
    with os.fdopen(os.open(draft, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        file.write(text)
        file.flush()
        file.truncate()
        os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    """`store/spark/<write>`, durable. FileNotFoundError if the store is not there."""
    store = folder.parents[1]
    if not (store / "store.meta").exists():
        raise FileNotFoundError(
            f"there is no store at {store} on this machine: all machines of the cluster need it at"
            " the same path"
        )
    for path in (folder.parent, folder):
        if not path.exists():
            path.mkdir(mode=FOLDER_MODE, exist_ok=True)
            sync_folder(path.parent)
