"""Entries, messages and states that seem to be another queue's: files in each other's place.

No file of a log says whose it is, so that a segment copied into the folder of another queue is read
without a fault. What gives it away:

* A message of the default exchange carries its queue's name as the routing key.
* The settings in a log, and those in a state, hold the queue's own name.
* A state knows the size of each of its messages, and the log has them.
* Every publisher numbers its messages; one whose earlier ones are nowhere is refused.

None of it is proof, so all of it is `suspected`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice, pairwise
from typing import Any, Final

from qindex.brokers.rabbitmq.erlang import ErlangError
from qindex.brokers.rabbitmq.message import MessageError, is_stranger, read_message, text
from qindex.brokers.rabbitmq.quorum.entries import message_of, read_step
from qindex.brokers.rabbitmq.quorum.held import Held
from qindex.brokers.rabbitmq.quorum.machine import Machine
from qindex.brokers.rabbitmq.quorum.measure import measure
from qindex.brokers.rabbitmq.quorum.names import Name, in_settings
from qindex.brokers.rabbitmq.quorum.outcome import Outcome
from qindex.brokers.rabbitmq.quorum.usual import Usual
from qindex.brokers.rabbitmq.ra.log import Entry, Log
from qindex.brokers.rabbitmq.ra.runs import Run
from qindex.brokers.tree import Findings
from qindex.words import many

_LOOKED_AT: Final = 16  # entries of each run
_RUNS_MAX: Final = 10_000
_INDEX_MAX: Final = 1 << 40
_SIZE_BITS: Final = 24  # of a size that is compared


def tell_strangers(name: Name, outcome: Outcome, findings: Findings) -> None:
    """What of the queue's log and state has another queue's name. Cost: 16 entries of each file."""
    log = outcome.server.log
    if outcome.named is not None and outcome.named != name and outcome.snapshot is not None:
        whose = f"the state is that of the queue {text(outcome.named[1])} in"
        whose += f" {text(outcome.named[0])}, not of {text(name[1])}"
        _tell(outcome, findings, outcome.snapshot.where, whose)
    told = set()
    for run in islice(log.runs, _RUNS_MAX):
        why = None if run.where in told else _why_strange(name, log, run)
        if why is not None:
            told.add(run.where)
            _tell(outcome, findings, run.where, why)


def _tell(outcome: Outcome, findings: Findings, where: str, why: str) -> None:
    outcome.doubt(why)
    findings.suspected("another queue's", where, 0, why)


def _why_strange(name: Name, log: Log, run: Run) -> str | None:
    queue = text(name[1])
    for place in islice(run.places(run.first, run.last), _LOOKED_AT):
        entry = log.entry(place.index)
        if entry is None or not entry.sound:
            continue
        with suppress(ErlangError, MessageError):
            content = read_message(message_of(entry.data))
            if is_stranger(content.exchange, content.routing_keys, queue):
                whose = content.routing_keys[0]
                return f"entry {entry.index} was sent to the queue {whose}, by the default exchange"
            continue
        other = _named_in(entry)
        if other is not None and other != name:
            whose = f"{text(other[1])} in {text(other[0])}"
            return f"entry {entry.index} has the settings of the queue {whose}"
    return None


def _named_in(entry: Entry) -> Name | None:
    with suppress(ErlangError):
        match read_step(entry).command:
            case ("update_config", dict(settings)):
                return in_settings(settings)
    return None


# --- a state and its log --------------------------------------------------------------------------


def sizes_of(machine: Machine) -> array[int]:
    """Index and size of every message that the machine holds, packed, by ascending index."""
    packed = array("Q", _packed(machine))
    if any(one > other for one, other in pairwise(packed)):
        packed = array("Q", sorted(packed))
    return packed


def _packed(machine: Machine) -> Iterator[int]:
    for index, size in _held(machine):
        if 0 < index < _INDEX_MAX:
            yield index << _SIZE_BITS | min(size, (1 << _SIZE_BITS) - 1)


def _held(machine: Machine) -> Iterator[tuple[int, int]]:
    consumers = [*machine.consumers.values(), *(each for _, each in machine.waiting)]
    others: list[Held] = [*machine.returns, *(each for _, each in machine.delayed)]
    others += [each for consumer in consumers for each in consumer.checked.values()]
    others += [each for _, each in machine.dead]
    for message in others:
        yield message.index, message.size
    for line in machine.ready.lines.values():
        yield from line.places()


def compare_with_state(outcome: Outcome, machine: Machine, findings: Findings) -> None:
    """Whether the log has, at the place of each message of the state, one of that size."""
    snapshot, packed = outcome.snapshot, outcome.sizes
    outcome.sizes = array("Q")
    if snapshot is None or not packed:
        return
    log, usual, at = outcome.server.log, Usual(), 0
    unlike: list[int] = []
    for block in log.blocks(0, snapshot.index):
        indexes = block.columns.indexes
        if not block.data:
            continue
        wanted: dict[int, int] = {}
        while at < len(packed) and packed[at] >> _SIZE_BITS <= indexes[-1]:
            wanted[packed[at] >> _SIZE_BITS] = packed[at] & (1 << _SIZE_BITS) - 1
            at += 1
        if not wanted:
            continue
        for number, row in enumerate(usual.rows(machine, block, 0)):
            size = wanted.get(row[0])
            if size is None or number in block.bad or (row[1] == 0 and row[4] == size):
                continue
            entry = log.entry_of(block, number)
            if entry is not None and entry.sound and not _may_have(entry, size, machine.version):
                unlike.append(row[0])
    if unlike:
        counted = many(len(unlike), "message")
        why = f"{counted} of the state at entry {snapshot.index} are not what the log has in their"
        why += f" places, entry {unlike[0]} for one: one of both is another queue's"
        _tell(outcome, findings, snapshot.where, why)


def _may_have(entry: Entry, size: int, version: int) -> bool:
    """Whether the entry publishes a message that a state may know with this size."""
    try:
        command: Any = read_step(entry).command
    except ErlangError:
        return True  # that is said elsewhere
    body = meta = -1
    match command:
        case ("requeue", *_) | ("enqueue", _, _, ("mc", "mc_amqp", *_)):
            return True  # its size is an older entry's, or an estimate
        case ("e", _, _, (int(meta), int(body))):
            pass
        case ("enqueue", _, _, message):
            body, meta, *_ = measure(message, version)
    known = [min(each, (1 << _SIZE_BITS) - 1) for each in (body, body + meta)]
    return size in known


def tell_refused(outcome: Outcome, machine: Machine, findings: Findings) -> None:
    """Publishes that a node refuses, since their publisher's earlier ones never came."""
    count = sum(number for _, number in machine.early.values())
    if count and not machine.uncertain:
        why = f"{many(count, 'publish was', 'publishes were')} refused: the ones before them of"
        why += " their publishers are in no entry; are some entries another queue's?"
        _tell(outcome, findings, outcome.server.where, why)
