"""A store: one directory of queues that share a message store, opened by one writer at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from qindex._core import ffi, lib
from qindex.arguments import as_bytes, encode_headers, priority_flags, to_due_us, to_expiry_us
from qindex.errors import QueueMissing, StoreClosed, raise_error
from qindex.handle import Closing, SyncPolicy, close_with, directory_of
from qindex.message import Finding, Message
from qindex.queue import Overflow, Queue
from qindex.waiting import Wait

if TYPE_CHECKING:
    from qindex.testing.simulated import SimulatedDisk

COMPACT_PERCENT: Final = 20  # what compact() asks for: files with at least this share of garbage


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Figures of a store; O(number of message files) to collect."""

    queues: int
    message_files: int
    message_bytes: int
    live_bytes: int  # a fan-out message counts by shares: one per queue that has not acked it
    live_references: int
    messages: int  # waiting in the queues that were read so far; dead letters not counted
    bytes: int | None  # of these, headers and bodies; None: the store has no max_bytes
    session: int
    unclean_session: int  # the last session that did not end with close(); 0: none
    findings: int
    segment_entries: int
    embed_below: int
    mapped: bool  # False: appends go through pwrite
    counted: bool  # True: the account of live bytes is complete


class Store(Closing):
    """An open store. Made by qindex.open(); a context manager; safe to use from threads."""

    def __init__(
        self,
        path: str,
        handle: Any,
        *,
        read_only: bool,
        sync_policy: SyncPolicy,
        expire: bool = True,
        disk: SimulatedDisk | None = None,
        counts_bytes: bool = False,
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.sync_policy = sync_policy
        self._expire = expire
        self._handle = handle
        self._counts_bytes = counts_bytes
        self._finalizer = close_with(self, handle, disk)
        self._queues: dict[str, Queue] = {}
        self._closed = False
        self._lock = threading.RLock()  # a signal's handler may close the store in the middle

    def __repr__(self) -> str:
        state = "closed" if self._closed else "read-only" if self.read_only else "open"
        return f"<qindex.Store {self.path!r} {state}>"

    def _open_handle(self) -> Any:
        if self._closed:
            raise StoreClosed("the store is closed")
        return self._handle

    def queue(
        self,
        name: str,
        *,
        create: bool = True,
        ttl: float | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        overflow: Overflow | None = None,
        max_deliveries: int | None = None,
        dead_letters: bool | None = None,
    ) -> Queue:
        """The queue of this name, created durably on first use (some fsyncs, whatever the
        policy; later calls: O(1)).

        The other options say what it does by itself. They are not stored: a call that names any of
        them sets all of them, for as long as the store is open. Name them with the first call: from
        then on messages that expire leave by themselves.

        - `ttl`: seconds after which a message expires that has no shorter ttl of its own, counted
          from when it is ready.
        - `max_messages`, `max_bytes` (headers as they are stored, and bodies): a publish that would
          leave more in the queue (dead letters not counted) raises QueueFull; with
          `overflow="drop-head"` the oldest ready ones of the lowest priority go, and last those
          that were delayed; with `overflow="dead-letter"` they become dead letters
          (`dead_letters=True` has to stand beside it).
        - `max_deliveries`: a message that was delivered so often and given back is not delivered
          again.
        - `dead_letters`: what expired, was rejected (nack(requeue=False)) or delivered too often is
          not dropped, but kept in the queue as a dead letter; see Queue.redrive().

        Raises QueueMissing if it is not there and may not be created, StoreCorrupt if it is beyond
        reading (what is damaged but readable is served, and told in `findings`).
        """
        if not isinstance(name, str):
            raise TypeError(f"a queue's name is a str, not {type(name).__name__}")
        queue = self._find_queue(name, create)
        rules = (ttl, max_messages, max_bytes, overflow, max_deliveries, dead_letters)
        named = any(rule is not None for rule in rules)
        if named or (self._expire and not queue._has_rules):
            with self._lock:  # what another thread named meanwhile stays
                if named or not queue._has_rules:
                    queue._set_rules(
                        ttl,
                        max_messages,
                        max_bytes,
                        overflow or "reject",
                        max_deliveries,
                        bool(dead_letters),
                    )
        return queue

    def _find_queue(self, name: str, create: bool) -> Queue:
        """The queue, as nobody's: it has no rules, so nothing expires by itself."""
        with self._lock:
            handle = self._open_handle()
            found = self._queues.get(name)
            if found is not None:
                return found
            encoded = name.encode("utf-8", "surrogatepass")
            result = ffi.new("qi_queue **")
            code = lib.qi_queue_open(
                handle, encoded, len(encoded), directory_of(name), create, result
            )
            if code == lib.QI_E_MISSING:
                raise QueueMissing(f"there is no queue {name!r} in this store")
            if code < 0:
                raise_error(code)
            return self._queues.setdefault(name, Queue(self, name, result[0]))

    def queues(self) -> list[str]:
        """The names of all queues, sorted; reads one small file per queue not opened yet."""
        handle = self._open_handle()
        count = lib.qi_store_queues(handle)
        if count < 0:
            raise_error(count)
        name = ffi.new("char[]", 65536)
        directory = ffi.new("char[33]")
        names = []
        for index in range(count):
            size = lib.qi_store_queue_name(handle, index, name, 65536, directory)
            if size >= 0:
                decoded = ffi.unpack(name, size).decode("utf-8", "surrogatepass") if size else ""
                if directory_of(decoded) == ffi.string(directory):  # else: its meta is unreadable
                    names.append(decoded)
        return sorted(names)

    def queue_directory(self, name: str) -> str:
        """The folder of a queue, as findings name it: "queues/" and a hash. It need not exist."""
        return f"queues/{directory_of(name).decode()}"

    def __contains__(self, name: str) -> bool:
        return name in self.queues()

    def delete_queue(self, name: str) -> None:
        """Delete a queue with all its messages. Raises QueueMissing."""
        queue = self.queue(name, create=False)
        with self._lock:  # who asks for it meanwhile would keep what is about to go
            if self._queues.get(name) is not queue:
                raise QueueMissing(f"there is no queue {name!r} in this store")
            code = lib.qi_queue_delete(queue._handle)
            if code < 0:
                raise_error(code)
            del self._queues[name]

    def publish(
        self,
        queues: Iterable[str],
        body: bytes | bytearray | memoryview,
        *,
        headers: Mapping[str, Any] | None = None,
        persistent: bool = True,
        ttl: float | None = None,
        expires_at: float | None = None,
        priority: int = 0,
        delay: float | None = None,
        due: float | None = None,
        confirm: bool = False,
    ) -> list[int]:
        """Publish one body to several queues; return its ReqId in each, in the same order.

        A body of embed_below bytes or more is stored once and freed after the last ack. All queues
        get it or none: what can fail is done before the first record. Only a disk that fails
        between the records (DiskError, the text says how many have it) or a crash may leave it in
        the first ones. Other errors as Queue.publish.
        """
        if isinstance(queues, str):
            raise TypeError(
                "queues is a list of names; for one queue use store.queue(name).publish"
            )
        targets = [self.queue(name) for name in queues]
        data = as_bytes(body)
        table = encode_headers(headers)
        handles = ffi.new("qi_queue *[]", [queue._handle for queue in targets])
        req_ids = ffi.new("uint64_t[]", len(targets))
        code = lib.qi_store_publish(
            self._open_handle(),
            handles,
            len(targets),
            table,
            len(table),
            data,
            len(data),
            (0 if persistent else lib.QI_TRANSIENT) | priority_flags(priority),
            to_expiry_us(self._now_us, ttl, expires_at),
            to_due_us(self._now_us, delay, due),
            req_ids,
        )
        if code < 0:
            raise_error(code)
        if confirm or self.sync_policy == "always":
            for queue in targets:
                queue.sync()
        result: list[int] = ffi.unpack(req_ids, len(targets)) if targets else []
        return result

    def _now_us(self) -> int:
        """Microseconds since 1970 by the store's clock, which never runs backwards."""
        return int(lib.qi_store_now_us(self._open_handle()))

    def get(
        self,
        queues: Sequence[str],
        *,
        timeout: float | None = 0,
        lease: float | None = None,
    ) -> Message | None:
        """Take the next message of the first of these queues that has one, in order of preference.

        `timeout`, `lease` and the errors are those of Queue.get(); message.queue says where it came
        from.
        Cost: as Queue.get(), and a look at each queue before it; no thread, no polling.
        """
        if isinstance(queues, str):
            raise TypeError("queues is a list of names; for one queue use store.queue(name).get")
        if not queues:
            raise ValueError("name at least one queue")
        targets = [self.queue(name) for name in queues]
        lease_us = max(queue._to_lease_us(lease) for queue in targets)
        return targets[0]._wait(Wait(self._handle, timeout), targets, lease_us)

    def sync(self) -> None:
        """Return when everything before this call, in all queues, survives a power cut."""
        code = lib.qi_store_sync(self._open_handle())
        if code < 0:
            raise_error(code)

    def compact(self) -> int:
        """Free the space of acked bodies now; return the bytes freed. The background does it too.

        Message files are copied, segment files that are mostly acked are written anew. Cost: reads
        what survives in files with garbage, and the index of all queues.
        """
        freed = lib.qi_store_compact(self._open_handle(), COMPACT_PERCENT)
        if freed < 0:
            raise_error(freed)
        return int(freed)

    def check(self) -> list[Finding]:
        """Read everything, recount every counter, check every checksum; return all findings.

        Changes nothing. Cost: reads the whole store once.
        """
        code = lib.qi_store_check(self._open_handle())
        if code < 0:
            raise_error(code)
        return self.findings

    @property
    def findings(self) -> list[Finding]:
        """What recovery (and check) found since open: damage, and notes that explain themselves."""
        handle = self._open_handle()
        damage, offset = ffi.new("bool *"), ffi.new("uint64_t *")
        where, text = ffi.new("char **"), ffi.new("char **")
        found: list[Finding] = []
        while lib.qi_store_finding(handle, len(found), damage, where, offset, text) == 0:
            found.append(
                Finding(
                    "damage" if damage[0] else "note",
                    ffi.string(where[0]).decode("utf-8", "replace"),
                    offset[0],
                    ffi.string(text[0]).decode("utf-8", "replace"),
                )
            )
        return found

    def stats(self) -> StoreStats:
        """All figures of the store at one moment."""
        s = ffi.new("qi_store_stats *")
        code = lib.qi_store_stats_of(self._open_handle(), s)
        if code < 0:
            raise_error(code)
        return StoreStats(
            s.queues,
            s.message_files,
            s.message_bytes,
            s.live_bytes,
            s.live_references,
            s.messages,
            s.bytes if self._counts_bytes else None,
            s.session,
            s.unclean_session,
            s.findings,
            s.segment_entries,
            s.embed_below,
            s.mapped,
            s.counted,
        )

    def close(self) -> None:
        """Sync everything and mark the end as clean. Closing twice is allowed.

        Unacked messages are ready again at the next open, and say so (redelivered). Raises
        StoreFailed if a write or a sync failed before, in the background too: then the store is
        closed, but what was not confirmed may be lost.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            code = lib.qi_store_close(self._handle)
        if code < 0:
            raise_error(code)
