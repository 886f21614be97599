"""What a store says to the standard `logging` (lines.py)."""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from qindex._core import ffi, lib
from qindex.counters import Syncs, counters_of_store
from qindex.lines import say
from qindex.message import Finding

if TYPE_CHECKING:
    from qindex.store import Store

SLOW_BOUND = 2.0  # seconds: what is counted below a higher bound took more than a second

_open: Final[weakref.WeakValueDictionary[int, Store]] = weakref.WeakValueDictionary()


def listen(store: Store) -> None:
    """From now on, slow syncs of this store are told soon after they happen."""
    address = int(ffi.cast("uintptr_t", store._handle))
    _open[address] = store
    lib.qi_store_on_slow_sync(store._handle, lib.qi_told_slow)


@ffi.def_extern()
def qi_told_slow(handle: Any) -> None:
    """Called by the core's background thread, which may not wait for a handler of the program's."""
    store = _open.get(int(ffi.cast("uintptr_t", handle)))
    if store is not None:
        with suppress(RuntimeError):  # the interpreter ends: the close tells it
            threading.Thread(target=_tell, args=(store,), name="qindex log", daemon=True).start()


def _tell(store: Store) -> None:
    with store._lock:
        if not store._closed:  # else the close has told it
            store._log.syncs(counters_of_store(store._handle)[1])


def finding_at(handle: Any, index: int) -> Finding | None:
    """The store's finding of this number, without its queue; None: there are not so many."""
    damage, offset = ffi.new("bool *"), ffi.new("uint64_t *")
    where, text = ffi.new("char **"), ffi.new("char **")
    if lib.qi_store_finding(handle, index, damage, where, offset, text) != 0:
        return None
    return Finding(
        "damage" if damage[0] else "note",
        ffi.string(where[0]).decode("utf-8", "replace"),
        offset[0],
        ffi.string(text[0]).decode("utf-8", "replace"),
        lost=lib.qi_store_finding_lost(handle, index),
        orphans=lib.qi_store_finding_orphans(handle, index),
    )


class StoreLog:
    """Of one open store. The caller sees to it that one thread at a time calls it."""

    def __init__(self, path: str, handle: Any) -> None:
        self._path = path
        self._handle = handle
        self._told = 0
        self._slow = 0  # syncs that were told as slow ones

    def opened(self) -> None:
        """INFO if the session before this one did not end with close(); then as findings()."""
        stats = ffi.new("qi_store_stats *")
        if lib.qi_store_stats_of(self._handle, stats) == 0:
            before = stats.unclean_session
            if before and before == stats.session - 1:
                say(
                    "INFO",
                    "%s: session %d did not end with close(): each queue is recovered at its first"
                    " use",
                    self._path,
                    before,
                )
        self.findings()

    def findings(self) -> None:
        """WARNING for each damage, INFO for each note, that was not told yet."""
        while (finding := finding_at(self._handle, self._told)) is not None:
            self._told += 1
            say("INFO" if finding.severity == "note" else "WARNING", "%s: %s", self._path, finding)

    def syncs(self, syncs: Syncs) -> None:
        """WARNING if a sync since the last time has taken more than a second."""
        slow = sum(number for bound, number in syncs.histogram.items() if bound > SLOW_BOUND)
        if slow > self._slow:
            say(
                "WARNING",
                "%s: %d of %d syncs took more than a second, the longest one %.1f s: publishers"
                " that wait for a confirm wait that long",
                self._path,
                slow,
                syncs.count,
                syncs.longest,
            )
            self._slow = slow

    def failed(self, error: BaseException) -> None:
        """ERROR: a close that found that a write or a sync had failed."""
        say("ERROR", "%s: %s", self._path, error)
