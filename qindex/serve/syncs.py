"""The syncs of a store that the server's event loop waits for."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Final

import qindex
from qindex._core import ffi, lib
from qindex.asks import Asks
from qindex.errors import raise_error

ALONE_BYTES_MAX: Final = 8 * 1024
_ALONE_SECONDS: Final = 0.001
_ALONE_ROUNDS: Final = 4
_WEIGHT: Final = 1 / 8  # of the last sync in the mean


class Reads:
    """What clients have sent since the server began: how many reads, how many bytes."""

    def __init__(self) -> None:
        self.count = self.size = 0


class Alone:
    """Whether the loop may make the next sync itself.

    The thread's sync leaves the loop free for others, and costs two wake-ups. A client that waits
    for each of its confirms waits for these, too, and there is nobody else whom a sync in the loop
    would keep waiting: one small read has come between a sync and the next one, several times in a
    row, and syncs are short. The first round that is not like this ends it. One that the disk was
    busy with does not, but one that stood still for 8 ms does, until the mean is short again.
    """

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._count = self._size = 0  # of the reads before the sync before
        self._rounds = 0
        self._seconds = 0.0  # that a sync takes: a mean in which the last ones count most

    def begins(self) -> bool:
        """A sync begins now. True: the loop may make it."""
        count, size = self._reads.count - self._count, self._reads.size - self._size
        self._count, self._size = self._reads.count, self._reads.size
        if count != 1 or size > ALONE_BYTES_MAX:
            self._rounds = 0
            return False
        self._rounds += 1
        return self._rounds > _ALONE_ROUNDS and self._seconds < _ALONE_SECONDS

    def took(self, seconds: float) -> None:
        """The sync has taken so long."""
        self._seconds += (seconds - self._seconds) * _WEIGHT


class LoopSyncer:
    """A Syncer (qindex.broker.durable): the store's own thread syncs, and wakes the loop; or the
    loop itself, where one client waits for its confirms one by one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, reads: Reads, store: qindex.Store) -> None:
        self._loop = loop
        self._store = store
        self._alone = Alone(reads)
        self._handle = store._open_handle()
        self._asks = Asks(self._handle)
        self._bell: int = lib.qi_store_bell(self._handle)
        if self._bell < 0:
            raise_error(self._bell)
        loop.add_reader(self._bell, self._heard)

    def sync(self, ended: Callable[[BaseException | None], None]) -> None:
        begun = time.monotonic()
        is_alone = self._alone.begins()

        def timed(error: BaseException | None) -> None:
            self._alone.took(time.monotonic() - begun)
            ended(error)

        try:
            if is_alone:
                self._store.sync()
            else:
                self._asks.sync(ffi.NULL, timed)
        except Exception as error:  # the disk, or the store is closed, or no memory for a thread
            self._loop.call_soon(ended, error)
        else:
            if is_alone:
                timed(None)

    def _heard(self) -> None:
        os.read(self._bell, 8)
        self._asks.heard()

    def close(self) -> None:
        self._loop.remove_reader(self._bell)
        lib.qi_store_bell_close(self._handle)
