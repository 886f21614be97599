"""What tasks wait for on an event loop, in line: a queue, or what a consumer may do."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from qindex.arguments import Moment, Seconds
from qindex.message import Message

BREATH: Final = 64  # calls done at once, after which other tasks have a turn
RECORD: Final = 64  # about the bytes that a message takes besides its body


async def until_woken(
    waiters: list[asyncio.Future[None]],
    arm: Callable[[], Awaitable[bool]],
    deadline: float | None,
) -> None:
    """Wait until all of `waiters` are woken, or until `deadline` on the loop's clock.

    `arm` asks for that. It returns False if there is nothing to wait for any more.
    """
    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiters.append(woken)  # before arm(): what happens from here on wakes this task
    try:
        if await arm():
            async with asyncio.timeout_at(deadline):
                await woken
    except TimeoutError:
        pass
    finally:
        if woken in waiters:
            waiters.remove(woken)


def unusual(
    headers: Mapping[str, Any] | None,
    persistent: bool,
    ttl: Seconds | None,
    expires_at: Moment | None,
    redelivered: bool,
    priority: int,
    delay: Seconds | None,
    due: Moment | None,
    lease: Seconds | None,
) -> dict[str, Any]:
    """Those options of a publish that are not as usual: each that is handed on takes time."""
    options: dict[str, Any] = {}
    if headers is not None:
        options["headers"] = headers
    if priority != 0 or priority is False:
        options["priority"] = priority
    if delay is not None:
        options["delay"] = delay
    if persistent is not True:
        options["persistent"] = persistent
    if redelivered is not False:
        options["redelivered"] = redelivered
    if not ttl is expires_at is due is lease is None:
        options |= {"ttl": ttl, "expires_at": expires_at, "due": due, "lease": lease}
    return options


def give_back_unseen(messages: Iterable[Message]) -> None:
    """Each goes back to its place, if nobody has settled it; its delivery does not count."""
    for message in messages:
        message._returned  # noqa: B018  # reading it gives the message back


class Line:
    """Tasks that wait for the same thing. Those that are in line take before those that come."""

    def __init__(self) -> None:
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._in_line = 0
        self._calls = 0

    async def _stand_in_line(self) -> None:
        """Let the tasks that wait take first: so they share what comes, whoever is quick."""
        self._in_line += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._in_line -= 1

    def _join(self, woken: asyncio.Future[None]) -> None:
        self._waiters.append(woken)
        self._in_line += 1

    def _leave(self, woken: asyncio.Future[None]) -> None:
        self._in_line -= 1
        with contextlib.suppress(ValueError):  # _wake_next() has taken it out
            self._waiters.remove(woken)

    def _wake_next(self) -> bool:
        while self._waiters:
            woken = self._waiters.popleft()
            if not woken.done():
                woken.set_result(None)
                return True
        return False

    async def _arm(self, woken: asyncio.Future[None]) -> None:
        """From here on, what is waited for wakes `woken`; at once, if it is there already."""

    def _pass_on(self) -> None:
        """A task stops waiting, and may have been woken for what it did not take."""
