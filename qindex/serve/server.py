"""The server: sockets on an event loop, heartbeats, start and stop.

One process, one event loop, one thread for syncs. Each socket has a session; what sessions do is
in session.py and channel.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import platform
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import qindex
from qindex.amqp.connection import BODY_MAX
from qindex.broker.errors import NotFound
from qindex.broker.node import Node
from qindex.broker.rescue.rescue import Rescue, check_whole
from qindex.broker.vhost import VHost
from qindex.errors import StoreFailed
from qindex.serve.clients import Client, Heartbeat
from qindex.serve.control import open_control
from qindex.serve.counts import Counts
from qindex.serve.logins import Logins
from qindex.serve.session import Session
from qindex.serve.sockets import BACKLOG, bind
from qindex.serve.syncs import LoopSyncer, Reads
from qindex.serve.ways import Ways

if TYPE_CHECKING:
    from qindex.serve.channel import Channel
    from qindex.serve.gmq.door import Door as Gmq

log: Final = logging.getLogger("qindex.serve")

Confirm = Literal["durable", "written"]
HANDSHAKE_SECONDS: Final = 30.0
READ_MAX: Final = 512 * 1024  # bytes of a client that are carried out in one turn
CLOSE_SECONDS: Final = 3.0  # that clients have to answer a close
LINGER_SECONDS: Final = 30.0  # that they have to close the socket then, as with RabbitMQ
CAPABILITIES: Final = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}


class Door(Protocol):
    """Another port of the server, on the same queues."""

    def pause(self) -> None:
        """Read no more; what was read is still answered."""

    async def close(self) -> None:
        """Write what there is, and close. Bounded time."""


class Server:
    """A broker that listens. Made and used in one event loop.

    `confirm` is what a confirm of a persistent message means: "durable", it survives a power cut;
    "written", it survives kill -9.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        *,
        confirm: Confirm = "durable",
        environment: Mapping[str, str] | None = None,
        body_max: int = BODY_MAX,
        rescue: Rescue | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.confirms_are_durable = confirm == "durable"
        self.body_max = body_max
        self.counts = Counts()
        self.reads = Reads()
        self.read_buffer = memoryview(bytearray(READ_MAX))  # of whichever client is read
        self.replies: dict[str, Channel] = {}  # consumers of direct replies, by queue
        self.failed: asyncio.Future[BaseException] = self.loop.create_future()
        self._sessions: set[Session] = set()
        self._ways: dict[tuple[VHost, str], Ways] = {}
        self._transports: dict[Session, asyncio.Transport] = {}
        self._listeners: list[asyncio.Server] = []
        self.doors: list[Door] = []
        self.listening: list[tuple[str, str, int]] = []  # protocol, address, port
        self.gmq_pop_seconds = 2.0
        self._stopped = False
        self._numbers = itertools.count(1)
        self._control: asyncio.Server | None = None
        self._began = time.monotonic()
        self.on_reload: Callable[[], None] = lambda: None
        self._environment = environment or {}
        self._rescue = rescue
        is_rescue = rescue is not None
        syncer_of = partial(LoopSyncer, self.loop, self.reads)
        if rescue is not None:
            rescue.check_target(directory)
        self.node = Node(directory, self.loop, syncer_of, self._environment, is_rescue=is_rescue)
        if not is_rescue:
            check_whole(self.node)
        self.node.on_failure = self._sync_failed
        self.logins = Logins(self.node.users, self.loop)

    def _sync_failed(self, error: BaseException) -> None:
        """Nobody knows what is durable: clients hear no confirm, and the server ends."""
        for session in list(self._sessions):
            session.shut_down(f"the disk failed a sync: {error}")
        if not self.failed.done():
            self.failed.set_result(error)

    # --- start and stop ------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> int:
        """Listen there; return the port, which the system has chosen if it was 0."""
        return await self.accept(bind(host, port))

    async def accept(self, sockets: list[socket.socket]) -> int:
        """Accept clients at these sockets that listen; return the port of the first one."""
        for each in sockets:
            listener = await self.loop.create_server(
                lambda: Client(self), sock=each, backlog=BACKLOG
            )
            self._listeners.append(listener)
            self.listens("amqp", each)
        if self._control is None and self.node.directory is not None:
            self._control = await open_control(self, self.node.directory)
        bound: int = sockets[0].getsockname()[1]
        return bound

    async def begin_rescue(self) -> str:
        """Take the definitions of the dead node, and begin to copy; return what to say about it.

        RescueRefused, NotAStore: nothing was changed. Until it returns, clients wait.
        """
        if self._rescue is None:
            return ""
        if self._rescue.needs_source(self.node):
            await self.loop.run_in_executor(None, self._rescue.read)
        return self._rescue.begin(self.node, self._environment)

    async def listen_gmq(self, host: str, port: int) -> int:
        """accept_gmq() of sockets that listen there; return the port."""
        return await self.accept_gmq(bind(host, port))

    async def accept_gmq(self, sockets: list[socket.socket]) -> int:
        """Speak gmq's two protocols there, on the queues of the virtual host "/", or of the first.

        Whoever can connect may use all of its queues: gmq has no login.
        """
        gmq = self.gmq_door()
        for each in sockets:
            listener = await self.loop.create_server(gmq.connection, sock=each, backlog=BACKLOG)
            self._listeners.append(listener)
            self.listens("gmq", each)
        bound: int = sockets[0].getsockname()[1]
        return bound

    def gmq_door(self) -> Gmq:
        """What gmq's ports share: topics, jobs, what is reserved. Made when it is first wanted."""
        from qindex.serve.gmq.door import Door as Gmq

        found = next((door for door in self.doors if isinstance(door, Gmq)), None)
        if found is None:
            names = self.node.vhosts
            vhost = self.node.vhost("/" if "/" in names else names[0])
            found = Gmq(
                vhost,
                self.loop,
                waits=self.confirms_are_durable,
                pop_seconds=self.gmq_pop_seconds,
            )
            self.add_door(found)
        return found

    @property
    def uptime(self) -> float:
        """Seconds since the server was made."""
        return time.monotonic() - self._began

    def listens(self, protocol: str, at: socket.socket) -> None:
        """Note for those who ask what is served at this socket."""
        address, port = at.getsockname()[:2]
        self.listening.append((protocol, address, port))

    def add_door(self, door: Door) -> None:
        """A port that ends with the server."""
        self.doors.append(door)

    async def stop(self) -> None:
        """Confirm what was published, tell all clients, close the stores. Bounded time."""
        if self._stopped:
            return
        self._stopped = True
        self._stop_reading()
        await self._confirm_all()
        for door in self.doors:
            await door.close()
        for session in list(self._sessions):
            session.shut_down("broker forced connection closure with reason 'shutdown'")
        for transport in list(self._transports.values()):
            with contextlib.suppress(RuntimeError):
                transport.resume_reading()
        deadline = self.loop.time() + CLOSE_SECONDS
        while self._sessions and self.loop.time() < deadline:
            await asyncio.sleep(0.005)
        for transport in list(self._transports.values()):
            transport.abort()
        await asyncio.sleep(0)
        for session in list(self._sessions):
            session.lost()
        self.logins.stop()
        self.node.close()

    async def stop_or_fail(self) -> None:
        """stop(); if the end is not clean, `failed` says why."""
        try:
            await self.stop()
        except StoreFailed as error:
            self._sync_failed(error)

    def _stop_reading(self) -> None:
        """Nobody connects any more, and what clients send is not read."""
        if self._rescue is not None:
            self._rescue.stop()
        for listener in self._listeners:
            listener.close()
        if self._control is not None:
            self._control.close()
        for transport in self._transports.values():
            with contextlib.suppress(RuntimeError):
                transport.pause_reading()
        for door in self.doors:
            door.pause()

    async def _confirm_all(self) -> None:
        """Wait until a sync covers everything that was published before."""
        await asyncio.sleep(0)  # what this turn has published asks for its sync
        for vhost in self.node.open_vhosts:
            if vhost.commit is None or vhost.commit.failed is not None:
                continue
            synced = self.loop.create_future()
            vhost.commit.join(partial(_resolve, synced))
            await asyncio.wait([synced, self.failed], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)

    # --- what sessions ask ---------------------------------------------------------------------

    def properties(self) -> dict[str, Any]:
        return {
            "capabilities": CAPABILITIES,
            "cluster_name": f"qindex@{socket.gethostname()}",
            "copyright": "The qindex authors",
            "information": "MIT license",
            "platform": f"Python {platform.python_version()}",
            "product": "qindex",
            "version": qindex.__version__,
        }

    def reply_channel(self, name: str, asking: Channel) -> Channel:
        """The channel that consumes direct replies of this name; NotFound."""
        found = self.replies.get(name)
        if found is None:
            raise NotFound(f"no {asking.vhost.describe('queue', name)}")
        return found

    def ways_of(self, vhost: VHost, user: str) -> Ways:
        """The ways of publishes that are known of this user in this virtual host.

        Those of users and virtual hosts that are deleted go when there is a new one. O(all of them)
        then.
        """
        found = self._ways.get((vhost, user))
        if found is None:
            vhosts, users = {vhost, *self.node.open_vhosts}, {user, *self.node.users.names()}
            kept = self._ways.items()
            self._ways = {at: each for at, each in kept if at[0] in vhosts and at[1] in users}
            found = self._ways[vhost, user] = Ways()
        return found

    def negotiated(self, session: Session) -> None:
        """The connection is open: heartbeats begin."""
        self.counts.opened += 1
        seconds = session.connection.heartbeat
        if seconds:
            beat = Heartbeat(session, self._transports[session], self.loop, seconds)
            self.loop.call_later(seconds / 2, beat.tick)

    @property
    def sessions(self) -> list[Session]:
        """The connections that there are."""
        return list(self._sessions)

    def address_of(self, session: Session) -> tuple[str, int]:
        """Where on this machine its client has connected to."""
        address, port = self._transports[session].get_extra_info("sockname")[:2]
        return address, port

    def next_number(self) -> int:
        """The number of a new session."""
        return next(self._numbers)

    def end(self, session: Session, why: str) -> None:
        """Close a connection: what it had goes back at once, the client has some seconds."""
        session.shut_down(why)
        session.lost()
        self.loop.call_later(CLOSE_SECONDS, self._abort, session)

    def _abort(self, session: Session) -> None:
        transport = self._transports.get(session)
        if transport is not None:
            transport.abort()

    def status(self) -> list[list[Any]]:
        """What `qindex ctl DIR status` says of it."""
        rows: list[list[Any]] = [
            ["uptime", int(self.uptime)],
            ["connections", len(self._sessions)],
            ["confirms", "durable" if self.confirms_are_durable else "written"],
            ["vhosts_down", len(self.node.down)],
            ["queues_damaged", sum(len(vhost.damaged) for vhost in self.node.open_vhosts)],
        ]
        if self._rescue is not None:
            rows.append(["queues_arriving", self._rescue.left])
        return rows

    def joined(self, session: Session, transport: asyncio.Transport) -> None:
        self._sessions.add(session)
        self._transports[session] = transport
        session.timer = self.loop.call_later(HANDSHAKE_SECONDS, self._check_handshake, session)

    def ended(self, session: Session) -> None:
        """Its connection has ended by AMQP's rules: what it had goes back, and the client hears the
        end of what was written.

        The socket is closed when the client closes it. Until then what it still sends is read, and
        dropped: a socket that is closed with bytes unread is reset, which may take the last answers
        from the client, and makes its writes fail.
        """
        session.lost()
        transport = self._transports.get(session)
        if transport is None or transport.is_closing():
            return
        session.outlet.read_to_the_end()
        transport.write_eof()
        session.timer = self.loop.call_later(LINGER_SECONDS, transport.abort)

    def left(self, session: Session) -> None:
        session.lost()
        self.counts.closed += session in self._sessions and bool(session.vhost_name)
        if session.timer is not None:
            session.timer.cancel()
        self._sessions.discard(session)
        self._transports.pop(session, None)

    def _check_handshake(self, session: Session) -> None:
        if session in self._sessions and not session.vhost_name:
            log.warning("%s: no open connection within %g seconds", session.peer, HANDSHAKE_SECONDS)
            self._transports[session].abort()


def _resolve(waited_for: asyncio.Future[None]) -> None:
    if not waited_for.done():
        waited_for.set_result(None)
