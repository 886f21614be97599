"""A queue's settings and its data, for an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from qindex.aio_data import Data
from qindex.arguments import parts_of
from qindex.rules import Changes, Settings

if TYPE_CHECKING:
    from qindex.aio_store import Store
    from qindex.queue import Queue


@parts_of("Queue")
class AioConfigured:
    """For the class of a queue of qindex.aio."""

    _store: Store
    _queue: Queue

    @property
    def data(self) -> Data:
        """A small durable mapping of bytes to bytes that belongs to the queue."""
        return Data(self._queue.data, self._store._run)

    @property
    def settings(self) -> Settings:
        """What the queue does by itself. See Queue.settings."""
        return self._queue.settings

    async def configure(self, **changes: Unpack[Changes]) -> Settings:
        """Change what is named, durably; None takes a setting back. See Queue.configure()."""
        return await self._store._run(self._queue.configure, **changes)
