"""The HTTP port: who may ask, what is refused and how it is said.

A client logs in with each request (Basic), as RabbitMQ's tools do; the page logs in once, for a
session (sessions.py). A browser sends either along with requests that a foreign page makes. So what
changes something is refused if it says that it comes from a page of another origin, and all of it
if the Host is a name that is not this one's: a foreign name that was made to lead here would
otherwise read everything. What changes something is logged, with the user's name.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiohttp import web

from qindex import strict_json
from qindex.amqp.events import reply_text
from qindex.broker import errors as broker
from qindex.broker.arriving import NotIn
from qindex.errors import QindexError
from qindex.field_table import HALF, AmqpError
from qindex.serve.http.origin import Foreign, Names
from qindex.serve.http.page import SESSION_PATH, About, Page, is_public
from qindex.serve.http.port import BROKEN, Port
from qindex.serve.http.sessions import TOKEN, PageSession, Sessions, Users, has_token
from qindex.serve.http.shapes import to_json
from qindex.serve.logins import FAILURE_SECONDS, TOO_MANY, Login, Verdict

if TYPE_CHECKING:
    from qindex.serve.server import Server

log: Final = logging.getLogger("qindex.serve")
audit: Final = logging.getLogger("qindex.audit")
BODY_BYTES_MAX: Final = 16 * 1024 * 1024
LOGIN_BYTES_MAX: Final = 16 * 1024  # from anybody
BODY_SECONDS: Final = 60.0  # that a client has to send the body of a request
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
NOTE: Final[web.RequestKey[str]] = web.RequestKey("note", str)  # what an audit has to know


def refusal(status: int, error: str, reason: str) -> web.Response:
    """As RabbitMQ says it."""
    text = to_json({"error": error, "reason": reason.encode("utf-8", "replace").decode()})
    return web.Response(status=status, text=text, content_type="application/json")


async def json_of(request: web.Request) -> dict[str, Any]:
    """The JSON object in the body; {} if there is no body. ValueError; TimeoutError."""
    async with asyncio.timeout(BODY_SECONDS):
        raw = await request.read()
    try:
        found = strict_json.loads(raw.decode()) if raw else {}
    except UnicodeDecodeError:
        raise ValueError("the body is no UTF-8") from None
    except ValueError as error:
        raise ValueError(f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("the body is a JSON object")
    return found


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
    from qindex.serve.http import api, own

    def add(app: web.Application) -> None:
        app[SERVER] = server
        api.add_to(app)
        own.add_to(app, server)

    door = HttpDoor(
        server.node.users, server.logins, names, add, lambda user: own.about(server, user)
    )
    server.add_door(door)
    for each in sockets:
        server.listens("http", each)
    await door.accept(sockets)


class Guard(Protocol):
    """Says whether passwords are right: qindex.serve.logins.Logins."""

    def at_once(self, login: Login, address: str) -> Verdict | None: ...
    def check(self, login: Login, address: str) -> Awaitable[Verdict]: ...


class HttpDoor(Port):
    """The port. Made and used in one event loop.

    `add` gives the application its paths; `about` is what the page has to know of a user.
    """

    def __init__(
        self,
        users: Users,
        logins: Guard,
        allowed_hosts: list[str],
        add: Callable[[web.Application], None],
        about: About,
    ) -> None:
        self._users = users
        self._logins = logins
        self._sessions = Sessions(users)
        self._names = Names(allowed_hosts)
        self._page = Page(self._sessions, about)
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES_MAX)
        add(app)
        self._page.add_to(app)
        app.router.add_post(SESSION_PATH, self._log_in)
        super().__init__(app)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.asked(request)
        response = await self._refuse(request) or await _carried_out(request, handler)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        if request.method not in ("GET", "HEAD"):
            self._audit(request, response.status)
        return response

    @staticmethod
    def _audit(request: web.Request, status: int) -> None:
        """Who has asked for what change, and what became of it."""
        user, note = request.get(USER, "nobody"), request.get(NOTE, "")
        asked = f"{request.method} {request.raw_path}"
        audit.info("%r at %s: %s: %d%s", user, request.remote, asked, status, note and f", {note}")

    async def _log_in(self, request: web.Request) -> web.Response:
        """Begin a session of the page. What is wrong counts as with any other log-in."""
        given = await json_of(request.clone(client_max_size=LOGIN_BYTES_MAX))
        login = Login(str(given.get("user", "")), str(given.get("password", "")))
        verdict = await self._verdict(login, request)
        if verdict is not Verdict.RIGHT:
            return _refused(verdict)
        if not _TAGS & set(self._users.tags(login.user)):
            return refusal(401, "not_authorised", "Not management user")
        request[USER] = login.user
        return self._page.begin(request, login.user)

    async def _refuse(self, request: web.Request) -> web.Response | None:
        """What is wrong with a request before its path is looked at; None: nothing."""
        try:
            self._names.check(request, changes=request.method not in ("GET", "HEAD"))
        except ValueError as error:
            return refusal(400, "bad_request", str(error))
        except Foreign as error:
            return refusal(403, "forbidden", str(error))
        if is_public(request):
            return None
        session = None
        if "Authorization" not in request.headers:
            session = self._sessions.find(request)
        if session is not None and request.path != SESSION_PATH:
            if request.method not in ("GET", "HEAD") and not has_token(request, session):
                return refusal(403, "forbidden", f"a session's changes need the header {TOKEN}")
            return self._enter(request, session.user)
        if request.path == SESSION_PATH:
            return self._check_session(request, session)
        login = _login(request.headers.get("Authorization", ""))
        verdict = Verdict.WRONG if login is None else await self._verdict(login, request)
        if login is None or verdict is not Verdict.RIGHT:
            response = _refused(verdict)
            if (
                verdict is Verdict.WRONG and TOKEN not in request.headers
            ):  # the page asks for the password itself
                response.headers["WWW-Authenticate"] = 'Basic realm="qindex"'
            return response
        return self._enter(request, login.user)

    def _enter(self, request: web.Request, user: str) -> web.Response | None:
        if not _TAGS & set(self._users.tags(user)):
            return refusal(401, "not_authorised", "Not management user")
        request[USER] = user
        return None

    @staticmethod
    def _check_session(request: web.Request, session: PageSession | None) -> web.Response | None:
        """What is wrong with a log-in or log-out of the page, or with a look at its session."""
        if session is None or request.method == "POST":  # a log-in, or nobody yet
            return None
        if request.method == "DELETE" and not has_token(request, session):
            return refusal(403, "forbidden", f"a session's changes need the header {TOKEN}")
        request[USER] = session.user
        return None

    async def _verdict(self, login: Login, request: web.Request) -> Verdict:
        address = request.remote or ""
        verdict = self._logins.at_once(login, address)
        return verdict if verdict is not None else await self._logins.check(login, address)


def _refused(verdict: Verdict) -> web.Response:
    """The answer to a log-in that was not right."""
    if verdict is Verdict.WRONG:
        return refusal(401, "not_authorised", "Login failed")
    response = refusal(429, "too_many_requests", TOO_MANY)
    response.headers["Retry-After"] = f"{FAILURE_SECONDS:.0f}"
    return response


async def _carried_out(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await _answered(request, handler)
    except web.HTTPException as error:
        return refusal(error.status, "bad_request", error.reason)
    except ConnectionError:  # the client has gone: there is nobody to answer
        raise
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        return refusal(500, "internal_error", "an error of the server: its log says more")


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return refusal(404, "Object Not Found", "Not Found")
    except web.HTTPMethodNotAllowed as error:
        return refusal(405, "Method Not Allowed", f"allowed: {', '.join(error.allowed_methods)}")
    except web.HTTPRequestEntityTooLarge as error:
        return refusal(413, "bad_request", error.text or "the request is too large")
    except TimeoutError:
        return refusal(408, "request_timeout", "the body did not come in time")
    except web.RequestPayloadError:
        return refusal(400, "bad_request", BROKEN)
    except NotIn:
        return refusal(503, "service_unavailable", "messages of the queue are still coming")
    except broker.Locked as error:
        return refusal(400, "bad_request", f"405 {reply_text(405, str(error))}")
    except broker.Refused as error:
        status, name = _STATUS.get(type(error), (400, "bad_request"))
        return refusal(status, name, str(error))
    except KeyError as error:
        return refusal(400, "bad_request", f"{error.args[0]} is missing")
    except (AmqpError, ValueError, TypeError) as error:
        is_half = isinstance(error, UnicodeEncodeError)
        return refusal(400, "bad_request", HALF if is_half else str(error))
    except QindexError as error:
        log.error("%s %s failed: %s", request.method, request.path, error)
        is_down = isinstance(error, broker.VHostDown)
        status, name = (503, "service_unavailable") if is_down else (500, "internal_error")
        return refusal(status, name, str(error))
