"""When the broker looks at something again: what it needs of an event loop, and due messages."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
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
    """One timer for a backlog's delayed messages, armed to the earliest of them."""

    def __init__(
        self, backlog: Backlog, scheduler: Scheduler, on_due: Callable[[], object]
    ) -> None:
        self._backlog = backlog
        self._scheduler = scheduler
        self._on_due = on_due
        self._armed_us = 0
        self._timer: Timer | None = None
        self._arm(backlog.take_in_due())

    def published(self, due_us: int) -> None:
        """A message was published that is due then: perhaps earlier than the timer says."""
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

    def _look(self) -> None:
        self._armed_us, self._timer = 0, None
        before = len(self._backlog)
        try:
            due_us = self._backlog.take_in_due()
        except QindexError as error:
            log.error("delayed messages cannot be read: %s", error)
            due_us = now_us() + int(RETRY_SECONDS * 1e6)
        self._arm(due_us)
        if len(self._backlog) > before:
            self._on_due()

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
