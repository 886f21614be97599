"""Messages of a dead node into the stores of the virtual hosts, in a thread.

A queue that somebody waits for is copied next, also if another one is half copied: each has its own
place to go on. All messages of a queue are synced before it counts as in. A queue whose copy a kill
has interrupted is copied again from the start: nobody has put in or taken out anything.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, NamedTuple

import qindex
from qindex.broker.limits import limits_of
from qindex.broker.rescue.plan import DAMAGE, Plan, Taken
from qindex.brokers.amqp import AmqpError, decode_properties
from qindex.brokers.columns import Columns, Wish, apart
from qindex.brokers.rabbitmq.node import Queue
from qindex.brokers.rabbitmq.streams.message import with_timestamp
from qindex.brokers.rabbitmq.streams.stream import StreamMessage
from qindex.brokers.reader import DeadMessage
from qindex.brokers.recover import BATCH_BODY_BYTES_MAX, batches
from qindex.brokers.storable import Changes, Row, fit_row, publish_each
from qindex.errors import DiskFull, StoreFull

log: Final = logging.getLogger("qindex.rescue")
_RETRY_SECONDS: Final = 1.0  # while the disk is full
Place = tuple[str, str]  # virtual host, queue
Batch = Columns | tuple[int, list[Row]]  # what is published at once; the priority of the rows


class Copied(NamedTuple):
    """A queue is in; `failed` says why it is not."""

    vhost: str
    name: str
    messages: int
    failed: str


@dataclass(slots=True)
class _Copy:
    """One queue that is being copied."""

    taken: Taken
    target: qindex.Queue
    batches: Iterator[Batch]
    messages: int = 0
    changes: Changes = field(default_factory=Changes)


class Copying:
    """What the thread does. `done` is called in it for each queue that is in."""

    def __init__(
        self,
        plan: Plan,
        stores: dict[str, qindex.Store],
        places: list[Place],
        done: Callable[[Copied], None],
        later_us: int = 0,
    ) -> None:
        self._plan = plan
        self._stores = stores
        self._done = done
        self._later_us = later_us  # added to each expiry
        self._lock = threading.Lock()
        self._left = dict.fromkeys(places)
        self._wanted: deque[Place] = deque()
        self._copies: dict[Place, _Copy] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="qindex-rescue", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def want(self, place: Place) -> None:
        """Somebody waits for this queue: it is next."""
        with self._lock:
            if place in self._left and place not in self._wanted:
                self._wanted.append(place)

    def stop(self) -> None:
        """Return when the thread has ended, behind the batch that it is at."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set() and (place := self._next()) is not None:
            try:
                self._go_on(place)
            except (DiskFull, StoreFull) as error:
                log.warning("the rescue waits for room: %s", error)
                self._stopping.wait(_RETRY_SECONDS)
            except Exception as error:
                log.exception("queue %r of virtual host %r cannot be taken over", *reversed(place))
                self._end(place, f"{type(error).__name__}: {error}")

    def _next(self) -> Place | None:
        with self._lock:
            while self._wanted:
                if self._wanted[0] in self._left:
                    return self._wanted[0]
                self._wanted.popleft()
            return next(iter(self._left), None)

    def _go_on(self, place: Place) -> None:
        copy = self._copies.get(place)
        if copy is None:
            copy = self._copies[place] = self._begin(place)
        batch = next(copy.batches, None)
        if batch is None:
            self._stores[place[0]].sync()
            self._end(place, self._lost(copy))
            return
        try:
            copy.messages += _publish(batch, copy.target, copy.changes)
        except (DiskFull, StoreFull):  # the batch is whole, or not there: it is next again
            copy.batches = _before(batch, copy.batches)
            raise

    def _begin(self, place: Place) -> _Copy:
        vhost, name = place
        taken, store = self._plan.queues[vhost][name], self._stores[vhost]
        if name in store:  # of a copy that was interrupted
            store.delete_queue(name)
        limits = limits_of(taken.arguments, f"queue '{name}'")
        batches = _batches(taken, limits.max_priority, self._later_us)
        return _Copy(taken, store.queue(name), batches)

    def _lost(self, copy: _Copy) -> str:
        """Why the queue is not served: something was lost, and nobody said that it may be."""
        unreadable, changed = copy.taken.queue.unreadable, copy.changes
        if not unreadable and not changed.kinds:
            return ""
        text = f"{unreadable} of its messages cannot be read"
        if changed.kinds:
            text += f", {changed.changed} were changed, {changed.unstorable} cannot be stored"
        log.error("queue %r: %s", copy.taken.word, text)
        if DAMAGE in self._plan.without:
            return ""
        return f"{text}; start again with --without {DAMAGE} to serve what there is"

    def _end(self, place: Place, failed: str) -> None:
        copy = self._copies.pop(place, None)
        with self._lock:
            del self._left[place]
        self._done(Copied(*place, copy.messages if copy is not None else 0, failed))


def _before(batch: Batch, others: Iterator[Batch]) -> Iterator[Batch]:
    yield batch
    yield from others


def _batches(taken: Taken, priority_max: int, later_us: int) -> Iterator[Batch]:
    """The queue's messages, in columns where it gives such; each batch has one priority."""
    queue = taken.queue
    wish = Wish(0, "keep", later_us, "told", priority_max)
    found = queue.columns(wish) if isinstance(queue, Queue) else queue.messages()
    for each in apart(found):
        if isinstance(each, Columns):
            yield each
            continue
        rows = _rows(each, priority_max, later_us)
        for priority, group in groupby(rows, key=lambda row: row[0]):
            for batch in batches((row for _, row in group), _size):
                yield priority, batch


def _rows(
    messages: Iterable[DeadMessage], priority_max: int, later_us: int
) -> Iterator[tuple[int, Row]]:
    """Each message with its priority, as qindex.broker.message.Message.to_table() writes it."""
    for message in messages:
        told = message.headers
        table: dict[str, Any] = {
            "exchange": told["exchange"],
            "routing_keys": told["routing_keys"],
        }
        if message.expiry_us:
            table["expires_us"] = max(1, message.expiry_us + later_us)
        table["properties"] = told["properties"]
        if isinstance(message, StreamMessage):  # its offset is in its headers already
            table["properties"] = with_timestamp(told["properties"], message.timestamp_ms)
        priority = min(_priority(told["properties"]), priority_max) if priority_max else 0
        yield priority, Row(message.body, table, message.redelivered)


def _priority(properties: bytes) -> int:
    try:
        return decode_properties(properties).priority or 0
    except AmqpError:
        return 0


def _size(row: Row) -> int:
    return min(len(row.body) + len(row.headers["properties"]), BATCH_BODY_BYTES_MAX)


def _publish(batch: Batch, target: qindex.Queue, changes: Changes) -> int:
    """How many messages it put into the queue."""
    if isinstance(batch, Columns):
        batch.publish(target)
        return batch.count
    priority, rows = batch
    return len(
        publish_each(lambda rows: _publish_rows(target, priority, rows), rows, fit_row, changes)
    )


def _publish_rows(target: qindex.Queue, priority: int, rows: list[Row]) -> None:
    target.publish_many(
        [row.body for row in rows],
        headers=[row.headers for row in rows],
        redelivered=[row.redelivered for row in rows],
        priority=priority,
    )
