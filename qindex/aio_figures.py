"""The figures of a queue of qindex.aio that are not awaited, because they are properties."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qindex.arguments import parts_of

if TYPE_CHECKING:
    import qindex.queue


@parts_of("Queue")
class AioFigures:
    """For the class of a queue."""

    _queue: qindex.queue.Queue

    def __len__(self) -> int:
        """Ready, unacked and delayed messages, and dead letters, together. O(1)."""
        return len(self._queue)

    def __bool__(self) -> bool:
        """True, also for an empty queue, so that `if queue:` does not mean `if len(queue):`."""
        return True

    @property
    def ready(self) -> int:
        """Messages that get() would deliver. O(1)."""
        return self._queue.ready

    @property
    def unacked(self) -> int:
        """Messages that were delivered by this process and not settled. O(1)."""
        return self._queue.unacked

    @property
    def delayed(self) -> int:
        """Messages whose time has not come. O(1)."""
        return self._queue.delayed

    @property
    def dead(self) -> int:
        """Dead letters: browse(state="dead") shows them. O(1)."""
        return self._queue.dead

    @property
    def next_due(self) -> float | None:
        """When the next delayed message is due, in seconds since 1970. See Queue.next_due."""
        return self._queue.next_due

    @property
    def oldest_age_min(self) -> float | None:
        """Seconds that the oldest message has waited, at least. See Queue.oldest_age_min."""
        return self._queue.oldest_age_min

    @property
    def dirty_count(self) -> int:
        """Publishes, deliveries and acks in the journal since the last flush. O(1)."""
        return self._queue.dirty_count
