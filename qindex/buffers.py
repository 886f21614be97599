"""Buffers that the core fills with messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from qindex._core import ffi, lib
from qindex.errors import raise_error
from qindex.message import DeadReason, Message

if TYPE_CHECKING:
    from qindex.queue import Queue
    from qindex.waiting import Wait

PAYLOAD_ROOM: Final = 64 * 1024
BATCH_ROOM: Final = 4 * 1024 * 1024
BATCH_MESSAGES_MAX: Final = 65536
READER_KEPT_MAX: Final = 1024 * 1024  # a reader with more room than this is not kept for later
BATCH_KEPT_MAX: Final = 2 * BATCH_ROOM

REASONS: Final[tuple[DeadReason | None, ...]] = (
    None,
    "expired",
    "rejected",
    "deliveries",
    "full",
)


def _address(array: Any) -> int:
    return int(ffi.cast("uintptr_t", array))


class Reader:
    """A buffer for one message. Only one caller may use it at a time."""

    __slots__ = ("address", "buffer", "payload", "struct")

    def __init__(self) -> None:
        self.struct = ffi.new("qi_reader *")
        self.address = _address(self.struct)  # also that of its message
        self.buffer: Any = None
        self.grow(PAYLOAD_ROOM)

    def grow(self, room: int) -> None:
        """Make room for a payload of that many bytes."""
        self.buffer = ffi.new("char[]", room)
        self.payload = _address(self.buffer)
        self.struct.payload = self.buffer
        self.struct.room = room


class BatchReader:
    """Buffers for a batch of messages. Only one caller may use them at a time."""

    __slots__ = ("address", "buffer", "count", "messages", "payload", "req_ids", "room")

    def __init__(self) -> None:
        self.count = 0
        self.room = 0
        self._make_room(1, 1)

    def _make_room(self, count: int, room: int) -> None:
        """A signal handler may raise behind each call: `address` is never that of freed memory."""
        if count > self.count:
            messages = ffi.new("qi_message[]", count)
            address = _address(messages)
            self.req_ids = ffi.new("uint64_t[]", count)
            self.messages, self.address, self.count = messages, address, count
        if room > self.room:
            self.buffer = ffi.new("char[]", room)
            self.payload = _address(self.buffer)
            self.room = room

    def get(self, queue: Queue, count: int, wait: Wait | None, lease_us: int) -> list[Message]:
        """Take up to `count` messages; see Queue.get_many()."""
        got = self.take(queue, count, wait, lease_us)
        return queue._messages(got, self.address, self.payload) if got else []

    def get_more(self, queue: Queue, count: int, room: int, lease_us: int) -> list[Message]:
        """Take up to `count` messages that need no more than `room` bytes, if nothing is wrong."""
        self._make_room(count, BATCH_ROOM)
        where = (self.messages, self.buffer, room, self.req_ids, lease_us)
        got: int = lib.qi_get_more(queue._handle, count, *where)
        return queue._messages(got, self.address, self.payload) if got else []

    def take(self, queue: Queue, count: int, wait: Wait | None, lease_us: int) -> int:
        """Take up to `count` messages, which lie in the buffers then; return how many."""
        if count > self.count or self.room < BATCH_ROOM:
            self._make_room(count, BATCH_ROOM)
        while True:
            where = (self.messages, self.buffer, self.room, self.req_ids, lease_us)
            if wait is None:
                got: int = lib.qi_get_many(queue._handle, count, *where)
            else:
                got = wait(lib.qi_get_many_wait, queue._handle, count, *where)
            if got != lib.QI_E_ROOM:
                break
            self._make_room(count, self.messages[0].payload_size)
        if got == lib.QI_EMPTY:
            return 0
        if got < 0:
            raise_error(got)
        return got
