"""Live stores as the stream sees them: what is in them, and the lock that an ack needs.

A live store belongs to the process that has it open. Everybody may look, nobody else may write. So
a look is a read-only opening, as of that moment. An ack opens the store for writing, for as long as
the ack takes, and is refused while another process has it; or it is written down beside the queues,
and the owner does it.
"""

from __future__ import annotations

import glob
import json
import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import qindex
from qindex._core import ffi, lib
from qindex.errors import raise_error
from qindex.spark.folders import FOLDER, make_folder, sync_folder

LANE: Final = 1 << 52  # ReqIds from here on have a priority or a delay, and no order in time
ACK_MANY: Final = 16384
NOTES: Final = (FOLDER, "acks")  # in the store's directory: what its owner is to ack
_LOCK_PAUSE: Final = 0.05  # between two tries to get a store's lock, seconds
_IDENTITY: Final = slice(16, 32)  # of queue.meta, see FORMAT.rst


class QueueView(NamedTuple):
    """A queue at the moment of a look."""

    identity: str  # chosen at its creation: one that was deleted and made again has another
    last: int  # the highest ReqId that is alive, or -1


def local_path(path: str) -> str:
    """A path as Spark's users write it, as the engine needs it. ValueError if it is elsewhere."""
    parts = urlsplit(path)
    if parts.scheme == "file":
        return unquote(parts.path)
    if "://" in path:
        raise ValueError(
            f"{path!r} is not a local path: a live store is a directory on this machine, or on a"
            " file system that all machines of the cluster have mounted at the same path"
        )
    return path


def find_stores(paths: Iterable[str]) -> list[str]:
    """The stores that paths and patterns stand for, sorted. StoreMissing: a path leads to none."""
    found: set[str] = set()
    for path in map(local_path, paths):
        names = glob.glob(path) if glob.has_magic(path) else [path]  # noqa: PTH207 - any root
        stores = [name for name in names if Path(name, "store.meta").is_file()]
        if not stores and not glob.has_magic(path):
            raise qindex.StoreMissing(f"there is no store at {path!r}")
        found.update(str(Path(name).absolute()) for name in stores)
    return sorted(found)


def look(
    path: str, wants: Callable[[str], bool], lose: Callable[[str], None]
) -> dict[str, QueueView]:
    """The queues of a store that are wanted; `lose` is told of those that cannot be read.

    Cost: reads the journals of these queues, up to 10 ms for a full one.
    """
    views = {}
    with qindex.open(path, read_only=True, create=False) as store:
        for name in store.queues():
            if not wants(name):
                continue
            try:
                queue = store.queue(name, create=False)
                last = last_live(queue, 0, LANE)
                if first_live(queue, LANE) >= 0:
                    lose(
                        f"the queue {name!r} of {path} has messages with a priority or a delay,"
                        " and a stream has only those with neither"
                    )
            except qindex.QueueMissing:  # deleted since
                continue
            except qindex.StoreCorrupt as error:
                lose(f"the queue {name!r} of {path} cannot be read: {error}")
                continue
            views[name] = QueueView(identity(store, name), last)
    return views


def identity(store: qindex.Store, name: str) -> str:
    """What tells this queue from another one of the same name; empty if it cannot be read."""
    try:
        with Path(store.path, store.queue_directory(name), "queue.meta").open("rb") as file:
            return file.read(_IDENTITY.stop)[_IDENTITY].hex()
    except OSError:
        return ""


def first_live(queue: qindex.Queue, start: int) -> int:
    """The first ReqId from `start` on that is alive; -1: there is none."""
    return _first_live(queue, start, ffi.new("qi_message *"))


def _first_live(queue: qindex.Queue, start: int, message: Any) -> int:
    """`message` has what is known of it, if it is damaged, perhaps nothing."""
    message.flags = message.dead = 0
    code = lib.qi_browse(queue._handle, start, False, message, ffi.NULL, 0)
    if code == lib.QI_EMPTY:
        return -1
    if code < 0 and code != lib.QI_E_ROOM:  # no room for the body: that is what we want
        try:
            raise_error(code)
        except qindex.StoreCorrupt as error:
            if error.req_id is None:
                raise
            return error.req_id  # damaged, but there
    return int(message.req_id)


