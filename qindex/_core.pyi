"""What c_ext/qindex.h declares, typed: tests/unit/test_core_stub.py keeps the names equal.

Pointers and structs are cffi's own objects and have no useful static type: they are Any. Where a
parameter is a C string or a buffer, cffi takes bytes, or what ffi.from_buffer() returned.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

_C: TypeAlias = Any
Bytes: TypeAlias = bytes | _C  # const void * or const char *

class _FFI:
    NULL: Final[_C]
    CData: Final[type]
    error: Final[type[Exception]]
    def new(self, cdecl: str, init: Any = ...) -> _C: ...
    def cast(self, cdecl: str, value: Any) -> _C: ...
    def unpack(self, cdata: _C, length: int) -> Any: ...
    def string(self, cdata: _C, maxlen: int = ...) -> bytes: ...
    def buffer(self, cdata: _C, size: int = ...) -> Any: ...
    def from_buffer(self, cdecl: Any, python_buffer: Any = ...) -> _C: ...
    def memmove(self, dest: Any, src: Any, n: int) -> None: ...
    def sizeof(self, cdecl: Any) -> int: ...
    def typeof(self, cdecl: Any) -> Any: ...
    def addressof(self, cdata: _C, *fields: Any) -> _C: ...
    def list_types(self) -> tuple[Iterable[str], Iterable[str], Iterable[str]]: ...

class _Lib:
    QI_EMPTY: Final = -1
    QI_E_IO: Final = -2
    QI_E_CORRUPT: Final = -3
    QI_E_LOCKED: Final = -4
    QI_E_FORMAT: Final = -5
    QI_E_FULL: Final = -6
    QI_E_FAILED: Final = -7
    QI_E_CLOSED: Final = -8
    QI_E_READ_ONLY: Final = -9
    QI_E_UNKNOWN: Final = -10
    QI_E_ACKED: Final = -11
    QI_E_ARGUMENT: Final = -12
    QI_E_MEMORY: Final = -13
    QI_E_FORKED: Final = -14
    QI_E_OUTCOME: Final = -15
    QI_E_ROOM: Final = -16
    QI_E_MISSING: Final = -17
    QI_REDELIVERED: Final = 1
    QI_TRANSIENT: Final = 2
    QI_UNACKED: Final = 4
    QI_STORED: Final = 8
    QI_DELIVERED: Final = 16
    def qi_error_text(self) -> _C: ...
    def qi_error_req_id(self) -> int: ...
    def qi_crc32c(self, crc: int, data: Bytes, length: int, /) -> int: ...
    def qi_crc32c_portable(self, crc: int, data: Bytes, length: int, /) -> int: ...
    def qi_store_open(self, path: Bytes, options: _C, store: _C, /) -> int: ...
    def qi_store_close(self, store: _C, /) -> int: ...
    def qi_store_free(self, store: _C, /) -> None: ...
    def qi_store_sync(self, store: _C, /) -> int: ...
    def qi_store_compact(self, store: _C, garbage_percent: int, /) -> int: ...
    def qi_store_stats_of(self, store: _C, stats: _C, /) -> int: ...
    def qi_store_queues(self, store: _C, /) -> int: ...
    def qi_store_queue_name(
        self, store: _C, index: int, name: _C, room: int, directory: _C, /
    ) -> int: ...
    def qi_store_finding(
        self, store: _C, index: int, damage: _C, where: _C, offset: _C, text: _C, /
    ) -> int: ...
    def qi_store_check(self, store: _C, /) -> int: ...
    def qi_store_publish(
        self,
        store: _C,
        queues: _C,
        count: int,
        headers: Bytes,
        headers_size: int,
        body: Bytes,
        body_size: int,
        flags: int,
        expiry_us: int,
        req_ids: _C,
        /,
    ) -> int: ...
    def qi_queue_open(
        self,
        store: _C,
        name: Bytes,
        name_size: int,
        directory: Bytes,
        create: bool,
        queue: _C,
        /,
    ) -> int: ...
    def qi_queue_delete(self, queue: _C, /) -> int: ...
    def qi_publish(self, queue: _C, body: Bytes, body_size: int, /) -> int: ...
    def qi_publish_with(
        self,
        queue: _C,
        headers: Bytes,
        headers_size: int,
        body: Bytes,
        body_size: int,
        flags: int,
        expiry_us: int,
        /,
    ) -> int: ...
    def qi_publish_many(
        self,
        queue: _C,
        count: int,
        bodies: Bytes,
        body_sizes: _C,
        headers: Bytes,
        headers_sizes: _C,
        flags: int,
        expiry_us: int,
        per_flags: _C,
        per_expiry_us: _C,
        /,
    ) -> int: ...
    def qi_get(self, reader: _C, /) -> int: ...
    def qi_get_many(
        self,
        queue: _C,
        count: int,
        messages: _C,
        payloads: _C,
        room: int,
        req_ids: _C,
        sizes: _C,
        /,
    ) -> int: ...
    def qi_browse(
        self,
        queue: _C,
        from_req_id: int,
        ready_only: bool,
        message: _C,
        payload: _C,
        room: int,
        /,
    ) -> int: ...
    def qi_ack(self, queue: _C, req_id: int, /) -> int: ...
    def qi_ack_many(self, queue: _C, req_ids: _C, count: int, /) -> int: ...
    def qi_nack_many(self, queue: _C, req_ids: _C, count: int, /) -> int: ...
    def qi_purge(self, queue: _C, /) -> int: ...
    def qi_queue_sync(self, queue: _C, /) -> int: ...
    def qi_flush(self, queue: _C, /) -> int: ...
    def qi_queue_stats_of(self, queue: _C, stats: _C, /) -> int: ...
    def qi_index_publish(
        self, queue: _C, count: int, msg_ids: Bytes, sizes: _C, flags: int, /
    ) -> int: ...
    def qi_index_deliver(self, queue: _C, req_ids: _C, count: int, first: int, /) -> int: ...
    def qi_index_ack(self, queue: _C, req_ids: _C, count: int, first: int, /) -> int: ...
    def qi_index_read(
        self, queue: _C, start: int, stop: int, messages: _C, room: int, /
    ) -> int: ...
    def qi_dump(self, data: Bytes, size: int, offset: _C, line: _C, room: int, /) -> int: ...

ffi: Final[_FFI]
lib: Final[_Lib]
