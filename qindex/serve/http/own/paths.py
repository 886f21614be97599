"""The paths below /api/qindex, each with a line for the description."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiohttp import web

import qindex
from qindex.serve.gmq.door import Door
from qindex.serve.http import monitor, shapes
from qindex.serve.http.api import handler
from qindex.serve.http.asked import SEES_ALL, Asked
from qindex.serve.http.given import SINCE_MAX, number
from qindex.serve.http.own import (
    acts,
    clients,
    dead,
    delayed,
    description,
    disk,
    health,
    history,
    jobs,
    messages,
    queues,
)
from qindex.serve.http.own.getting import Getting
from qindex.serve.http.own.messages import Looks
from qindex.serve.http.own.search import QUERY
from qindex.serve.http.own.series import Series
from qindex.serve.http.port import any_name

if TYPE_CHECKING:
    from qindex.serve.server import Server

PREFIX: Final = "/api/qindex"


class Path(NamedTuple):
    method: str
    path: str
    call: Callable[[Asked], Any]
    says: str
    query: str = ""  # the names of what may follow "?"


def about(server: Server, user: str) -> dict[str, Any]:
    """What the page has to know before it asks for anything."""
    tags = server.node.users.tags(user)
    return {
        "kind": "broker",
        "version": qindex.__version__,
        "node": shapes.node_name(server),
        "tags": tags,
        "sees_all": bool(SEES_ALL & set(tags)),
        "gmq": any(isinstance(door, Door) for door in server.doors),
    }


def add_to(app: web.Application, server: Server) -> None:
    series, looks, getting = Series(server), Looks(), Getting(server)
    found = _paths(series, looks, getting)
    for each in found:
        app.router.add_route(each.method, PREFIX + any_name(each.path), handler(each.call))
    for name, call in monitor.paths(looks):
        app.router.add_get(f"/gmq/{name}", handler(call))
    text = description.openapi(PREFIX, found)

    async def described(asked: Asked) -> Any:
        return text

    app.router.add_get(f"{PREFIX}/openapi.json", handler(described))

    async def begin(app: web.Application) -> None:
        series.begin()

    async def end(app: web.Application) -> None:
        series.stop()
        looks.close()
        getting.close()

    async def stop(app: web.Application) -> None:
        getting.stop()

    app.on_startup.append(begin)
    app.on_shutdown.append(stop)
    app.on_cleanup.append(end)


def _paths(series: Series, looks: Looks, getting: Getting) -> list[Path]:
    async def overview(asked: Asked) -> Any:
        vhosts = asked.vhosts()
        since = number(asked.query("since", "0"), "since", SINCE_MAX)
        return {
            **shapes.overview(asked.server, vhosts),
            "uptime_seconds": int(asked.server.uptime),
            "confirms": "durable" if asked.server.confirms_are_durable else "written",
            "vhosts": [vhost.name for vhost in vhosts],
            "samples": series.since(since, vhosts),
        }

    of_queue = "/queues/{vhost}/{name}"
    return [
        Path("GET", "/overview", overview, "Totals, and samples of the last half hour.", "since"),
        Path(
            "GET",
            "/queues",
            lambda asked: queues.queues(asked, series),
            "Queues, chosen, sorted and paged.",
            "page size sort reverse name vhost some",
        ),
        Path("GET", of_queue, lambda asked: queues.queue(asked, series), "One queue."),
        Path(
            "GET",
            f"{of_queue}/messages",
            lambda asked: messages.messages(asked, looks),
            "Messages in one state, with previews of their bodies; or those that have a header, a "
            "property (with this value, if one is given), or this text in the body.",
            f"state after limit preview {QUERY}",
        ),
        Path(
            "GET",
            f"{of_queue}/messages/{{number}}",
            lambda asked: messages.one(asked, looks),
            "One message with its body.",
            "preview",
        ),
        Path(
            "GET",
            f"{of_queue}/messages/{{number}}/history",
            lambda asked: history.history(asked, looks),
            "The records about one message in the store's files, also of one that has left.",
        ),
        Path(
            "POST",
            f"{of_queue}/get",
            getting.get,
            "Take messages: {count, wait (seconds), lease (seconds), ack, preview}.",
        ),
        Path(
            "POST",
            f"{of_queue}/settle",
            getting.settle,
            "Settle what was got: {deliveries, verb: ack | requeue | reject}.",
        ),
        Path(
            "POST",
            f"{of_queue}/messages/{{verb:delete|delay|move}}",
            lambda asked: acts.change(asked, looks),
            "Delete, delay or move messages: {numbers | state, seconds, to}.",
        ),
        Path("POST", f"{of_queue}/{{verb:pause|resume}}", acts.hold, "Pause a queue, or go on."),
        Path("GET", "/dead", lambda asked: dead.dead(asked, looks), "Dead letters by reason."),
        Path(
            "POST",
            "/dead/{vhost}/return",
            lambda asked: dead.send_back(asked, looks),
            "Move dead letters to where they died: {queue, origin, reason}.",
        ),
        Path(
            "GET",
            "/delayed",
            lambda asked: delayed.delayed(asked, looks),
            "What is delayed, by the span until it is due.",
        ),
        Path(
            "GET",
            "/connections",
            clients.connections,
            "Connections.",
            "page size sort reverse name",
        ),
        Path(
            "GET",
            "/channels",
            lambda asked: clients.channels(asked, series.ages),
            "Channels, with the age of what they have not acked.",
            "page size sort reverse name",
        ),
        Path(
            "GET",
            "/consumers",
            lambda asked: clients.consumers(asked, series.ages),
            "Consumers, with what they have not acked.",
            "page size sort reverse name",
        ),
        Path("GET", "/gmq", lambda asked: jobs.gmq(asked, looks), "gmq's buckets and topics."),
        Path("GET", "/gmq/jobs/{id}", lambda asked: jobs.job(asked, looks), "One job of gmq's."),
        Path("GET", "/disk", lambda asked: disk.disk(asked, looks), "Files, and what keeps them."),
        Path(
            "GET",
            "/health",
            lambda asked: health.health(asked, series),
            "Findings, the last start, how long syncs take.",
        ),
    ]
