"""What ends a delivery of a queue: ack, requeue, reject."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qindex.broker.limits import Limits
from qindex.broker.taken import Entry, Places, places_of

if TYPE_CHECKING:
    from qindex.broker.backlog import Backlog


class Settling:
    """The verbs of a queue that end deliveries. Each takes the places of many at once."""

    backlog: Backlog
    limits: Limits
    deleted: bool
    unacked: int
    acked: int
    stuck = 0  # dead letters that stay until the next start, for a damaged queue: unacked, too

    def ack(self, entries: list[Entry]) -> None:
        """ack_places() of deliveries that somebody has as entries."""
        self.ack_places(places_of(entries))

    def requeue(self, entries: list[Entry]) -> None:
        """requeue_places() of these."""
        self.requeue_places(places_of(entries))

    def reject(self, entries: list[Entry]) -> None:
        """reject_places() of these."""
        self.reject_places(places_of(entries))

    def ack_places(self, places: Places) -> None:
        """These deliveries are settled."""
        self.unacked -= places.size
        self.acked += places.size
        if not self.deleted:
            self.backlog.ack(places)

    def requeue_places(self, places: Places) -> None:
        """These deliveries go back to their places, or leave if they were delivered too often."""
        self.unacked -= places.size
        if self.deleted:
            return
        limit, over = self.limits.delivery_limit, []
        if limit is None and self.limits.max_bytes is None:
            self.backlog.requeue(places)
        else:  # their messages have a say
            entries = self.backlog.entries(places)
            over = [each for each in entries if limit is not None and each.deliveries > limit]
            self.put_back([entry for entry in entries if entry not in over] if over else entries)
        self.wake()
        if over:
            self._leave(over, "delivery_limit")
        self._drop_over_length()

    def reject_places(self, places: Places) -> None:
        """These deliveries end, and the messages are dead letters."""
        self.unacked -= places.size
        if self.deleted:
            return
        if self.limits.dead_exchange is None:
            self.backlog.ack(places)
        else:
            self._leave(self.backlog.entries(places), "rejected")

    if TYPE_CHECKING:

        def wake(self) -> None: ...
        def put_back(self, entries: list[Entry]) -> None: ...
        def _leave(self, entries: list[Entry], why: str) -> None: ...
        def _drop_over_length(self) -> None: ...
