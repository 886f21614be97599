"""What qindex.h and sim/sim.h declare, typed: tests/unit/test_core_stub.py keeps the names equal.

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
    def gc(self, cdata: _C, destructor: Any) -> _C: ...
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
    QI_PAUSE: Final = -18
    QI_BUSY: Final = -19
    QI_E_DELIVERED: Final = -21
    QI_E_LEASE: Final = -20
    QI_E_QUEUE_FULL: Final = -22
    QI_REDELIVERED: Final = 1
    QI_TRANSIENT: Final = 2
    QI_UNACKED: Final = 4
    QI_STORED: Final = 8
    QI_DELIVERED: Final = 16
    QI_PRIORITY_SHIFT: Final = 8
    QI_DELAYED: Final = 32
    QI_DEAD_EXPIRED: Final = 1
    QI_DEAD_REJECTED: Final = 2
    QI_DEAD_DELIVERIES: Final = 3
    QI_NO_BODY: Final = 64
    QI_ROW_PUBLISH: Final = 0
    QI_ROW_TRANSIENT: Final = 1
    QI_ROW_DELIVER: Final = 2
    QI_ROW_ACK: Final = 3
    QI_ROW_TIME: Final = 4
    QI_ROW_EVENT: Final = 5
    QI_ROW_COUNT: Final = 6
    QI_ROW_PURGE: Final = 7
    QI_ROW_SOUND: Final = 8
    QI_ROW_DAMAGED: Final = 9
    QI_SIM_MIXED: Final = 0
    QI_SIM_NOTHING: Final = 1
    QI_SIM_ALL: Final = 2
    QI_SIM_PREFIX: Final = 3
    QI_SIM_SECTORS512: Final = 4
    QI_SIM_SECTORS4K: Final = 5
    QI_SIM_ZEROS: Final = 6
    QI_SIM_EIO: Final = 1
    QI_SIM_ENOSPC: Final = 2
    QI_SIM_SHORT: Final = 3
    QI_SIM_EINTR: Final = 4
    QI_SIM_ENOMEM: Final = 5
    QI_SIM_BIT_FLIP: Final = 1
    QI_SIM_ZERO_SECTOR: Final = 2
    QI_SIM_STALE_SECTOR: Final = 3
    QI_SIM_MISDIRECTED: Final = 4
    QI_SIM_LOST_WRITE: Final = 5
    QI_SIM_MISSING_FILE: Final = 6
    QI_SIM_SWAPPED_FILES: Final = 7
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
        due_us: int,
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
        due_us: int,
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
        due_us: int,
        per_flags: _C,
        per_expiry_us: _C,
        /,
    ) -> int: ...
    def qi_get(self, reader: _C, /) -> int: ...
    def qi_get_newest(self, reader: _C, /) -> int: ...
    def qi_get_many(
        self,
        queue: _C,
        count: int,
        messages: _C,
        payloads: _C,
        room: int,
        req_ids: _C,
        sizes: _C,
        lease_us: int,
        /,
    ) -> int: ...
    def qi_get_wait(
        self, reader: _C, queues: _C, count: int, until_us: int, pause_us: int, /
    ) -> int: ...
    def qi_get_many_wait(
        self,
        queue: _C,
        count: int,
        messages: _C,
        payloads: _C,
        room: int,
        req_ids: _C,
        sizes: _C,
        lease_us: int,
        until_us: int,
        pause_us: int,
        /,
    ) -> int: ...
    def qi_store_clock_us(self, store: _C, /) -> int: ...
    def qi_store_now_us(self, store: _C, /) -> int: ...
    def qi_store_bell(self, store: _C, /) -> int: ...
    def qi_bell_arm(self, queue: _C, may_wait: bool, /) -> int: ...
    def qi_bell_disarm(self, queue: _C, may_wait: bool, /) -> int: ...
    def qi_bell_next(self, store: _C, /) -> _C: ...
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
    def qi_ack(self, queue: _C, req_id: int, deliveries: int, /) -> int: ...
    def qi_ack_many(self, queue: _C, req_ids: _C, deliveries: _C, count: int, /) -> int: ...
    def qi_nack_many(
        self, queue: _C, req_ids: _C, deliveries: _C, count: int, due_us: int, /
    ) -> int: ...
    def qi_touch(self, queue: _C, req_id: int, deliveries: int, lease_us: int, /) -> int: ...
    def qi_reschedule(self, queue: _C, req_id: int, due_us: int, /) -> int: ...
    def qi_delete(self, queue: _C, req_id: int, /) -> int: ...
    def qi_queue_rules(
        self,
        queue: _C,
        ttl_us: int,
        max_messages: int,
        drop_head: bool,
        max_deliveries: int,
        dead_letters: bool,
        /,
    ) -> int: ...
    def qi_reject_many(self, queue: _C, req_ids: _C, deliveries: _C, count: int, /) -> int: ...
    def qi_redrive(self, queue: _C, most: int, /) -> int: ...
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
    def qi_sim_new(self, seed: int, knobs: _C, /) -> _C: ...
    def qi_sim_free(self, sim: _C, /) -> None: ...
    def qi_store_open_sim(self, sim: _C, options: _C, store: _C, /) -> int: ...
    def qi_store_tick(self, store: _C, /) -> int: ...
    def qi_sim_crash(self, sim: _C, seed: int, mode: int, /) -> _C: ...
    def qi_sim_kill(self, sim: _C, /) -> _C: ...
    def qi_sim_crash_at(self, sim: _C, n: int, seed: int, mode: int, /) -> None: ...
    def qi_sim_taken(self, sim: _C, /) -> _C: ...
    def qi_sim_fault(self, sim: _C, n: int, kind: int, sticky: bool, /) -> None: ...
    def qi_sim_calls(self, sim: _C, /) -> int: ...
    def qi_sim_changes(self, sim: _C, /) -> int: ...
    def qi_sim_damage(
        self, sim: _C, kind: int, seed: int, where: Bytes, text: _C, room: int, /
    ) -> int: ...
    def qi_sim_advance(self, sim: _C, us: int, /) -> None: ...
    def qi_sim_next_id(self, queue: _C, lane: int, /) -> int: ...
    def qi_sim_set_wall(self, sim: _C, us: int, /) -> None: ...
    def qi_sim_file(
        self, sim: _C, index: int, path: _C, room: int, data: _C, size: _C, /
    ) -> int: ...
    def qi_columns_records(self, data: Bytes, size: int, columns: _C, /) -> int: ...
    def qi_columns_bodies(
        self, identity: Bytes, number: int, data: Bytes, size: int, columns: _C, /
    ) -> int: ...
    def qi_columns_messages(self, queue: _C, stop: int, columns: _C, /) -> int: ...
    def qi_dump(self, data: Bytes, size: int, offset: _C, line: _C, room: int, /) -> int: ...

ffi: Final[_FFI]
lib: Final[_Lib]
