"""When the broker looks at something again: what it needs of an event loop, and due messages."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Protocol

from qindex.errors import QindexError

if TYPE_CHECKING:
    from qindex.broker.backlog import Backlog

TIMER_SECONDS_MAX: Final = 3600.0
RETRY_SECONDS: Final = 1.0  # after the disk has failed to read
log: Final = logging.getLogger("qindex.broker")
_EARLY_SECONDS: Final = 0.000_5  # an event loop's clock and the wall clock are read apart


class Timer(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """What the broker needs of an event loop; those of asyncio and uvloop have it."""

    def call_soon(self, call: Callable[..., object], /, *args: Any) -> object: ...
    def call_later(self, delay: float, call: Callable[..., object], /, *args: Any) -> Timer: ...


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


class DueTimer:
    """One timer for a backlog's delayed messages, armed to the earliest of them.

    `on_due` is called when some are ready, with the bytes of their bodies, or None: not known. They
    are known of what published() told, if it told of all that is delayed; of a queue with
    `max_bytes`, which reads all that is ready otherwise.
    """

    def __init__(
        self,
        backlog: Backlog,
        scheduler: Scheduler,
        on_due: Callable[[int | None], object],
        max_bytes: int | None,
    ) -> None:
        self._backlog = backlog
        self._scheduler = scheduler
        self._on_due = on_due
        self._counts = max_bytes is not None
        self._sizes: list[tuple[int, int]] | None = None  # a heap, by the time; None: not known
        self._armed_us = 0
        self._timer: Timer | None = None
        self._arm(self._take_in())

    def published(self, due_us: int, size: int = 0) -> None:
        """A message was published that is due then: perhaps earlier than the timer says."""
        if self._sizes is not None:
            heappush(self._sizes, (due_us, size))
        if not self._armed_us or due_us < self._armed_us:
            self.stop()
            self._arm(due_us)

    def _arm(self, due_us: int) -> None:
        if due_us:
            seconds = max(0.0, (due_us - now_us()) / 1e6) + _EARLY_SECONDS
            self._armed_us = due_us
            self._timer = self._scheduler.call_later(min(seconds, TIMER_SECONDS_MAX), self._look)

    @property
    def next_us(self) -> int:
        """When the next message is due; 0: none is delayed."""
        return self._armed_us

    def forget_sizes(self) -> None:
        """Delayed messages have come or gone, or have another time, otherwise than by publishes."""
        self._sizes = None

    def _take_in(self) -> int:
        """When the next one is due. If there is none, all that comes will be known."""
        due_us = self._backlog.take_in_due()
        if not due_us and self._counts:
            self._sizes = []
        return due_us

    def _look(self) -> None:
        self._armed_us, self._timer = 0, None
        before, sizes = len(self._backlog), self._sizes
        try:
            due_us = self._take_in()
        except QindexError as error:
            log.error("delayed messages cannot be read: %s", error)
            due_us = now_us() + int(RETRY_SECONDS * 1e6)
        self._arm(due_us)
        if (count := len(self._backlog) - before) > 0:
            self._on_due(self._bytes_of(sizes, count, due_us))

    def _bytes_of(self, sizes: list[tuple[int, int]] | None, count: int, due_us: int) -> int | None:
        """Of those before `due_us` (0: of all), if they are so many."""
        if sizes is None:
            return None
        came: list[int] = []
        while sizes and (not due_us or sizes[0][0] < due_us):
            came.append(heappop(sizes)[1])
        if len(came) == count:
            return sum(came)
        self._sizes = None if due_us else self._sizes
        return None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_us, self._timer = 0, None


class RetryTimer:
    """Calls again a while after a failure: once, however often it failed meanwhile."""

    def __init__(self, scheduler: Scheduler, call: Callable[[], object]) -> None:
        self._scheduler = scheduler
        self._call = call
        self._timer: Timer | None = None

    def again(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._scheduler.call_later(RETRY_SECONDS, self._call)


class UnusedTimer:
    """Calls `on_unused` when nobody has used a queue for so long (x-expires)."""

    def __init__(
        self, ms: int | None, scheduler: Scheduler, on_unused: Callable[[], object]
    ) -> None:
        self._seconds = None if ms is None else ms / 1000
        self._scheduler = scheduler
        self._on_unused = on_unused
        self._timer: Timer | None = None

    def used(self) -> None:
        """The time begins anew."""
        if self._seconds is not None:
            self.stop()
            self._wait(self._seconds)

    def _wait(self, left: float) -> None:
        seconds = min(left, TIMER_SECONDS_MAX)
        self._timer = self._scheduler.call_later(seconds, self._look, left - seconds)

    def _look(self, left: float) -> None:
        self._timer = None
        if left > 0:
            self._wait(left)
        else:
            self._on_unused()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
