"""A queue: publish, get, ack, nack, in the order of ReqIds.

Each verb is one call into the core, which has its own lock.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from qindex._core import ffi, lib
from qindex.arguments import (
    DELAY_MAX,
    Buffer,
    as_bytes,
    batch_flags,
    batch_headers,
    encode_headers,
    priority_flags,
    same_length,
    to_due_us,
    to_expiry_us,
    to_lease_us,
)
from qindex.errors import raise_error
from qindex.message import Details, Message
from qindex.native import MessageFields, QueueCalls, to_req_ids
from qindex.reader import BATCH_MESSAGES_MAX, BatchReader, Reader, to_message
from qindex.waiting import Wait

if TYPE_CHECKING:
    from qindex.store import Store


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Figures of one queue; O(number of its segments) to collect."""

    name: str
    ready: int
    unacked: int
    delayed: int
    dead: int
    next_due: float | None  # seconds since 1970; None: nothing is delayed
    dirty_count: int
    next_req_id: int
    epoch: int  # of the journal; grows by one with each flush
    journal_bytes: int
    unsynced_bytes: int  # of these, what a power cut could take now
    segments: int
    hot_segments: int  # of these, with maps in memory
    segment_bytes: int
    loaded: bool  # False: idle, no file and no mapping open


State: TypeAlias = Literal["ready", "unacked", "delayed", "dead"]
_STATES: Final = get_args(State)


Overflow: TypeAlias = Literal["reject", "drop-head"]


def _state_of(message: Message, flags: int) -> State:
    if message.dead:
        return "dead"
    if flags & lib.QI_UNACKED:
        return "unacked"
    return "delayed" if flags & lib.QI_DELAYED else "ready"


def _which(message: Message | int) -> tuple[int, int]:
    """ReqId and delivery count (0: not known), as the core tells the holders of a lease apart."""
    if isinstance(message, MessageFields):
        return message.req_id, message._details.delivery_count
    return message if type(message) is int else message.req_id, 0  # type: ignore[attr-defined]


def _which_of(messages: Iterable[Message | int], leased: bool) -> tuple[Any, Any, int]:
    """The same for several: ReqIds, delivery counts if there are leases, and how many."""
    items = messages if isinstance(messages, list) else list(messages)
    req_ids = to_req_ids(items)
    counts: Any = ffi.NULL
    if leased:
        counts = ffi.from_buffer("uint32_t[]", array("I", [_which(one)[1] for one in items]))
    return ffi.from_buffer("uint64_t[]", req_ids), counts, len(items)


