"""What a queue asks of a consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from qindex.broker.backlog import Entry

if TYPE_CHECKING:
    from qindex.broker.queues import Queue


class Consumer(Protocol):
    """Somebody who takes messages from a queue as they come."""

    no_ack: bool
    exclusive: bool
    priority: int
    waiting: bool  # the queue's own: it is among those that may have credit

    @property
    def shares_credit(self) -> bool:
        """True if a delivery to another consumer may take its credit."""

    def credit(self) -> int:
        """How many messages it takes now."""

    def deliver(self, queue: Queue, entry: Entry) -> None:
        """Here is one. With no_ack it is settled already."""

    def cancelled(self, queue: Queue) -> None:
        """The queue is gone."""
