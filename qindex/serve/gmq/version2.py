"""A connection that speaks version 2: commands in, answers out in the same order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from qindex.gmq import commands
from qindex.gmq.commands import Command, Wrong, reply
from qindex.gmq.text import go_json, to_bytes
from qindex.serve.gmq.topics import Popped
from qindex.serve.outlet import OnOut

if TYPE_CHECKING:
    from qindex.serve.gmq.door import Connection


class _Slot:
    """The place of an answer: answers go out in the order of the commands."""

    __slots__ = ("data", "is_last", "on_out")

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.is_last = False
        self.on_out: OnOut | None = None


class Version2:
    """Commands in turn. What follows a pop waits for it, as in gmq."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._door = connection.door
        self._reader = commands.Reader()
        self._commands: deque[Command | Wrong] = deque()
        self._slots: deque[_Slot] = deque()
        self._stop_pop: Callable[[], None] | None = None
        self._is_running = False
        self._has_ended = False
        self._beat: asyncio.TimerHandle | None = None

    @property
    def pending(self) -> int:
        return len(self._commands) + len(self._slots)

    def receive(self, data: bytes) -> None:
        self._commands.extend(self._reader.feed(data))
        self._run()

    def go_on(self) -> None:
        """The client has read some of its answers."""
        self._run()

    def _run(self) -> None:
        if self._is_running:
            return
        self._is_running = True
        while self._commands and self._stop_pop is None and not self._connection.is_behind:
            command = self._commands.popleft()
            slot = _Slot()
            self._slots.append(slot)
            if isinstance(command, Wrong):
                self._answer(slot, command)
            else:
                _COMMANDS[command.name](self, slot, command)
        self._is_running = False
        self._connection.balance()

    def _answer(self, slot: _Slot, what: Wrong | bytes, on_out: OnOut | None = None) -> None:
        """Fill a slot, and send those that are ready by now."""
        slot.on_out = on_out
        if self._has_ended:
            _drop([slot])
            return
        if isinstance(what, Wrong):
            slot.data, slot.is_last = reply(commands.ERROR, what.data), what.is_fatal
        else:
            slot.data = what
        while self._slots and self._slots[0].data is not None:
            first = self._slots.popleft()
            self._connection.send(first.data or b"", first.on_out)
            if first.is_last:
                self._end()
                self._connection.close()
        self._connection.balance()

    def _answer_message(self, slot: _Slot, found: Popped | Wrong) -> None:
        if isinstance(found, Wrong):
            self._answer(slot, found)
        else:
            raw = commands.message(found.id, found.body, found.retries)
            self._answer(slot, raw, found.on_out)

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
            self._answer_message(slot, found)
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
        self._answer_message(slot, self._door.topics.dead(*command.parameters))

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
        self._end()
        for name in [
            name for name, each in self._door.channels.items() if self._connection in each
        ]:
            del self._door.channels[name][self._connection]
            if not self._door.channels[name]:
                del self._door.channels[name]

    def _end(self) -> None:
        """Nothing is answered any more: what was handed out for an answer goes back."""
        self._has_ended = True
        self._commands.clear()
        slots, self._slots = self._slots, deque()
        _drop(slots)


def _drop(slots: Iterable[_Slot]) -> None:
    for slot in slots:
        if slot.on_out is not None:
            slot.on_out(False)


_COMMANDS: Final[dict[str, Callable[[Version2, _Slot, Command], None]]] = {
    "pub": Version2._pub,
    "mpub": Version2._mpub,
    "pop": Version2._pop,
    "dead": Version2._dead,
    "ack": Version2._ack,
    "set": Version2._set,
    "queue": Version2._queue,
    "subscribe": Version2._subscribe,
    "publish": Version2._publish,
    "ping": Version2._ping,
}