class Queue(QueueCalls):
    """A durable queue of a store. Get one with store.queue(name); safe to use from threads.

    publish(), get() and ack() are in qindex.native; what they cannot do at once comes back to
    _publish(), _get() and _ack() here.
    """

    def __init__(self, store: Store, name: str, handle: Any) -> None:
        self._store = store  # keeps the store, and with it the handle, alive
        self._handle = handle
        self._confirm_all = store.sync_policy == "always"
        self.name = name
        self._plain = Details(name)
        self._leased = False  # somebody took a message with a lease
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
        overflow: Overflow,
        max_deliveries: int | None,
        dead_letters: bool,
    ) -> None:
        if ttl is not None and not 0 < ttl < DELAY_MAX:
            raise ValueError(f"ttl must be more than 0 seconds, not {ttl!r}")
        if max_messages is not None and max_messages < 1:
            raise ValueError(f"max_messages must be 1 or more, not {max_messages!r}")
        if max_deliveries is not None and not 1 <= max_deliveries <= 65535:
            raise ValueError(f"max_deliveries must be 1 to 65535, not {max_deliveries!r}")
        if overflow not in get_args(Overflow):
            raise ValueError(f"overflow must be 'reject' or 'drop-head', not {overflow!r}")
        code = lib.qi_queue_rules(
            self._handle,
            0 if ttl is None else max(1, int(ttl * 1_000_000)),
            max_messages or 0,
            overflow == "drop-head",
            max_deliveries or 0,
            dead_letters,
        )
        if code < 0:
            raise_error(code)

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
            to_expiry_us(ttl, expires_at),
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
            joined = b"".join(items)
        except TypeError:
            items = [as_bytes(body) for body in items]
            joined = b"".join(items)
        count = len(items)
        sizes = array("I", map(len, items))
        if sum(sizes) != len(joined):  # multi-byte items: len() counts elements, not bytes
            items = [as_bytes(body) for body in items]
            sizes = array("I", map(len, items))
        tables, table_sizes = batch_headers(headers, count)
        per_flags, flags = batch_flags(persistent, redelivered, count)
        per_expiry, expiry_us = None, 0
        if isinstance(expires_at, Sequence):
            same_length("expires_at", expires_at, count)
            per_expiry = array("Q", [to_expiry_us(None, moment) for moment in expires_at])
        elif ttl is not None or expires_at is not None:
            expiry_us = to_expiry_us(ttl, expires_at)
        first = lib.qi_publish_many(
            self._handle,
            count,
            joined,
            ffi.from_buffer("uint32_t[]", sizes),
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
        self._leased = self._leased or lease_us > 0
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
        # cheaper than a lock.
        readers = self._readers
        reader = readers.pop() if readers else Reader(self._handle)
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
        reader = readers.pop() if readers else BatchReader()
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

    # --- settling ------------------------------------------------------------------------------

    def _ack(self, message: Message | int) -> None:
        code = lib.qi_ack(self._handle, *_which(message))
        if code < 0:
            raise_error(code)
        if self._confirm_all:
            self.sync()

    def ack_many(self, messages: Iterable[Message | int]) -> None:
        """Settle several messages at once, all or none.

        Errors as ack(), and ValueError for one that stands in the list twice.
        """
        code = lib.qi_ack_many(self._handle, *_which_of(messages, self._leased))
        if code < 0:
            raise_error(code)
        if self._confirm_all:
            self.sync()

    def nack(
        self,
        message: Message | int,
        requeue: bool = True,
        *,
        delay: float | None = None,
        due: float | None = None,
    ) -> None:
        """Give a delivered message back: to its own place in the order, or drop it. O(1).

        Dropped, it becomes a dead letter if the queue keeps those (see Store.queue). With `delay`
        (seconds) or `due` (seconds since 1970) it is ready again at that time.
        """
        self.nack_many([message], requeue, delay=delay, due=due)

    def nack_many(
        self,
        messages: Iterable[Message | int],
        requeue: bool = True,
        *,
        delay: float | None = None,
        due: float | None = None,
    ) -> None:
        """nack() for several, all or none. ValueError for one that stands in the list twice."""
        due_us = to_due_us(self._store._now_us, delay, due)
        if not requeue and due_us:
            raise ValueError("requeue=False drops the message: it cannot have a delay, too")
        which = _which_of(messages, self._leased)
        if requeue:
            code = lib.qi_nack_many(self._handle, *which, due_us)
        else:
            code = lib.qi_reject_many(self._handle, *which)
        if code < 0:
            raise_error(code)
        if self._confirm_all and not requeue:
            self.sync()

    def touch(self, message: Message | int, lease: float) -> None:
        """Extend the lease of a delivered message: it ends `lease` seconds from now. O(log n).

        Raises LeaseExpired if it has ended: then the message is ready, or somebody else has it.
        """
        code = lib.qi_touch(self._handle, *_which(message), to_lease_us(lease))
        if code < 0:
            raise_error(code)

    def reschedule(
        self, message: Message | int, *, delay: float | None = None, due: float | None = None
    ) -> None:
        """Change when a message is ready that is not delivered; with neither, it is ready now.

        Durable like a publish. Raises MessageDelivered if a consumer has it, UnknownMessage and
        AlreadyAcked as ack(). Cost: O(log n), and the reading of a segment that is not in memory.
        """
        code = lib.qi_reschedule(
            self._handle, _which(message)[0], to_due_us(self._store._now_us, delay, due)
        )
        if code < 0:
            raise_error(code)

    def delete(self, message: Message | int) -> None:
        """Drop a message that is not delivered, by its ReqId: ready, or delayed (it is cancelled).

        Errors and cost as reschedule().
        """
        code = lib.qi_delete(self._handle, _which(message)[0])
        if code < 0:
            raise_error(code)
        if self._confirm_all:
            self.sync()

    def redrive(self, count: int | None = None) -> int:
        """Make dead letters ready again, all or the first `count` by ReqId; return how many.

        Each keeps its delivery count and is delivered at once, whatever made it a dead letter; if
        the queue has max_deliveries, the next multiple of it ends its tries. One record each: after
        any crash a message is a dead letter or ready, never both. O(number of messages in segments
        with dead letters).
        """
        done: int = lib.qi_redrive(self._handle, (1 << 64) - 1 if count is None else count)
        if done < 0:
            raise_error(done)
        if self._confirm_all:
            self.sync()
        return done

    def purge(self) -> int:
        """Drop all messages but the unacked, also delayed ones and dead letters; return how many.

        O(their number). Raises DiskError if a segment cannot be read: then nothing was dropped.
        """
        purged: int = lib.qi_purge(self._handle)
        if purged < 0:
            raise_error(purged)
        if self._confirm_all:
            self.sync()
        return purged

    # --- durability and figures ----------------------------------------------------------------

    def sync(self) -> None:
        """Return when everything before this call survives a power cut.

        Raises OutcomeUnknown if the disk failed. Cost: one or two fdatasync, shared by all waiters.
        """
        code = lib.qi_queue_sync(self._handle)
        if code < 0:
            raise_error(code)

    def flush(self) -> None:
        """Move the journal's entries into segments now; dirty_count is 0 afterwards."""
        code = lib.qi_flush(self._handle)
        if code < 0:
            raise_error(code)

    def _stats(self) -> Any:
        stats = ffi.new("qi_queue_stats *")
        code = lib.qi_queue_stats_of(self._handle, stats)
        if code < 0:
            raise_error(code)
        return stats

    def stats(self) -> QueueStats:
        """All figures at one moment."""
        s = self._stats()
        return QueueStats(
            self.name,
            s.ready,
            s.unacked,
            s.delayed,
            s.dead,
            s.next_due_us / 1e6 if s.next_due_us else None,
            s.dirty_count,
            s.next_req_id,
            s.epoch,
            s.journal_bytes,
            s.unsynced_bytes,
            s.segments,
            s.hot_segments,
            s.segment_bytes,
            s.loaded,
        )

    def __len__(self) -> int:
        """Ready, unacked and delayed messages and dead letters together."""
        return int(self._stats().depth)

    def __bool__(self) -> bool:
        """A queue is always true, also an empty one: `if queue:` would be a trap."""
        return True

    @property
    def ready(self) -> int:
        """Messages that get() would deliver (expired ones count until they are met)."""
        return int(self._stats().ready)

    @property
    def unacked(self) -> int:
        """Messages delivered by this process and not acked."""
        return int(self._stats().unacked)

    @property
    def delayed(self) -> int:
        """Messages whose time has not come."""
        return int(self._stats().delayed)

    @property
    def dead(self) -> int:
        """Dead letters: browse(state="dead") shows them, redrive() takes them back."""
        return int(self._stats().dead)

    @property
    def next_due(self) -> float | None:
        """When the next delayed message is due, in seconds since 1970; None: none is delayed."""
        due_us = self._stats().next_due_us
        return due_us / 1e6 if due_us else None

    @property
    def dirty_count(self) -> int:
        """Publishes, deliveries and acks in the journal since the last flush."""
        return int(self._stats().dirty_count)
