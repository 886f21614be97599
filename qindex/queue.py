"""A queue: publish, get, ack, nack, in the order of ReqIds. Each verb is a call into the core."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_args

from qindex._core import ffi, lib
from qindex.arguments import (
    REQ_ID_MAX,
    Buffer,
    Moment,
    Seconds,
    as_bytes,
    batch_flags,
    batch_headers,
    boolean,
    encode_headers,
    one_each,
    publish_flags,
    several,
    to_due_us,
    to_expiry_us,
    to_lease_us,
    whole,
)
from qindex.buffers import (
    BATCH_KEPT_MAX,
    BATCH_MESSAGES_MAX,
    READER_KEPT_MAX,
    BatchReader,
    Reader,
)
from qindex.calls import QueueCalls, place_bodies
from qindex.configuring import Configured
from qindex.errors import raise_error
from qindex.figures import Figures
from qindex.message import Details, Message, State
from qindex.rules import Settings
from qindex.settling import Settling
from qindex.waiting import Wait

if TYPE_CHECKING:
    from qindex.store import Store


_STATES: Final = get_args(State)


def state_of(message: Message, flags: int) -> State:
    """The state of a message that was looked at."""
    if message.dead:
        return "dead"
    if flags & lib.QI_UNACKED:
        return "unacked"
    return "delayed" if flags & lib.QI_DELAYED else "ready"


class Queue(QueueCalls, Settling, Configured, Figures):
    """A durable queue of a store: made by Store.queue(). Any number of threads may use it.

    Every method raises StoreClosed once the store is closed or the queue is deleted, and
    StoreFailed once a sync has failed.
    """

    # publish(), get(), ack(), nack() and touch() are in qindex.calls, which is written in C. What
    # they cannot do at once they hand to _publish(), _get() ... here; what fails, _raise() tells.
    _raise = staticmethod(raise_error)

    def __init__(self, store: Store, name: str, handle: Any) -> None:
        self._store = store  # keeps the store, and with it the handle, alive
        self._handle = handle
        self._confirm_all = store.sync_policy == "always"
        self._has_rules = False
        self._named = Settings()
        self.name = name
        self._plain = Details(name)
        self._readers = store._readers
        self._batch_readers = store._batch_readers
        address = int(ffi.cast("uintptr_t", handle))
        self._attach(address, Message, self._plain, self._confirm_all, True)

    @property
    def _whole(self) -> Queue:
        """Itself: what a message that was taken through it is settled by."""
        return self

    def __repr__(self) -> str:
        return f"<qindex.Queue {self.name!r}>"

    # --- publishing ----------------------------------------------------------------------------

    def _publish(
        self,
        body: Buffer,
        *,
        headers: Mapping[str, Any] | None = None,
        persistent: bool = True,
        ttl: Seconds | None = None,
        expires_at: Moment | None = None,
        redelivered: bool = False,
        priority: int = 0,
        delay: Seconds | None = None,
        due: Moment | None = None,
        lease: Seconds | None = None,
        confirm: bool = False,
        timeout: Seconds | None = 0,
    ) -> int:
        """publish() of anything but bytes, or with options that are seldom or wrong."""
        body = as_bytes(body)
        table = encode_headers(headers)
        boolean("confirm", confirm)
        publish = partial(
            lib.qi_publish_leased,
            self._handle,
            table,
            len(table),
            body,
            len(body),
            (0 if boolean("persistent", persistent) else lib.QI_TRANSIENT)
            | (lib.QI_REDELIVERED if boolean("redelivered", redelivered) else 0)
            | publish_flags(priority, awaited=confirm or self._confirm_all)
            | lib.QI_STEADY,
            to_expiry_us(self._store._now_us, ttl, expires_at),
            to_due_us(self._store._now_us, delay, due),
            to_lease_us(lease),
        )
        req_id = self._in_time(timeout, publish, 1, len(table) + len(body))
        if req_id < 0:
            raise_error(req_id)
        if confirm or self._confirm_all:
            self._confirm()
        return req_id

    def publish_many(
        self,
        bodies: Iterable[Buffer],
        *,
        headers: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
        persistent: bool | Sequence[bool] = True,
        ttl: Seconds | None = None,
        expires_at: Moment | Sequence[Moment | None] | None = None,
        redelivered: bool | Sequence[bool] = False,
        priority: int = 0,
        delay: Seconds | None = None,
        due: Moment | None = None,
        lease: Seconds | None = None,
        confirm: bool = False,
        timeout: Seconds | None = 0,
    ) -> range:
        """Append a batch, all of it or nothing; return the ReqIds, which follow each other.

        Options as publish(). `headers`, `persistent`, `expires_at` and `redelivered` are one value
        for all messages, or a sequence with one for each body. `priority`, `delay`, `due` and
        `lease` are one for all. `timeout` is for a place for the whole batch.

        Raises ValueError if the batch has more than 256 MiB of records (bodies in message files are
        not counted); other errors as publish(). No crash leaves a part of a batch.

        Cost: as publish(), but one call and one journal frame for all.
        """
        boolean("confirm", confirm)
        items = (
            bodies if isinstance(bodies, list) else several("bodies", bodies, "bodies", "publish()")
        )
        try:
            kept, places, sizes, payload, steady = place_bodies(items)
        except (TypeError, BufferError):  # what cannot be taken as it lies
            items = [as_bytes(body) for body in items]
            kept, places, sizes, payload, steady = place_bodies(items)
        count = len(kept)  # another thread may change the caller's list meanwhile
        tables, table_sizes = batch_headers(headers, count)
        per_flags, flags = batch_flags(persistent, redelivered, count)
        per_expiry, expiry_us, now_us = None, 0, self._store._now_us
        if isinstance(expires_at, Sequence):
            if ttl is not None:
                raise ValueError("give ttl or expires_at, not both")
            moments = one_each("expires_at", expires_at, count)
            per_expiry = array("Q", [to_expiry_us(now_us, None, moment) for moment in moments])
        elif ttl is not None or expires_at is not None:
            expiry_us = to_expiry_us(now_us, ttl, expires_at)
        publish = partial(
            lib.qi_publish_bodies_leased,
            self._handle,
            count,
            ffi.from_buffer("uintptr_t[]", places),
            ffi.from_buffer("uint32_t[]", sizes),
            tables,
            ffi.NULL if table_sizes is None else ffi.from_buffer("uint32_t[]", table_sizes),
            flags | steady | publish_flags(priority, awaited=confirm or self._confirm_all),
            expiry_us,
            to_due_us(self._store._now_us, delay, due),
            ffi.NULL if per_flags is None else per_flags,
            ffi.NULL if per_expiry is None else ffi.from_buffer("uint64_t[]", per_expiry),
            to_lease_us(lease),
        )
        payload += sum(table_sizes) if table_sizes is not None else 0
        first = self._in_time(timeout, publish, count, payload)
        if first < 0:
            raise_error(first)
        if confirm or self._confirm_all:
            self._confirm()
        return range(first, first + count)

    def _in_time(
        self, timeout: Seconds | None, publish: Callable[[], int], count: int, payload: int
    ) -> int:
        """What the core says to a publish, as soon as it has a place or the time is over."""
        wait = Wait(self._store._handle, timeout) if timeout != 0 else None
        result = publish()
        handles = ffi.new("qi_queue *[]", [self._handle]) if wait is not None else None
        while wait is not None and result in (lib.QI_E_QUEUE_FULL, lib.QI_E_STORE_FULL):
            if (code := wait(lib.qi_place_wait, handles, 1, count, payload)) < 0:
                return code
            result = publish()
        return result

    # --- getting -------------------------------------------------------------------------------

    def _get(self, *, timeout: Seconds | None = 0, lease: Seconds | None = None) -> Message | None:
        """get() that waits."""
        lease_us = to_lease_us(lease)
        if timeout == 0:
            return self._take(lib.qi_get, lease_us=lease_us)
        return self._wait(Wait(self._store._handle, timeout), [self], lease_us)

    def _wait(self, wait: Wait, queues: Sequence[Queue], lease_us: int) -> Message | None:
        """Take from the first of these queues that has a message; this queue is one of them."""
        count = len(queues)
        handles = ffi.new("qi_queue *[]", [queue._handle for queue in queues])
        by_handle = {queue._handle: queue for queue in queues}
        return self._take(
            lambda reader: wait(lib.qi_get_wait, reader, handles, count), by_handle, lease_us
        )

    def get_newest(self, *, lease: Seconds | None = None) -> Message | None:
        """Take the ready message that was published last; return None if there is none.

        The highest priority comes first; of one priority, messages that have a time come last, in
        the order of get(). `lease` and errors as get().
        Cost: O(1); more if the newest thousands of messages are delivered and not acked.
        """
        return self._take(lib.qi_get_newest, lease_us=to_lease_us(lease))

    def _take(
        self,
        take: Callable[[Any], int],
        by_handle: Mapping[Any, Queue] | None = None,
        lease_us: int = 0,
    ) -> Message | None:
        """Let `take`, a verb of the core, take a message; give it the room that it needs.

        `by_handle` has the queues that the verb looks at. If a signal handler raises anywhere in
        here, the message that was taken goes back to its place. Python runs signal handlers after
        calls only, so nothing may be called between clearing `delivery` and `try`, nor before
        _give_back(), nor behind `try`: then the reader may be another thread's already.
        """
        # pop() is atomic: no two threads get the same reader, and no lock is needed. To ask first
        # whether there is a reader would not be atomic.
        readers = self._readers
        try:
            reader = readers.pop()
        except IndexError:
            reader = Reader()
        struct = reader.struct
        struct.queue = self._handle
        struct.lease_us = lease_us
        struct.message.delivery = 0
        try:
            size = take(struct)
            while size == lib.QI_E_ROOM:
                reader.grow(struct.message.payload_size)
                size = take(struct)
            message = None
            if size >= 0:
                queue = self if by_handle is None else by_handle[struct.queue]
                message = queue._message(reader.address, reader.payload, True)
            elif size != lib.QI_EMPTY:
                raise_error(size)
        except BaseException:
            self._give_back(reader.address)
            raise
        if struct.room <= READER_KEPT_MAX:
            readers += [reader]  # no call: from here on another thread may have it
        return message

    def _get_many(
        self, count: int, *, timeout: Seconds | None = 0, lease: Seconds | None = None
    ) -> list[Message]:
        """get_many() that waits."""
        whole("count", count, 0, REQ_ID_MAX)
        lease_us = to_lease_us(lease)
        wait = None if timeout == 0 else Wait(self._store._handle, timeout)
        if count == 0:
            return []
        count = min(count, BATCH_MESSAGES_MAX)
        return self._read_batch(count, lambda reader: reader.get(self, count, wait, lease_us))

    def _get_more(
        self, messages: list[Message], count: int, room: int, lease_us: int
    ) -> list[Message]:
        """Add what get_many() could not take at once; the next call says what is wrong."""
        messages += self._read_batch(
            count, lambda reader: reader.get_more(self, count, room, lease_us)
        )
        return messages

    def _read_batch(
        self, count: int, take: Callable[[BatchReader], list[Message]]
    ) -> list[Message]:
        """What `take` gets with a reader of the pool. If it is stopped, all is ready again."""
        readers = self._batch_readers
        try:
            reader = readers.pop()
        except IndexError:
            reader = BatchReader()
        reader.messages[0].delivery = 0
        try:
            messages = take(reader)
        except BaseException:
            self._give_back_many(reader.address, count)
            raise
        if reader.room <= BATCH_KEPT_MAX:
            readers += [reader]  # as in _take()
        return messages

    def peek(self, req_id: int | None = None) -> Message | None:
        """Show the message that get() would return, or the one with that ReqId; take nothing.

        None if there is no such message. Raises StoreCorrupt if its bytes are damaged.

        Cost: O(1); the segment of a message that is not in memory is read.
        """
        if req_id is None:
            return self._look(0, ready_only=True)[0]
        message = self._look(whole("req_id", req_id, 0, REQ_ID_MAX), ready_only=False)[0]
        return message if message is not None and message.req_id == req_id else None

    def browse(
        self, start: int = 0, stop: int | None = None, *, state: State | None = None
    ) -> Iterator[Message]:
        """Show all messages with start <= req_id < stop, or those in one state; take nothing.

        Messages come in the order of ReqIds: the lowest priority first, delayed messages last.
        (peek() says which one is delivered next.) Each is shown as it is when its turn comes. Each
        thread needs an iterator of its own.

        Raises StoreCorrupt at a damaged message, and ends there. If the error's `req_id` is not
        None, `browse(error.req_id + 1)` goes on behind it.

        Cost: one copy for each message. A segment that is not in memory is read once, and leaves
        the memory when the iterator has passed it.
        """
        if state is not None and state not in _STATES:
            raise ValueError(f"state must be one of {', '.join(_STATES)}, not {state!r}")
        whole("start", start, 0, REQ_ID_MAX)
        if stop is not None and (not isinstance(stop, int) or isinstance(stop, bool)):
            raise TypeError(f"stop must be a whole number, not {stop!r}")
        return self._browse(start, stop, state)

    def _browse(self, start: int, stop: int | None, state: State | None) -> Iterator[Message]:
        while True:
            message, flags = self._look(start, ready_only=False)
            if message is None or (stop is not None and message.req_id >= stop):
                return
            if state is None or state_of(message, flags) == state:
                yield message
            start = message.req_id + 1

    def _look(self, start: int, *, ready_only: bool) -> tuple[Message | None, int]:
        """The first message from `start` on, and its flags; (None, 0) if there is none."""
        reader = Reader()
        while True:
            message = reader.struct.message
            size = lib.qi_browse(
                self._handle,
                start,
                ready_only,
                ffi.addressof(message),
                reader.buffer,
                reader.struct.room,
            )
            if size == lib.QI_EMPTY:
                return None, 0
            if size >= 0:
                return self._message(reader.address, reader.payload, False), message.flags
            if size != lib.QI_E_ROOM:
                raise_error(size)
            reader.grow(message.payload_size)


# So that Python's errors for wrong arguments name the method that was called.
Queue._publish.__qualname__ = "Queue.publish"
Queue._get.__qualname__ = "Queue.get"
Queue._get_many.__qualname__ = "Queue.get_many"
Queue._nack.__qualname__ = "Queue.nack"
Queue._touch.__qualname__ = "Queue.touch"
