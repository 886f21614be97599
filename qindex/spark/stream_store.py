"""Live stores as the stream sees them: what is in them, and the lock that an ack needs.

A live store belongs to the process that has it open. Everybody may look, nobody else may write. So
a look is a read-only opening, as of that moment. An ack opens the store for writing, for as long as
the ack takes, and is refused while another process has it; or it is written down beside the queues,
and the owner does it.
"""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import qindex
from qindex._core import ffi, lib
from qindex.begun import FOLDER, find_live, first_live, make_folder
from qindex.errors import raise_error
from qindex.private import replace_file
from qindex.spark.paths import expand, is_named
from qindex.spark.remote import as_local

if TYPE_CHECKING:
    from qindex.spark.stream_offsets import Range

LANE: Final = 1 << 52  # ReqId // LANE is the number of its lane
PRIORITIES: Final = 256  # lanes below have a priority, the others a delay
LANES: Final = 1023
ACK_MANY: Final = 16384
NOTES: Final = (FOLDER, "acks")  # in the store's directory: what its owner is to ack
_LOCK_PAUSE: Final = 0.05  # between two tries to get a store's lock, seconds
_IDENTITY: Final = slice(16, 32)  # of queue.meta, see FORMAT.rst


Run = tuple[int, int]  # ReqIds: the first, and the one behind the last


class QueueView(NamedTuple):
    """A queue at the moment of a look."""

    identity: str  # chosen at its creation: one that was deleted and made again has another
    lasts: dict[int, int]  # lane -> its highest ReqId that is alive
    holds: bool  # some of it waits for its time, or is a dead letter
    mark: tuple[int, int]  # another one when anything was written since
    next_due: float  # until then time alone makes nothing ready


def lane_of(req_id: int) -> int:
    return req_id // LANE


def local_path(path: str) -> str:
    """A path as Spark's users write it, as the engine needs it. ValueError if it is elsewhere."""
    local = as_local(path)
    if local is None:
        raise ValueError(
            f"{path!r} is not a local path: a live store is a directory on this machine, or on a"
            " file system that all machines of the cluster have mounted at the same path"
        )
    return local


def find_stores(paths: Iterable[str]) -> list[str]:
    """The stores that paths and patterns stand for, sorted. StoreMissing: a path leads to none."""
    found: set[str] = set()
    for path in map(local_path, paths):
        stores = [name for name in expand(path) if Path(name, "store.meta").is_file()]
        if not stores and is_named(path):
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
                views[name] = _view(store, store.queue(name, create=False))
            except qindex.QueueMissing:  # deleted since
                continue
            except (qindex.StoreCorrupt, qindex.FormatError) as error:
                lose(f"the queue {name!r} of {path} cannot be read: {error}")
    return views


def _view(store: qindex.Store, queue: qindex.Queue) -> QueueView:
    lasts = {}
    at = first_live(queue, 0)
    while at >= 0:
        lane = lane_of(at)
        lasts[lane] = last_live(queue, at, (lane + 1) * LANE)
        at = first_live(queue, (lane + 1) * LANE) if lane + 1 < LANES else -1
    stats = queue.stats()
    return QueueView(
        identity(store, queue.name),
        lasts,
        stats.delayed + stats.dead > 0,
        (stats.epoch, stats.journal_bytes),
        stats.next_due or float("inf"),
    )


def identity(store: qindex.Store, name: str) -> str:
    """What tells this queue from another one of the same name; empty if it cannot be read."""
    try:
        with Path(store.path, store.queue_directory(name), "queue.meta").open("rb") as file:
            return file.read(_IDENTITY.stop)[_IDENTITY].hex()
    except OSError:
        return ""


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


def count_live(each: Range, enough: int) -> int:
    """How many messages are alive in a range; no more than `enough` are counted, about."""
    from qindex.spark.columns import Messages

    count = 0
    with qindex.open(each.store, read_only=True, create=False) as store:
        queue = store.queue(each.queue, create=False)
        rows = max(1, min(65536, each.stop - each.start, len(queue), enough))
        start, stop = each.start, each.stop
        for batch in Messages(queue._handle, ("req_id",), start=start, stop=stop, rows=rows):
            count += batch.num_rows
            if count >= enough:
                break
    return count


