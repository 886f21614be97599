"""A queue's settings and its data, for an event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Unpack

from qindex.arguments import parts_of
from qindex.data import Data
from qindex.rules import Changes, Settings

if TYPE_CHECKING:
    from qindex.queue import Queue


@parts_of("Queue")
class AioConfigured:
    """For the class of a queue of qindex.aio."""

    _queue: Queue

    @property
    def data(self) -> Data:
        """The mapping of the plain queue. A change with confirm=True waits for the disk.

        Call that in a thread (asyncio.to_thread), or change without it, and await Store.sync().
        """
        return self._queue.data

    @property
    def settings(self) -> Settings:
        """What the queue does by itself. See Queue.settings."""
        return self._queue.settings

    async def configure(self, **changes: Unpack[Changes]) -> Settings:
        """Change what is named, durably; None takes a setting back. See Queue.configure()."""
        return await asyncio.to_thread(self._queue.configure, **changes)
