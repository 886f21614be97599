"""Messages that come to a queue many at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qindex.broker.durable import DurableBacklog, StoreWay
from qindex.broker.limits import Limits
from qindex.broker.timers import now_us

if TYPE_CHECKING:
    from qindex.broker.backlog import Backlog, Publishes, Share


class InBulk:
    """The verbs of a queue that append many messages at once."""

    backlog: Backlog
    limits: Limits
    paused: bool
    _published: int
    _bytes: int
    _expiring: bool

    @property
    def takes_batches(self) -> bool:
        """True if no message that comes has to be looked at on its own: publish_many() may be
        called."""
        limits = self.limits
        refuses = limits.has_length and limits.overflow != "drop-head"
        return not (self.paused or refuses or limits.ttl_ms == 0)

    def publish_many(
        self, publishes: Publishes, shares: dict[int, Share], *, awaited: bool = False
    ) -> None:
        """Append the messages of the groups that have a share: all of them or none. Their priority
        is the same. `awaited`: their publisher waits for a sync. Only if the queue takes_batches.
        """
        before = len(self.backlog)
        self._bytes += self.backlog.publish_many(publishes, shares, awaited)
        self._published += len(self.backlog) - before
        self._expiring = self._expiring or any(share.expires_us for share in shares.values())
        if self.limits.has_length:
            self._make_way(now_us())
        self.wake()

    def store_way(
        self, exchange: str, key: str, *, persistent: bool, priority: int
    ) -> StoreWay | None:
        """How messages without an expiration get straight into the queue's store; None: they do
        not, because the queue has limits, or lives in memory. The same as long as there is the
        queue.
        """
        limits, backlog = self.limits, self.backlog
        if (
            not isinstance(backlog, DurableBacklog)
            or limits.has_length
            or limits.ttl_ms is not None
        ):
            return None
        priority = min(priority, limits.max_priority)
        return backlog.way(exchange, key, persistent=persistent, priority=priority)

    if TYPE_CHECKING:

        def wake(self) -> None: ...
        def _make_way(self, now: int) -> None: ...
