"""Group commit on an event loop: tasks that wait for the same sync of a queue share it.

A confirm goes to a thread and back, and each turn of the loop on that way costs as much as a tenth
of a sync. So there is no task for it: a future for each that waits, and one callback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import qindex.queue
    from qindex.aio_store import Store


class GroupSync:
    """One sync at a time. All that ask while one runs share the next one, which covers them.

    `begins` is called before each sync; what it returns is called when the sync has succeeded.
    """

    def __init__(
        self, store: Store, queue: qindex.queue.Queue, begins: Callable[[], Callable[[], None]]
    ) -> None:
        self._store = store
        self._sync = queue._confirm
        self._begins = begins
        self._is_running = False
        self._waiting: list[asyncio.Future[None]] = []  # for the sync that begins next

    async def join(self) -> None:
        """Wait for a sync that begins after this call. Raises what it raises."""
        woken: asyncio.Future[None] = self._store._loop.create_future()
        self._waiting.append(woken)
        if not self._is_running:
            self._is_running = True
            self._store._loop.call_soon(self._begin)  # so that tasks of the same turn share it
        await woken  # a task that is cancelled takes only its own future along

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        settle = self._begins()
        try:
            running = self._store._submit(self._sync)
        except BaseException as error:  # the store is closed
            self._is_running = False
            _wake(waiting, error)
            return
        running.add_done_callback(partial(self._ended, settle, waiting))

    def _ended(
        self,
        settle: Callable[[], None],
        waiting: list[asyncio.Future[None]],
        running: ThreadFuture[None],
    ) -> None:
        """In the thread that has synced."""
        error = None if running.cancelled() else running.exception()
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._store._loop.call_soon_threadsafe(self._over, settle, waiting, error)

    def _over(
        self,
        settle: Callable[[], None],
        waiting: list[asyncio.Future[None]],
        error: BaseException | None,
    ) -> None:
        if error is None:
            settle()
        _wake(waiting, error)
        self._is_running = bool(self._waiting)
        if self._is_running:
            self._begin()


def _wake(waiting: list[asyncio.Future[None]], error: BaseException | None) -> None:
    for woken in waiting:
        if woken.done():  # its task was cancelled
            continue
        if error is None:
            woken.set_result(None)
        else:
            woken.set_exception(error)
