"""A queue: publish, get, ack, nack, in the order of ReqIds.

Each verb is one call into the core, which has its own lock; get() alone takes a lock here too,
because it hands out a copy of a shared buffer.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

from qindex._core import ffi, lib
from qindex.errors import raise_error
from qindex.message import Details, Message

if TYPE_CHECKING:
    from qindex.store import Store

    Buffer: TypeAlias = bytes | bytearray | memoryview

_publish = lib.qi_publish
_get = lib.qi_get
_ack = lib.qi_ack
_unpack = ffi.unpack

_PAYLOAD_ROOM = 64 * 1024
_BATCH_ROOM = 4 * 1024 * 1024
_PLAIN = 1 << 32  # qi_get returns less than this for a message without anything special


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Figures of one queue; O(number of its segments) to collect."""

    name: str
    ready: int
    unacked: int
    dirty_count: int
    next_req_id: int
    epoch: int  # of the journal; grows by one with each flush
    journal_bytes: int
    segments: int
    hot_segments: int  # of these, with maps in memory
    segment_bytes: int
    loaded: bool  # False: idle, no file and no mapping open


def _expiry_us(ttl: float | None, expires_at: float | None) -> int:
    if ttl is not None:
        if expires_at is not None:
            raise ValueError(
                "give ttl (seconds from now) or expires_at (seconds since 1970), not both"
            )
        if not ttl >= 0:
            raise ValueError(f"ttl must be 0 or more seconds, not {ttl!r}")
        expires_at = time.time() + ttl
    if expires_at is None:
        return 0
    if not 0 <= expires_at < 1 << 43:
        raise ValueError(f"expires_at must be seconds since 1970, not {expires_at!r}")
    return max(1, int(expires_at * 1_000_000))


def _encode_headers(headers: Mapping[str, Any] | None) -> bytes:
    if not headers:
        return b""
    from qindex.formats.field_table import encode_table

    return encode_table(headers)


def as_bytes(body: Buffer) -> bytes:
    """The body as bytes; text is refused with advice."""
    if isinstance(body, str):
        raise TypeError("a body is bytes-like; encode text first, for example body.encode()")
    try:
        return bytes(memoryview(body))
    except TypeError:
        raise TypeError(f"a body is bytes-like, not {type(body).__name__}") from None


