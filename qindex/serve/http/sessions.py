"""Log-ins of the page: a cookie names a session, and what changes something shows its token, too.

The cookie is sent by the browser with every request to this port, also with one that a foreign page
has made it send; the token only by the page itself. Sessions are in memory: after a restart of the
server everybody logs in again. One ends with its user's password, and after a day.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from typing import Final, NamedTuple, Protocol

from aiohttp import web

SECONDS_MAX: Final = 86400.0
IDLE_SECONDS_MAX: Final = 4 * 3600.0
SESSIONS_MAX: Final = 1000
TOKEN: Final = "X-Qindex-Token"  # noqa: S105 - a header; that a request has it says: the page asks


class Users(Protocol):
    """Who there is."""

    def tags(self, name: str) -> list[str]: ...
    def stamp(self, name: str) -> bytes: ...


class PageSession(NamedTuple):
    user: str
    token: str
    stamp: bytes
    began: float


class Sessions:
    """The sessions that there are, the one that was used last behind all others."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._by_key: OrderedDict[str, tuple[PageSession, float]] = OrderedDict()

    def begin(self, user: str) -> tuple[str, PageSession]:
        """A new session of a user whose password was right; its key is for the cookie."""
        if len(self._by_key) >= SESSIONS_MAX:
            self._by_key.popitem(last=False)
        now = time.monotonic()
        key, token = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        session = PageSession(user, token, self._users.stamp(user), now)
        self._by_key[key] = session, now
        return key, session

    def find(self, request: web.Request) -> PageSession | None:
        """The session that the request's cookie names, if it has not ended."""
        key = request.cookies.get(cookie_name(request), "")
        session, used = self._by_key.get(key, (None, 0.0))
        if session is None:
            return None
        now = time.monotonic()
        is_over = now - session.began > SECONDS_MAX or now - used > IDLE_SECONDS_MAX
        if is_over or self._users.stamp(session.user) != session.stamp:
            del self._by_key[key]
            return None
        self._by_key[key] = session, now
        self._by_key.move_to_end(key)
        return session

    def end(self, request: web.Request) -> None:
        self._by_key.pop(request.cookies.get(cookie_name(request), ""), None)


def cookie_name(request: web.Request) -> str:
    """Cookies know no ports: two servers of one machine must not log each other out."""
    transport = request.transport
    port = 0 if transport is None else transport.get_extra_info("sockname")[1]
    return f"qindex-{port}"


def has_token(request: web.Request, session: PageSession) -> bool:
    """True if the page itself has made the request."""
    shown = request.headers.get(TOKEN, "")
    return hmac.compare_digest(shown.encode("utf-8", "replace"), session.token.encode())
