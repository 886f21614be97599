"""Queues as rows: chosen, sorted and cut into pages here, however many there are.

Sorting looks at one figure of each queue; only the rows of a page are made, and no object for each
queue: ten thousand of them would wake Python's garbage collector, which takes 70 ms then.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, Protocol

from qindex.broker.errors import AccessRefused, NotAllowed
from qindex.broker.queues import Queue
from qindex.broker.vhost import VHost
from qindex.serve.http import shapes
from qindex.serve.http.asked import TRUE, Asked
from qindex.serve.http.given import PAGE_MAX, PAGES_MAX, whole
from qindex.serve.http.own.series import Series


class Question(Protocol):
    """Where page_of() finds what is asked for."""

    def query(self, name: str, default: str = "") -> str: ...


_KEYS: Final[dict[str, Callable[[Queue], Any]]] = {
    "name": attrgetter("name"),
    "ready": lambda queue: len(queue.backlog),
    "unacked": attrgetter("unacked"),
    "delayed": lambda queue: queue.backlog.delayed(),
    "messages": lambda queue: len(queue.backlog) + queue.unacked,
    "consumers": lambda queue: len(queue.consumers),
}
_RATES: Final = {"published_rate": 0, "delivered_rate": 1, "acked_rate": 2}


def page_of(asked: Question, found: list[Any], make: Callable[[Any], Any], total: int) -> Any:
    """The page of these rows that is asked for; behind the last one there is the last one.

    `page_size` is RabbitMQ's name of `size`.
    """
    name = "page_size" if asked.query("page_size") else "size"
    size = whole(asked.query(name, "50"), name, PAGE_MAX, 1)
    pages = max(1, -(-len(found) // size))
    page = min(whole(asked.query("page", "1"), "page", PAGES_MAX, 1), pages)
    items = [make(row) for row in found[(page - 1) * size : page * size]]
    return {"items": items, "page": page, "pages": pages, "found": len(found), "total": total}


async def queues(asked: Asked, series: Series) -> Any:
    """?page, size, sort, reverse, name (a part of it), vhost, some=waiting|idle|held."""
    wanted = asked.query("vhost")
    vhosts = asked.vhosts()
    if wanted:
        vhosts = [asked.server.node.vhost(wanted)] if wanted in asked.seen() else []
    rows = [queue for vhost in vhosts for queue in vhost.queues.values()]
    total = len(rows)
    part = asked.query("name").lower()
    if part:
        rows = [queue for queue in rows if part in queue.name.lower()]
    some = asked.query("some")
    if some in _SOME:
        rows = list(filter(_SOME[some], rows))
    sort = asked.query("sort", "name")
    if sort in _RATES:
        at = _RATES[sort]
        rows.sort(key=lambda queue: series.rates(queue)[at])
    elif sort in _KEYS:
        rows.sort(key=_KEYS[sort])
    else:
        raise ValueError(f"sort is one of {', '.join([*_KEYS, *_RATES])}")
    if asked.query("reverse") in TRUE:
        rows.reverse()

    def made(queue: Queue) -> shapes.Shape:
        vhost = next(each for each in vhosts if each.queues.get(queue.name) is queue)
        return _row(series, vhost, queue)

    return page_of(asked, rows, made, total)


_SOME: Final[dict[str, Callable[[Queue], bool]]] = {
    "waiting": lambda queue: len(queue.backlog) + queue.unacked > 0,
    "idle": lambda queue: len(queue.backlog) > 0 and not queue.consumers,
    "held": lambda queue: queue.on_hold,
}


def _row(series: Series, vhost: VHost, queue: Queue) -> shapes.Shape:
    published, delivered, acked = series.rates(queue)
    return {
        "vhost": vhost.name,
        "name": shapes.plain(queue.name),
        "durable": queue.backlog.is_durable,
        "exclusive": queue.owner is not None,
        "ready": len(queue),
        "unacked": queue.unacked,
        "delayed": queue.backlog.delayed(),
        "consumers": len(queue.consumers),
        "published_rate": published,
        "delivered_rate": delivered,
        "acked_rate": acked,
        "state": state_of(vhost, queue),
    }


def state_of(vhost: VHost, queue: Queue) -> str:
    state = vhost.state_of(queue)
    return "held" if queue.on_hold and state == "running" else state


async def queue(asked: Asked, series: Series) -> Any:
    """One queue, with what the user may do to it."""
    vhost, found = asked.queue()
    return {
        **_row(series, vhost, found),
        "auto_delete": found.auto_delete,
        "arguments": shapes.plain(found.arguments),
        "published": found.published,
        "delivered": found.delivered,
        "acked": found.acked,
        "oldest_seconds": found.backlog.oldest_seconds(),
        "bindings": [
            shapes.binding(vhost, *each)
            for each in shapes.bindings(vhost)
            if each[0].destination.name == found.name and each[0].destination.kind == "queue"
        ],
        "may": _may(asked, found.name),
    }


def _may(asked: Asked, name: str) -> list[str]:
    try:
        rights = asked.rights()
    except NotAllowed:
        return []
    found = []
    for verb in ("configure", "write", "read"):
        try:
            rights.check(verb, "queue", name)
        except AccessRefused:
            continue
        found.append(verb)
    return found
