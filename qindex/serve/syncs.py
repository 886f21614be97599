"""The syncs of a store that the server's event loop waits for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import qindex
from qindex._core import ffi, lib
from qindex.asks import Asks
from qindex.errors import raise_error


class LoopSyncer:
    """A Syncer (qindex.broker.durable): the store's own thread syncs, and wakes the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: qindex.Store) -> None:
        self._loop = loop
        self._store = store
        self._handle = store._open_handle()
        self._asks = Asks(self._handle)
        self._bell: int = lib.qi_store_bell(self._handle)
        if self._bell < 0:
            raise_error(self._bell)
        loop.add_reader(self._bell, self._heard)

    def sync(self, ended: Callable[[BaseException | None], None]) -> None:
        try:
            self._asks.sync(ffi.NULL, ended)
        except Exception as error:  # the store is closed, or there is no memory for a thread
            self._loop.call_soon(ended, error)

    def _heard(self) -> None:
        os.read(self._bell, 8)
        self._asks.heard()

    def close(self) -> None:
        self._loop.remove_reader(self._bell)
        lib.qi_store_bell_close(self._handle)
