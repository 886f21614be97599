"""Connections, channels and consumers as rows, with what they have not acked and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qindex.serve.consumers import Consumer
from qindex.serve.http import shapes
from qindex.serve.http.asked import TRUE, Asked
from qindex.serve.http.own.ages import Ages
from qindex.serve.http.own.queues import page_of


async def connections(asked: Asked) -> Any:
    def make(session: Any) -> shapes.Shape:
        return {
            **shapes.connection(asked.server, session),
            "unacked": sum(channel.unacked for channel in session.channels),
        }

    return _rows(asked, list(asked.sessions()), make)


async def channels(asked: Asked, ages: Ages) -> Any:
    def make(row: Any) -> shapes.Shape:
        session, channel = row
        return {
            **shapes.channel(asked.server, session, channel),
            "oldest_seconds": ages.seconds(channel),
        }

    rows = [(session, channel) for session in asked.sessions() for channel in session.channels]
    return _rows(asked, rows, make)


async def consumers(asked: Asked, ages: Ages) -> Any:
    rows = [
        (vhost, queue, consumer)
        for vhost in asked.vhosts()
        for queue in vhost.queues.values()
        for consumer in queue.consumers
        if isinstance(consumer, Consumer)
    ]

    def make(row: Any) -> shapes.Shape:
        consumer = row[2]
        return {
            **shapes.consumer(*row),
            "unacked": consumer.unacked,
            "priority": consumer.priority,
            "channel_oldest_seconds": ages.seconds(consumer.channel),
        }

    return _rows(asked, rows, make)


def _rows(asked: Asked, rows: list[Any], make: Callable[[Any], shapes.Shape]) -> Any:
    """A page of what has `name` somewhere in its words; by `sort`, if that is given."""
    total = len(rows)
    part, sort = asked.query("name").lower(), asked.query("sort")
    if not part and not sort:
        return page_of(asked, rows, make, total)
    found = [make(row) for row in rows]
    if part:
        found = [row for row in found if part in str(list(row.values())).lower()]
    if sort:
        found.sort(key=lambda row: _order(row.get(sort)), reverse=asked.query("reverse") in TRUE)
    return page_of(asked, found, lambda row: row, total)


def _order(value: Any) -> tuple[float, str]:
    if isinstance(value, int | float):
        return value, ""
    return -1, str(value or "")
