"""The paths of RabbitMQ's management API that its tools use, and /metrics.

What a user sees and changes follows its permissions, as over AMQP. Users with the tag monitoring
or administrator see all virtual hosts. changes.py has what changes something.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final

from aiohttp import web

from qindex.broker.errors import NotAllowed, NotFound
from qindex.broker.exchanges import QUEUE
from qindex.serve.consumers import Consumer
from qindex.serve.http import accounts, changes, shapes
from qindex.serve.http.asked import SEES_ALL, TRUE, Asked, answer
from qindex.serve.http.door import SERVER
from qindex.serve.http.given import PAGE_MAX, PAGES_MAX, whole
from qindex.serve.http.metrics import Metrics
from qindex.serve.http.more import MORE
from qindex.serve.http.port import any_name

_METRICS: Final[web.AppKey[Metrics]] = web.AppKey("metrics")
SLICE: Final = 100  # rows that are made before others have their turn
AT_ONCE: Final = 4  # long answers that are made, a slice each in a turn of the event loop
_LONG: Final[web.AppKey[asyncio.Semaphore]] = web.AppKey("long", asyncio.Semaphore)


async def _in_turns(rows: Iterable[Any]) -> AsyncIterator[Any]:
    """The rows, with turns for others in between. What was deleted meanwhile is left out."""
    for number, row in enumerate(rows, 1):
        if not number % SLICE:
            await asyncio.sleep(0)
        if not getattr(row[-1], "deleted", False):
            yield row


def _turn(request: web.Request, rows: int) -> AbstractAsyncContextManager[Any]:
    """Long answers wait here for each other: many of them at once would hold up everybody."""
    turns: asyncio.Semaphore = request.app[_LONG]
    return turns if rows > SLICE else nullcontext()


async def _listed(asked: Asked, rows: Iterable[Any], shape: Callable[[Any], dict[str, Any]]) -> Any:
    """Rows as a list; as a page of them if one is asked for, made of the rows that it has."""
    all_rows = list(rows)
    columns = [each for each in asked.query("columns").split(",") if each]

    def chosen(row: Any) -> dict[str, Any]:
        found = shape(row)
        return {name: found[name] for name in columns if name in found} if columns else found

    if "page" not in asked.request.query:
        async with _turn(asked.request, len(all_rows)):
            return [chosen(row) async for row in _in_turns(all_rows)]
    size = whole(asked.query("page_size", "100"), "page_size", PAGE_MAX, 1)
    page = whole(asked.query("page"), "page", PAGES_MAX, 1)
    wanted = asked.query("name").lower()
    found = [row for row in all_rows if wanted in row[-1].name.lower()] if wanted else all_rows
    sort = asked.query("sort")
    if sort:
        found = await _sorted(found, sort, shape, asked.query("sort_reverse") in TRUE)
    items = [chosen(row) async for row in _in_turns(found[(page - 1) * size : page * size])]
    return {
        "items": items,
        "item_count": len(items),
        "filtered_count": len(found),
        "total_count": len(all_rows),
        "page": page,
        "page_size": size,
        "page_count": max(1, -(-len(found) // size)),
    }


async def _sorted(
    rows: list[Any], column: str, shape: Callable[[Any], dict[str, Any]], reverse: bool
) -> list[Any]:
    def key(row: Any) -> tuple[bool, float, str]:
        value = shape(row).get(column)
        if isinstance(value, int | float):
            return False, value, ""
        return True, 0, str(value)

    keyed = [(key(row), row) async for row in _in_turns(rows)]
    keyed.sort(key=lambda each: each[0], reverse=reverse)
    return [row for _, row in keyed]


# --- what there is ------------------------------------------------------------------------------


async def _overview(asked: Asked) -> Any:
    return shapes.overview(asked.server, asked.vhosts())


async def _nodes(asked: Asked) -> Any:
    return [shapes.node(asked.server)]


async def _whoami(asked: Asked) -> Any:
    return {"name": asked.user, "tags": sorted(asked.tags)}


async def _vhosts(asked: Asked) -> Any:
    found = [shapes.vhost(asked.server, each) for each in asked.vhosts()]
    found += [shapes.vhost_down(asked.server, *each) for each in asked.down().items()]
    return sorted(found, key=lambda row: str(row["name"]))


async def _vhost(asked: Asked) -> Any:
    return shapes.vhost(asked.server, asked.vhost())


async def _queues(asked: Asked) -> Any:
    rows = [(vhost, queue) for vhost in asked.in_vhosts() for queue in vhost.queues.values()]
    return await _listed(asked, rows, lambda row: shapes.queue(asked.server, *row))


async def _queue(asked: Asked) -> Any:
    return shapes.queue(asked.server, *asked.queue())


async def _exchanges(asked: Asked) -> Any:
    rows = [(vhost, each) for vhost in asked.in_vhosts() for each in vhost.exchanges.values()]
    return await _listed(asked, rows, lambda row: shapes.exchange(*row))


async def _exchange(asked: Asked) -> Any:
    vhost = asked.vhost()
    name = asked.part("name")
    found = vhost.exchanges.get("" if name == "amq.default" else name)
    if found is None:
        raise NotFound("Not Found")
    return shapes.exchange(vhost, found)


async def _bindings(asked: Asked) -> Any:
    found = []
    for vhost in asked.in_vhosts():
        found += [shapes.binding(vhost, *each) for each in shapes.bindings(vhost)]
    return found


async def _bindings_of_queue(asked: Asked) -> Any:
    vhost, queue = asked.queue()
    return [
        shapes.binding(vhost, *each)
        for each in shapes.bindings(vhost)
        if each[0].destination == (QUEUE, queue.name)
    ]


async def _connections(asked: Asked) -> Any:
    return [shapes.connection(asked.server, each) for each in asked.sessions()]


async def _channels(asked: Asked) -> Any:
    return [
        shapes.channel(asked.server, session, channel)
        for session in asked.sessions()
        for channel in session.channels
    ]


async def _consumers(asked: Asked) -> Any:
    return [
        shapes.consumer(vhost, queue, consumer)
        for vhost in asked.in_vhosts()
        for queue in vhost.queues.values()
        for consumer in queue.consumers
        if isinstance(consumer, Consumer)
    ]


# --- the paths ----------------------------------------------------------------------------------


async def _metrics(asked: Asked) -> web.Response:
    per_object = asked.request.path.endswith("/per-object")
    if not SEES_ALL & asked.tags:
        raise NotAllowed("metrics need the tag monitoring or administrator")
    async with asked.request.app[_LONG]:
        page = await asked.request.app[_METRICS].page(per_object=per_object)
    return web.Response(body=page, headers={"Content-Type": "text/plain; version=0.0.4"})


_PATHS: Final[tuple[tuple[str, str, Callable[[Asked], Any]], ...]] = (
    *MORE,
    ("GET", "/api/overview", _overview),
    ("GET", "/api/nodes", _nodes),
    ("GET", "/api/whoami", _whoami),
    ("GET", "/api/vhosts", _vhosts),
    ("GET", "/api/vhosts/{vhost}", _vhost),
    ("GET", "/api/queues", _queues),
    ("GET", "/api/queues/{vhost}", _queues),
    ("GET", "/api/queues/{vhost}/{name}", _queue),
    ("PUT", "/api/queues/{vhost}/{name}", changes.put_queue),
    ("DELETE", "/api/queues/{vhost}/{name}", changes.delete_queue),
    ("DELETE", "/api/queues/{vhost}/{name}/contents", changes.purge),
    ("GET", "/api/queues/{vhost}/{name}/bindings", _bindings_of_queue),
    ("POST", "/api/queues/{vhost}/{name}/get", changes.get),
    ("GET", "/api/exchanges", _exchanges),
    ("GET", "/api/exchanges/{vhost}", _exchanges),
    ("GET", "/api/exchanges/{vhost}/{name}", _exchange),
    ("PUT", "/api/exchanges/{vhost}/{name}", changes.put_exchange),
    ("DELETE", "/api/exchanges/{vhost}/{name}", changes.delete_exchange),
    ("POST", "/api/exchanges/{vhost}/{name}/publish", changes.publish),
    ("GET", "/api/bindings", _bindings),
    ("GET", "/api/bindings/{vhost}", _bindings),
    ("POST", "/api/bindings/{vhost}/e/{source}/{kind:[qe]}/{name}", changes.bind),
    ("DELETE", "/api/bindings/{vhost}/e/{source}/{kind:[qe]}/{name}/{key}", changes.unbind),
    ("GET", "/api/connections", _connections),
    ("DELETE", "/api/connections/{name}", changes.close_connection),
    ("GET", "/api/channels", _channels),
    ("GET", "/api/consumers", _consumers),
    ("GET", "/api/consumers/{vhost}", _consumers),
    ("PUT", "/api/vhosts/{vhost}", accounts.put_vhost),
    ("DELETE", "/api/vhosts/{vhost}", accounts.delete_vhost),
    ("GET", "/api/vhosts/{vhost}/permissions", accounts.permissions_in_vhost),
    ("GET", "/api/users", accounts.users),
    ("GET", "/api/users/{user}", accounts.user),
    ("PUT", "/api/users/{user}", accounts.put_user),
    ("DELETE", "/api/users/{user}", accounts.delete_user),
    ("GET", "/api/users/{user}/permissions", accounts.permissions_of_user),
    ("GET", "/api/permissions", accounts.permissions),
    ("GET", "/api/permissions/{vhost}/{user}", accounts.permission),
    ("PUT", "/api/permissions/{vhost}/{user}", accounts.put_permission),
    ("DELETE", "/api/permissions/{vhost}/{user}", accounts.delete_permission),
    ("GET", "/api/definitions", accounts.export),
    ("POST", "/api/definitions", accounts.take_in),
    ("GET", "/api/definitions/{vhost}", accounts.export_vhost),
    ("POST", "/api/definitions/{vhost}", accounts.take_in_vhost),
    ("GET", "/metrics", _metrics),
    ("GET", "/metrics/per-object", _metrics),
)


def handler(call: Callable[[Asked], Any]) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.StreamResponse:
        asked = Asked(request)
        if request.method in ("GET", "HEAD"):
            asked.check_page()
        else:
            asked.check_query(changes.QUERIES.get(call, ()))
        found = await call(asked)
        return found if isinstance(found, web.StreamResponse) else await _answer(request, found)

    return handle


async def _answer(request: web.Request, value: Any) -> web.Response:
    """The value as JSON; a long list in slices, between which others have their turns."""
    if not isinstance(value, list) or len(value) <= SLICE:
        return answer(value)
    parts = []
    async with _turn(request, len(value)):
        for at in range(0, len(value), SLICE):
            parts.append(", ".join(map(shapes.to_json, value[at : at + SLICE])))
            await asyncio.sleep(0)
    return web.Response(text=f"[{', '.join(parts)}]", content_type="application/json")


def add_to(app: web.Application) -> None:
    """Give the application its paths. In them, a name is percent-encoded, as "/" is %2F.

    Slashes at the end mean nothing, as in RabbitMQ: Flower asks for /api/queues//.
    """
    app[_METRICS] = Metrics(app[SERVER])
    app[_LONG] = asyncio.Semaphore(AT_ONCE)
    for method, path, call in _PATHS:
        app.router.add_route(method, f"{any_name(path)}{{slashes:/*}}", handler(call))