def last_live(queue: qindex.Queue, start: int, stop: int) -> int:
    """The last ReqId in [start, stop) that is alive; -1: there is none. O(log(stop - start)).

    What next_req_id says to a reader is of no use here: it is rounded up to what is reserved.
    """
    found = -1
    while start < stop:
        middle = (start + stop) // 2
        at = first_live(queue, middle)
        if at < 0 or at >= stop:
            stop = middle
        else:
            found, start = at, at + 1
    return found


def ids_to_ack(queue: qindex.Queue, start: int, stop: int) -> Iterator[int]:
    """The live ReqIds in [start, stop) but what a stream leaves alone; about 1 us each.

    That is dead letters, and what waits since it was given back with a delay.
    """
    message = ffi.new("qi_message *")
    while 0 <= (at := _first_live(queue, start, message)) < stop:
        if not message.dead and not message.flags & lib.QI_DELAYED:
            yield at
        start = at + 1


@contextmanager
def open_to_write(path: str, wait: float, why: str) -> Iterator[qindex.Store]:
    """The store at `path`, for writing; what is done is durable when the block ends.

    While another process has it, tries again for `wait` seconds, then raises StoreLocked.
    """
    until = time.monotonic() + wait
    while True:
        try:
            store = qindex.open(path, create=False)
            break
        except qindex.StoreLocked as error:
            if time.monotonic() >= until:
                raise qindex.StoreLocked(
                    f"{error}. One process at a time may write to a store, and {why}. Stop the"
                    " other one, or let it close the store now and then (option lockWait: how"
                    " many seconds to wait for it), and start the query again: it goes on from"
                    " its checkpoint, and nothing is lost"
                ) from None
            time.sleep(_LOCK_PAUSE)
    with store:
        yield store


def ack(path: str, ranges: dict[str, tuple[str, int, int]], wait: float) -> int:
    """Settle what a stream had in [start, stop) of these queues (name: identity, start, stop).

    Durable when it returns how many there were. A queue that is gone, or another one now, is left
    alone. Cost: a look; two openings' fsyncs if there is something; 1 us per message.
    """
    with qindex.open(path, read_only=True, create=False) as store:
        ranges = {name: r for name, r in ranges.items() if _is_due(store, name, *r)}
    if not ranges:
        return 0
    acked = 0
    why = "ack = true acks in it (without it the stream only looks, and its owner acks)"
    with open_to_write(path, wait, why) as store:
        for name, (its_identity, start, stop) in ranges.items():
            if _is_due(store, name, its_identity, start, stop):
                acked += _ack(store.queue(name, create=False), start, stop)
    return acked


# --- acks by the owner ---------------------------------------------------------------------------


def leave_acks(path: str, stream: str, ranges: dict[str, tuple[str, int, int]]) -> None:
    """Write down what apply_acks() has to settle: all that this stream ever had, durably."""
    folder = Path(path, *NOTES)
    make_folder(folder)
    draft, note = folder / f"{stream}.new", folder / f"{stream}.json"
    with draft.open("w") as file:
        json.dump(ranges, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(note)
    sync_folder(folder)


def apply_acks(store: qindex.Store) -> int:
    """For the process that has the store open: ack what streams with ack = owner are done with.

    Call it now and then, for example once a second. Returns how many messages were acked; they are
    as durable as other acks. Cost: a small file per stream, and 1 us per message.
    """
    acked = 0
    for note in sorted(Path(store.path, *NOTES).glob("*.json")):
        for name, (its_identity, start, stop) in json.loads(note.read_text()).items():
            if _is_due(store, name, its_identity, start, stop):
                acked += _ack(store.queue(name, create=False), start, stop)
    return acked


def _is_due(store: qindex.Store, name: str, its_identity: str, start: int, stop: int) -> bool:
    try:
        queue = store.queue(name, create=False)
    except qindex.QueueMissing:
        return False
    return identity(store, name) == its_identity and any(
        True for _ in ids_to_ack(queue, start, stop)
    )


def _ack(queue: qindex.Queue, start: int, stop: int) -> int:
    """Batches, each all or none. These are acks by ReqId: what was never got need not be."""
    acked = 0
    ids = array("Q", ids_to_ack(queue, start, stop))
    for at in range(0, len(ids), ACK_MANY):
        part = ids[at : at + ACK_MANY]
        code = lib.qi_index_ack(queue._handle, ffi.from_buffer("uint64_t[]", part), len(part), 0)
        if code < 0:
            raise_error(code)
        acked += len(part)
    return acked
