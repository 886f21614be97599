"""A store: a directory of queues. One process at a time has it open for writing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, Final, cast

from qindex._core import ffi, lib
from qindex.any_queue import AnyQueue
from qindex.arguments import (
    Seconds,
    boolean,
    queue_name,
    several,
    to_lease_us,
)
from qindex.buffers import BatchReader, Reader
from qindex.configuring import check_rules
from qindex.consumer import Consuming
from qindex.copies import Copied
from qindex.counters import counters_of_store
from qindex.data import Mapped
from qindex.errors import QindexError, QueueMissing, StoreClosed, raise_error
from qindex.events import Told
from qindex.fanout import FanOut
from qindex.figures import QueueStats, StoreStats
from qindex.handle import (
    Closing,
    Disk,
    close_with,
    directory_of,
    listed,
    refuse_misplaced,
)
from qindex.message import Finding, Message
from qindex.mixed import Mixed
from qindex.options import SyncPolicy
from qindex.queue import Queue
from qindex.queue_life import QueueLife, Watch
from qindex.renaming import Renaming
from qindex.rules import Changes, Overflow, Settings
from qindex.store_log import StoreLog, finding_at
from qindex.transaction import Transactions
from qindex.waiting import Wait
from qindex.wakes import Wakes

COMPACT_PERCENT: Final = 20  # compact() copies files of which at least this share is garbage


class Store(
    Closing,
    AnyQueue,
    Consuming,
    Copied,
    FanOut,
    Mapped,
    Mixed,
    QueueLife,
    Renaming,
    Told,
    Transactions,
):
    """An open store: made by qindex.open(), closed by close() or at the end of a `with` block.

    Any number of threads may use it. One process at a time may have a store open for writing; a
    handle that came through a fork raises StoreForked. Every method raises StoreClosed once the
    store is closed, and StoreFailed once a sync has failed.
    """

    def __init__(
        self,
        path: str,
        handle: Any,
        *,
        read_only: bool,
        sync_policy: SyncPolicy,
        expire: bool = True,
        disk: Disk | None = None,
        counts_bytes: bool = False,
    ) -> None:
        super().__init__()
        self.path = path
        self.read_only = read_only
        self.sync_policy = sync_policy
        self._expire = expire
        self._handle = handle
        self._counts_bytes = counts_bytes
        self._finalizer = close_with(self, handle, disk)
        self._queues: dict[str, Queue] = {}
        self._readers: list[Reader] = []  # at most as many as calls were under way at the same time
        self._batch_readers: list[BatchReader] = []
        self._closed = False
        self._backing_up = threading.Lock()
        self._log = StoreLog(path, handle)
        self._has_data: bool | None = None  # not asked for yet
        self._has_missed = False  # the core has looked for queues without a folder
        # A signal handler may close the store while the main thread holds the lock: so reentrant.
        self._lock = threading.RLock()
        self._watch = Watch(self)
        self._wakes = Wakes(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "read-only" if self.read_only else "open"
        return f"<qindex.Store {self.path!r} {state}>"

    def _open_handle(self) -> Any:
        if self._closed:
            raise StoreClosed("the store is closed")
        return self._handle

    @property
    def _stores_settings(self) -> bool:
        """Its format, as of the open, has a place for them."""
        if self._has_data is None:
            count = lib.qi_data_count(self._open_handle(), ffi.NULL)
            if count < 0 and count != lib.QI_E_FORMAT:
                raise_error(count)
            self._has_data = count >= 0
        return self._has_data

    def queue(
        self,
        name: str,
        *,
        create: bool = True,
        ttl: Seconds | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        overflow: Overflow | None = None,
        max_deliveries: int | None = None,
        dead_letters: bool | str | None = None,
        lease: Seconds | None = None,
        expires: Seconds | None = None,
    ) -> Queue:
        """The queue of this name; it is created on first use unless `create` is False.

        The other options are the queue's settings. In a store of format 2 they are stored: a call
        changes what it names, durably, and the rest stays as it is; see also Queue.configure(). In
        one of format 1 they are not. A call that names one of them sets all of them there, for as
        long as the store is open, so name all in one place, with the first call.

        - `ttl`: seconds after which a message expires that has no shorter ttl of its own, counted
          from when it is ready.
        - `max_messages`, `max_bytes`: a publish that would leave more in the queue is refused with
          QueueFull. Bytes are those of headers, as they are stored, and bodies. Dead letters do not
          count.
        - `overflow`: what such a publish does instead; only beside one of these limits.
          "drop-head": ready messages go, the lowest priority first; of a priority the oldest first,
          then those that were delayed, by their times. "dead-letter": these become dead letters;
          `dead_letters`, True or a name, has to stand beside it.
        - `max_deliveries` (1 to 65,535): a message that was delivered so often and given back is
          not delivered again.
        - `dead_letters`: True to keep, as dead letters, messages that expired, were rejected with
          nack(requeue=False) or delivered too often. Otherwise they are dropped. See
          Queue.redrive(). The name of another queue: they move there as soon as they can, with
          headers, delivery counts and `deaths`, and expire no more; after any crash a message is in
          one of the two queues. While that queue is missing or full they stay, as with True, and a
          finding says so. So does one that would go round between queues for ever without having
          been delivered. Format 2.
        - `lease`: seconds after which a delivered message is ready again if it is not settled. A
          lease that get() or the message names goes before it.
        - `expires`: seconds without any use after which the queue is deleted with its messages, at
          most a quarter later. A use is a get, a wait, a message that somebody has, and queue(); a
          publish is none. The time begins anew when the store is opened.

        Raises QueueMissing if the queue is not there and may not be created, or the one for its
        dead letters is not there when it is named; StoreCorrupt if it
        cannot be read at all. (What is damaged but readable is served and reported in `findings`.)

        Cost: some syncs to create a queue, whatever the policy; later calls O(1).
        """
        queue_name(name)
        given = {
            "ttl": ttl,
            "max_messages": max_messages,
            "max_bytes": max_bytes,
            "overflow": overflow,
            "max_deliveries": max_deliveries,
            "dead_letters": dead_letters,
            "lease": lease,
            "expires": expires,
        }
        named = cast("Changes", {key: rule for key, rule in given.items() if rule is not None})
        if boolean("create", create) and name not in self._queues:
            if named and name not in self:
                check_rules(self, name, Settings()._changed(named))  # before there is a queue
            self._open_queue(name, create)  # threads that create at once share syncs
        with self._lock:  # else it could be deleted meanwhile, as one that nobody uses
            queue = self._ruled_queue(name, create, named)
            self._watch.used(name)
        return queue

    def _ruled_queue(self, name: str, create: bool, named: Changes | None = None) -> Queue:
        """As queue(), but for a publish: that is no use of the queue."""
        queue = self._find_queue(name, create)
        if named or (self._expire and not queue._has_rules):
            with self._lock:  # rules that another thread has named meanwhile stay as they are
                if named or not queue._has_rules:
                    queue._take_rules(named or Changes())
        return queue

    def _find_queue(self, name: str, create: bool) -> Queue:
        """The queue without any rules: nothing in it expires by itself."""
        with self._lock:
            self._open_handle()
            if (found := self._queues.get(name)) is not None:
                found._is_fresh = False
                return found
            opened = self._open_queue(name, create)
            queue = self._queues[name] = Queue(self, name, opened)
            self._by_tag[lib.qi_queue_tag(opened)] = queue
            self._log.findings()
            return queue

    def _open_queue(self, name: str, create: bool) -> Any:
        encoded = name.encode("utf-8", "surrogatepass")
        result = ffi.new("qi_queue **")
        code = lib.qi_queue_open(
            self._open_handle(), encoded, len(encoded), directory_of(name), create, result
        )
        if code == lib.QI_E_MISSING:
            raise QueueMissing(f"there is no queue {name!r} in this store")
        if code < 0:
            raise_error(code)
        return result[0]

    def queues(self) -> list[str]:
        """The names of all queues, sorted. Reads a small file for each that was not opened yet."""
        found = listed(self._open_handle())
        return sorted(name for name, folder in found if directory_of(name) == folder)

    def queue_directory(self, name: str) -> str:
        """The folder of a queue of this name, as findings name it: "queues/" and a hash.

        The queue need not exist.
        """
        return f"queues/{directory_of(name).decode()}"

    def __contains__(self, name: object) -> bool:
        """True if there is a queue of this name. Reads a small file if it was not opened yet."""
        if not isinstance(name, str):
            return False
        encoded = name.encode("utf-8", "surrogatepass")
        code = lib.qi_queue_exists(self._open_handle(), encoded, len(encoded), directory_of(name))
        if code < 0:
            raise_error(code)
        return bool(code)

    def _now_us(self) -> int:
        """Microseconds since 1970 by the wall clock of the store's disk."""
        return int(lib.qi_store_now_us(self._open_handle()))

    def get(
        self,
        queues: Sequence[str],
        *,
        timeout: Seconds | None = 0,
        lease: Seconds | None = None,
        create: bool = False,
    ) -> Message | None:
        """Take the next message of the first of these queues that has one.

        Name the queues in order of preference; `message.queue` says which one it came from.
        `timeout`, `lease` and the errors are those of Queue.get().

        Cost: as Queue.get(), and a look at each queue before the one that has a message. Waiting
        needs no other thread and no polling.
        """
        queues = several("queues", queues, "names", "store.queue(name).get()")
        if not queues:
            raise ValueError("name at least one queue")
        targets = [self.queue(name, create=create) for name in queues]
        lease_us = to_lease_us(lease)
        return targets[0]._wait(Wait(self._handle, timeout), targets, lease_us)

    def sync(self) -> None:
        """Return when everything before this call, in all queues, survives a power cut.

        Raises OutcomeUnknown if the disk failed the sync. Cost: one or two syncs for each queue
        that has changed.
        """
        code = lib.qi_store_sync(self._open_handle())
        if code < 0:
            raise_error(code)

    def compact(self) -> int:
        """Free the space of acked bodies now; return the bytes freed.

        The background thread does the same when it pays. Message files with garbage are copied
        without it, and segment files that are mostly acked are written anew.

        Raises StoreCorrupt if a queue is damaged, or its folder is another queue's. Cost: reads the
        index of all queues, and what is alive in files with garbage.
        """
        refuse_misplaced(self._open_handle())
        freed = lib.qi_store_compact(self._open_handle(), COMPACT_PERCENT)
        if freed < 0:
            raise_error(freed)
        return int(freed)

    def check(self) -> list[Finding]:
        """Read everything, recount every counter, verify every checksum; return all findings.

        Changes nothing. Cost: reads the whole store once.
        """
        refuse_misplaced(self._open_handle())
        code = lib.qi_store_check(self._open_handle())
        if code < 0:
            raise_error(code)
        with self._lock:
            self._log.findings()
        return self.findings

    @property
    def findings(self) -> list[Finding]:
        """What recovery and check() have found since the open: damage, and notes.

        A note explains itself, such as the torn last record that a power cut leaves. Queues whose
        folders somebody removed are damage, too, where that can be known: in format 2, behind an
        end with close(). A finding stays also when what it says is over, as with dead letters that
        could not move for a time.

        Cost: the first time a small file for each queue; if a finding is about a queue, a hash of
        each queue's name.
        """
        handle = self._open_handle()
        self._miss_queues()
        found: list[Finding] = []
        while (finding := finding_at(handle, len(found))) is not None:
            found.append(finding)
        if any(finding.folder for finding in found):
            names = {self.queue_directory(name): name for name in self.queues()}
            found = [replace(each, queue=names.get(each.folder)) for each in found]
        return found

    def _miss_queues(self) -> None:
        """Once: look for queues without a folder. The core adds a finding, and the log gets it."""
        if not self._has_missed:
            self._has_missed = lib.qi_store_queues(self._open_handle()) >= 0
            with self._lock:
                self._log.findings()

    def stats(self) -> StoreStats:
        """All figures of the store. O(number of message files and of queues that were used)."""
        s = ffi.new("qi_store_stats *")
        code = lib.qi_store_stats_of(self._open_handle(), s)
        if code < 0:
            raise_error(code)
        figures = {f.name: getattr(s, f.name) for f in fields(StoreStats) if hasattr(s, f.name)}
        counters, syncs, lifetime_syncs = counters_of_store(self._handle)
        with self._lock:
            self._log.syncs(syncs)
        figures |= {"counters": counters, "syncs": syncs, "lifetime_syncs": lifetime_syncs}
        if not self._counts_bytes:
            figures["bytes"] = None
        return StoreStats(**figures)

    def stats_all(self) -> list[QueueStats]:
        """The figures of all queues, sorted by their names; each queue's are of one moment.

        Cost: as Queue.stats() for each queue. A queue that nothing has used since the open is read
        for it: its journals, and what is named there.
        """
        found = []
        for name in self.queues():
            with suppress(QueueMissing, StoreClosed):  # deleted meanwhile
                found.append(self._find_queue(name, create=False).stats())
        self._open_handle()  # else it was not the queues that were closed
        return found

    def close(self) -> None:
        """Sync everything and mark the end as clean. Closing twice is allowed.

        Unacked messages are ready again at the next open, marked `redelivered`. Waits for messages
        end with StoreClosed.

        Raises StoreFailed if a write or a sync had failed before, also in the background: the store
        is closed then, but what was not confirmed may be lost.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._watch.stop()
            self._wakes.stop()
            self._log.findings()
            with suppress(QindexError):  # it has failed: the close says so
                self._log.syncs(counters_of_store(self._handle)[1])
            code = lib.qi_store_close(self._handle)
        if code < 0:
            try:
                raise_error(code)
            except QindexError as error:
                self._log.failed(error)
                raise
