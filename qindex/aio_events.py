"""The events of a store of qindex.aio: the same, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

import qindex.waiting
from qindex.aio_line import until_woken
from qindex.arguments import Seconds
from qindex.errors import StoreClosed
from qindex.events import Event, Listener
from qindex.waiting import Wait

if TYPE_CHECKING:
    from qindex.aio_store import Store


class Events:
    """Events of a store, as an async iterator: made by Store.events(). See qindex.Events."""

    def __init__(self, store: Store, listener: Listener) -> None:
        self._store = store
        self._listener = listener

    async def get(self, *, timeout: Seconds | None = 0) -> Event | None:
        """The next event. None: none came in time. See qindex.Events.get()."""
        left = qindex.waiting.check_timeout(timeout)
        loop = asyncio.get_running_loop()
        deadline = None if left is None else loop.time() + left
        while (event := self._take()) is None:
            if left is not None and deadline is not None and loop.time() >= deadline:
                return None
            await until_woken(self._store._for_events, self._arm, deadline)
        return event

    async def _arm(self) -> bool:
        return self._listener.arm()

    def _take(self) -> Event | None:
        return self._listener.take(Wait(self._store._store._handle, 0))

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Wait for each event in turn, until the store or the iterator is closed."""
        while True:
            try:
                event = await self.get(timeout=None)
            except StoreClosed:
                return
            if event is not None:
                yield event

    async def close(self) -> None:
        """Listen no more. Closing twice is allowed."""
        self._listener.close()
        self._store._wake_for_events()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
