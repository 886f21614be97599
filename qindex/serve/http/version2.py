"""The HTTP of gmq's version 2: its paths and its envelope {code, msg, data}, on the same topics.

gmq has no login. What keeps foreign pages out of a browser's reach is that of the other HTTP port:
each of these paths changes something by GET.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from qindex.gmq import commands
from qindex.gmq.commands import Wrong
from qindex.gmq.text import go_json, to_bytes
from qindex.serve.gmq.shop import Shop
from qindex.serve.gmq.topics import Popped, Topic, Topics
from qindex.serve.http.origin import Foreign, Names
from qindex.serve.http.port import BROKEN, Port
from qindex.serve.outlet import OnOut

if TYPE_CHECKING:
    from qindex.serve.server import Server

log: Final = logging.getLogger("qindex.serve")
BODY_BYTES_MAX: Final = 16 * 1024 * 1024
BODY_SECONDS: Final = 60.0  # that a client has to send the body of a request
_LOOK_SECONDS: Final = 0.02
_SLICE: Final = 500  # topics between two turns of the event loop
# isAuthoAck is what gmq's README has.
_SETTINGS: Final = {"topic", "isAutoAck", "isAuthoAck", "mode", "msgTTR", "msgRetry"}
Answer = tuple[Any, str] | Wrong  # data and message, or what is wrong


async def accept(server: Server, sockets: list[socket.socket], names: list[str]) -> None:
    """Answer at these sockets that listen, until the server stops.

    `names` are further names of this machine that clients may use.
    """
    gmq = server.gmq_door()
    door = Version2Http(gmq.topics, gmq.shop, names)
    server.add_door(door)
    await door.accept(sockets)


class Version2Http(Port):
    """The port. Made and used in one event loop."""

    def __init__(self, topics: Topics, shop: Shop, allowed_hosts: list[str]) -> None:
        self._topics = topics
        self._shop = shop
        self._names = Names(allowed_hosts)
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES_MAX)
        app.router.add_route("*", "/ping", _ping)
        app.router.add_route("*", "/pop", self._pop)
        for path, answer in self._paths().items():
            app.router.add_route("*", path, _said(answer))
        super().__init__(app)

    def _paths(self) -> dict[str, Callable[[web.Request], Awaitable[Answer]]]:
        return {
            "/push": self._push,
            "/ack": self._ack,
            "/config": self._config,
            "/declareQueue": self._declare,
            "/exitTopic": self._exit,
            "/setIsAutoAck": self._turn_auto_ack,
            "/getTopicStat": self._stat,
            "/getAllTopicStat": self._stats,
            "/getQueuesByTopic": self._queues,
        }

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked(request)
        if request.method not in ("GET", "POST"):  # a HEAD would pop a message and not show it
            return _wrong("ask with GET or POST", 405)
        try:
            self._names.check(request, changes=True)
            found: web.StreamResponse = await handler(request)
        except web.HTTPNotFound:
            return web.Response(status=404, text="not found")
        except web.HTTPException as error:
            return _wrong(error.reason, error.status)
        except Foreign as error:
            return _wrong(str(error), 403)
        except (ValueError, LookupError, AssertionError) as error:  # a form that is none, too
            return _wrong(f"the request cannot be read: {error}", 400)
        except TimeoutError:
            return _wrong("the body did not come in time", 408)
        except web.RequestPayloadError:
            return _wrong(BROKEN, 400)
        except ConnectionError:  # the client has gone: there is nobody to answer
            raise
        except Exception:
            log.exception("gmq: %s %s failed", request.method, request.path)
            return _wrong("an error of the server: its log says more", 500)
        return found

    # --- messages ------------------------------------------------------------------------------

    async def _push(self, request: web.Request) -> Answer:
        """data={"body", "topic", "delay", "route_key"}, in a form or in the URL."""
        async with asyncio.timeout(BODY_SECONDS):
            form = await request.post()
        data = form.get("data") or request.query.get("data", "")
        if not isinstance(data, str):
            return Wrong("", "data is a text, not a file")
        if not data:
            return Wrong("", "data is empty")
        one = commands.pushed(to_bytes(data))
        if isinstance(one, str):
            return Wrong("", one)
        pushed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(found: Any) -> None:
            if not pushed.done():
                pushed.set_result(found)

        message = (one["route_key"], to_bytes(one["body"]), one["delay"])
        self._topics.push(one["topic"], [message], done)
        found = await pushed
        return found if isinstance(found, Wrong) else ({"msgId": str(found[0])}, "success")

    async def _pop(self, request: web.Request) -> web.StreamResponse:
        """The next message, or that there is none: no request waits.

        With auto-ack the message is settled when its bytes have left, as at the other door.
        """
        names = _names(request, "topic", "bindKey")
        if isinstance(names, Wrong):
            return _wrong(names.text)
        found = self._topics.pop_now(*names)
        if not isinstance(found, Popped):
            return _wrong("no message" if found is None else found.text)
        data = {"id": found.id, "body": found.body, "retry_count": found.retries}
        response = _answer(data, "success")
        if found.on_out is not None:
            await _send(request, response, found.on_out)
        return response

    async def _ack(self, request: web.Request) -> Answer:
        names = _names(request, "msgId", "topic", "bindKey")
        if isinstance(names, Wrong):
            return names
        return self._topics.ack(*names) or (None, "success")

    # --- topics --------------------------------------------------------------------------------

    async def _config(self, request: web.Request) -> Answer:
        names = _names(request, "topic")
        if isinstance(names, Wrong):
            return names
        query = request.query
        unknown = sorted(set(query) - _SETTINGS)
        if unknown:
            known = "topic, isAutoAck, mode, msgTTR and msgRetry"
            return Wrong("", f"not known: {', '.join(unknown)[:200]}; there are {known}")
        auto = query.get("isAutoAck", query.get("isAuthoAck", ""))
        values = [auto, *(query.get(name, "") for name in ("mode", "msgTTR", "msgRetry"))]
        return self._topics.configure(names[0], values) or (None, "success")

    async def _declare(self, request: web.Request) -> Answer:
        names = _names(request, "topic", "bindKey")
        if isinstance(names, Wrong):
            return names
        return self._topics.declare(*names) or (None, "ok")

    def _there(self, request: web.Request) -> Topic | Wrong:
        names = _names(request, "topic")
        if isinstance(names, Wrong):
            return names
        return self._topics.look(names[0]) or Wrong("", "topic is not exist")

    async def _exit(self, request: web.Request) -> Answer:
        topic = self._there(request)
        if isinstance(topic, Wrong):
            return topic
        self._topics.exit(topic.name)
        return None, f"topic.{topic.name} has exit."

    async def _turn_auto_ack(self, request: web.Request) -> Answer:
        topic = self._there(request)
        if isinstance(topic, Wrong):
            return topic
        return self._topics.configure(topic.name, [int(not topic.auto_ack)]) or (None, "success")

    async def _stat(self, request: web.Request) -> Answer:
        topic = self._there(request)
        return topic if isinstance(topic, Wrong) else (self._stat_of(topic), "success")

    async def _stats(self, request: web.Request) -> Answer:
        rows = []
        for topic in self._topics.there():
            rows.append(self._stat_of(topic))
            if not len(rows) % _SLICE:
                await asyncio.sleep(0)
        return rows, "success"

    def _stat_of(self, topic: Topic) -> dict[str, Any]:
        found = self._shop.vhost.queues
        queues = [found[name] for key in topic.keys if (name := topic.queue_name(key)) in found]
        dead = [found[name] for key in topic.keys if (name := topic.dead_name(key)) in found]
        unacked = sum(queue.unacked for queue in queues)
        return {
            "name": topic.name,
            "pop_num": topic.popped,
            "push_num": topic.pushed,
            "dead_num": sum(map(len, dead)),
            "queue_msg_num": sum(map(len, queues)) + unacked,
            "queue_num": len(queues),
            "delay_num": sum(queue.backlog.delayed() for queue in queues),
            "wait_ack_num": unacked,
            "start_time": topic.began.strftime("%Y-%m-%d %H:%M:%S"),
            "is_auto_ack": topic.auto_ack,
        }

    async def _queues(self, request: web.Request) -> Answer:
        names = _names(request, "topic")
        if isinstance(names, Wrong):
            return names
        topic = self._topics.topics.get(names[0])
        keys = sorted(topic.keys) if topic is not None else []
        return {key: topic.queue_name(key) for key in keys if topic is not None}, "success"


async def _ping(request: web.Request) -> web.Response:
    return web.Response(text="OK")


def _names(request: web.Request, *names: str) -> list[str] | Wrong:
    """The values of these names in the URL, the first one that is empty as what is wrong."""
    found = [request.query.get(name, "") for name in names]
    empty = next((name for name, value in zip(names, found, strict=True) if not value), None)
    return found if empty is None else Wrong("", f"{empty} is empty")


def _said(answer: Callable[[web.Request], Awaitable[Answer]]) -> Any:
    async def handler(request: web.Request) -> web.Response:
        found = await answer(request)
        return _wrong(found.text) if isinstance(found, Wrong) else _answer(*found)

    return handler


def _answer(data: Any, text: str, code: int = 0, status: int = 200) -> web.Response:
    body = go_json({"code": code, "data": data, "msg": text})
    return web.Response(status=status, body=body, content_type="application/json")


def _wrong(text: str, status: int = 200) -> web.Response:
    return _answer(None, text, 1, status)


async def _send(request: web.Request, response: web.Response, on_out: OnOut) -> None:
    """Write an answer; `on_out` hears whether the operating system has got all of it."""
    has_left = False
    try:
        await response.prepare(request)
        await response.write_eof()
        transport = request.transport
        while transport is not None and not transport.is_closing() and not has_left:
            has_left = not transport.get_write_buffer_size()
            if not has_left:
                await asyncio.sleep(_LOOK_SECONDS)
    finally:
        on_out(has_left)
