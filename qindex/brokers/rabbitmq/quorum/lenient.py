"""Going on behind entries that are missing, so that no live message is taken for a settled one.

Every missing entry that may have been a publish gets an empty place in the queue, up to PLACES_MAX
in a log. Of those above it is not looked for which were settled: each counts as lost. What a
publisher sent next tells how many of its publishes are missing, since it counts them. A consumer
that settles what it has not got by now gets it first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from qindex.brokers.rabbitmq.erlang import ErlangError, Opaque
from qindex.brokers.rabbitmq.quorum.consumers import Consumer
from qindex.brokers.rabbitmq.quorum.deliveries import enqueue, find, numbers_of
from qindex.brokers.rabbitmq.quorum.entries import Step, read_step, take
from qindex.brokers.rabbitmq.quorum.held import DEFAULT_PRIORITY, NEVER
from qindex.brokers.rabbitmq.quorum.machine import COMMANDS, SENSELESS, Machine
from qindex.brokers.rabbitmq.quorum.measure import measure
from qindex.brokers.rabbitmq.quorum.rules import VERSION_MAX
from qindex.brokers.rabbitmq.ra.log import Log

_GHOST: Final = -2
PLACES_MAX: Final = 250_000  # a second of work
_HARMLESS: Final = {"update_config", "register_enqueuer", "checkout", "timeout", "dlx"}
_BY_CONSUMERS: Final = {"settle", "return", "discard", "modify"}


class Gaps:
    """The holes of one log, and how many publishes each may have held."""

    def __init__(self, holes: Sequence[tuple[int, int]]) -> None:
        self.holes = list(holes)
        self._publishes: dict[int, int] = {}  # by the hole's first index
        self.first = holes[0][0] if holes else -1
        self._left = PLACES_MAX

    def behind(self, index: int) -> bool:
        return 0 <= self.first < index

    def look_ahead(self, log: Log, first: int, known: Mapping[Any, int]) -> None:
        """How many publishes each hole held, where every publisher was heard of behind it.

        `known`: the next number of each publisher in front of entry `first`.
        """
        expected = dict(known)
        last_hole = -1
        open_since: dict[Any, int] = {}  # of publishers not heard of since the hole at this index
        missing: dict[int, int] = {}
        holes = iter([*self.holes, (-1, -1)])
        hole = next(holes)
        for entry in log.entries(first):
            while 0 <= hole[0] < entry.index:
                open_since = dict.fromkeys(expected, hole[0])
                missing[hole[0]] = 0
                last_hole = hole[0]
                hole = next(holes)
            pid, number = _publisher(entry)
            if not isinstance(pid, Opaque):
                continue
            if pid in open_since:
                missing[open_since.pop(pid)] += max(0, number - expected[pid])
            elif pid not in expected and last_hole >= 0:
                missing[last_hole] += max(0, number - 1)  # it began in the hole
            expected[pid] = number + 1
        silent = set(open_since.values())
        for low, high in self.holes:
            if low in missing and low not in silent and missing[low] <= high - low + 1:
                self._publishes[low] = missing[low]

    def publishes(self, low: int, high: int) -> tuple[int, int]:
        """At most so many publishes are missing here: those that get a place, and the others."""
        count = self._publishes.get(low, high - low + 1)
        placed = min(count, self._left)
        self._left -= placed
        return placed, count - placed


def spans(holes: Sequence[tuple[int, int]]) -> str:
    """For people: 3, 7 to 9."""
    places = ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in holes[:5])
    return f"{places} and {len(holes) - 5} more" if len(holes) > 5 else places


def _publisher(entry: Any) -> tuple[Any, int]:
    try:
        step = read_step(entry)
    except ErlangError:
        return None, 0
    match step.command, step.at.reply:
        case ("enqueue", pid, int(number), _), _:
            return pid, number
        case ("e", int(number), *_), ("notify", _, pid):
            return pid, number
    return None, 0


def fill(machine: Machine, gaps: Gaps, low: int, high: int) -> None:
    """Empty places for what may be missing."""
    machine.uncertain = True
    placed, others = gaps.publishes(low, high)
    machine.found += placed + others
    machine.unplaced += others
    for _ in range(placed):
        machine.ready.put_new(_GHOST, 0, NEVER, DEFAULT_PRIORITY)


def allow(machine: Machine, step: Step) -> None:
    """Makes what the step relies on true, where only a missing entry can have made it so."""
    match step.command, step.at.reply:
        case ("enqueue", pid, int(number), _), _:
            _expect(machine, pid, number)
        case ("e", int(number), *_), ("notify", _, pid):
            _expect(machine, pid, number)
        case (str(name), key, [*told], *_), _ if name in _BY_CONSUMERS:
            _deliver(machine, key, numbers_of(told))
        case ("requeue", key, int(number), *_), _:
            _deliver(machine, key, [number])


def apply_doubtful(machine: Machine, step: Step) -> bool:
    """What may be done of an entry whose checksum does not match; False: it is as good as missing.

    A message is taken, whatever its number says. What takes messages away is not done: one that is
    given although it was settled is better than one that is lost.
    """
    machine.uncertain = True
    match step.command, step.version:
        case ("enqueue", _, _, message), _:
            enqueue(machine, step.at, measure(message, machine.version))
            machine.checkout(step.at)
        case ("e", _, message, *_), _:
            enqueue(machine, step.at, measure(message, machine.version))
            machine.checkout(step.at)
        case (str(name), *_), _ if name in _HARMLESS:
            with contextlib.suppress(*SENSELESS):
                take(machine, step)
        case (str(name), *_), _ if name in COMMANDS:
            pass
        case None, int(version) if version <= VERSION_MAX:
            take(machine, step)
        case _:
            return False
    return True


def _expect(machine: Machine, pid: Any, number: int) -> None:
    if pid != "undefined" and machine.enqueuers.get(pid, 1) < number:
        machine.enqueuers[pid] = number


def _deliver(machine: Machine, key: Any, numbers: list[int]) -> None:
    """The consumer has these, whatever credit it had."""
    found = find(machine, key)
    if found is None:
        if not isinstance(key, tuple) or len(key) != 2:
            return
        machine.consumers[key] = Consumer(*key, lifetime="once", next_id=min(numbers, default=0))
        found = key, machine.consumers[key]
    consumer = found[1]
    for number in range(
        consumer.next_id, min(max(numbers, default=-1), consumer.next_id + 65535) + 1
    ):
        message = machine.take_next()
        if message is None:
            return
        consumer.checked[number] = message
        consumer.next_id = number + 1
        consumer.deliveries += 1
        machine.ready_bytes -= message.size
