"""Found messages, published into a store as what they are: for salvage and replay --into."""

from __future__ import annotations

import time
from itertools import groupby

import qindex
from qindex.cli.messages import Found


def put(queue: qindex.Queue, batch: list[Found]) -> None:
    """In order, with priorities; what is delayed stays so. One call for those that are alike."""
    for (priority, due_at), alike in groupby(batch, _place):
        row = list(alike)
        queue.publish_many(
            [found.body for found in row],
            headers=[found.headers for found in row],
            persistent=[found.persistent for found in row],
            redelivered=[found.redelivered for found in row],
            expires_at=[found.expires_at for found in row],
            priority=priority,
            due=due_at,
        )


def _place(found: Found) -> tuple[int, float | None]:
    return found.priority or 0, found.due_at if found.state == "delayed" else None


def put_dead(queue: qindex.Queue, batch: list[Found]) -> None:
    """As dead letters, into a queue that keeps them and has nothing else: they are `rejected` now.

    An expiry that has passed is left out: they would be gone before they are dead.
    """
    now_us = time.time() * 1e6
    for found in batch:
        found.state = "ready"
        found.expiry_us = 0 if found.expiry_us <= now_us else found.expiry_us
    put(queue, batch)
    while taken := queue.get_many(len(batch)):
        queue.nack_many(taken, requeue=False)
