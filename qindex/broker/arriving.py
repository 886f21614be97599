"""Queues whose messages a rescue has not brought yet: known, and not served.

Until all of its messages are in, a queue delivers nothing, drops nothing, and takes nothing: who
publishes to it, gets from it, purges or deletes it waits. So nothing is overtaken, and a copy that
a kill has interrupted can begin anew.
"""

from __future__ import annotations

from qindex.broker.backlog import MemoryBacklog


class Arrival:
    """What is known about a queue that is not in; `failed` says why it will not come by itself."""

    __slots__ = ("count", "failed")

    def __init__(self, count: int) -> None:
        self.count = count
        self.failed = ""


class NotIn(Exception):
    """The queue's messages are still coming: ask again later."""


class ArrivingBacklog(MemoryBacklog):
    """In place of the messages that are coming: it counts them, and has none."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def __len__(self) -> int:
        return self._count
