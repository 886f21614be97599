"""A quorum queue's log step by step: what each entry said, and what became of which message."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from qindex.brokers.rabbitmq.erlang import ErlangError
from qindex.brokers.rabbitmq.quorum.entries import read_step
from qindex.brokers.rabbitmq.quorum.machine import Machine, name_of
from qindex.brokers.rabbitmq.quorum.member import begin, finish
from qindex.brokers.rabbitmq.quorum.outcome import Outcome
from qindex.brokers.rabbitmq.quorum.walk import walk
from qindex.brokers.rabbitmq.ra.log import Entry
from qindex.brokers.rabbitmq.ra.system import Server
from qindex.brokers.tree import Findings

_NUMBERS_MAX: Final = 8


class Event(NamedTuple):
    """What became of a message, by the step at hand."""

    verb: str  # see machine.Observer
    message: int  # the index of the entry that has it
    text: str


@dataclass(slots=True)
class Step:
    """One step. `entry` is None before the first one, and for the restart behind the last one."""

    entry: Entry | None
    events: list[Event]
    machine: Machine
    is_restart: bool = False


@dataclass(slots=True)
class History:
    """`outcome` is filled while the steps are taken: see member.replay()."""

    server: Server
    until: int | None = None  # up to this entry
    findings: Findings = field(default_factory=Findings)
    outcome: Outcome = field(init=False)

    def __post_init__(self) -> None:
        self.outcome = Outcome(self.server)

    def steps(self, *, restart: bool = True) -> Iterator[Step]:
        """The state to begin with, each entry, and what a restart does. Nothing, if no state is
        known to begin with.

        Cost: that of a replay; each step's events are all that is held beside the machine.
        """
        events: list[Event] = []
        machine = begin(self.outcome, self.findings, self.until)
        if machine is None:
            return
        machine.observer = lambda *told: events.append(Event(*told))
        yield Step(None, events, machine)
        for entry in walk(self.outcome, machine, self.findings, self.until):
            yield Step(entry, events, machine)
            events.clear()
        if restart and not self.outcome.deleted:
            finish(self.outcome, machine, self.findings)
            yield Step(None, events, machine, is_restart=True)

    @property
    def first(self) -> int:
        """The first entry that is played, or 0."""
        snapshot = self.outcome.snapshot
        return snapshot.index + 1 if snapshot else max(0, self.server.log.first)


def whereabouts(machine: Machine, index: int) -> str:
    """Where the machine has a message; empty if nowhere. Linear in what it holds."""
    for consumer in [*machine.consumers.values(), *(each for _, each in machine.waiting)]:
        for number, message in consumer.checked.items():
            if message.index == index:
                return f"delivered to {name_of(consumer.tag)}, as {number}"
    if any(message.index == index for message in machine.returns):
        return "waits again"
    if index in machine.ready.indexes():
        return "waits"
    if any(message.index == index for _, message in machine.delayed):
        return "waits for its time"
    if any(message.index == index for _, message in machine.dead):
        return "a dead letter that waits to be published"
    return ""


def time_of(entry: Entry) -> float | None:
    """When the leader wrote it, in seconds since 1970; None if it does not say."""
    with contextlib.suppress(ErlangError):
        return read_step(entry).at.now_ms / 1000 or None
    return None


def words(entry: Entry) -> tuple[str, str]:
    """(verb, more) of what an entry says, for people."""
    try:
        step = read_step(entry)
    except ErlangError as error:
        return "unreadable", str(error)
    told: Any = step.command
    if step.deletes:
        return "delete", "the queue ends here"
    if step.version is not None:
        return "term", f"a new leader; version {step.version} of the state machine"
    if step.members:
        return "members", str(step.members)
    if not isinstance(told, tuple) or not told:
        return "other", ""
    name = str(told[0])
    with contextlib.suppress(TypeError, ValueError, IndexError):
        return _WORDS.get(name, name), _more(name, told)
    return name, ""


_WORDS: Final = {"enqueue": "publish", "e": "publish", "settle": "ack", "discard": "reject"}


def _more(name: str, told: tuple[Any, ...]) -> str:
    match name:
        case "enqueue":
            return "" if told[2] == "undefined" else f"the publisher's number {told[2]}"
        case "e":
            return f"the publisher's number {told[1]}"
        case "settle" | "return" | "discard" | "modify":
            return f"{_who(told[1])}: {_numbers(told[2])}"
        case "requeue":
            return f"{_who(told[1])}: {told[2]}, which was entry {told[3]}"
        case "checkout":
            what = told[2][0] if isinstance(told[2], tuple) else told[2]
            return f"{_who(told[1])}: {what}"
        case "credit":
            return f"{_who(told[1])}: {told[2]}"
        case "down":
            return f"a process: {told[2]}"
        case "timeout" | "dlx":
            return str(told[1][0] if isinstance(told[1], tuple) else told[1])
    return ""


def _who(key: Any) -> str:
    return name_of(key[0]) if isinstance(key, tuple) else f"the consumer of entry {key}"


def _numbers(told: Any) -> str:
    numbers = list(told) if isinstance(told, (list, tuple)) else []
    more = f" and {len(numbers) - _NUMBERS_MAX} more" if len(numbers) > _NUMBERS_MAX else ""
    return ", ".join(map(str, numbers[:_NUMBERS_MAX])) + more
