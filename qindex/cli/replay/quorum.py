"""qindex replay of a quorum queue: its Raft log, entry by entry; a step's number is its index."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from typing import Any

import qindex
from qindex.apart import refuse_inside
from qindex.brokers.rabbitmq.quorum.history import History, Step, words
from qindex.brokers.rabbitmq.quorum.machine import Machine, name_of
from qindex.brokers.rabbitmq.quorum.member import replay
from qindex.brokers.rabbitmq.quorum.message import Message
from qindex.brokers.rabbitmq.quorum.outcome import Outcome
from qindex.brokers.rabbitmq.quorum.queues import QuorumQueue
from qindex.brokers.recover import batches
from qindex.brokers.storable import Changes
from qindex.brokers.tree import Findings
from qindex.cli.put import put, size_of
from qindex.cli.replay.show import HEAD_BYTES, MESSAGES_MAX
from qindex.look.at_time import now_us
from qindex.look.messages import Found, body_as_json
from qindex.look.screen import CommandError, Screen
from qindex.look.sources import Source
from qindex.look.text import count, printable, size

COLUMNS = [">place", ">entry", "<state", ">deliveries", ">size", "<payload"]


def replay_quorum(
    options: argparse.Namespace, screen: Screen, source: Source, name: str, queue: QuorumQueue
) -> int:
    """The exit code: 1 if the log is damaged, or suspected not to be all."""
    if options.priority is not None:
        raise CommandError("--priority is for classic queues: a quorum queue has one log")
    if options.step:
        from qindex.cli.replay.quorum_step import QuorumSteps
        from qindex.cli.replay.step import step as step_through

        steps = QuorumSteps(queue)
        step_through(screen, steps)
        return _told(screen, queue, queue.outcome)
    if options.at is None and options.until is None:
        return _show_steps(options, screen, queue)
    at = _entry_of(queue, options.at) if options.at is not None else _find(screen, queue, options)
    history = History(queue.outcome.server, at)
    step = None
    for each in history.steps(restart=False):
        step = each
    if step is None:
        raise CommandError(f"the state behind entry {at} is not known: {reach(queue)}")
    if options.out is not None:
        return _put_into(screen, source, name, queue, at, options)
    _show_state(screen, name, queue, step, at, options)
    return _told(screen, queue, history.outcome)


def reach(queue: QuorumQueue) -> str:
    """From where to where the log can be played."""
    history = History(queue.outcome.server)
    step = next(history.steps(restart=False), None)
    last = queue.outcome.server.last_index
    if step is None:
        return "no state is known to begin with"
    return f"the log can be played from entry {history.first} to {last}"


def _entry_of(queue: QuorumQueue, at: int) -> int:
    """A negative number counts from the end. CommandError: there is no such entry."""
    last = queue.outcome.server.last_index
    found = at + last if at < 0 else at
    if not 0 <= found <= last:
        raise CommandError(f"there is no entry {at}: {reach(queue)}")
    return found


def _find(screen: Screen, queue: QuorumQueue, options: argparse.Namespace) -> int:
    """The first entry by which something, or the thing asked for, became of a message."""
    with screen.progress("replaying", "entries") as progress:
        progress.at(0)
        for step in History(queue.outcome.server).steps(restart=False):
            for event in step.events:
                wanted = options.verb in (None, event.verb)
                if event.message == options.until and wanted and step.entry is not None:
                    return step.entry.index
    what = f"no {options.verb} of" if options.verb else "no entry about"
    raise CommandError(f"{what} the message of entry {options.until}: {reach(queue)}")


def _told(screen: Screen, queue: QuorumQueue, outcome: Outcome) -> int:
    """What is not sure of the log, and of the queue: an older log may be whole and not enough."""
    suspected = [each.text for each in queue.suspicions() if each.text not in outcome.why]
    for why in (*outcome.why, *suspected):
        screen.error(why)
    return 0 if outcome.exact and not suspected else 1


# --- steps ----------------------------------------------------------------------------------------


def _show_steps(options: argparse.Namespace, screen: Screen, queue: QuorumQueue) -> int:
    history = History(queue.outcome.server, options.last)
    found = False
    for step in history.steps(restart=False):
        found = True
        at = history.first - 1 if step.entry is None else step.entry.index
        if at < (options.first or 0):
            continue
        if options.json:
            screen.json(_step_as_json(step, history), indent=None)
        else:
            screen.line(step_line(step, history))
    if not found:
        raise CommandError(f"this log cannot be played: {reach(queue)}")
    return _told(screen, queue, history.outcome)


def step_line(step: Step, history: History) -> str:
    live = f"{step.machine.live:>9,} live"
    if step.entry is None:
        return f"{history.first - 1:>10}  {live}  the state behind this entry"
    verb, more = words(step.entry)
    file = step.entry.where.rpartition("/")[2]
    rest = ", ".join(_summary(step))
    text = "; ".join(part for part in (printable(more), rest) if part)
    place = f"({file} at {step.entry.offset})"
    return f"{step.entry.index:>10}  {live}  {verb:<10} {text} {place}".rstrip()


def _summary(step: Step) -> Iterator[str]:
    """How many messages were delivered, given back ... by this entry."""
    counts: dict[str, int] = {}
    for event in step.events:
        counts[event.verb] = counts.get(event.verb, 0) + 1
    for verb, number in counts.items():
        if verb != "publish" or number > 1:
            yield f"{verb} {number}"


def _step_as_json(step: Step, history: History) -> dict[str, Any]:
    value: dict[str, Any] = {"entry": history.first - 1, "live": step.machine.live}
    if step.entry is not None:
        verb, more = words(step.entry)
        entry = step.entry
        value |= {"entry": entry.index, "term": entry.term, "verb": verb, "text": more}
        value |= {"file": entry.where, "offset": entry.offset, "sound": entry.sound}
        value["events"] = [event._asdict() for event in step.events]
    return value


# --- a state --------------------------------------------------------------------------------------


def _show_state(
    screen: Screen,
    name: str,
    queue: QuorumQueue,
    step: Step,
    at: int,
    options: argparse.Namespace,
) -> None:
    counts = _counts(step.machine)
    past = _past(queue, at)
    limit = options.n or (len(past.outcome.indexes) if options.json else MESSAGES_MAX)
    rows = (
        [_row(*each, now_us(options.at_time)) for each in islice(_messages(past), limit)]
        if options.messages
        else []
    )
    if options.json:
        value = {"queue": name, "entry": at, **_counts_as_json(step.machine)}
        value["live"] = len(past.outcome.indexes)
        screen.json({**value, "message_list": rows} if options.messages else value)
        return
    screen.heading(f"queue {printable(name)} behind entry {at:,}")
    pairs = [(title.replace("_", " "), f"{number:,}") for title, number in counts.items()]
    live = count(len(past.outcome.indexes), "message")
    screen.pairs([*pairs, ("if the node had ended here", f"{live} live")])
    if rows:
        screen.line()
        told = [[str(row[key]) for key in list(row)[:4]] + [size(row["body_bytes"]), _head(row)]
                for row in rows]  # fmt: skip
        screen.table(COLUMNS, told)
        if (more := len(past.outcome.indexes) - len(rows)) > 0:
            screen.line(f"  and {count(more, 'more message')}: see -n")


def _counts(machine: Machine) -> dict[str, int]:
    delivered = {
        f"delivered to {name_of(each.tag)}": len(each.checked)
        for each in machine.consumers.values()
        if each.checked
    }
    return {
        "never_delivered": len(machine.ready),
        "given_back": len(machine.returns),
        "delayed": len(machine.delayed),
        "dead_letters": len(machine.dead),
        **delivered,
    }


def _counts_as_json(machine: Machine) -> dict[str, Any]:
    held = {name_of(each.tag): len(each.checked) for each in machine.consumers.values()}
    return {
        "never_delivered": len(machine.ready),
        "given_back": len(machine.returns),
        "delayed": len(machine.delayed),
        "dead": len(machine.dead),
        "delivered_to": {name: number for name, number in held.items() if number},
    }


def _past(queue: QuorumQueue, at: int) -> QuorumQueue:
    """The queue as a node would have given it that ended behind this entry."""
    outcome = replay(queue.outcome.server, Findings(), at)
    return QuorumQueue(queue.name, queue.vhost_name, outcome, queue.findings, queue.node)


def _messages(past: QuorumQueue) -> Iterator[tuple[int, Message]]:
    yield from enumerate(past.messages())


def _row(place: int, message: Message, now_us: float) -> dict[str, Any]:
    is_expired = 0 < (message.expiry_us or 0) <= now_us
    state = "expired" if is_expired else "unacked" if message.redelivered else "ready"
    return {
        "place": place,
        "entry": message.index,
        "state": state,
        "delivery_count": message.delivery_count,
        "body_bytes": len(message.body),
        **body_as_json(message.body),
    }


def _head(row: dict[str, Any]) -> str:
    return printable(str(row.get("body", row.get("body_base64", "")))[:HEAD_BYTES])


def _put_into(
    screen: Screen,
    source: Source,
    name: str,
    queue: QuorumQueue,
    at: int,
    options: argparse.Namespace,
) -> int:
    refuse_inside(options.out, source.root)
    past, changes, done = _past(queue, at), Changes(), 0
    with qindex.open(options.out, expire=False) as target:
        if name in target:
            raise CommandError(f"{options.out!r} has a queue {printable(name)!r}: choose another")
        into = target.queue(name)
        with screen.progress("publishing", "messages") as progress:
            for batch in batches(_found(name, past, options.at_time), size_of):
                done += len(put(into, batch, changes))
                progress.at(done, len(past.outcome.indexes))
        target.sync()
    lost = len(past.outcome.indexes) - done
    if options.json:
        told = {"entry": at, "out": options.out, "messages": done, "lost": lost}
        screen.json(told, indent=None)
    else:
        text = f"{count(done, 'message')} of entry {at:,} put into {options.out}"
        screen.line(text + (f"; {count(lost, 'message')} could not be read" if lost else ""))
    for kind, number in changes.kinds.items():
        screen.error(f"{count(number, 'message')}: {kind}")
    return 1 if lost or changes.kinds or _told(screen, queue, past.outcome) else 0


def _found(name: str, past: QuorumQueue, at_time: float | None) -> Iterator[Found]:
    """With the time left that they had at that moment."""
    later_us = 0 if at_time is None else int(now_us(None) - now_us(at_time))
    for place, each in _messages(past):
        state = "unacked" if each.redelivered else "ready"
        expiry_us = max(1, each.expiry_us + later_us) if each.expiry_us else 0
        told = (each.redelivered, each.delivery_count, True, expiry_us)
        yield Found(name, place, state, *told, each.headers, each.body)
