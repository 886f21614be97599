"""What the headers declare, typed: tests/unit/test_core_stub.py keeps the names equal.

Pointers and structs are cffi's own objects and have no useful static type: they are Any. Where a
parameter is a C string or a buffer, cffi takes bytes, or what ffi.from_buffer() returned.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, TypeVar

_C: TypeAlias = Any
_F = TypeVar("_F", bound=Callable[..., None])
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
    def new_allocator(self, *, should_clear_after_alloc: bool = ...) -> Callable[..., _C]: ...
    def from_buffer(self, cdecl: Any, python_buffer: Any = ...) -> _C: ...
    def memmove(self, dest: Any, src: Any, n: int) -> None: ...
    def sizeof(self, cdecl: Any) -> int: ...
    def typeof(self, cdecl: Any) -> Any: ...
    def addressof(self, cdata: _C, *fields: Any) -> _C: ...
    def gc(self, cdata: _C, destructor: Any) -> _C: ...
    def def_extern(self) -> Callable[[_F], _F]: ...
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
    QI_E_DEAD: Final = -25
    QI_E_DELIVERED: Final = -21
    QI_E_ENDED: Final = -24
    QI_E_NEWER: Final = -26
    QI_E_LEASE: Final = -20
    QI_E_QUEUE_FULL: Final = -22
    QI_E_STORE_FULL: Final = -23
    QI_E_NOT_EMPTY: Final = -27
    QI_E_IN_USE: Final = -28
    QI_E_EXISTS: Final = -29
    QI_REDELIVERED: Final = 1
    QI_TRANSIENT: Final = 2
    QI_AWAITED: Final = 65536
    QI_STEADY: Final = 131072
    QI_UNACKED: Final = 4
    QI_STORED: Final = 8
    QI_DELIVERED: Final = 16
    QI_PRIORITY_SHIFT: Final = 8
    QI_DELAYED: Final = 32
    QI_DIED: Final = 1024
    QI_DEAD_EXPIRED: Final = 1
    QI_DEAD_REJECTED: Final = 2
    QI_DEAD_DELIVERIES: Final = 3
    QI_DEAD_FULL: Final = 4
    QI_IF_EMPTY: Final = 1
    QI_IF_UNUSED: Final = 2
    QI_IF_UNWANTED: Final = 4
    QI_SETTLE_ACK: Final = 0
    QI_SETTLE_NACK: Final = 1
    QI_SETTLE_REJECT: Final = 2
    QI_SETTLE_RETURN: Final = 3
    QI_PURGE_READY: Final = 1
    QI_PURGE_DELAYED: Final = 2
    QI_PURGE_DEAD: Final = 4
    QI_PURGE_ALL: Final = 7
    QI_REJECT: Final = 0
    QI_DROP_HEAD: Final = 1
    QI_BURY_HEAD: Final = 2
    QI_NO_BODY: Final = 64
    QI_DEAD_LETTER: Final = 128
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
    QI_ROW_BAD: Final = 10
    QI_ROW_TAIL: Final = 11
    QI_ROW_HEADLESS: Final = 12
    QI_ROW_NEWER: Final = 13
    QI_ROW_MOMENT: Final = 15
    QI_ROW_SIDE: Final = 14
    QI_ROW_FRAME: Final = 16
    QI_TERM_CUT: Final = -1
    QI_TERM_TAG: Final = -2
    QI_TERM_DEEP: Final = -3
    QI_TERM_MANY: Final = -4
    QI_TERM_NUMBER: Final = -5
    QI_TERM_ATOM: Final = -6
    QI_TERM_SIZE: Final = -7
    QI_TERM_DEPTH_MAX: Final = 512
    QI_TERM_BYTES_MAX: Final = 0x40000000
    QI_RABBIT_NAMES_MAX: Final = 1024
    QI_RABBIT_NAME_BYTES: Final = 65536
    QI_RABBIT_STEPS_MAX: Final = 512
    QI_RABBIT_OTHER: Final = -1
    QI_RA_RECORDS_MAX: Final = 1024
    QI_RABBIT_SLOTS_MAX: Final = 16384
    QI_RABBIT_PUBLISHED: Final = 1
    QI_RABBIT_DELIVERED: Final = 2
    QI_RABBIT_ACKED: Final = 3
    QI_RABBIT_PERSISTENT: Final = 1
    QI_RABBIT_BESIDE: Final = 2
    QI_RABBIT_NOWHERE: Final = 4
    QI_RABBIT_MISSING: Final = 8
    QI_RABBIT_GAPS_MAX: Final = 64
    QI_RABBIT_FILES_MAX: Final = 1048576
    QI_RABBIT_ROWS_MAX: Final = 1000
    QI_RABBIT_FILE_INDEX: Final = 1048576
    QI_RABBIT_FILE_BESIDE: Final = 1048577
    QI_RABBIT_DROP_EXPIRED: Final = 0
    QI_RABBIT_KEEP_EXPIRED: Final = 1
    QI_RABBIT_TELL_EXPIRED: Final = 2
    QI_RABBIT_EXPIRES: Final = 0
    QI_RABBIT_DIES: Final = 1
    QI_RABBIT_IS_TOLD: Final = 2
    def qi_error_text(self) -> _C: ...
    def qi_error_req_id(self) -> int: ...
    def qi_crc32c(self, crc: int, data: Bytes, length: int, /) -> int: ...
    def qi_crc32c_portable(self, crc: int, data: Bytes, length: int, /) -> int: ...
    def qi_crc32c_by(self, way: int, crc: _C, to: _C, data: Bytes, length: int, /) -> bool: ...
    def qi_store_open(self, path: Bytes, options: _C, store: _C, /) -> int: ...
    def qi_store_close(self, store: _C, /) -> int: ...
    def qi_store_abandon(self, store: _C, /) -> None: ...
    def qi_store_free(self, store: _C, /) -> None: ...
    def qi_store_leave(self, store: _C, /) -> None: ...
    def qi_store_sync(self, store: _C, /) -> int: ...
    def qi_store_kept_after(self, store: _C, /) -> int: ...
    def qi_store_accept_losses(self, store: _C, /) -> int: ...
    def qi_store_misplaced(
        self, store: _C, directory: bytes, name: bytes, name_size: int, /
    ) -> None: ...
    def qi_store_compact(self, store: _C, garbage_percent: int, /) -> int: ...
    def qi_store_stats_of(self, store: _C, stats: _C, /) -> int: ...
    def qi_store_hold(self, store: _C, path: bytes, held: _C, /) -> int: ...
    def qi_exchange(self, one: bytes, other: bytes, /) -> int: ...
    def qi_store_queues(self, store: _C, /) -> int: ...
    def qi_store_queue_name(
        self, store: _C, index: int, name: _C, room: int, directory: _C, /
    ) -> int: ...
    def qi_store_finding(
        self, store: _C, index: int, damage: _C, where: _C, offset: _C, text: _C, /
    ) -> int: ...
    def qi_store_finding_lost(self, store: _C, index: int, /) -> int: ...
    def qi_store_finding_orphans(self, store: _C, index: int, /) -> int: ...
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
        lease_us: int,
        skip_full: bool,
        req_ids: _C,
        /,
    ) -> int: ...
    QI_CHANGE_PUBLISH: int = 0
    QI_CHANGE_ACK: int = 1
    QI_CHANGE_MOVE: int = 2
    QI_CHANGE_DATA: int = 3
    QI_MOVE_FOR_EVER: int = 1
    QI_MOVE_DEAD: int = 2
    QI_EVENT_LEASE_ENDED: int = 1
    QI_EVENT_EXPIRED: int = 2
    QI_EVENT_DIED: int = 3
    QI_EVENT_DROPPED: int = 4
    QI_EVENT_READY: int = 5
    QI_EVENT_ABOVE: int = 6
    QI_EVENT_BELOW: int = 7
    def qi_listener_new(self, store: _C, room: int, kinds: int, listener: _C, /) -> int: ...
    def qi_listener_mark(self, listener: _C, queue: _C, high: int, low: int, /) -> int: ...
    def qi_listener_close(self, listener: _C, /) -> None: ...
    def qi_listener_free(self, listener: _C, /) -> None: ...
    def qi_listener_wait(
        self, listener: _C, events: _C, room: int, missed: _C, until_us: int, pause_us: int, /
    ) -> int: ...
    def qi_listener_arm(self, listener: _C, /) -> int: ...
    def qi_events_came(self, store: _C, /) -> bool: ...
    def qi_had(self, queue: _C, req_ids: _C, counts: _C, count: int, /) -> int: ...
    QI_COUNTS: int = 13
    QI_SYNC_TIMES: int = 24
    QI_COUNTS_NONE: int = 0
    QI_COUNTS_AT_LEAST: int = 1
    QI_COUNTS_EXACT: int = 2
    def qi_queue_counts_of(self, queue: _C, since: _C, before: _C, /) -> int: ...
    QI_SLOW_SYNC_US: Final = 1048576
    def qi_store_on_slow_sync(self, store: _C, tell: _C, /) -> None: ...
    def qi_told_slow(self, store: _C, /) -> None: ...
    def qi_store_counts_of(
        self, store: _C, since: _C, before: _C, syncs: _C, syncs_before: _C, /
    ) -> int: ...
    def qi_publish_mixed(self, store: _C, messages: _C, count: int, failed: _C, /) -> int: ...
    def qi_transaction(
        self, store: _C, changes: _C, count: int, confirm: bool, failed: _C, /
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
    def qi_queue_exists(self, store: _C, name: _C, name_size: int, directory: _C, /) -> int: ...
    def qi_queues_create(
        self, store: _C, count: int, names: _C, name_sizes: _C, directories: _C, /
    ) -> int: ...
    def qi_place_wait(
        self,
        queues: _C,
        count: int,
        messages: int,
        payload: int,
        until_us: int,
        pause_us: int,
        /,
    ) -> int: ...
    def qi_place_arm(self, queues: _C, count: int, messages: int, payload: int, /) -> int: ...
    def qi_places_came(self, store: _C, /) -> bool: ...
    def qi_queue_delete(self, queue: _C, /) -> int: ...
    def qi_queue_rename(
        self, queue: _C, name: bytes, name_size: int, directory: bytes, /
    ) -> int: ...
    def qi_queue_identity(self, queue: _C, identity: _C, /) -> None: ...
    def qi_queue_delete_if(self, queue: _C, conditions: int, /) -> int: ...
    def qi_queue_wanted(self, queue: _C, /) -> int: ...
    def qi_data_get(
        self, store: _C, queue: _C, key: Bytes, key_size: int, value: _C, room: int, /
    ) -> int: ...
    def qi_data_change(
        self, store: _C, queue: _C, entries: Bytes, size: int, confirm: bool, /
    ) -> int: ...
    def qi_data_count(self, store: _C, queue: _C, /) -> int: ...
    def qi_data_all(self, store: _C, queue: _C, entries: _C, room: int, /) -> int: ...
    def qi_data_own(
        self, store: _C, prefix: _C, prefix_size: int, entries: _C, room: int, /
    ) -> int: ...
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
    def qi_lease_of(self, queue: _C, req_id: int, /) -> int: ...
    def qi_deaths_of(self, queue: _C, req_id: int, deaths: _C, room: int, /) -> int: ...
    def qi_queue_set_dead_letters(
        self, queue: _C, name: Bytes, name_size: int, directory: Bytes, /
    ) -> int: ...
    def qi_publish_leased(
        self,
        queue: _C,
        headers: Bytes,
        headers_size: int,
        body: Bytes,
        body_size: int,
        flags: int,
        expiry_us: int,
        due_us: int,
        lease_us: int,
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
    def qi_publish_bodies(
        self,
        queue: _C,
        count: int,
        bodies: _C,
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
    def qi_publish_bodies_leased(
        self,
        queue: _C,
        count: int,
        bodies: _C,
        body_sizes: _C,
        headers: Bytes,
        headers_sizes: _C,
        flags: int,
        expiry_us: int,
        due_us: int,
        per_flags: _C,
        per_expiry_us: _C,
        lease_us: int,
        /,
    ) -> int: ...
    def qi_publish_many_at(
        self,
        queue: _C,
        first: int,
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
    def qi_next_req_id(self, queue: _C, flags: int, due_us: int, /) -> int: ...
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
        lease_us: int,
        /,
    ) -> int: ...
    def qi_get_more(
        self,
        queue: _C,
        count: int,
        messages: _C,
        payloads: _C,
        room: int,
        req_ids: _C,
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
        lease_us: int,
        until_us: int,
        pause_us: int,
        /,
    ) -> int: ...
    def qi_store_clock_us(self, store: _C, /) -> int: ...
    def qi_store_now_us(self, store: _C, /) -> int: ...
    def qi_store_bell(self, store: _C, /) -> int: ...
    def qi_sync_ask(self, store: _C, queue: _C, /) -> int: ...
    def qi_sync_came(self, store: _C, queue: _C, error: _C, /) -> bool: ...
    def qi_store_bell_close(self, store: _C, /) -> None: ...
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
    def qi_ack(self, queue: _C, req_id: int, delivery: int, /) -> int: ...
    def qi_ack_many(self, queue: _C, req_ids: _C, deliveries: _C, count: int, /) -> int: ...
    def qi_nack_many(
        self, queue: _C, req_ids: _C, deliveries: _C, count: int, due_us: int, /
    ) -> int: ...
    def qi_deliveries_held(
        self, queue: _C, req_ids: _C, deliveries: _C, count: int, held: _C, /
    ) -> int: ...
    def qi_touch(self, queue: _C, req_id: int, delivery: int, lease_us: int, /) -> int: ...
    def qi_settle_all(
        self, queue: _C, how: int, req_ids: _C, deliveries: _C, count: int, due_us: int, /
    ) -> int: ...
    def qi_settle_now(
        self, queue: _C, how: int, req_ids: _C, deliveries: _C, count: int, due_us: int, /
    ) -> int: ...
    def qi_touch_now(self, queue: _C, req_id: int, delivery: int, lease_us: int, /) -> int: ...
    def qi_reschedule(self, queue: _C, req_id: int, due_us: int, /) -> int: ...
    def qi_queue_tag(self, queue: _C, /) -> int: ...
    def qi_delete(self, queue: _C, req_id: int, /) -> int: ...
    def qi_queue_set_rules(self, queue: _C, rules: _C, /) -> int: ...
    def qi_redrive(self, queue: _C, most: int, /) -> int: ...
    def qi_purge(self, queue: _C, states: int, /) -> int: ...
    def qi_expire(self, queue: _C, /) -> int: ...
    def qi_queue_sync(self, queue: _C, /) -> int: ...
    def qi_flush(self, queue: _C, /) -> int: ...
    def qi_queue_stats_of(self, queue: _C, stats: _C, /) -> int: ...
    def qi_oldest_us(self, queue: _C, /) -> int: ...
    def qi_index_publish(
        self, queue: _C, count: int, msg_ids: Bytes, sizes: _C, flags: int, /
    ) -> int: ...
    def qi_index_deliver(self, queue: _C, req_ids: _C, count: int, first: int, /) -> int: ...
    def qi_index_ack(self, queue: _C, req_ids: _C, count: int, first: int, /) -> int: ...
    def qi_index_read(
        self, queue: _C, start: int, stop: int, messages: _C, room: int, /
    ) -> int: ...
    def qi_store_open_capsule(self, capsule: _C, options: _C, store: _C, /) -> int: ...
    def qi_store_tick(self, store: _C, /) -> int: ...
    def qi_columns_records(self, data: Bytes, size: int, columns: _C, /) -> int: ...
    def qi_columns_bodies(
        self, identity: Bytes, number: int, data: Bytes, size: int, columns: _C, /
    ) -> int: ...
    def qi_columns_messages(self, queue: _C, stop: int, columns: _C, /) -> int: ...
    def qi_index_files_new(self) -> _C: ...
    def qi_index_files_free(self, files: _C, /) -> None: ...
    def qi_index_files_begin(self, files: _C, path: Bytes, wanted: Bytes, count: int, /) -> int: ...
    def qi_index_files_next(self, files: _C, found: _C, /) -> int: ...
    def qi_weigh(self, paths: Bytes, count: int, with_file: Bytes, sizes: _C, /) -> int: ...
    def qi_terms(
        self,
        data: Bytes,
        size: int,
        pos: _C,
        depth_max: int,
        values_max: int,
        terms: _C,
        room: int,
        /,
    ) -> int: ...
    def qi_rabbit_read_message(self, data: Bytes, size: int, message: _C, /) -> bool: ...
    def qi_rabbit_read_step(self, data: Bytes, size: int, step: _C, /) -> bool: ...
    def qi_rabbit_read_steps(
        self, block: Bytes, size: int, count: int, measure: _C, names: _C, steps: _C, /
    ) -> None: ...
    def qi_ra_read_slots(
        self, table: Bytes, size: int, version: int, file_size: int, slots: _C, /
    ) -> int: ...
    def qi_ra_check_entries(
        self,
        block: Bytes,
        size: int,
        base: int,
        count: int,
        offsets: _C,
        sizes: _C,
        crcs: _C,
        wrong: _C,
        /,
    ) -> int: ...
    def qi_ra_read_records(self, data: Bytes, size: int, records: _C, /) -> int: ...
    def qi_rabbit_segment_clear(self, segment: _C, /) -> None: ...
    def qi_rabbit_segment_scan(
        self, segment: _C, piece: _C, slots: int, damaged: bool, /
    ) -> None: ...
    def qi_rabbit_segment_publish(self, segment: _C, slot: int, entry: _C, /) -> None: ...
    def qi_rabbit_segment_merge(
        self, segment: _C, journal: _C, number: int, slots: int, live: _C, /
    ) -> int: ...
    def qi_rabbit_journal_new(self) -> _C: ...
    def qi_rabbit_journal_free(self, journal: _C, /) -> None: ...
    def qi_rabbit_journal_scan(self, journal: _C, piece: _C, /) -> int: ...
    def qi_rabbit_journal_publish(self, journal: _C, entry: _C, /) -> int: ...
    def qi_rabbit_journal_sort(self, journal: _C, /) -> None: ...
    def qi_rabbit_journal_next(self, journal: _C, slots: int, /) -> int: ...
    def qi_rabbit_segment_gaps(self, segment: _C, number: int, slots: int, gaps: _C, /) -> None: ...
    def qi_rabbit_live_gaps(self, live: _C, count: int, slots: int, gaps: _C, /) -> None: ...
    def qi_rabbit_read_slots(
        self,
        data: Bytes,
        count: int,
        seq: int,
        stored_bytes: int,
        live: _C,
        slots: _C,
        /,
    ) -> None: ...
    def qi_rabbit_places_new(self) -> _C: ...
    def qi_rabbit_places_free(self, places: _C, /) -> None: ...
    def qi_rabbit_places_add(self, places: _C, msg_id: Bytes, place: _C, /) -> int: ...
    def qi_rabbit_store_scan(self, places: _C, piece: _C, file: int, /) -> int: ...
    def qi_rabbit_places_entries(self, places: _C, /) -> int: ...
    def qi_rabbit_places_sort(self, places: _C, /) -> int: ...
    def qi_rabbit_places_count(self, places: _C, /) -> int: ...
    def qi_rabbit_places_find(self, places: _C, msg_id: Bytes, place: _C, /) -> bool: ...
    def qi_rabbit_places_next(self, places: _C, msg_id: Bytes, row: int, place: _C, /) -> int: ...
    def qi_rabbit_places_next_unwanted(self, places: _C, row: int, place: _C, /) -> int: ...
    def qi_rabbit_places_unmark(self, places: _C, /) -> None: ...
    def qi_rabbit_places_unwanted(self, places: _C, size: _C, /) -> int: ...
    def qi_rabbit_next_transient(self, entries: _C, count: int, start: int, /) -> int: ...
    def qi_rabbit_count(
        self,
        entries: _C,
        count: int,
        places: _C,
        mark: bool,
        durable: bool,
        next_deliver: int,
        counts: _C,
        /,
    ) -> None: ...
    def qi_rabbit_make_plan(
        self,
        entries: _C,
        count: int,
        start: int,
        first: int,
        last: int,
        places: _C,
        has_heads: bool,
        room: int,
        plan: _C,
        /,
    ) -> int: ...
    def qi_rabbit_read_rows(
        self,
        plan: _C,
        start: int,
        entries: _C,
        block: _C,
        size: int,
        wish: _C,
        tables: _C,
        tables_room: int,
        rows: _C,
        /,
    ) -> int: ...

ffi: Final[_FFI]
lib: Final[_Lib]
