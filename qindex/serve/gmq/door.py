"""gmq's port: both versions, each connection as its first byte says; channels; start and stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final, cast

from qindex.broker.vhost import VHost
from qindex.gmq import commands
from qindex.gmq.commands import reply
from qindex.serve.gmq.jobs import POP_SECONDS, Jobs
from qindex.serve.gmq.shop import Shop
from qindex.serve.gmq.topics import Topics
from qindex.serve.gmq.version1 import Version1
from qindex.serve.gmq.version2 import Version2
from qindex.serve.outlet import ANSWERS_HIGH, NOT_READ, OnOut, Outlet

log: Final = logging.getLogger("qindex.serve")
HEARTBEAT_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 3.0  # that a client has to read what was written
PENDING_MAX: Final = 1000  # requests of one connection that wait, before it is read no more
OF_VERSION_1: Final = b"{[ \t\r\n"


class Door:
    """What all of gmq's connections share. Made and used in one event loop."""

    def __init__(
        self,
        vhost: VHost,
        loop: asyncio.AbstractEventLoop,
        *,
        waits: bool,
        pop_seconds: float = POP_SECONDS,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self.loop = loop
        self.shop = Shop(vhost, loop, waits=waits)
        self.jobs = Jobs(self.shop, pop_seconds)
        self.topics = Topics(self.shop)
        self.heartbeat_seconds = heartbeat_seconds
        self.connections: set[Connection] = set()
        self.channels: dict[str, dict[Connection, None]] = {}  # who has subscribed

    def connection(self) -> Connection:
        return Connection(self)

    def pause(self) -> None:
        """Read no more: what was read is still answered."""
        for connection in self.connections:
            connection.pause()

    async def close(self) -> None:
        """Write what there is, and close all connections."""
        for connection in list(self.connections):
            connection.close()
        deadline = self.loop.time() + CLOSE_SECONDS
        while self.connections and self.loop.time() < deadline:
            await asyncio.sleep(0.005)
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)
        self.shop.leases.stop()

    def publish(self, channel: str, body: bytes) -> bool:
        """Send a message to all who have subscribed; False: nobody has."""
        subscribed = self.channels.get(channel, {})
        for connection in subscribed:
            connection.send(reply(commands.CHANNEL, body), counts=True)
        return bool(subscribed)


class Connection(asyncio.Protocol):
    """One client. The first byte says which version it speaks."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self._transport: asyncio.Transport | None = None
        self._version: Version1 | Version2 | None = None
        self._outlet: Outlet | None = None
        self._out: list[bytes] = []
        self._on_out: list[OnOut] = []  # of what is in _out
        self._size = self._counted = 0  # bytes of it; and those that others have caused
        self._wakes: dict[Callable[[], None], None] = {}
        self._stops = False
        self._was_aborted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        found = transport.get_extra_info("socket")
        if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._outlet = Outlet(self._transport, self.door.loop, self._not_read)
        self.door.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._outlet is not None:
            self._outlet.look()  # what it answers to has left
        if self._version is None:
            self._version = (Version1 if data[0] in OF_VERSION_1 else Version2)(self)
        self._version.receive(data)
        self.balance()
        if self._outlet is not None:
            self._outlet.received(len(data))

    def balance(self) -> None:
        """Read on, unless the client has asked for much that it has not had."""
        outlet, version = self._outlet, self._version
        if outlet is not None and version is not None:
            outlet.read(not self._stops and version.pending < PENDING_MAX)

    def pause_writing(self) -> None:
        if self._outlet is not None:
            self._outlet.pause()

    def resume_writing(self) -> None:
        if self._outlet is not None:
            self._outlet.resume()
        self._go_on()

    @property
    def is_behind(self) -> bool:
        """True if so much waits for the client that it is answered no more requests for now."""
        size = self._size
        if self._transport is not None:
            size += self._transport.get_write_buffer_size()
        return size > ANSWERS_HIGH

    def takes(self, wake: Callable[[], None]) -> bool:
        """False while it is behind: it is given nothing more until `wake` is called."""
        if self.is_behind:
            self._wakes[wake] = None
        return not self.is_behind

    def _go_on(self) -> None:
        """It has read some: requests that wait are carried out."""
        if self._version is not None and not self.is_behind:
            wakes, self._wakes = self._wakes, {}
            for wake in wakes:
                wake()
            self._version.go_on()
            self.balance()

    def _not_read(self) -> None:
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        log.warning("gmq, %s: %s", peer, NOT_READ)
        if self._version is not None:
            self._version.stop()
        self.send(reply(commands.ERROR, f"E_NOT_READ - {NOT_READ}".encode()))
        self.close()
        self.door.loop.call_later(CLOSE_SECONDS, self.abort)

    def pause(self) -> None:
        self._stops = True
        self.balance()

    def send(self, data: bytes, on_out: OnOut | None = None, *, counts: bool = False) -> None:
        """Write this at the end of the loop's turn. What others have caused counts for WRITE_MAX:
        the client's own answers do not, since it is not answered more while it is behind.
        """
        if not self._out:
            self.door.loop.call_soon(self._flush)
        self._out.append(data)
        self._size += len(data)
        self._counted += len(data) if counts else 0
        if on_out is not None:
            self._on_out.append(on_out)

    def _flush(self) -> None:
        out, self._out = self._out, []
        on_out, self._on_out = self._on_out, []
        counted, self._counted, self._size = self._counted, 0, 0
        if self._outlet is None or self._transport is None or self._transport.is_closing():
            for each in on_out:
                each(False)
        elif out:
            self._outlet.write(b"".join(out), on_out, counted)
            self._go_on()

    def close(self) -> None:
        """Write what there is, then close."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close, whatever waits to be written."""
        self._was_aborted = True
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.connections.discard(self)
        if self._version is not None:
            self._version.stop()
        if self._outlet is not None:
            self._outlet.lost(all_left=exc is None and not self._was_aborted)
