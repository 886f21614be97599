"""The HTTP port: who may ask, what is refused and how it is said.

A client logs in with each request (Basic), as RabbitMQ's tools do. A browser sends such a login
along with requests that a foreign page makes. So what changes something is refused if it says that
it comes from a page of another origin, and all of it if the Host is a name that is not this one's:
a foreign name that was made to lead here would otherwise read everything.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aiohttp import web

from qindex.broker import errors as broker
from qindex.broker.arriving import NotIn
from qindex.errors import QindexError
from qindex.field_table import AmqpError
from qindex.serve.http.shapes import to_json
from qindex.serve.logins import FAILURE_SECONDS, TOO_MANY, Login, Verdict
from qindex.serve.sockets import BACKLOG

if TYPE_CHECKING:
    from qindex.serve.server import Server

log: Final = logging.getLogger("qindex.serve")
BODY_BYTES_MAX: Final = 16 * 1024 * 1024
_TAGS: Final = frozenset({"management", "policymaker", "monitoring", "administrator"})
_STATUS: Final[dict[type[broker.Refused], tuple[int, str]]] = {
    broker.NotFound: (404, "Object Not Found"),
    broker.AccessRefused: (401, "not_authorised"),
    broker.NotAllowed: (401, "not_authorised"),
}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SERVER: Final[web.AppKey[Server]] = web.AppKey("server")
USER: Final[web.RequestKey[str]] = web.RequestKey("user", str)


def refusal(status: int, error: str, reason: str) -> web.Response:
    """As RabbitMQ says it."""
    text = to_json({"error": error, "reason": reason.encode("utf-8", "replace").decode()})
    return web.Response(status=status, text=text, content_type="application/json")


def _login(header: str) -> Login | None:
    """What a request says who it is; None if it says nothing, or nothing that is known here."""
    scheme, _, text = header.partition(" ")
    try:
        user, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return Login(user, password) if colon and scheme.lower() == "basic" else None


async def accept(server: Server, sockets: list[socket.socket], names: list[str]) -> None:
    """Answer HTTP at these sockets that listen, until the server stops.

    `names` are further names of this machine that clients may use.
    """
    door = HttpDoor(server, names)
    server.add_door(door)
    await door.accept(sockets)


class HttpDoor:
    """The port. Made and used in one event loop."""

    def __init__(self, server: Server, allowed_hosts: list[str]) -> None:
        from qindex.serve.http import api

        self._logins = server.logins
        self._hosts = {"localhost", socket.gethostname().lower(), *map(str.lower, allowed_hosts)}
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES_MAX)
        app[SERVER] = server
        api.add_to(app)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)

    async def accept(self, sockets: list[socket.socket]) -> None:
        await self._runner.setup()
        for each in sockets:
            await web.SockSite(self._runner, each, backlog=BACKLOG).start()

    def pause(self) -> None:
        """Requests that were read are still answered."""

    async def close(self) -> None:
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await self._refuse(request) or await _carried_out(request, handler)
        response.headers.update(_HEADERS)
        return response

    async def _refuse(self, request: web.Request) -> web.Response | None:
        """What is wrong with a request before its path is looked at; None: nothing."""
        try:
            host = urlsplit(f"//{request.host}").hostname or ""
            is_foreign = _is_foreign(request)
        except ValueError:
            return refusal(400, "bad_request", "a Host or an Origin that is none")
        if not self._is_ours(host):
            reason = f"this server is not called {host!r}; name it with --http-host"
            return refusal(403, "forbidden", reason)
        if request.method not in ("GET", "HEAD") and is_foreign:
            return refusal(403, "forbidden", "the request comes from a page of another origin")
        login = _login(request.headers.get("Authorization", ""))
        verdict = Verdict.WRONG if login is None else await self._verdict(login, request)
        if verdict is Verdict.WAIT:
            response = refusal(429, "too_many_requests", TOO_MANY)
            response.headers["Retry-After"] = f"{FAILURE_SECONDS:.0f}"
            return response
        if login is None or verdict is Verdict.WRONG:
            response = refusal(401, "not_authorised", "Login failed")
            response.headers["WWW-Authenticate"] = 'Basic realm="qindex"'
            return response
        tags = request.app[SERVER].node.users.tags(login.user)
        if not _TAGS & set(tags):
            return refusal(401, "not_authorised", "Not management user")
        request[USER] = login.user
        return None

    async def _verdict(self, login: Login, request: web.Request) -> Verdict:
        address = request.remote or ""
        verdict = self._logins.at_once(login, address)
        return verdict if verdict is not None else await self._logins.check(login, address)

    def _is_ours(self, host: str) -> bool:
        try:
            ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return host.lower() in self._hosts
        return True


def _is_foreign(request: web.Request) -> bool:
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return True
    origin = request.headers.get("Origin")
    return origin is not None and urlsplit(origin).netloc != request.host


async def _carried_out(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return refusal(404, "Object Not Found", "Not Found")
    except web.HTTPMethodNotAllowed as error:
        return refusal(405, "Method Not Allowed", f"allowed: {', '.join(error.allowed_methods)}")
    except web.HTTPRequestEntityTooLarge:
        return refusal(413, "bad_request", f"a request may have {BODY_BYTES_MAX} bytes")
    except NotIn:
        return refusal(503, "service_unavailable", "messages of the queue are still coming")
    except broker.Refused as error:
        status, name = _STATUS.get(type(error), (400, "bad_request"))
        return refusal(status, name, str(error))
    except (AmqpError, ValueError, TypeError, KeyError) as error:
        return refusal(400, "bad_request", str(error))
    except QindexError as error:
        log.error("%s %s failed: %s", request.method, request.path, error)
        return refusal(500, "internal_error", str(error))
