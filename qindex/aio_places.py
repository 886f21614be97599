"""Tasks that wait for a place in a full queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from qindex._core import lib
from qindex.aio_line import until_woken
from qindex.errors import QueueFull, StoreFull, raise_error

if TYPE_CHECKING:
    import qindex.queue
    from qindex.aio_store import Store

T = TypeVar("T")

_LOOK: Final = 1.0  # seconds: what time alone changes wakes nobody


class Places:
    """Of one queue. One task looks for a place, the others stand behind it in line.

    So a place that becomes free wakes one task, not all of them, and a message that needs much
    room is not passed by those that need little.
    """

    def __init__(self, store: Store, queue: qindex.queue.Queue) -> None:
        self._store = store
        self._queue = queue
        self._turn = asyncio.Lock()

    async def publish(
        self, publish: Callable[[], Awaitable[T]], timeout: float | None, count: int, size: int
    ) -> T:
        """What `publish` returns once it is not refused, or is refused when the time is over.

        A publish that has begun is not cut off by the end of the time: it may have been made.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                await self._turn.acquire()
        except TimeoutError:
            return await publish()
        try:
            while True:
                try:
                    return await publish()
                except (QueueFull, StoreFull):
                    left = None if deadline is None else deadline - loop.time()
                    if left is not None and left <= 0:
                        raise
                await self._place(_LOOK if left is None else min(left, _LOOK), count, size)
        finally:
            self._turn.release()

    async def _place(self, seconds: float, count: int, size: int) -> None:
        """Wait for one, so long at most. Raises QueueFull or StoreFull if it will never come."""

        async def arm() -> bool:
            code = await self._store._run(lib.qi_place_arm, self._queue._handle, count, size)
            if code < 0:
                await self._store._run(self._refused, count, size)
            return bool(code == 0)

        deadline = asyncio.get_running_loop().time() + seconds
        await until_woken(self._store._for_places, arm, deadline)

    def _refused(self, count: int, size: int) -> None:
        """Raise the error, in the thread in which the core tells it."""
        code = lib.qi_place_arm(self._queue._handle, count, size)
        if code < 0:
            raise_error(code)
