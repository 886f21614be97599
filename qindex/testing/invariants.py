"""The checker: what a queue shows, against what the model allows. Plain violations, no opinions."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from qindex.testing.model import Id, Model, Seen, Sent
from qindex.testing.promise import Crash

KINDS: Final = {
    "lost": "a message that must be there is not",
    "back from the dead": "a message is there again whose ack must have survived",
    "phantom": "a message that nobody published",
    "wrong bytes": "a message with another body than it was published with",
    "doubled": "a message twice, or to two consumers at the same time",
    "out of order": "messages in another order than promised",
    "gap": "a publish survived, an earlier one did not",
    "torn batch": "a part of a batch survived",
    "reused id": "an id that another message has, or had",
    "not marked": "a message that somebody may have had before does not say so",
    "wrong count": "the queue counts other than what it holds",
    "not refused": "an ack of what was not delivered was accepted",
    "failed": "a call raised an error that it had no reason for",
    "unreadable": "after a crash or a close, opening or reading raised an error",
    "hung": "a call did not return",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise; `kind` is a key of KINDS."""

    kind: str
    text: str

    def __post_init__(self) -> None:
        assert self.kind in KINDS, self.kind  # noqa: S101 - the harness's own mistake

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def shorten(body: bytes) -> str:
    """A body for people: its size and its beginning."""
    return f"{len(body)} bytes {body[:24]!r}{'...' if len(body) > 24 else ''}"


def check_reopened(
    model: Model, shown: Sequence[Seen], crash: Crash | None
) -> tuple[list[Violation], list[tuple[Sent, Id | None]]]:
    """Judge what the queue shows after opening, all of it and in its order of delivery.

    `crash` is what came before (None: a clean close; "power" also if both came). Returns the
    violations, and the messages shown, for Model.accept(). Changes nothing. O(n log n).
    """
    found: list[Violation] = []
    known: dict[int, tuple[Sent, Seen]] = {}
    doubled = set[int]()
    for seen in shown:
        message = _known(model, seen, found, known)
        if message is None:
            continue
        if message.serial in known:
            doubled.add(message.serial)
            continue
        known[message.serial] = message, seen
        found += _may_be_there(model, message, seen, crash)
    found += [Violation("doubled", f"{known[s][0]} is there twice") for s in sorted(doubled)]
    found += _missing(model, known, crash)
    found += _order(model, [message for message, _ in known.values()])
    found.sort(key=lambda violation: list(KINDS).index(violation.kind))  # the worst first
    return found, [(message, seen.id) for message, seen in known.values()]


def _known(
    model: Model, seen: Seen, found: list[Violation], taken: Container[int] = ()
) -> Sent | None:
    message = model.identify(seen, taken)
    if message is None:
        found.append(Violation("phantom", f"nobody published {shorten(seen.body)}"))
        return None
    if message.body != seen.body:
        text = f"{message} had {shorten(message.body)}, now it has {shorten(seen.body)}"
        found.append(Violation("wrong bytes", text))
    if message.id is not None and seen.id is not None and message.id != seen.id:
        found.append(Violation("reused id", f"{message} is now called {seen.id}"))
    return message


def _may_be_there(
    model: Model, message: Sent, seen: Seen, crash: Crash | None
) -> Iterable[Violation]:
    if message.gone is not None and message.gone >= model.promise.needed(crash):
        yield Violation("back from the dead", f"{message} is there again after {_name(crash)}")
    if not message.persistent and message.gone is None and crash is not None:
        yield Violation("back from the dead", f"{message} was transient and outlived {crash}")
    had = message.deliveries > 0 or message.maybe_delivered
    if model.promise.redelivered and had and seen.redelivered is False:
        yield Violation("not marked", f"{message} was delivered before and does not say so")


def _missing(
    model: Model, known: dict[int, tuple[Sent, Seen]], crash: Crash | None
) -> Iterable[Violation]:
    needed = model.promise.needed(crash)
    last = max(known, default=0)
    batches = {message.batch for message, _ in known.values()}
    for message in model.sent.values():
        if message.serial in known or message.gone is not None:
            continue
        if not message.persistent and crash is not None:
            continue
        if message.published >= needed:
            yield Violation("lost", f"{message} is not there after {_name(crash)}")
        elif model.promise.batches and message.batch is not None and message.batch in batches:
            yield Violation("torn batch", f"{message} is not there, others of its batch are")
        elif model.promise.prefix and message.serial < last:
            later = known[last][0]
            yield Violation("gap", f"{message} is not there, but {later} is")


def _name(crash: Crash | None) -> str:
    return {None: "close and open", "kill": "kill -9", "power": "a power cut"}[crash]


def _order(model: Model, messages: Sequence[Sent]) -> Iterable[Violation]:
    promise = model.promise
    if promise.requeue == "any":
        messages = [m for m in messages if not (m.deliveries or m.maybe_delivered)]
    serials = [message.serial for message in messages]
    wanted = sorted(serials, reverse=promise.order == "lifo")
    if promise.order != "any" and serials != wanted:
        yield Violation("out of order", f"the queue shows {serials}, published were {wanted}")


def check_got(model: Model, seen: Seen | None) -> tuple[list[Violation], Sent | None]:
    """Judge an answer of get() in a life without faults; the message, for Model.delivered()."""
    ready = model.ready()
    if seen is None:
        if ready:
            return [Violation("lost", f"get() returns nothing, {ready[0]} is ready")], None
        return [], None
    found: list[Violation] = []
    message = _known(model, seen, found)
    if message is None:
        return found, None
    if message.gone is not None:
        found.append(Violation("back from the dead", f"get() returns {message}"))
    elif message.out:
        found.append(Violation("doubled", f"get() returns {message}, which is out already"))
    elif message not in next_of(model, ready):
        found.append(Violation("out of order", f"get() returns {message}, next is {ready[0]}"))
    had = message.deliveries > 0 or message.maybe_delivered
    if model.promise.redelivered and had and seen.redelivered is False:
        found.append(Violation("not marked", f"{message} was delivered before, does not say so"))
    return found, message


def next_of(model: Model, ready: Sequence[Sent]) -> Sequence[Sent]:
    """What get() may return now."""
    promise = model.promise
    if promise.order == "any":
        return ready
    ordered = list(ready) if promise.order == "fifo" else list(reversed(ready))
    if promise.requeue == "place":
        return ordered[:1]
    again = [m for m in ordered if m.deliveries or m.maybe_delivered]
    fresh = [m for m in ordered if m not in again]
    return again + fresh[:1]


def check_ids(model: Model, ids: Iterable[Id | None]) -> list[Violation]:
    """Judge the ids that a publish returned, before the model learns them."""
    found: list[Violation] = []
    if not model.promise.unique_ids:
        return found
    fresh: set[Id] = set()
    for id_ in ids:
        if id_ is None:
            continue
        if id_ in model.ids:
            found.append(Violation("reused id", f"{id_} is given again, {model.ids[id_]} had it"))
        elif id_ in fresh:
            found.append(Violation("reused id", f"{id_} is given twice by one call"))
        fresh.add(id_)
    return found


def check_count(model: Model, count: int) -> list[Violation]:
    """Judge the queue's own count of ready and delivered messages."""
    live = len(model.live())
    return [] if count == live else [Violation("wrong count", f"{count} instead of {live}")]
