"""The event loop's view of a session: bytes in, room to write, heartbeats."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Final, cast

from qindex.serve.logins import LOCAL
from qindex.serve.session import Session

if TYPE_CHECKING:
    from qindex.serve.server import Server

log: Final = logging.getLogger("qindex.serve")


class Client(asyncio.BufferedProtocol):
    """The event loop's view of a session. All read into one buffer, one after the other."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._session: Session | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's has its methods, not its class
        peer = transport.get_extra_info("peername")
        found = transport.get_extra_info("socket")
        if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address = peer[0] if isinstance(peer, tuple) else LOCAL
        name = f"{address}:{peer[1]}" if isinstance(peer, tuple) else LOCAL
        self._session = Session(self._server, transport, name, address)
        self._server.joined(self._session, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._server.reads.count += 1
        self._server.reads.size += nbytes
        if self._session is not None and not self._session.connection.has_ended:
            self._session.receive(self._server.read_buffer[:nbytes])

    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.outlet.pause()

    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._session is not None:
            self._server.left(self._session)


class Heartbeat:
    """Sends a heartbeat when nothing else was sent, and ends a connection that is silent."""

    def __init__(
        self,
        session: Session,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        seconds: int,
    ) -> None:
        self._session = session
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._sent = self._received = -1
        self._silent = 0  # half intervals

    def tick(self) -> None:
        session = self._session
        if session.closed:
            return
        if session.sent == self._sent:
            session.connection.send_heartbeat()
            session.flush_later()
        self._sent = session.sent
        reads = self._transport.is_reading()  # a client that is not read cannot be heard
        if not session.is_writable:  # unless it has died: one read until the next tick
            session.outlet.read_once()
        self._silent = self._silent + 1 if reads and session.received == self._received else 0
        self._received = session.received
        if self._silent >= 4:
            log.warning("%s: missed heartbeats, timeout: %ds", session.peer, self._seconds)
            self._transport.abort()
            return
        self._loop.call_later(self._seconds / 2, self.tick)
