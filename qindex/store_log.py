"""What a store says to the standard `logging` (lines.py)."""

from __future__ import annotations

from typing import Any

from qindex._core import ffi, lib
from qindex.counters import Syncs
from qindex.lines import say
from qindex.message import Finding

SLOW_BOUND = 2.0  # seconds: what is counted below a higher bound took more than a second


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
