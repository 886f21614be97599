"""A port that speaks HTTP: sockets, connections that ask for nothing, the end."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from qindex.serve.sockets import BACKLOG

log: Final = logging.getLogger("qindex.serve")
HEAD_SECONDS: Final = 30.0  # from the connection to the end of its first request's headers
KEEP_SECONDS: Final = 75.0  # from an answer to the end of the next request's headers
BROKEN: Final = "the body is not what its headers say"
_aiohttp: Final = logging.getLogger("qindex.serve.http")


def _in_one_line(record: logging.LogRecord) -> bool:
    """Anybody can send what is no HTTP, or go: that is an event, and no error with a traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError):
        record.levelno, record.levelname = logging.INFO, "INFO"
        record.msg, record.exc_info = f"{record.getMessage()}: {str(error)[:200]!r}", None
        record.args = ()
    return _aiohttp.isEnabledFor(record.levelno)


_aiohttp.addFilter(_in_one_line)


def any_name(path: str) -> str:
    """A path of which each {name} may be any name; aiohttp's own pattern has none with braces."""
    return re.sub(r"\{(\w+)\}", r"{\1:[^/]+}", path)


class Port:
    """Made and used in one event loop. Its application calls asked() with each request."""

    def __init__(self, app: web.Application) -> None:
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_aiohttp,
            shutdown_timeout=1.0,
            keepalive_timeout=KEEP_SECONDS,
        )
        self._listeners: list[asyncio.Server] = []
        self._new: set[Any] = set()  # connections that have not asked for anything yet

    async def accept(self, sockets: list[socket.socket]) -> None:
        await self._runner.setup()
        for each in sockets:
            loop = asyncio.get_running_loop()
            listener = await loop.create_server(self._connection, sock=each, backlog=BACKLOG)
            self._listeners.append(listener)

    def asked(self, request: web.Request) -> None:
        """The connection of this request has asked for something."""
        self._new.discard(request.protocol)

    def _connection(self) -> asyncio.BaseProtocol:
        """A new connection. aiohttp itself would wait for the first request as long as it takes."""
        if self._runner.server is None:
            raise RuntimeError("the port is not set up")
        made = self._runner.server()
        self._new.add(made)
        asyncio.get_running_loop().call_later(HEAD_SECONDS, self._check_asked, made)
        return made

    def _check_asked(self, connection: Any) -> None:
        if connection in self._new:
            self._new.discard(connection)
            if connection.transport is not None:
                log.info("HTTP: no request within %g seconds", HEAD_SECONDS)
                connection.transport.abort()

    def pause(self) -> None:
        """Requests that were read are still answered."""

    async def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        await self._runner.cleanup()
