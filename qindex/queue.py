"""A queue: publish, get, ack, nack, in the order of ReqIds.

Each verb is one call into the core, which has its own lock.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from qindex._core import ffi, lib
from qindex.arguments import (
    DELAY_MAX,
    Buffer,
    as_bytes,
    batch_flags,
    batch_headers,
    encode_headers,
    one_each,
    priority_flags,
    to_due_us,
    to_expiry_us,
    to_lease_us,
)
from qindex.errors import raise_error
from qindex.figures import Figures
from qindex.message import Details, Message
from qindex.native import QueueCalls, join_bodies
from qindex.reader import BATCH_MESSAGES_MAX, BatchReader, Reader, to_message
from qindex.settling import Settling
from qindex.waiting import Wait

if TYPE_CHECKING:
    from qindex.store import Store


State: TypeAlias = Literal["ready", "unacked", "delayed", "dead"]
_STATES: Final = get_args(State)


Overflow: TypeAlias = Literal["reject", "drop-head", "dead-letter"]  # as QI_REJECT ... count
_OVERFLOWS: Final[tuple[Overflow, ...]] = get_args(Overflow)


def _state_of(message: Message, flags: int) -> State:
    if message.dead:
        return "dead"
    if flags & lib.QI_UNACKED:
        return "unacked"
    return "delayed" if flags & lib.QI_DELAYED else "ready"


class Queue(QueueCalls, Settling, Figures):
    """A durable queue of a store. Get one with store.queue(name); safe to use from threads.

    publish(), get() and ack() are in qindex.native; what they cannot do at once comes back to
    _publish(), _get() and _ack() here.
    """

    def __init__(self, store: Store, name: str, handle: Any) -> None:
        self._store = store  # keeps the store, and with it the handle, alive
        self._handle = handle
        self._confirm_all = store.sync_policy == "always"
        self._has_rules = False
        self.name = name
        self._plain = Details(name)
        self._readers: list[Reader] = []
        self._batch_readers: list[BatchReader] = []
        address = int(ffi.cast("uintptr_t", handle))
        self._attach(address, Message, self._plain, self._confirm_all)

    def __repr__(self) -> str:
        return f"<qindex.Queue {self.name!r}>"

    def _set_rules(
        self,
        ttl: float | None,
        max_messages: int | None,
        max_bytes: int | None,
        overflow: Overflow,
        max_deliveries: int | None,
        dead_letters: bool,
    ) -> None:
        if ttl is not None and not 0 < ttl < DELAY_MAX:
            raise ValueError(f"ttl must be more than 0 seconds, not {ttl!r}")
        if max_messages is not None and max_messages < 1:
            raise ValueError(f"max_messages must be 1 or more, not {max_messages!r}")
        if max_bytes is not None and max_bytes < 1:
            raise ValueError(f"max_bytes must be 1 or more, not {max_bytes!r}")
        if max_deliveries is not None and not 1 <= max_deliveries <= 65535:
            raise ValueError(f"max_deliveries must be 1 to 65535, not {max_deliveries!r}")
        if overflow not in _OVERFLOWS:
            raise ValueError(f"overflow must be one of {', '.join(_OVERFLOWS)}, not {overflow!r}")
        if overflow == "dead-letter" and not dead_letters:
            raise ValueError("overflow='dead-letter' needs dead_letters=True beside it")
        rules = ffi.new("qi_rules *")
        rules.ttl_us = 0 if ttl is None else max(1, int(ttl * 1_000_000))
        rules.max_messages = max_messages or 0
        rules.max_bytes = max_bytes or 0
        rules.overflow = _OVERFLOWS.index(overflow)
        rules.max_deliveries = max_deliveries or 0
        rules.dead_letters = dead_letters
        code = lib.qi_queue_set_rules(self._handle, rules)
        if code < 0:
            raise_error(code)
        self._has_rules = True

    # --- publishing ----------------------------------------------------------------------------

    def _publish(
        self,
        body: Buffer,
        *,
        headers: Mapping[str, Any] | None = None,
        persistent: bool = True,
        ttl: float | None = None,
        expires_at: float | None = None,
        redelivered: bool = False,
        priority: int = 0,
        delay: float | None = None,
        due: float | None = None,
        confirm: bool = False,
    ) -> int:
        """publish() with anything out of the ordinary, or when it has to wait."""
        body = as_bytes(body)
        table = encode_headers(headers)
        req_id: int = lib.qi_publish_with(
            self._handle,
            table,
            len(table),
            body,
            len(body),
            (0 if persistent else lib.QI_TRANSIENT)
            | (lib.QI_REDELIVERED if redelivered else 0)
            | priority_flags(priority),
            to_expiry_us(self._store._now_us, ttl, expires_at),
            to_due_us(self._store._now_us, delay, due),
        )
        if req_id < 0:
            raise_error(req_id)
        if confirm or self._confirm_all:
            self.sync()
        return req_id

    def publish_many(
        self,
        bodies: Iterable[Buffer],
        *,
        headers: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
        persistent: bool | Sequence[bool] = True,
        ttl: float | None = None,
        expires_at: float | Sequence[float | None] | None = None,
        redelivered: bool | Sequence[bool] = False,
        priority: int = 0,
        delay: float | None = None,
        due: float | None = None,
        confirm: bool = False,
    ) -> range:
        """Append a batch, all of it or nothing; return the ReqIds, which follow each other.

        `headers`, `persistent`, `expires_at` and `redelivered` are one value for all, or a sequence
        with one per body; `priority`, `delay` and `due` are one for all. A batch has at most 256
        MiB of records (ValueError). Errors and cost as publish(), but one call for all.
        """
        items = bodies if isinstance(bodies, list) else list(bodies)
        try:
            joined, sizes = join_bodies(items)
        except TypeError:  # not all are bytes objects
            joined, sizes = join_bodies([as_bytes(body) for body in items])
        body_sizes = ffi.from_buffer("uint32_t[]", sizes)
        count = len(body_sizes)  # not the list's: another thread may change that
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
        first = lib.qi_publish_many(
            self._handle,
            count,
            joined,
            body_sizes,
            tables,
            ffi.NULL if table_sizes is None else ffi.from_buffer("uint32_t[]", table_sizes),
            flags | priority_flags(priority),
            expiry_us,
            to_due_us(self._store._now_us, delay, due),
            ffi.NULL if per_flags is None else per_flags,
            ffi.NULL if per_expiry is None else ffi.from_buffer("uint64_t[]", per_expiry),
        )
        if first < 0:
            raise_error(first)
        if confirm or self._confirm_all:
            self.sync()
        return range(first, first + count)

    # --- getting -------------------------------------------------------------------------------

    def _get(self, *, timeout: float | None = 0, lease: float | None = None) -> Message | None:
        """get() that waits, or of a message with something special or that is not in memory."""
        lease_us = self._to_lease_us(lease)
        if timeout == 0:
            return self._take(lib.qi_get, lease_us=lease_us)
        return self._wait(Wait(self._store._handle, timeout), [self], lease_us)

    def _to_lease_us(self, lease: float | None) -> int:
        lease_us = to_lease_us(lease)
        if lease_us:  # never taken back, by another thread neither
            self._leased = True
        return lease_us

    def _wait(self, wait: Wait, queues: Sequence[Queue], lease_us: int) -> Message | None:
        """From the first of the queues that has one; this one is among them."""
        count = len(queues)
        handles = ffi.new("qi_queue *[]", [queue._handle for queue in queues])
        names = {queue._handle: queue.name for queue in queues}
        return self._take(
            lambda reader: wait(lib.qi_get_wait, reader, handles, count), names, lease_us
        )

    def get_newest(self, *, lease: float | None = None) -> Message | None:
        """Take the ready message that was published last: a stack. None if there is none.

        Of several priorities that of the highest. Otherwise as get(). Cost: O(1), more if the
        newest thousands are delivered and not acked.
        """
        return self._take(lib.qi_get_newest, lease_us=self._to_lease_us(lease))

    def _take(
        self,
        take: Callable[[Any], int],
        names: Mapping[Any, str] | None = None,
        lease_us: int = 0,
    ) -> Message | None:
        """What a verb of the core takes, with room for it; `names`: of the queues it looks at."""
        # Taking a reader out of the pool is atomic, so that no two threads share a buffer, and
        # cheaper than a lock. Looking whether there is one first would not be.
        readers = self._readers
        try:
            reader = readers.pop()
        except IndexError:
            reader = Reader(self._handle)
        reader.struct.lease_us = lease_us
        size = take(reader.struct)
        while size == lib.QI_E_ROOM:
            reader.grow(reader.struct.message.payload_size)
            size = take(reader.struct)
        if size < 0 and size != lib.QI_EMPTY:
            raise_error(size)
        message = None
        if size >= 0:
            name = self.name if names is None else names[reader.struct.queue]
            message = to_message(name, reader.struct.message, reader.buffer)
        reader.struct.queue = self._handle
        readers.append(reader)
        return message

    def get_many(
        self, count: int, *, timeout: float | None = 0, lease: float | None = None
    ) -> list[Message]:
        """Take up to `count` ready messages, in order; fewer if there are fewer (or past 4 MiB).

        With `timeout`, waits for the first of them as get() does; `lease` is for each. Cost as
        get(), but one call and one journal record for all.
        """
        if count < 0:
            raise ValueError(f"count must be 0 or more, not {count}")
        lease_us = self._to_lease_us(lease)
        wait = None if timeout == 0 else Wait(self._store._handle, timeout)
        if count == 0:
            return []
        readers = self._batch_readers
        try:
            reader = readers.pop()
        except IndexError:
            reader = BatchReader()
        messages = reader.get(self, min(count, BATCH_MESSAGES_MAX), wait, lease_us)
        readers.append(reader)
        return messages

    def peek(self, req_id: int | None = None) -> Message | None:
        """The message that get() would return, or the one with that ReqId, without taking it.

        None if there is none. O(1); for a message that is not in memory its segment is read.
        """
        if req_id is None:
            return self._look(0, ready_only=True)[0]
        message = self._look(req_id, ready_only=False)[0]
        return message if message is not None and message.req_id == req_id else None

    def browse(
        self, start: int = 0, stop: int | None = None, *, state: State | None = None
    ) -> Iterator[Message]:
        """All messages with start <= req_id < stop, or only those in a state. Changes nothing.

        In the order of ReqIds: lower priorities first, delayed messages last (peek() tells what is
        next). Sees each message as it is when its turn comes. Cost: one copy per message; a cold
        segment is read once and leaves the memory behind the iterator. Raises StoreCorrupt at a
        damaged message and ends there; `browse(error.req_id + 1)` goes on behind it, if req_id is
        not None.
        """
        if state is not None and state not in _STATES:
            raise ValueError(f"state must be one of {', '.join(_STATES)}, not {state!r}")
        while True:
            message, flags = self._look(start, ready_only=False)
            if message is None or (stop is not None and message.req_id >= stop):
                return
            if state is None or _state_of(message, flags) == state:
                yield message
            start = message.req_id + 1

    def _look(self, start: int, *, ready_only: bool) -> tuple[Message | None, int]:
        """A message and its flags."""
        reader = Reader(self._handle)
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
                return to_message(self.name, message, reader.buffer), message.flags
            if size != lib.QI_E_ROOM:
                raise_error(size)
            reader.grow(message.payload_size)
