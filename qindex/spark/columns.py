"""Arrow columns that the core fills: records, stored bodies and messages, many rows a call.

The memory is Arrow's own, so that nothing is copied and no row is seen in Python. What a column
means is in qindex.h, at qi_columns; each value that a row does not have is null.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa

from qindex._core import ffi, lib
from qindex.errors import raise_error

T = TypeVar("T")
Bytes = bytes | bytearray | memoryview
ROWS: Final = 65536
INDEX_HEAD: Final = 8192  # FORMAT.rst: of a journal's header, both copies
BODIES_BYTES: Final = 8 << 20
RECORD_BYTES_MIN: Final = 2  # FORMAT.rst: of an event in a segment
BODY_BYTES_MIN: Final = 25
REQ_ID_STOP: Final = 1 << 62

_MSG_ID: Final = pa.binary(16)
_TYPES: Final = {
    "kind": pa.uint8(),
    "req_id": pa.int64(),
    "offset": pa.int64(),
    "file": pa.int64(),
    "size": pa.int64(),
    "embedded": pa.int64(),
    "expiry_us": pa.timestamp("us", "UTC"),
    "due_us": pa.timestamp("us", "UTC"),
    "published_us": pa.timestamp("us", "UTC"),
    "priority": pa.int32(),
    "count": pa.int32(),
    "msg_id": _MSG_ID,
}
_BYTES: Final = {"kind": 1, "count": 4, "priority": 4, "msg_id": 16}  # of all others: 8
# Which bits say that a column has a value. Of records; of messages and bodies also these:
_VALID: Final = {
    "size": "has_size",
    "embedded": "has_size",
    "expiry_us": "has_expiry",
    "due_us": "has_due",
    "published_us": "has_published",
    "priority": "has_priority",
    "count": "has_count",
    "msg_id": "has_msg_id",
    "file": "has_msg_id",
}
_VALID_OF_MESSAGES: Final = {**_VALID, "offset": "has_msg_id"}
_VALID_OF_BODIES: Final = {"msg_id": "has_msg_id"}

RECORDS: Final = (
    "kind",
    "req_id",
    "offset",
    "size",
    "embedded",
    "expiry_us",
    "due_us",
    "published_us",
    "priority",
    "count",
    "msg_id",
)
MESSAGES: Final = (*RECORDS, "file")
BODIES: Final = ("kind", "offset", "size", "count", "msg_id")


class _Room:
    """The struct that the core fills, and the buffers behind its pointers."""

    def __init__(self, names: Collection[str], valid: dict[str, str], rows: int) -> None:
        self.struct = ffi.new("qi_columns *")
        self.struct.room = rows
        self._rows = rows
        self._names = names
        self._valid = valid
        self._buffers: dict[str, pa.Buffer] = {}

    def _allocate(self, name: str, byte_count: int) -> None:
        buffer = pa.allocate_buffer(byte_count)
        self._buffers[name] = buffer
        pointer = ffi.typeof(getattr(self.struct, name))
        setattr(self.struct, name, ffi.cast(pointer, buffer.address))

    def renew(self, bodies_bytes: int = 0) -> None:
        """New buffers: those of the last batch belong to whoever has it."""
        self._buffers = {}
        for name in self._names:
            self._allocate(name, self._rows * _BYTES.get(name, 8))
            if name in self._valid and self._valid[name] not in self._buffers:
                self._allocate(self._valid[name], (self._rows + 7) // 8)
        if bodies_bytes:
            for name in ("bodies", "headers"):
                self._allocate(name, bodies_bytes)
                setattr(self.struct, f"{name}_room", bodies_bytes)
            for name in ("body_starts", "header_starts"):
                self._allocate(name, (self._rows + 1) * 4)

    def batch(self, rows: int) -> pa.RecordBatch:
        arrays = {}
        for name in self._names:
            valid = self._buffers.get(self._valid.get(name, ""))
            buffers = [valid, self._buffers[name]]
            arrays[name] = pa.Array.from_buffers(_TYPES[name], rows, buffers)
        for name, starts, data in (
            ("body", "body_starts", "bodies"),
            ("headers", "header_starts", "headers"),
        ):
            if data in self._buffers:
                buffers = [None, self._buffers[starts], self._buffers[data]]
                arrays[name] = pa.Array.from_buffers(pa.binary(), rows, buffers)
        return pa.RecordBatch.from_pydict(arrays)


def records_of(
    files: Iterable[tuple[T, Bytes]], names: Collection[str], rows: int = ROWS
) -> Iterator[tuple[pa.RecordBatch, list[tuple[T, int]]]]:
    """The records of many journals and segments, and whose they are: (what came with it, rows).

    Of a thousand small files one batch is made. `files` may use the same memory again and again.
    """
    room = _Room(names, _VALID, rows)
    room.renew()
    struct = room.struct
    parts: list[tuple[T, int]] = []
    for what, data in files:
        struct.at = struct.inside = 0
        end = rows
        while end == rows:
            end = lib.qi_columns_records(ffi.from_buffer(data), len(data), struct)
            if end == lib.QI_E_NEWER:
                raise_error(end)
            if end > struct.first:
                parts.append((what, end - struct.first))
                struct.first = end
            if end == rows:
                yield room.batch(rows), parts
                room.renew()
                struct.first, parts = 0, []
    if parts:
        yield room.batch(struct.first), parts


def is_index(head: bytes) -> bool:
    """Do these first INDEX_HEAD bytes begin a journal or a segment? Not of a flushed journal."""
    struct = ffi.new("qi_columns *")
    return bool(lib.qi_columns_records(head, len(head), struct) != lib.QI_E_FORMAT)


def records(data: bytes, names: Collection[str] = RECORDS, rows: int = ROWS) -> _Walk:
    """The records in the bytes of a journal or a segment; none in a journal that was flushed."""
    rows = max(1, min(rows, len(data) // RECORD_BYTES_MIN))
    return _Walk(names, _VALID, rows, lambda struct: _records(data, struct))


def _records(data: bytes, struct: Any) -> int:
    code = lib.qi_columns_records(data, len(data), struct)
    return 0 if code == lib.QI_E_FORMAT else code


def bodies(
    identity: bytes, number: int, data: bytes, names: Collection[str] = BODIES, rows: int = ROWS
) -> _Walk:
    """The frames of message file `number` of the store with this identity."""

    def fill(struct: Any) -> int:
        return lib.qi_columns_bodies(identity, number, data, len(data), struct)

    rows = max(1, min(rows, len(data) // BODY_BYTES_MIN))
    return _Walk(names, _VALID_OF_BODIES, rows, fill)


class _Walk:
    """Batches of rows; `damaged` is how many bytes were passed over so far."""

    def __init__(self, names: Collection[str], valid: dict[str, str], rows: int, fill: Any) -> None:
        self._room = _Room(names, valid, rows)
        self._fill = fill

    @property
    def damaged(self) -> int:
        return int(self._room.struct.damaged)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            self._room.renew()
            rows = self._fill(self._room.struct)
            if rows < 0:
                raise_error(rows)
            if rows:
                yield self._room.batch(rows)
            if rows < self._room.struct.room:
                return


@dataclass(slots=True)
class Range(Generic[T]):
    """Messages of a queue's handle that are not acked, from ReqId `start` to below `stop`.

    `unreadable` gets (ReqId or None, text) of each message whose record cannot be read: it has no
    row; None: reading had to end there. It is complete when the next range is asked for.
    """

    what: T
    handle: Any
    start: int = 0
    stop: int = REQ_ID_STOP
    unreadable: list[tuple[int | None, str]] = field(default_factory=list)

    def pass_over(self, code: int, struct: Any) -> bool:
        """The message that cannot be read is noted; False: what is behind it cannot be reached."""
        text = ffi.string(lib.qi_error_text()).decode("utf-8", "replace")
        req_id: int = lib.qi_error_req_id() if code == lib.QI_E_CORRUPT else -1
        goes_on = req_id >= int(struct.at)
        self.unreadable.append((req_id if goes_on else None, text))
        if goes_on:
            struct.at = req_id + 1
        return goes_on


def messages_of(
    ranges: Iterable[Range[T]],
    names: Collection[str] = MESSAGES,
    *,
    with_bodies: bool = False,
    rows: int = ROWS,
) -> Iterator[tuple[pa.RecordBatch, list[tuple[T, int]]]]:
    """The messages of many queues, and whose they are: (what came with the range, rows).

    Of a thousand small queues one batch is made. Columns are those of `names`, and body and headers
    (raw) `with_bodies`. A row whose kind has QI_NO_BODY is a message whose body cannot be read.
    """
    room = _Room(names, _VALID_OF_MESSAGES, rows)
    usual = bodies = BODIES_BYTES if with_bodies else 0
    room.renew(bodies)
    struct = room.struct
    parts: list[tuple[T, int]] = []
    for each in ranges:
        struct.at = each.start
        while (end := lib.qi_columns_messages(each.handle, each.stop, struct)) != struct.first:
            if end > struct.first:
                parts.append((each.what, end - struct.first))
                struct.first = end
            if end == rows or (end == lib.QI_E_ROOM and struct.first):
                yield room.batch(struct.first), parts
                struct.first, parts, bodies = 0, [], usual
                room.renew(bodies)
            elif end == lib.QI_E_ROOM and bodies < 1 << 30:
                bodies *= 2
                room.renew(bodies)
            elif end < 0 and not each.pass_over(end, struct):
                break
    if parts:
        yield room.batch(struct.first), parts


class Messages:
    """The messages of one queue: see Range and messages_of()."""

    def __init__(
        self,
        handle: Any,
        names: Collection[str] = MESSAGES,
        *,
        start: int = 0,
        stop: int = REQ_ID_STOP,
        with_bodies: bool = False,
        rows: int = ROWS,
    ) -> None:
        self._range = Range(None, handle, start, stop)
        self._batches = partial(messages_of, names=names, with_bodies=with_bodies, rows=rows)

    @property
    def unreadable(self) -> list[tuple[int | None, str]]:
        return self._range.unreadable

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return (batch for batch, _ in self._batches([self._range]))
