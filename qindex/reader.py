"""Buffers that the core fills, and messages made of them."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from qindex._core import ffi, lib
from qindex.errors import raise_error
from qindex.message import DeadReason, Details, Message

if TYPE_CHECKING:
    from qindex.queue import Queue
    from qindex.waiting import Wait

PAYLOAD_ROOM: Final = 64 * 1024
BATCH_ROOM: Final = 4 * 1024 * 1024
BATCH_MESSAGES_MAX: Final = 65536

_unpack = ffi.unpack
REASONS: Final[tuple[DeadReason | None, ...]] = (
    None,
    "expired",
    "rejected",
    "deliveries",
    "full",
)


@lru_cache(maxsize=256)
def _again(queue: str, delivery_count: int) -> Details:
    """After a crash all messages are redelivered, and most have nothing else to say."""
    return Details(queue, redelivered=True, delivery_count=delivery_count)


def to_message(queue: str, message: Any, payload: Any) -> Message:
    """A Message with all its details; `payload` holds the headers, then the body."""
    size, body_size = message.payload_size, message.body_size
    table_size = size - body_size
    flags = message.flags
    plain = not (
        table_size
        or message.expiry_us
        or message.due_us
        or message.priority
        or message.dead
        or flags & lib.QI_TRANSIENT
    )
    if plain and flags & lib.QI_REDELIVERED:
        body = _unpack(payload, body_size) if body_size else b""
        return Message(message.req_id, body, _again(queue, message.delivery_count))
    return Message(
        message.req_id,
        _unpack(payload + table_size, body_size) if body_size else b"",
        Details(
            queue=queue,
            redelivered=bool(flags & lib.QI_REDELIVERED),
            delivery_count=message.delivery_count,
            persistent=not flags & lib.QI_TRANSIENT,
            expires_at=message.expiry_us / 1e6 if message.expiry_us else None,
            headers=_unpack(payload, table_size) if table_size else b"",
            priority=message.priority,
            dead=REASONS[message.dead] if message.dead < len(REASONS) else None,
        ),
        message.due_us,
    )


class Reader:
    """Room for one message; used by one caller at a time."""

    __slots__ = ("buffer", "struct")

    def __init__(self, handle: Any) -> None:
        self.struct = ffi.new("qi_reader *")
        self.struct.queue = handle
        self.buffer: Any = None
        self.grow(PAYLOAD_ROOM)

    def grow(self, room: int) -> None:
        """Room for a payload of that many bytes."""
        self.buffer = ffi.new("char[]", room)
        self.struct.payload = self.buffer
        self.struct.room = room


class BatchReader:
    """Room for a batch of messages; used by one caller at a time."""

    __slots__ = ("addresses", "buffer", "count", "messages", "req_ids", "room", "sizes")

    def __init__(self) -> None:
        self.count = 0
        self.room = 0

    def _make_room(self, count: int, room: int) -> None:
        if count > self.count:
            self.messages = ffi.new("qi_message[]", count)
            self.req_ids = ffi.new("uint64_t[]", count)
            self.sizes = ffi.new("uint32_t[]", count)
            self.count = count
        if room > self.room:
            self.buffer = ffi.new("char[]", room)
            self.room = room
        arrays = (self.req_ids, self.sizes, self.buffer)
        self.addresses = [int(ffi.cast("uintptr_t", array)) for array in arrays]

    def get(self, queue: Queue, count: int, wait: Wait | None, lease_us: int) -> list[Message]:
        """Up to `count` messages; see Queue.get_many."""
        if count > self.count:
            self._make_room(count, BATCH_ROOM)
        while True:
            where = (self.messages, self.buffer, self.room, self.req_ids, self.sizes, lease_us)
            if wait is None:
                got = lib.qi_get_many(queue._handle, count, *where)
            else:
                got = wait(lib.qi_get_many_wait, queue._handle, count, *where)
            if got != lib.QI_E_ROOM:
                break
            self._make_room(count, self.messages[0].payload_size)
        if got == lib.QI_EMPTY:
            return []
        if got < 0:
            raise_error(got)
        count = got >> 1
        if got & 1:
            return queue._plain_messages(count, *self.addresses)
        starts = accumulate(_unpack(self.sizes, count), initial=0)
        return [
            to_message(queue.name, self.messages[i], self.buffer + start)
            for i, start in zip(range(count), starts, strict=False)
        ]
