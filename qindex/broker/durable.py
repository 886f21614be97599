"""The messages of a queue that live in queues of a store, and the sync that confirms share."""

from __future__ import annotations

import logging
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from qindex._core import ffi, lib
from qindex._wire import Taken, Tally, taken_of_list, taken_of_store
from qindex.broker.backlog import Looked, Publishes, Share
from qindex.broker.message import Message, begin_table, from_table
from qindex.broker.taken import Entry, Places
from qindex.buffers import BATCH_KEPT_MAX, BatchReader
from qindex.errors import (
    AlreadyAcked,
    MessageDelivered,
    StoreCorrupt,
    UnknownMessage,
    raise_error,
)
from qindex.message import State
from qindex.native.records import LANE
from qindex.queue import state_of

if TYPE_CHECKING:
    import qindex

log: Final = logging.getLogger("qindex.broker")

# qindex.Queue.publish() encodes headers from a dict. The broker has them as bytes, so it calls the
# core as that does. A message without a moment for its end is all it needs: the broker itself
# carries out expiry, since RabbitMQ does so at a queue's head only.
_NO_TIME: Final = 0
_DELAYED_FROM: Final = 256 * LANE  # the first ReqId of the lanes of delayed messages
SYNCS_KEPT: Final = 1000
_DAMAGED_MAX: Final = 1000  # damaged messages that one take() goes past

AWAITED: Final[int] = lib.QI_AWAITED  # a flag of a publish: below 4 KiB it needs only one sync
PUBLISH_BODIES: Final = int(ffi.cast("uintptr_t", ffi.addressof(lib, "qi_publish_bodies")))
StoreWay = tuple[int, bytes, int, Tally]
"""What qindex._wire needs to give messages to a queue by the function at PUBLISH_BODIES: the
address of the queue, what the messages' headers begin with, their flags, and what counts them."""

_readers: list[BatchReader] = []  # that nobody uses now; one is enough for most moments


