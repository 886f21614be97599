"""What is reserved, and until when: one timer, armed to the earliest end.

A lease goes by the event loop's clock, which nobody sets. It is not on the disk: after a restart
of the server everything that was reserved is ready at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

from qindex.broker.queues import Queue
from qindex.broker.taken import Entry


class Lease(NamedTuple):
    queue: Queue
    entry: Entry
    on_end: Callable[[Lease], None]
    number: int


class Reserved(NamedTuple):
    """A lease as it is looked at."""

    name: str
    queue: Queue
    entry: Entry
    seconds: float  # until it ends


class Leases:
    """Deliveries by an id that is unique among those that are reserved."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.wake_ups = 0  # of the timer
        self._loop = loop
        self._by_id: dict[str, Lease] = {}
        self._ends: list[tuple[float, int, str]] = []  # a heap; some are settled already
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, name: str) -> bool:
        return name in self._by_id

    def rows(self) -> list[Reserved]:
        """All of them, the one that ends first before the others. O(n log n)."""
        now = self._loop.time()
        ends = sorted(end for end in self._ends if self._is_current(end))
        return [
            Reserved(name, lease.queue, lease.entry, max(0.0, at - now))
            for at, _, name in ends
            if (lease := self._by_id.get(name)) is not None
        ]

    def add(
        self, name: str, queue: Queue, entry: Entry, seconds: float, on_end: Callable[[Lease], None]
    ) -> None:
        """Reserve a delivery. Without take() in that time, on_end() settles it. O(log n)."""
        self._next += 1
        self._by_id[name] = Lease(queue, entry, on_end, self._next)
        heappush(self._ends, (self._loop.time() + seconds, self._next, name))
        self._arm()

    def look(self, name: str) -> Lease | None:
        """The delivery, which stays reserved; None: it is not."""
        return self._by_id.get(name)

    def take(self, name: str) -> Lease | None:
        """The delivery is settled by the caller; None: it is not reserved."""
        found = self._by_id.pop(name, None)
        if found is not None:
            self._arm()
        return found

    def _arm(self) -> None:
        ends = self._ends
        while ends and not self._is_current(ends[0]):
            heappop(ends)
        if len(ends) > 64 and len(ends) > 2 * len(self._by_id):  # most are settled: forget them
            self._ends = ends = sorted(filter(self._is_current, ends))
        if self._timer is not None:
            if ends and self._timer.when() == ends[0][0]:
                return
            self._timer.cancel()
            self._timer = None
        if ends:
            self._timer = self._loop.call_at(ends[0][0], self._look)

    def _is_current(self, end: tuple[float, int, str]) -> bool:
        lease = self._by_id.get(end[2])
        return lease is not None and lease.number == end[1]

    def _look(self) -> None:
        self.wake_ups += 1
        self._timer = None
        now = self._loop.time()
        while self._ends and (self._ends[0][0] <= now or not self._is_current(self._ends[0])):
            end = heappop(self._ends)
            if self._is_current(end):
                lease = self._by_id.pop(end[2])
                lease.on_end(lease)
        self._arm()

    def stop(self) -> None:
        """The server ends; what is reserved is ready again after the next start."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._by_id.clear()
        self._ends.clear()
