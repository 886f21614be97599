"""Group commit on an event loop: tasks that wait for the same sync of a queue share it.

A turn of the loop costs as much as a tenth of a sync. So there is no task for a sync, but a future
for each task that waits, and one callback. And a sync that only one task waits for begins in the
turn in which it is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from qindex.errors import DiskError, DiskFull, OutcomeUnknown, StoreClosed, in_doubt

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
        self._loop = store._loop
        self._asks = store._asks
        self._handle = queue._handle
        self._begins = begins
        self._is_running = False
        self._is_shared = False  # several tasks waited for the last one
        self._waiting: list[asyncio.Future[None]] = []  # for the sync that begins next

    async def join(self) -> None:
        """Wait for a sync that begins after this call, or for that of a close. Raises its error."""
        self._store._refuse_elsewhere()
        waiting = self._waiting
        if not self._is_running:
            self._is_running = True
            if self._is_shared:  # this one may be, too, by other tasks of this turn
                self._loop.call_soon(self._begin)
            else:
                self._begin()
        woken: asyncio.Future[None] = self._loop.create_future()
        waiting.append(woken)
        await woken  # a task that is cancelled takes only its own future along

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        settle = self._begins()
        try:
            self._asks.sync(self._handle, partial(self._ended, settle, waiting))
        except StoreClosed as error:
            ending = self._store._ending
            if ending is None:
                self._loop.call_soon(self._ended, settle, waiting, error)
            else:  # the close syncs what was appended before it
                ending.add_done_callback(partial(self._closed, settle, waiting))
        except Exception as error:  # there is no memory for a thread
            self._loop.call_soon(self._ended, settle, waiting, error)

    def _closed(
        self,
        settle: Callable[[], None],
        waiting: list[asyncio.Future[None]],
        ending: asyncio.Future[None],
    ) -> None:
        error = ending.exception()
        self._ended(settle, waiting, None if error is None else in_doubt(error))

    def _ended(
        self,
        settle: Callable[[], None],
        waiting: list[asyncio.Future[None]],
        error: Exception | None,
    ) -> None:
        self._is_shared = len(waiting) > 1
        if error is None:
            settle()
        elif isinstance(error, OutcomeUnknown):  # also of what the next one was to cover
            waiting, self._waiting = waiting + self._waiting, []
        elif isinstance(error, DiskFull | DiskError):  # what the sync was for is done
            error = in_doubt(error)
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
