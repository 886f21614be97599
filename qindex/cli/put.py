"""Found messages, published into a store as what they are: for salvage and replay --out."""

from __future__ import annotations

import time
from functools import partial
from itertools import groupby

import qindex
from qindex.brokers.storable import (
    Changes,
    fit_due,
    fit_expiry,
    fit_headers,
    fit_priority,
    publish_each,
)
from qindex.look.messages import Found


def put(queue: qindex.Queue, batch: list[Found], changes: Changes) -> list[Found]:
    """In order, with priorities; what is delayed stays so. One call for those that are alike.

    What a store does not take is changed and counted; returns the messages that are in the store.
    """
    stored: list[Found] = []
    for _, alike in groupby(batch, _place):
        stored += publish_each(partial(_publish, queue), list(alike), _fit, changes)
    return stored


def _publish(queue: qindex.Queue, row: list[Found]) -> None:
    priority, due_at = _place(row[0])
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


def _fit(found: Found) -> list[str]:
    kinds: list[str] = []
    found.table = fit_headers(found.headers, kinds)
    found.expiry_us = fit_expiry(found.expiry_us, kinds)
    found.due_us = fit_due(found.due_us, kinds)
    found.priority = fit_priority(found.priority, kinds)
    return kinds


def size_of(found: Found) -> int:
    """Of a message in memory, about."""
    return len(found.body) + len(found.table)


def put_dead(queue: qindex.Queue, batch: list[Found], changes: Changes) -> list[Found]:
    """As dead letters, into a queue that keeps them and has nothing else: they are `rejected` now.

    An expiry that has passed is left out: they would be gone before they are dead.
    """
    now_us = time.time() * 1e6
    for found in batch:
        found.state = "ready"
        found.expiry_us = 0 if found.expiry_us <= now_us else found.expiry_us
    stored = put(queue, batch, changes)
    while taken := queue.get_many(len(batch)):
        queue.nack_many(taken, requeue=False)
    return stored