class DurableBacklog:
    """A queue of a store. A message survives kill -9 when publish() returns."""

    is_durable = True
    damage = ""
    redelivered = 0

    def __init__(self, store: qindex.Store, name: str) -> None:
        self._store = store
        self._name = name
        self._queue = store.queue(name)
        self._tally = Tally()
        self._tally.ready = self._queue.ready
        self._has_delayed = True  # perhaps

    def __len__(self) -> int:
        return self._tally.ready

    def publish(self, message: Message, due_us: int = 0) -> int:
        table, body = message.to_table(), message.body
        data = body if isinstance(body, bytes) else ffi.from_buffer(body)  # a large one
        flags = message.priority << lib.QI_PRIORITY_SHIFT
        if not message.persistent:
            flags |= lib.QI_TRANSIENT
        if message.awaited:
            flags |= AWAITED
        code = lib.qi_publish_with(
            self._queue._handle, table, len(table), data, len(body), flags, _NO_TIME, due_us
        )
        if code < 0:
            raise_error(code)
        if due_us:
            self._has_delayed = True
        else:
            self._tally.ready += 1
        number: int = code
        return number

    def take_in_due(self) -> int:
        due = self._queue.next_due  # asked first: what is due meanwhile is counted below
        self._tally.ready = self._queue.ready
        self._has_delayed = due is not None
        return 0 if due is None else round(due * 1e6)

    def delayed(self) -> int:
        return self._queue.delayed if self._has_delayed else 0

    def find(self, number: int) -> tuple[Message, int] | None:
        found = self._queue.peek(number)
        return None if found is None else (self._message(found), found.delivery_count)

    def browse(self) -> Iterator[tuple[int, Message]]:
        for found in self._queue.browse():
            yield found.req_id, self._message(found)

    def look(self, start: int, state: State | None) -> Iterator[Looked | int]:
        if state != "delayed":
            yield from self._look(start, None, state)
            return
        # Those that were published with a delay have lanes of their own. Those that were put off
        # later are among all others: there the search goes on, if there are any.
        if start == 0 or start >= _DELAYED_FROM:
            left = self._queue.delayed if start <= _DELAYED_FROM else -1
            for looked in self._look(max(start, _DELAYED_FROM), None, state):
                left -= isinstance(looked, Looked)
                yield looked
            if left == 0:
                return
            start = 0
        yield from self._look(start, _DELAYED_FROM, state)

    def _look(self, start: int, stop: int | None, state: State | None) -> Iterator[Looked | int]:
        while True:
            try:
                found, flags = self._queue._look(start, ready_only=False)
            except StoreCorrupt as error:  # it stays in Store.findings
                if error.req_id is None:
                    raise
                start = error.req_id + 1
                yield error.req_id
                continue
            if found is None or (stop is not None and found.req_id >= stop):
                return
            start = found.req_id + 1
            its_state = state_of(found, flags)
            if state not in (None, its_state):
                yield found.req_id
                continue
            due_us = round(found.due * 1e6) if found.due and its_state == "delayed" else 0
            deliveries = found.delivery_count
            yield Looked(found.req_id, self._message(found), its_state, deliveries, due_us)

    def oldest_seconds(self) -> float | None:
        return self._queue.oldest_age_min

    def journal(self) -> tuple[int, int]:
        """Bytes in the journal of the index, and how often one was flushed. O(its segments)."""
        figures = self._queue._stats()
        return figures.journal_bytes, figures.epoch

    def drop(self, numbers: list[int]) -> int:
        return sum(self._changed(self._queue.delete, number) for number in numbers)

    def put_off(self, numbers: list[int], due_us: int) -> int:
        due = due_us / 1e6 if due_us else None
        verb = self._queue.reschedule
        return sum(self._changed(verb, number, due=due) for number in numbers)

    def _changed(self, verb: Callable[..., None], number: int, **options: Any) -> bool:
        try:
            verb(number, **options)
        except (MessageDelivered, UnknownMessage, AlreadyAcked):
            return False
        finally:
            self._count_again()
        return True

    def move(self, numbers: list[int], target: DurableBacklog) -> None:
        """Move messages that are not delivered to another queue of the store: all of them or none,
        after any crash. Errors as Store.move().
        """
        try:
            self._store.move(numbers, to=target._name, queue=self._name)
        finally:
            self._count_again()
            target._count_again()

    def _count_again(self) -> None:
        self._tally.ready = self._queue.ready
        self._has_delayed = True

    def publish_many(self, publishes: Publishes, shares: dict[int, Share], awaited: bool) -> int:
        wanted: list[tuple[int, bytes, int]] = []
        priority = 0
        for number, share in shares.items():
            begin = begin_table(share.exchange, [share.routing_key], share.expires_us)
            wanted.append((number, begin, 0 if share.persistent else lib.QI_TRANSIENT))
            priority = share.priority
        bodies, body_sizes, headers, headers_sizes, flags = publishes.gather(wanted)
        first = lib.qi_publish_many(
            self._queue._handle,
            len(flags),
            bodies,
            ffi.from_buffer("uint32_t[]", body_sizes),
            headers,
            ffi.from_buffer("uint32_t[]", headers_sizes),
            priority << lib.QI_PRIORITY_SHIFT | (AWAITED if awaited else 0),
            _NO_TIME,
            _NO_TIME,
            flags,
            ffi.NULL,
        )
        if first < 0:
            raise_error(first)
        self._tally.ready += len(flags)
        return len(bodies)

    def way(self, exchange: str, key: str, *, persistent: bool, priority: int) -> StoreWay:
        """For messages that do not expire; until delete()."""
        queue = int(ffi.cast("uintptr_t", self._queue._handle))
        flags = priority << lib.QI_PRIORITY_SHIFT | (0 if persistent else lib.QI_TRANSIENT)
        return queue, begin_table(exchange, [key], 0), flags, self._tally

    @property
    def straight(self) -> int:
        return self._tally.straight

    def watch(self, is_watched: bool) -> None:
        self._tally.is_watched = is_watched

    def take(self, count: int) -> Taken:
        for _ in range(_DAMAGED_MAX):
            try:
                reader = _readers.pop()
            except IndexError:
                reader = BatchReader()
            try:
                got = reader.take(self._queue, count, None, 0)
            except StoreCorrupt as error:  # it is set aside, and stays in Store.findings
                log.error("a damaged message of queue %r was left out: %s", self._name, error)
                self._tally.ready = self._queue.ready
                continue
            # A due message may be taken before take_in_due() has counted it.
            self._tally.ready = max(0, self._tally.ready - got)
            return taken_of_store(reader.address, reader.payload, got, reader)
        return taken_of_list([], [])

    def done_with(self, taken: Taken) -> None:
        reader = taken.source
        if isinstance(reader, BatchReader) and reader.room <= BATCH_KEPT_MAX and not _readers:
            _readers.append(reader)

    def entry(self, taken: Taken, at: int) -> Entry:
        found = self._queue._message(*taken.addresses(at), True)
        place = found.req_id, found._delivery
        return Entry(self._message(found), place, found.redelivered, found.delivery_count)

    def entries(self, places: Places) -> list[Entry]:
        numbers, deliveries = array("Q", places.numbers), array("Q", places.deliveries)
        entries = []
        for place in zip(numbers, deliveries, strict=True):
            try:
                found = self._queue.peek(place[0])
            except StoreCorrupt as error:
                log.error("a damaged message of queue %r was set aside: %s", self._name, error)
                continue
            if found is not None:
                again, times = found.redelivered, found.delivery_count
                entries.append(Entry(self._message(found), place, again, times))
        return entries

    def _message(self, found: qindex.Message) -> Message:
        details = found._details
        return from_table(
            details.headers,
            found.body,
            persistent=details.persistent,
            priority=details.priority,
            queue=self._name,
        )

    def peek(self) -> Message | None:
        try:
            found = self._queue.peek()
        except StoreCorrupt:  # take() leaves it out and says so
            return None
        return None if found is None else self._message(found)

    def ack(self, places: Places) -> None:
        self._settle(lib.qi_ack_many, places)

    def requeue(self, places: Places) -> None:
        self._settle(lib.qi_nack_many, places, _NO_TIME)
        self._tally.ready += places.size

    def _settle(self, verb: Callable[..., int], places: Places, *options: int) -> None:
        of_64 = partial(ffi.from_buffer, "uint64_t[]")
        numbers, deliveries = of_64(places.numbers), of_64(places.deliveries)
        code = verb(self._queue._handle, numbers, deliveries, places.size, *options)
        if code < 0:
            raise_error(code)

    def purge(self) -> int:
        count = self._queue.purge()
        self._tally.ready = 0
        return count

    def ready_bytes(self) -> int:
        found = self._look(0, None, "ready")  # which goes past those that are damaged
        return sum(looked.message.size for looked in found if isinstance(looked, Looked))

    def close(self) -> None:
        """The store closes the queue."""

    def delete(self) -> None:
        self._store.delete_queue(self._name)


