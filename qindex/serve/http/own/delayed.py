"""What is delayed, over time: how many messages are due within which span, by queue."""

from __future__ import annotations

import time
from typing import Any, Final

from qindex.broker.backlog import Looked
from qindex.broker.queues import Queue
from qindex.broker.timers import now_us
from qindex.broker.vhost import VHost
from qindex.serve.http import shapes
from qindex.serve.http.asked import Asked
from qindex.serve.http.own.messages import Looks

SPANS: Final = (60, 300, 900, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400)
SECONDS: Final = 0.4
LOOKED_MAX: Final = 50_000
ROWS_MAX: Final = 200  # queues, those with the most first


async def delayed(asked: Asked, looks: Looks) -> Any:
    """Of each queue the count in each span."""
    every = [(vhost, queue) for vhost in asked.vhosts() for queue in vhost.queues.values()]
    return await delayed_of(looks, every)


async def delayed_of(looks: Looks, every: list[tuple[VHost, Queue]]) -> Any:
    """Spans in seconds from now (the last one has no end); of each queue the count in each span."""
    queues = [
        (vhost, queue, queue.backlog.delayed())
        for vhost, queue in every
        if queue.name not in vhost.arriving
    ]
    queues = [row for row in queues if row[2]]
    queues.sort(key=lambda row: -row[2])
    until = time.monotonic() + SECONDS
    rows = [await _row(looks, vhost, queue, until) for vhost, queue, _ in queues[:ROWS_MAX]]
    return {
        "spans": list(SPANS),
        "items": rows,
        "queues": len(queues),
        "total": sum(row[2] for row in queues),
        "looked": sum(row["looked"] for row in rows),
    }


async def _row(looks: Looks, vhost: VHost, queue: Queue, until: float) -> shapes.Shape:
    def look() -> list[int]:
        found = []
        for passed, each in enumerate(queue.backlog.look(0, "delayed")):
            if isinstance(each, Looked):
                found.append(each.due_us)
            if passed >= LOOKED_MAX or time.monotonic() > until:
                break
        return found

    due = await looks.run(queue, look)
    return {
        "vhost": vhost.name,
        "name": shapes.plain(queue.name),
        "delayed": queue.backlog.delayed(),
        "looked": len(due),
        "next_at": min(due) / 1e6 if due else None,
        "last_at": max(due) / 1e6 if due else None,
        "counts": counts_of(due),
    }


def counts_of(due: list[int]) -> list[int]:
    """How many of these moments are in each span from now."""
    now = now_us()
    counts = [0] * (len(SPANS) + 1)
    for moment in due:
        seconds = (moment - now) / 1e6
        counts[sum(seconds > span for span in SPANS)] += 1
    return counts
