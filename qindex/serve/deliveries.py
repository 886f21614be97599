"""How much is delivered to one client in one turn of the event loop, and who waits for the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from qindex.broker.queues import Queue
    from qindex.serve.consumers import Consumer
    from qindex.serve.outlet import Outlet

TURN_BYTES: Final = 1024 * 1024  # then other queues wait until these are written


class Deliveries:
    """Those of one connection. A consumer that was refused is woken when there is room again."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._bytes = 0
        self._filled: Queue | None = None  # its deliveries are enough for one turn
        self._refused: dict[Consumer, None] = {}  # in order

    def takes(self, consumer: Consumer) -> bool:
        """False while much waits for the client. The queue that has made it much goes on: it has
        taken the messages already.
        """
        if not self._outlet.is_slow and (self._filled is None or self._filled is consumer.queue):
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
        self._bytes = 0
        self._filled = None
        if self._refused and not self._outlet.is_slow:
            self.wake()

    def wake(self) -> None:
        """The consumer that has waited longest comes first."""
        refused, self._refused = self._refused, {}
        for consumer in refused:
            consumer.queue.may_take(consumer)
