"""What is counted of the queues of a virtual host since the process began."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from qindex.broker.queues import Queue


@dataclass(slots=True)
class Lives:
    """How often a queue was declared, also one that was there; made; and deleted."""

    declared: int = 0
    created: int = 0
    deleted: int = 0


class Totals(NamedTuple):
    """What queues have counted since the process began."""

    published: int
    delivered: int
    acked: int
    redelivered: int = 0  # in memory: stores count theirs

    def plus(self, queues: Iterable[Queue]) -> Totals:
        """With what these have counted. Makes no object for each: 10,000 of them wake Python's
        garbage collector, which then looks at everything."""
        published, delivered, acked, redelivered = self
        for queue in queues:
            published += queue.published
            delivered += queue.delivered
            acked += queue.acked
            redelivered += queue.backlog.redelivered
        return Totals(published, delivered, acked, redelivered)
