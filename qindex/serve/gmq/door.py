"""gmq's port: both versions, each connection as its first byte says; channels; start and stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from qindex.broker.vhost import VHost
from qindex.gmq import commands, jsonrpc
from qindex.gmq.commands import Command, Wrong, reply
from qindex.gmq.text import go_json, to_bytes
from qindex.serve.gmq.jobs import POP_SECONDS, Jobs
from qindex.serve.gmq.shop import Shop
from qindex.serve.gmq.topics import Popped, Topics

log: Final = logging.getLogger("qindex.serve")
HEARTBEAT_SECONDS: Final = 5.0
WRITE_HIGH: Final = 1024 * 1024
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
        await asyncio.sleep(0)
        self.shop.leases.stop()

    def publish(self, channel: str, body: bytes) -> bool:
        """Send a message to all who have subscribed; False: nobody has."""
        subscribed = self.channels.get(channel, {})
        for connection in subscribed:
            connection.send(reply(commands.CHANNEL, body))
        return bool(subscribed)


class Connection(asyncio.Protocol):
    """One client. The first byte says which version it speaks."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self._transport: asyncio.Transport | None = None
        self._version: _Version1 | _Version2 | None = None
        self._out: list[bytes] = []
        self._is_slow = False
        self._stops = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        found = transport.get_extra_info("socket")
        if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH)
        self.door.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._version is None:
            self._version = (_Version1 if data[0] in OF_VERSION_1 else _Version2)(self)
        self._version.receive(data)
        self.balance()

    def balance(self) -> None:
        """Read on, unless the client has asked for much that it has not had."""
        transport, version = self._transport, self._version
        if transport is None or transport.is_closing() or version is None:
            return
        if self._stops or self._is_slow or version.pending >= PENDING_MAX:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def pause_writing(self) -> None:
        self._is_slow = True
        self.balance()

    def resume_writing(self) -> None:
        self._is_slow = False
        self.balance()

    def pause(self) -> None:
        self._stops = True
        self.balance()

    def send(self, data: bytes) -> None:
        """Write this at the end of the loop's turn."""
        if not self._out:
            self.door.loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(out))

    def close(self) -> None:
        """Write what there is, then close."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.connections.discard(self)
        if self._version is not None:
            self._version.stop()


class _Version1:
    """Requests are carried out as they come, and answered as they are ready, as in Go."""

    def __init__(self, connection: Connection) -> None:
        self.pending = 0
        self._connection = connection
        self._reader = jsonrpc.Reader()
        self._pops: dict[object, Callable[[], None]] = {}

    def receive(self, data: bytes) -> None:
        for request in self._reader.feed(data):
            if request.wrong:
                self._connection.send(jsonrpc.refusal(request, request.wrong))
            else:
                self._call(request)
            if request.is_last:
                self._connection.close()

    def _call(self, request: jsonrpc.Request) -> None:
        jobs, parameter = self._connection.door.jobs, request.params[0]
        self.pending += 1

        def done(result: Any, error: str | None) -> None:
            self.pending -= 1
            self._pops.pop(done, None)
            send = self._connection.send
            if error is None:
                send(jsonrpc.answer(request, result))
            else:
                send(jsonrpc.refusal(request, error))
            self._connection.balance()

        if request.method == "Service.Push":
            jobs.push(parameter, done)
        elif request.method == "Service.Pop":
            waiting = [True]

            def popped(result: Any, error: str | None) -> None:
                waiting.clear()
                done(result, error)

            stop = jobs.pop(parameter, popped)
            if waiting:
                self._pops[done] = stop
        elif request.method == "Service.Ack":
            jobs.ack(parameter, done)
        elif request.method.startswith("Service."):
            done(None, f"rpc: can't find method {request.method}")
        else:
            done(None, f"rpc: can't find service {request.method}")

    def stop(self) -> None:
        """The client is gone: nothing is popped for it any more."""
        for stop in self._pops.values():
            stop()
        self._pops.clear()


class _Slot:
    """The place of an answer: answers go out in the order of the commands."""

    __slots__ = ("data", "is_last")

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.is_last = False


class _Version2:
    """Commands in turn. What follows a pop waits for it, as in gmq."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._door = connection.door
        self._reader = commands.Reader()
        self._commands: deque[Command | Wrong] = deque()
        self._slots: deque[_Slot] = deque()
        self._stop_pop: Callable[[], None] | None = None
        self._is_running = False
        self._beat: asyncio.TimerHandle | None = None

    @property
    def pending(self) -> int:
        return len(self._commands) + len(self._slots)

    def receive(self, data: bytes) -> None:
        self._commands.extend(self._reader.feed(data))
        self._run()

    def _run(self) -> None:
        if self._is_running:
            return
        self._is_running = True
        while self._commands and self._stop_pop is None:
            command = self._commands.popleft()
            slot = _Slot()
            self._slots.append(slot)
            if isinstance(command, Wrong):
                self._answer(slot, command)
            else:
                _COMMANDS[command.name](self, slot, command)
        self._is_running = False
        self._connection.balance()

    def _answer(self, slot: _Slot, what: Wrong | bytes) -> None:
        """Fill a slot, and send those that are ready by now."""
        if isinstance(what, Wrong):
            slot.data, slot.is_last = reply(commands.ERROR, what.data), what.is_fatal
        else:
            slot.data = what
        while self._slots and self._slots[0].data is not None:
            first = self._slots.popleft()
            self._connection.send(first.data or b"")
            if first.is_last:
                self._commands.clear()
                self._slots.clear()
                self._connection.close()
        self._connection.balance()

    def _done(self, slot: _Slot, wrong: Wrong | None) -> None:
        self._answer(slot, wrong or reply(commands.RESULT, b"ok"))

    def _pub(self, slot: _Slot, command: Command) -> None:
        topic, key, delay = command.parameters

        def done(found: Any) -> None:
            if isinstance(found, Wrong):
                self._answer(slot, found)
            else:
                self._answer(slot, reply(commands.RESULT, str(found[0]).encode()))

        self._door.topics.push(topic, [(key, command.bodies[0], delay)], done)

    def _mpub(self, slot: _Slot, command: Command) -> None:
        messages = []
        for raw in command.bodies:
            one = commands.pushed(raw)
            if isinstance(one, str):
                self._answer(slot, Wrong("E_INVALID_JSON", one))
                return
            body = to_bytes(one["body"])
            messages.append((one["route_key"], body, one["delay"]))

        def done(found: Any) -> None:
            if isinstance(found, Wrong):
                self._answer(slot, found)
            else:
                self._answer(slot, reply(commands.RESULT, go_json(found)))

        self._door.topics.push(command.parameters[0], messages, done)

    def _pop(self, slot: _Slot, command: Command) -> None:
        topic, key = command.parameters
        if not topic:
            self._answer(slot, Wrong("E_INVALID_PARAMS", "topic name required.", True))
            return

        def done(found: Popped | Wrong) -> None:
            self._end_pop()
            self._answer(slot, found if isinstance(found, Wrong) else commands.message(*found))
            self._door.loop.call_soon(self._run)

        self._stop_pop = self._door.topics.pop(topic, key, done)
        if self._stop_pop is not None:
            self._beat = self._door.loop.call_later(self._door.heartbeat_seconds, self._send_beat)

    def _send_beat(self) -> None:
        self._connection.send(reply(commands.PING, b"ping"))
        self._beat = self._door.loop.call_later(self._door.heartbeat_seconds, self._send_beat)

    def _end_pop(self) -> None:
        self._stop_pop = None
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    def _dead(self, slot: _Slot, command: Command) -> None:
        found = self._door.topics.dead(*command.parameters)
        self._answer(slot, found if isinstance(found, Wrong) else commands.message(*found))

    def _ack(self, slot: _Slot, command: Command) -> None:
        self._done(slot, self._door.topics.ack(*command.parameters))

    def _set(self, slot: _Slot, command: Command) -> None:
        topic, *values = command.parameters
        self._done(slot, self._door.topics.configure(topic, values))

    def _queue(self, slot: _Slot, command: Command) -> None:
        self._done(slot, self._door.topics.declare(*command.parameters))

    def _subscribe(self, slot: _Slot, command: Command) -> None:
        name = command.parameters[0]
        if not name:
            self._answer(slot, Wrong("E_INVALID_CHANNEL", "channel name is empty", True))
            return
        subscribed = self._door.channels.setdefault(name, {})
        if self._connection in subscribed:
            self._answer(slot, Wrong("E_INVALID_SUBSCRIBE", f"{name} is subscribed already"))
            return
        subscribed[self._connection] = None
        self._done(slot, None)

    def _publish(self, slot: _Slot, command: Command) -> None:
        name = command.parameters[0]
        if not name:
            self._answer(slot, Wrong("E_INVALID_CHANNEL", "channel name required", True))
        elif self._door.publish(name, command.bodies[0]):
            self._done(slot, None)
        else:
            self._answer(slot, Wrong("E_INVALID_PUBLISH", "no subscribers"))

    def _ping(self, slot: _Slot, command: Command) -> None:
        self._answer(slot, reply(commands.PING, b"ping"))

    def stop(self) -> None:
        """The client is gone: nothing is popped for it any more."""
        if self._stop_pop is not None:
            self._stop_pop()
        self._end_pop()
        self._commands.clear()
        self._slots.clear()
        for name in [
            name for name, each in self._door.channels.items() if self._connection in each
        ]:
            del self._door.channels[name][self._connection]
            if not self._door.channels[name]:
                del self._door.channels[name]


_COMMANDS: Final[dict[str, Callable[[_Version2, _Slot, Command], None]]] = {
    "pub": _Version2._pub,
    "mpub": _Version2._mpub,
    "pop": _Version2._pop,
    "dead": _Version2._dead,
    "ack": _Version2._ack,
    "set": _Version2._set,
    "queue": _Version2._queue,
    "subscribe": _Version2._subscribe,
    "publish": _Version2._publish,
    "ping": _Version2._ping,
}