class Queue:
    """A durable queue of a store. Get one with store.queue(name); safe to use from threads."""

    def __init__(self, store: Store, name: str, handle: Any) -> None:
        self._store = store  # keeps the store, and with it the handle, alive
        self._handle = handle
        self._confirm_all = store.sync_policy == "always"
        self.name = name
        self._lock = threading.Lock()
        self._message = ffi.new("qi_message *")
        self._buffer = ffi.new("char[]", _PAYLOAD_ROOM)
        self._room = _PAYLOAD_ROOM
        self._plain = Details(name)

    def __repr__(self) -> str:
        return f"<qindex.Queue {self.name!r}>"

    # --- publishing ----------------------------------------------------------------------------

    def publish(
        self,
        body: Buffer,
        *,
        headers: Mapping[str, Any] | None = None,
        persistent: bool = True,
        ttl: float | None = None,
        expires_at: float | None = None,
        redelivered: bool = False,
        confirm: bool = False,
    ) -> int:
        """Append a message; return its ReqId. It survives kill -9 when this returns.

        `ttl` is in seconds from now, `expires_at` in seconds since 1970. With `confirm`, waits
        until it survives a power cut too. Raises DiskFull (nothing was published), OutcomeUnknown
        (with confirm: published, durability unknown), StoreFailed, StoreClosed, ReadOnly.
        Cost: one copy of the body, no system call.
        """
        if (
            headers is None
            and persistent
            and ttl is None
            and expires_at is None
            and not redelivered
        ):
            if type(body) is not bytes:
                body = as_bytes(body)
            req_id: int = _publish(self._handle, body, len(body))
        else:
            body = as_bytes(body)
            table = _encode_headers(headers)
            req_id = lib.qi_publish_with(
                self._handle,
                table,
                len(table),
                body,
                len(body),
                (0 if persistent else lib.QI_TRANSIENT)
                | (lib.QI_REDELIVERED if redelivered else 0),
                _expiry_us(ttl, expires_at),
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
        confirm: bool = False,
    ) -> range:
        """Append a batch, all of it or nothing; return the ReqIds, which follow each other.

        `headers`, `persistent`, `expires_at` and `redelivered` are one value for all, or a sequence
        with one per body. A batch has at most 256 MiB of records (ValueError). Errors and cost as
        publish(), but one call for all.
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
        tables, table_sizes = self._batch_headers(headers, count)
        per_flags, flags = self._batch_flags(persistent, redelivered, count)
        per_expiry, expiry_us = None, 0
        if isinstance(expires_at, Sequence):
            _same_length("expires_at", expires_at, count)
            per_expiry = array("Q", [_expiry_us(None, moment) for moment in expires_at])
        elif ttl is not None or expires_at is not None:
            expiry_us = _expiry_us(ttl, expires_at)
        first = lib.qi_publish_many(
            self._handle,
            count,
            joined,
            ffi.from_buffer("uint32_t[]", sizes),
            tables,
            ffi.NULL if table_sizes is None else ffi.from_buffer("uint32_t[]", table_sizes),
            flags,
            expiry_us,
            ffi.NULL if per_flags is None else per_flags,
            ffi.NULL if per_expiry is None else ffi.from_buffer("uint64_t[]", per_expiry),
        )
        if first < 0:
            raise_error(first)
        if confirm or self._confirm_all:
            self.sync()
        return range(first, first + count)

    @staticmethod
    def _batch_headers(
        headers: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None, count: int
    ) -> tuple[bytes, array[int] | None]:
        if not headers:
            return b"", None
        if isinstance(headers, Mapping):
            table = _encode_headers(headers)
            return table * count, array("I", [len(table)] * count)
        _same_length("headers", headers, count)
        tables = [_encode_headers(one) for one in headers]
        return b"".join(tables), array("I", map(len, tables))

    @staticmethod
    def _batch_flags(
        persistent: bool | Sequence[bool], redelivered: bool | Sequence[bool], count: int
    ) -> tuple[bytes | None, int]:
        transient = lib.QI_TRANSIENT
        again = lib.QI_REDELIVERED
        if isinstance(persistent, Sequence) or isinstance(redelivered, Sequence):
            kept = persistent if isinstance(persistent, Sequence) else [persistent] * count
            seen = redelivered if isinstance(redelivered, Sequence) else [redelivered] * count
            _same_length("persistent", kept, count)
            _same_length("redelivered", seen, count)
            pairs = zip(kept, seen, strict=True)
            return bytes((0 if k else transient) | (again if r else 0) for k, r in pairs), 0
        return None, (0 if persistent else transient) | (again if redelivered else 0)

    # --- getting -------------------------------------------------------------------------------

    def get(self) -> Message | None:
        """Take the next ready message; None if there is none. It stays until it is acked.

        Raises StoreCorrupt for a message whose bytes are damaged: it is set aside (unacked, told in
        store.findings), the next get() goes on behind it. Cost: O(1), one copy of the body.
        """
        with self._lock:
            size = _get(self._handle, self._message, self._buffer, self._room)
            if 0 <= size < _PLAIN:
                return Message(self._message.req_id, _unpack(self._buffer, size), self._plain)
            if size == lib.QI_EMPTY:
                return None
            if size == lib.QI_E_ROOM:
                self._grow(self._message.payload_size)
                size = _get(self._handle, self._message, self._buffer, self._room)
                if size == lib.QI_E_ROOM:  # another consumer took that one; a bigger one came
                    return self._get_with(1 << 32)
            if size < 0:
                raise_error(size)
            message = self._unpack_message(self._message, self._buffer)
            if self._room > 16 * _PAYLOAD_ROOM:  # do not keep the room of one giant for ever
                self._grow(_PAYLOAD_ROOM)
            return message

    def _get_with(self, limit: int) -> Message | None:
        while (
            size := _get(self._handle, self._message, self._buffer, self._room)
        ) == lib.QI_E_ROOM:
            self._grow(min(limit, 2 * self._message.payload_size))
        if size < 0:
            raise_error(size)
        return self._unpack_message(self._message, self._buffer)

    def _grow(self, room: int) -> None:
        self._buffer = ffi.new("char[]", room)
        self._room = room

    def _unpack_message(self, message: Any, payload: Any) -> Message:
        size, body_size = message.payload_size, message.body_size
        table_size = size - body_size
        flags = message.flags
        return Message(
            message.req_id,
            _unpack(payload + table_size, body_size) if body_size else b"",
            Details(
                queue=self.name,
                redelivered=bool(flags & lib.QI_REDELIVERED),
                delivery_count=message.delivery_count,
                persistent=not flags & lib.QI_TRANSIENT,
                expires_at=message.expiry_us / 1e6 if message.expiry_us else None,
                headers=_unpack(payload, table_size) if table_size else b"",
            ),
        )

    def get_many(self, count: int) -> list[Message]:
        """Take up to `count` ready messages, in order; fewer if there are fewer (or past 4 MiB).

        Cost as get(), but one call and one journal record for all.
        """
        if count <= 0:
            if count == 0:
                return []
            raise ValueError(f"count must be 0 or more, not {count}")
        count = min(count, 65536)
        with self._lock:
            messages = ffi.new("qi_message[]", count)
            req_ids = ffi.new("uint64_t[]", count)
            sizes = ffi.new("uint32_t[]", count)
            room = _BATCH_ROOM
            while True:
                payloads = ffi.new("char[]", room) if room > self._room else self._buffer
                room = max(room, self._room)
                got = lib.qi_get_many(self._handle, count, messages, payloads, room, req_ids, sizes)
                if got != lib.QI_E_ROOM:
                    break
                room = messages[0].payload_size
            if room <= _BATCH_ROOM and payloads is not self._buffer:
                self._buffer, self._room = payloads, room
            if got == lib.QI_EMPTY:
                return []
            if got < 0:
                raise_error(got)
            return self._split(got, messages, req_ids, sizes, payloads)

    def _split(
        self, got: int, messages: Any, req_ids: Any, sizes: Any, payloads: Any
    ) -> list[Message]:
        plain = got & 1
        got >>= 1
        ends = list(accumulate(_unpack(sizes, got)))
        if plain:
            blob = _unpack(payloads, ends[-1]) if ends[-1] else b""
            details, start, result = self._plain, 0, []
            for req_id, end in zip(_unpack(req_ids, got), ends, strict=True):
                result.append(Message(req_id, blob[start:end], details))
                start = end
            return result
        starts = [0, *ends[:-1]]
        return [self._unpack_message(messages[i], payloads + starts[i]) for i in range(got)]

    def peek(self) -> Message | None:
        """The message that get() would return, without taking it. O(1)."""
        return self._look(0, ready_only=True)

    def browse(self, start: int = 0, stop: int | None = None) -> Iterator[Message]:
        """All messages with start <= req_id < stop, ready and unacked, in order. Changes nothing.

        Sees each message as it is when its turn comes. Cost: one copy per message; a cold segment
        is read once and leaves the memory behind the iterator.
        """
        while (message := self._look(start, ready_only=False)) is not None:
            if stop is not None and message.req_id >= stop:
                return
            yield message
            start = message.req_id + 1

    def _look(self, start: int, *, ready_only: bool) -> Message | None:
        with self._lock:
            while True:
                size = lib.qi_browse(
                    self._handle, start, ready_only, self._message, self._buffer, self._room
                )
                if size == lib.QI_EMPTY:
                    return None
                if size >= 0:
                    return self._unpack_message(self._message, self._buffer)
                if size != lib.QI_E_ROOM:
                    raise_error(size)
                self._grow(self._message.payload_size)

    # --- settling ------------------------------------------------------------------------------

    def ack(self, message: Message | int) -> None:
        """Settle a delivered message: it is done and will not come back.

        Raises UnknownMessage if it was never published or is not delivered, AlreadyAcked if it is
        gone; then nothing changed. Cost: O(1), no system call; durable like a publish.
        """
        code = _ack(self._handle, message if type(message) is int else message.req_id)  # type: ignore[union-attr]
        if code < 0:
            raise_error(code)
        if self._confirm_all:
            self.sync()

    def ack_many(self, messages: Iterable[Message | int]) -> None:
        """Settle several messages at once, all or none. Errors as ack()."""
        req_ids = _req_ids(messages)
        code = lib.qi_ack_many(self._handle, ffi.from_buffer("uint64_t[]", req_ids), len(req_ids))
        if code < 0:
            raise_error(code)
        if self._confirm_all:
            self.sync()

    def nack(self, message: Message | int, requeue: bool = True) -> None:
        """Give a delivered message back: to its own place in the order, or drop it. O(1)."""
        self.nack_many([message], requeue)

    def nack_many(self, messages: Iterable[Message | int], requeue: bool = True) -> None:
        """nack() for several, all or none."""
        if not requeue:
            self.ack_many(messages)
            return
        req_ids = _req_ids(messages)
        code = lib.qi_nack_many(self._handle, ffi.from_buffer("uint64_t[]", req_ids), len(req_ids))
        if code < 0:
            raise_error(code)

    def purge(self) -> int:
        """Drop all ready messages, keep the unacked; return how many were dropped. O(their number)."""
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
            s.dirty_count,
            s.next_req_id,
            s.epoch,
            s.journal_bytes,
            s.segments,
            s.hot_segments,
            s.segment_bytes,
            s.loaded,
        )

    def __len__(self) -> int:
        """Ready and unacked messages together."""
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
    def dirty_count(self) -> int:
        """Publishes, deliveries and acks in the journal since the last flush."""
        return int(self._stats().dirty_count)


def _same_length(name: str, values: Sequence[Any], count: int) -> None:
    if len(values) != count:
        raise ValueError(f"{name} has {len(values)} entries for {count} bodies")


def _req_ids(messages: Iterable[Message | int]) -> array[int]:
    return array("Q", [m if type(m) is int else m.req_id for m in messages])  # type: ignore[union-attr]
