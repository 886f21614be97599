"""What a store says to the standard `logging`: the logger is "qindex.store".

logging is loaded when there is something to say, so that importing qindex stays cheap. Without a
handler of the program's own nothing is printed.
"""

from __future__ import annotations

from typing import Any

from qindex._core import ffi, lib
from qindex.message import Finding

LOGGER = "qindex.store"


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

    def opened(self) -> None:
        """INFO if the session before this one did not end with close(); then as findings()."""
        stats = ffi.new("qi_store_stats *")
        if lib.qi_store_stats_of(self._handle, stats) == 0:
            before = stats.unclean_session
            if before and before == stats.session - 1:
                _say(
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
            _say("INFO" if finding.severity == "note" else "WARNING", "%s: %s", self._path, finding)

    def failed(self, error: BaseException) -> None:
        """ERROR: a close that found that a write or a sync had failed."""
        _say("ERROR", "%s: %s", self._path, error)


def _say(level: str, text: str, *arguments: object) -> None:
    import logging

    log = logging.getLogger(LOGGER)
    if not log.handlers:  # else logging would print it on stderr if nobody has set it up
        log.addHandler(logging.NullHandler())
    log.log(getattr(logging, level), text, *arguments)