def held_runs(queue: qindex.Queue, start: int, stop: int) -> Iterator[Run]:
    """What nobody gets now of [start, stop): it waits for its time, or is a dead letter.

    A run ends where a message is ready. About 0.1 us per message.
    """
    from qindex.spark.columns import Messages

    run: Run | None = None
    rows = max(1, min(65536, stop - start, len(queue)))
    for batch in Messages(queue._handle, ("req_id", "kind"), start=start, stop=stop, rows=rows):
        kinds = memoryview(batch["kind"].buffers()[1])
        req_ids = memoryview(batch["req_id"].buffers()[1]).cast("q")
        for row in range(batch.num_rows):
            if kinds[row] & (lib.QI_DELAYED | lib.QI_DEAD_LETTER):
                run = (run[0] if run else req_ids[row], req_ids[row] + 1)
            elif run:
                yield run
                run = None
    if run:
        yield run


def ids_to_ack(queue: qindex.Queue, position: Mapping[str, Any]) -> Iterator[int]:
    """The live ReqIds that a stream at this position had; about 1 us each.

    That is not what it left, what had expired when its last batch was planned, which was in no
    batch, and no dead letter: it has become one since. The store's owner knows what becomes of
    these.
    """
    planned_us = position.get("at") or int(time.time() * 1e6)
    message = ffi.new("qi_message *")
    left = iter(position["left"])
    gap = next(left, None)
    for start, stop in sorted(position["lanes"].values()):
        while 0 <= (at := find_live(queue, start, message)) < stop:
            while gap and gap[1] <= at:
                gap = next(left, None)
            if gap and gap[0] <= at:
                start = gap[1]
                continue
            if not message.dead and not 0 < message.expiry_us <= planned_us:
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
            store = qindex.open(path, create=False, expire=False)
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


def ack(path: str, positions: Mapping[str, Mapping[str, Any]], wait: float) -> int:
    """Settle what a stream had of these queues, up to its position in each.

    Durable when it returns how many there were. A queue that is gone, or another one now, is left
    alone. Cost: a look; two openings' fsyncs if there is something; 1 us per message.
    """
    with qindex.open(path, read_only=True, create=False) as store:
        positions = {name: at for name, at in positions.items() if _is_due(store, name, at)}
    if not positions:
        return 0
    why = "ack = true acks in it (without it the stream only looks, and its owner acks)"
    with open_to_write(path, wait, why) as store:
        return _ack_all(store, positions)


# --- acks by the owner ---------------------------------------------------------------------------


def leave_acks(path: str, stream: str, positions: Mapping[str, Mapping[str, Any]]) -> None:
    """Write down what apply_acks() has to settle: all that this stream ever had, durably."""
    folder = Path(path, *NOTES)
    make_folder(folder)
    replace_file(folder / f"{stream}.json", json.dumps(positions).encode())


def apply_acks(store: qindex.Store) -> int:
    """For the process that has the store open: ack what streams with ack = owner are done with.

    Call it now and then, for example once a second. Returns how many messages were acked; they are
    as durable as other acks. Cost: a small file per stream, and 1 us per message.
    """
    notes = sorted(Path(store.path, *NOTES).glob("*.json"))
    return sum(_ack_all(store, json.loads(note.read_text())) for note in notes)


def _ack_all(store: qindex.Store, positions: Mapping[str, Mapping[str, Any]]) -> int:
    return sum(
        _ack(store.queue(name, create=False), position)
        for name, position in positions.items()
        if _is_due(store, name, position)
    )


def _is_due(store: qindex.Store, name: str, position: Mapping[str, Any]) -> bool:
    try:
        queue = store.queue(name, create=False)
    except qindex.QueueMissing:
        return False
    return identity(store, name) == position["id"] and any(
        True for _ in ids_to_ack(queue, position)
    )


def _ack(queue: qindex.Queue, position: Mapping[str, Any]) -> int:
    """Batches, each all or none. These are acks by ReqId: what was never got need not be."""
    acked = 0
    ids = array("Q", ids_to_ack(queue, position))
    for at in range(0, len(ids), ACK_MANY):
        part = ids[at : at + ACK_MANY]
        code = lib.qi_index_ack(queue._handle, ffi.from_buffer("uint64_t[]", part), len(part), 0)
        if code < 0:
            raise_error(code)
        acked += len(part)
    return acked
