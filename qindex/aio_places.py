"""Tasks that wait for places in full queues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from qindex._core import ffi, lib
from qindex.aio_line import until_woken
from qindex.errors import QueueFull, StoreFull, raise_error

if TYPE_CHECKING:
    import qindex.queue
    from qindex.aio_store import Store

T = TypeVar("T")

_LOOK: Final = 1.0  # seconds: what time alone changes wakes nobody


class Turn:
    """Of one queue. The task whose turn it is looks for a place, the others stand behind it.

    So a place that becomes free wakes one task, not all of them, and a message that needs much
    room is not passed by those that need little.
    """

    def __init__(self, queue: qindex.queue.Queue) -> None:
        self.queue = queue
        self.lock = asyncio.Lock()


async def publish_in_turn(
    store: Store,
    turns: Sequence[Turn],
    publish: Callable[[], Awaitable[T]],
    timeout: float | None,
    count: int,
    size: int,
) -> T:
    """What `publish` returns once it is not refused, or is refused when the time is over.

    In each of the queues it needs a place for `count` messages with `size` bytes; in one that is
    named twice, for twice as many. What could never have one does not stand in line. A publish that
    has begun is not cut off by the end of the time: it may have been made.
    """
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + timeout
    handles = ffi.new("qi_queue *[]", [turn.queue._handle for turn in turns])

    def ask() -> bool:
        """In a thread. False: there are places; QueueFull, StoreFull: they will never come."""
        code = lib.qi_place_arm(handles, len(turns), count, size)
        if code < 0:
            raise_error(code)
        return bool(code == 0)

    async with AsyncExitStack() as taken:
        try:
            async with asyncio.timeout_at(deadline):
                if any(turn.lock.locked() for turn in turns):
                    await store._run(ask)
                for turn in _in_order(turns):
                    await taken.enter_async_context(turn.lock)
        except TimeoutError:
            return await publish()
        while True:
            try:
                return await publish()
            except (QueueFull, StoreFull):
                now = loop.time()
                if deadline is not None and now >= deadline:
                    raise
            until = now + _LOOK if deadline is None else min(now + _LOOK, deadline)
            await until_woken(store._for_places, partial(store._run, ask), until)


def _in_order(turns: Iterable[Turn]) -> list[Turn]:
    """Each once, in one order for all tasks: so no two wait for each other."""
    return sorted(set(turns), key=id)
