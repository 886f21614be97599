"""How much is delivered to one client in one turn of the event loop, and who waits for the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from qindex.broker.queues import Queue
    from qindex.serve.consumers import Consumer
    from qindex.serve.outlet import Outlet

TURN_BYTES: Final = 1024 * 1024  # then other queues wait until these are written


class Deliveries:
    """Those of one connection. A consumer that was refused is woken when there is room again.

    A queue that has filled a turn has its next one behind those that it made wait: it is called
    again before they are.
    """

    def __init__(self, outlet: Outlet, flush_later: Callable[[], None]) -> None:
        self._outlet = outlet
        self._flush_later = flush_later  # calls written() in the next turn of the event loop
        self._bytes = 0
        self._filled: Queue | None = None  # its deliveries are enough for one turn
        self._behind: Queue | None = None  # the one that had filled the turn before
        self._refused: dict[Consumer, None] = {}  # in order
        self._last: dict[Consumer, None] = {}  # behind these

    def takes(self, consumer: Consumer) -> bool:
        """False while much waits for the client. The queue that has made it much goes on: it has
        taken the messages already.
        """
        queue = consumer.queue
        if queue is self._behind:
            self._last[consumer] = None
            self._flush_later()
            return False
        if not self._outlet.is_slow and (self._filled is None or self._filled is queue):
            return True
        self._refused[consumer] = None
        return False

    def add(self, consumer: Consumer, size: int) -> None:
        """So many bytes are to be written for a consumer."""
        self._bytes += size
        if self._bytes > TURN_BYTES:
            self._filled = consumer.queue

    def written(self) -> None:
        """The transport has what there was."""
        filled, self._filled = self._filled, None
        self._bytes = 0
        self._refused |= self._last
        self._last = {}
        self._behind = filled if self._refused else None
        if self._refused and not self._outlet.is_slow:
            self.wake()

    def wake(self) -> None:
        """The consumer that has waited longest comes first."""
        refused, self._refused = self._refused, {}
        for consumer in refused:
            consumer.queue.may_take(consumer)
