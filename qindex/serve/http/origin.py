"""Whether a request is meant for this server, and does not come from a foreign page.

A browser sends requests of any page to any address. So what changes something is refused if it says
that a page of another origin has made it, and all of it if the Host is a name that is not this
machine's: a foreign name that was made to lead here would otherwise read everything.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from aiohttp import web


class Foreign(Exception):
    """The request is not for this server, or comes from a page of another one."""


class Names:
    """What this machine is called: localhost, its own name, its addresses, and `others`."""

    def __init__(self, others: Iterable[str]) -> None:
        self._names = {"localhost", socket.gethostname().lower(), *map(str.lower, others)}

    def check(self, request: web.Request, *, changes: bool) -> None:
        """Foreign; ValueError: a Host or an Origin that is none."""
        try:
            host = urlsplit(f"//{request.host}").hostname or ""
            is_foreign = _is_foreign(request)
        except ValueError:
            raise ValueError("a Host or an Origin that is none") from None
        if not self._has(host):
            raise Foreign(f"this server is not called {host!r}; name it with --http-host")
        if changes and is_foreign:
            raise Foreign("the request comes from a page of another origin")

    def _has(self, host: str) -> bool:
        try:
            ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return host.lower() in self._names
        return True


def _is_foreign(request: web.Request) -> bool:
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return True
    origin = request.headers.get("Origin")
    return origin is not None and urlsplit(origin).netloc != request.host
