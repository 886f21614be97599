"""What is counted of the queues of a virtual host since the process began."""

from __future__ import annotations

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

    def plus(self, queue: Queue) -> Totals:
        return Totals(
            self.published + queue.published,
            self.delivered + queue.delivered,
            self.acked + queue.acked,
            self.redelivered + queue.backlog.redelivered,
        )
