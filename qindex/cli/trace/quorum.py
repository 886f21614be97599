"""The entries of a quorum queue's log that say something about one message.

The log is played from its newest snapshot on. No entry names the message that it settles: it names
a consumer and a number, and only the state at that moment tells which message that was.
"""

from __future__ import annotations

from collections.abc import Iterator

from qindex.brokers.rabbitmq.erlang import ErlangError
from qindex.brokers.rabbitmq.quorum.entries import read_step
from qindex.brokers.rabbitmq.quorum.history import Event, History, Step, whereabouts, words
from qindex.brokers.rabbitmq.quorum.outcome import Outcome
from qindex.brokers.rabbitmq.quorum.queues import DeadLetterQueue, QuorumQueue
from qindex.brokers.rabbitmq.ra.log import Entry
from qindex.look.at_time import now_us
from qindex.look.screen import CommandError
from qindex.look.sources import NodeSource, Source
from qindex.look.text import printable
from qindex.look.traces import Record, Trace
from qindex.moments import utc


def queue_of(source: Source, name: str) -> QuorumQueue:
    """The quorum queue of this name, also by the name of its dead letters. CommandError: none."""
    found = source.replicated.get(name) if isinstance(source, NodeSource) else None
    if isinstance(found, DeadLetterQueue):
        return found.queue
    if isinstance(found, QuorumQueue):
        return found
    raise CommandError(f"{printable(name)} is no quorum queue: name QUEUE:REQID")


def trace(source: NodeSource, name: str, place: int) -> Iterator[Trace]:
    """By its place among the queue's messages; nothing if there are not so many."""
    queue, outcome = queue_of(source, name), queue_of(source, name).outcome
    indexes = [held.index for _, held in outcome.dead]
    if isinstance(source.replicated[name], QuorumQueue):
        indexes = list(outcome.indexes)
    if place < len(indexes):
        yield _trace(source, queue, name, indexes[place])


def trace_entry(source: Source, name: str, index: int) -> Iterator[Trace]:
    """By the index of its entry; nothing if the log has no such entry and no state names it."""
    found = _trace(source, queue_of(source, name), name, index)
    if found.records:
        yield found


def _trace(source: Source, queue: QuorumQueue, name: str, index: int) -> Trace:
    history = History(queue.outcome.server)
    told = Trace(name, index)
    last: Event | None = None
    for step in history.steps():
        if step.entry is None and not step.is_restart:
            last = _begin(told, history, step, index)
        for event in step.events:
            if event.message == index:
                last = event
                told.records.append(_record(step, history, event))
    outcome = history.outcome
    entry = outcome.server.log.entry(index)
    if entry is not None and not entry.sound:
        told.damaged = True
        told.records.append(Record(entry.where, entry.offset, "damage", "its checksum is wrong"))
    elif entry is None and told.records:
        told.damaged = True
        told.records.append(Record(queue.where, 0, "damage", "no file has its entry"))
    if last is None and entry is not None:
        verb, more = words(entry)
        told.records.append(Record(entry.where, entry.offset, verb, _at(entry, more)))
    told.state = _state(outcome, index, last, history.first, now_us(source.at_time))
    if not outcome.exact:
        told.damaged = True
        told.state += f"; this is not sure: {outcome.why[0] if outcome.why else 'damage'}"
    return told


def _begin(told: Trace, history: History, step: Step, index: int) -> Event | None:
    """What the state says that the log is played from."""
    where = whereabouts(step.machine, index)
    snapshot = history.outcome.snapshot
    if not where or snapshot is None:
        return None
    text = f"in the state behind entry {snapshot.index}: {where}"
    told.records.append(Record(snapshot.where, snapshot.offset, "state", text))
    return Event("state", index, where)


def _record(step: Step, history: History, event: Event) -> Record:
    if step.entry is None:
        where = history.server.where
        return Record(where, 0, event.verb, f"as the node starts: {event.text or event.verb}")
    verb, more = words(step.entry)
    text = event.text
    if verb != event.verb:  # what another command brought about
        text = f"{text}, by {verb} {more}".strip(" ,")
    return Record(step.entry.where, step.entry.offset, event.verb, _at(step.entry, text))


def _at(entry: Entry, text: str) -> str:
    """With the entry's index and the leader's time."""
    head = f"entry {entry.index}, term {entry.term}"
    try:
        now_ms = read_step(entry).at.now_ms
        if now_ms:
            head += f", {utc(now_ms / 1000)}"
    except (ErlangError, ValueError, OverflowError, OSError):
        pass
    return f"{head}: {text}" if text else head


def _state(outcome: Outcome, index: int, last: Event | None, first: int, now_us: float) -> str:
    if index in outcome.odd or index in outcome.indexes:
        held = outcome.odd.get(index)
        seen = 0 if held is None else held.acquired or held.deliveries or 0
        bounds = outcome.counts.get(index)
        count = f"{bounds[0]} to {bounds[1]}" if bounds else str(seen)
        text = f"live, delivered {count} times" if seen else "live, ready"
        expiry_us = 0 if held is None else held.expiry_ms * 1000
        return f"{text}; expired" if 0 < expiry_us <= now_us else text
    for reason, held in outcome.dead:
        if held.index == index:
            return f"a dead letter that RabbitMQ would still publish: {reason}"
    if last is not None:
        return {"ack": "acked", "move": last.text, "publish": "gone"}.get(
            last.verb, f"gone: {last.verb} {last.text}".strip()
        )
    if index < first:
        return f"no message at entry {first}, from which on the log is played: settled before"
    return "no message: the entry is another command"
