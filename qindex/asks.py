"""Syncs that an event loop waits for: a thread of the core makes them, and needs no GIL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from qindex._core import ffi, lib
from qindex.errors import raise_error

Ended = Callable[[Exception | None], None]
"""Hears that a sync has ended, and its error."""


class Asks:
    """Of one store. Who has this watches the store's descriptor (qi_store_bell) for the loop."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._ended: dict[Any, Ended] = {}
        self._queue = ffi.new("qi_queue **")
        self._error = ffi.new("int *")

    def sync(self, queue: Any, ended: Ended) -> None:
        """Begin a sync of a queue, or of all with ffi.NULL; one at a time of each. `ended` is
        called in heard(). Raises what prevents that it begins.
        """
        code = lib.qi_sync_ask(self._handle, queue)
        if code < 0:
            raise_error(code)
        self._ended[queue] = ended

    def heard(self) -> None:
        """The descriptor became readable, and was read."""
        with ExitStack() as calls:  # all of them, whatever one of them raises
            while lib.qi_sync_came(self._handle, self._queue, self._error):
                ended = self._ended.pop(self._queue[0])
                calls.callback(ended, _error(self._error[0]))


def _error(code: int) -> Exception | None:
    """The error that this thread's last call into the core has told: MemoryError is one, too."""
    if code == 0:
        return None
    try:
        raise_error(code)
    except Exception as error:
        return error