class Syncer(Protocol):
    """Syncs one store for the thread of an event loop, which does not wait for them."""

    def sync(self, ended: Callable[[BaseException | None], None]) -> None:
        """Begin a sync; call `ended`, with its error, in the event loop: later, or before this
        returns, if the sync is made and is good. One at a time.
        """

    def close(self) -> None:
        """Call nothing from now on. The store is closed behind this."""


class GroupCommit:
    """One sync at a time; all who ask while one runs share the next one, which covers them."""

    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer
        self._waiting: list[Callable[[], None]] = []
        self._running = False
        self._closed = False
        self.count = 0
        self.seconds: deque[float] = deque(maxlen=SYNCS_KEPT)  # that the last ones took
        self.failed: BaseException | None = None
        self.on_failure: Callable[[BaseException], None] | None = None

    def join(self, done: Callable[[], None]) -> None:
        """Call `done` once everything that was written before this call survives a power cut: later
        in the event loop, or before this returns.

        If the sync fails, `done` is never called: nobody knows what is durable. `on_failure` is.
        """
        self._waiting.append(done)
        if not self._running:
            self._begin()

    def _begin(self) -> None:
        if self._closed or self.failed is not None:
            return
        self._running = True
        covered, self._waiting = self._waiting, []
        begun = time.monotonic()

        def ended(error: BaseException | None) -> None:
            self._running = False
            self.count += 1
            self.seconds.append(time.monotonic() - begun)
            if error is not None:
                self.fail(error)
                return
            for done in covered:
                try:
                    done()
                except Exception:  # the others have waited for the same sync
                    log.exception("a confirm that a sync was waited for could not be given")
            if self._waiting and not self._running:  # one of them may have begun it
                self._begin()

        self._syncer.sync(ended)

    def fail(self, error: BaseException) -> None:
        """Nobody knows what is durable: no more confirms; `on_failure` hears of it."""
        if self.failed is not None:
            return
        self.failed = error
        self._waiting.clear()
        log.critical("a sync failed; what was not confirmed may be lost: %s", error)
        if self.on_failure is not None:
            self.on_failure(error)

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        self._syncer.close()
