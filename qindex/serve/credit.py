"""What the consumers of one channel may have unacked together (basic.qos with global), in turns.

A consumer that is refused while its queue has messages stands in line. What becomes free is offered
to the first in the line, alone, for one turn of its queue: so a busy queue that is asked first, or
woken by each publish, does not starve the others. RabbitMQ's limiter lets queues go in turn, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from qindex.serve.consumers import Consumer


class SharedCredit:
    """That of one channel. `limit` is 0 if there is none; `used` counts what is not settled."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.limit = self.used = 0
        self._loop = loop
        self._line: dict[Consumer, None] = {}  # in order
        self._offered: Consumer | None = None  # that is alone in having credit

    def __contains__(self, consumer: Consumer) -> bool:
        """True if it stands in line."""
        return consumer in self._line

    def left(self, consumer: Consumer) -> int:
        """How many messages this consumer may take now. 0: it stands in line."""
        if self._offered in (None, consumer) and self.limit > self.used:
            return self.limit - self.used
        self._line[consumer] = None
        return 0

    def settled(self, count: int) -> None:
        """So many deliveries are settled."""
        self.used -= count
        if self.limit and self._offered is None:
            self._offer()

    def change(self, limit: int) -> None:
        """Another limit. Those in line are to be woken by the caller, as all others."""
        self.limit = limit
        self._line.clear()

    def leave(self, consumer: Consumer) -> None:
        """It takes no more."""
        self._line.pop(consumer, None)

    def _offer(self) -> None:
        """Let the first in line take what is free. Its queue has its turn in the loop before the
        next one is offered what is left then.
        """
        self._offered = None
        if self._line and self.limit > self.used:
            self._offered = next(iter(self._line))
            del self._line[self._offered]
            self._offered.queue.may_take(self._offered)
            self._loop.call_soon(self._offer)
