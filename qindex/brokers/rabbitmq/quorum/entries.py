"""One entry of a queue's log as the machine takes it.

::

    {'$usr', #{ts => Ms}, Command, ReplyMode}      {noop, #{ts => Ms}, MachineVersion}
    {'$ra_cluster', Meta, delete, ReplyMode}       {'$ra_join' | '$ra_leave' | ..., ...}
    undefined                                      index 0: nothing
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, NamedTuple

from qindex._core import ffi, lib
from qindex.brokers.rabbitmq import erlang
from qindex.brokers.rabbitmq.erlang import ErlangError, is_long
from qindex.brokers.rabbitmq.quorum import upkeep  # noqa: F401  all commands are known with it
from qindex.brokers.rabbitmq.quorum.consumers import read_name
from qindex.brokers.rabbitmq.quorum.deliveries import publish, settle
from qindex.brokers.rabbitmq.quorum.machine import At, Machine
from qindex.brokers.rabbitmq.quorum.measure import Measured
from qindex.brokers.rabbitmq.ra.log import Entry

_PUBLISHES: Final = {"enqueue": 3, "e": 2, "requeue": 5}  # where the message stands


class Step(NamedTuple):
    """What an entry makes the machine do: a command, a version, or the queue's end."""

    at: At
    command: Any = None
    version: int | None = None
    deletes: bool = False
    members: int = 0  # of the queue, from here on


def read_step(entry: Entry) -> Step:
    """ErlangError if the data is no term; of anything that is no step an empty one."""
    term: Any = erlang.decode(entry.data)
    match term:
        case ("$usr", meta, command, reply):
            return Step(At(entry.index, _ms(meta), reply), command)
        case ("noop", meta, int(version)):
            return Step(At(entry.index, _ms(meta), None), version=version)
        case ("$ra_cluster", meta, "delete", *_):
            return Step(At(entry.index, _ms(meta), None), deletes=True)
        case ("$ra_cluster_change", _, [*members] | dict(members), *_):
            return Step(At(entry.index, 0, None), members=len(members))
    return Step(At(entry.index, 0, None))


_read_usual: Final = lib.qi_rabbit_read_step
_unpack: Final = Struct("=QQQQqqIIIII4x").unpack
_NAMES_MAX: Final = 4096
_new: Final = tuple.__new__  # of a named tuple: twice as fast as by its name


class UsualEntries:
    """Takes entries in their usual shapes one by one, without making values of them."""

    def __init__(self) -> None:
        self._step = ffi.new("qi_rabbit_step *")
        self._buffer = ffi.buffer(self._step)
        self._names: dict[bytes, Any] = {}  # publishers and consumers by their bytes

    def take(self, machine: Machine, entry: Entry) -> bool:
        """False: the entry has another shape, and nothing was done."""
        data = entry.data
        if not _read_usual(data, len(data), self._step):
            return False
        (
            now_ms, number, body, meta, ttl, deliveries, who, who_size, priority, count, is_mc,
        ) = _unpack(self._buffer)  # fmt: skip
        if not count and not is_mc and machine.version >= 4:
            return False  # its properties have to be looked at
        raw = data[who : who + who_size]
        name = self._names.get(raw)
        if name is None:
            name = read_name(raw)
            if name is None:
                return False
            if len(self._names) >= _NAMES_MAX:
                self._names.clear()
            self._names[raw] = name
        at = _new(At, (entry.index, now_ms, None))
        if count:
            settle(machine, at, name, [number] if count == 1 else [*range(number, number + count)])
        else:
            times, tries = None if ttl < 0 else ttl, None if deliveries < 0 else deliveries
            message = _new(Measured, (body, meta, times, priority, tries))
            publish(machine, at, name, number, message)
        if now_ms > machine.last_ms:
            machine.last_ms = now_ms
        return True


def take(machine: Machine, step: Step) -> None:
    """Lets the machine do it."""
    if step.command is not None:
        machine.apply(step.at, step.command)
    elif step.version is not None:
        machine.upgrade(step.version, step.at.now_ms)
    elif step.deletes:
        machine.deleted = True
    elif step.members:
        machine.members = step.members


def _ms(meta: Any) -> int:
    told = meta.get("ts") if isinstance(meta, dict) else None
    return told if is_long(told) and told >= 0 else 0


def message_of(data: bytes) -> bytes:
    """The term of the message that the entry publishes, as a term of its own.

    ErlangError if it publishes none. Nothing but its place is looked for.
    """
    places = erlang.elements(data, 1)
    command = erlang.elements(data, places[2]) if len(places) == 4 else []
    name = erlang.decode_at(data, command[0])[0] if command else None
    at = _PUBLISHES.get(name) if isinstance(name, str) else None
    if at is None or at >= len(command):
        raise ErlangError("the entry publishes no message", 0)
    return b"\x83" + data[command[at] : erlang.skip(data, command[at])]
