"""The page for people: its files, and log-in and log-out. All that it shows comes from the API.

The files stand in `files/`, as they are: HTML, a style sheet and ES modules. They are public, and
the same for everybody. The HTML names the others below a folder that is called as their content, so
a browser keeps them and asks for the HTML only: a request costs more than what it brings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final

from aiohttp import web

from qindex.serve.http.sessions import PageSession, Sessions, cookie_name

SESSION_PATH: Final = "/api/qindex/session"
PUBLIC: Final = "/page/"
INDEX: Final = "index.html"
FOR_EVER: Final = "public, max-age=31536000, immutable"
_KINDS: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for "
    "'script'; trusted-types 'none'"
)
About = Callable[[str], dict[str, Any]]
"""What the page has to know of a user before it asks for anything."""


def is_public(request: web.Request) -> bool:
    """True for what a browser gets before anybody has logged in."""
    is_file = request.path == "/" or request.path.startswith(PUBLIC)
    return is_file and request.method in ("GET", "HEAD")


class _File:
    def __init__(self, name: str, body: bytes, caching: str) -> None:
        self._body = body
        self._headers = {
            "Content-Type": f"{_KINDS[name[name.rindex('.') :]]}; charset=utf-8",
            "Content-Security-Policy": _POLICY,
            "Cache-Control": caching,
            "Cross-Origin-Opener-Policy": "same-origin",
            "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        }

    async def get(self, request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match") == self._headers["ETag"]:
            return web.Response(status=304, headers=self._headers)
        return web.Response(body=self._body, headers=self._headers)


class Page:
    """The files and the sessions of one port."""

    def __init__(self, sessions: Sessions, about: About) -> None:
        self._sessions = sessions
        self._about = about

    def add_to(self, app: web.Application) -> None:
        found = _all_files()
        folder = f"{PUBLIC}{_version(found)}/"
        for name, body in found.items():
            if name == INDEX:
                body = body.replace(PUBLIC.encode(), folder.encode())
                app.router.add_get("/", _File(name, body, "no-cache").get)
            else:
                app.router.add_get(folder + name, _File(name, body, FOR_EVER).get)
        app.router.add_get(SESSION_PATH, self._get)
        app.router.add_delete(SESSION_PATH, self._delete)

    def begin(self, request: web.Request, user: str) -> web.Response:
        """The answer to a log-in that was right."""
        key, session = self._sessions.begin(user)
        response = self._said(session)
        response.set_cookie(
            cookie_name(request),
            key,
            path="/",
            httponly=True,
            samesite="Strict",
            secure=request.secure,
        )
        return response

    async def _get(self, request: web.Request) -> web.Response:
        session = self._sessions.find(request)
        if session is None:
            return web.Response(text='{"user": null}', content_type="application/json")
        return self._said(session)

    async def _delete(self, request: web.Request) -> web.Response:
        self._sessions.end(request)
        response = web.Response(status=204)
        response.del_cookie(cookie_name(request), path="/")
        return response

    def _said(self, session: PageSession) -> web.Response:
        found = {"user": session.user, "token": session.token, **self._about(session.user)}
        return web.Response(text=json.dumps(found), content_type="application/json")


def _all_files() -> dict[str, bytes]:
    folder = files("qindex.serve.http") / "files"
    return {
        each.name: each.read_bytes()
        for each in sorted(folder.iterdir(), key=lambda each: each.name)
        if each.name[each.name.rindex(".") :] in _KINDS
    }


def _version(found: dict[str, bytes]) -> str:
    """Another one for any other content."""
    digest = hashlib.sha256()
    for name, body in found.items():
        digest.update(f"{name} {len(body)} ".encode() + body)
    return digest.hexdigest()[:16]
