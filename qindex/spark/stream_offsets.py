"""Offsets of a stream: how far it has come in each queue, as a checkpoint keeps it. No I/O here.

An offset is JSON: store -> queue -> {"id", "from", "to"}. The stream has what is alive in
[from, to), by ReqId; `from` is where it began and never changes, `id` is the queue's identity: a
queue that was deleted and made again counts anew from 0.

`from` makes two things exact that Spark leaves open. If the driver dies in its first batch, Spark
asks for the initial offset again and gets another one ("latest" has moved on); what belongs to the
batch then begins at the `from` of its end. And acks can be repeated: all of [from, to) is settled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from qindex.spark.stream_store import QueueView

Position = dict[str, Any]  # id: str, from: int, to: int
Offset = dict[str, dict[str, Position]]
Views = Mapping[str, Mapping[str, QueueView]]  # store -> queue -> what is there

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
PIECES_MAX: Final = 1000  # of one range


class DataLoss(RuntimeError):
    """Something between the checkpoint and now is not there any more."""


class Range(NamedTuple):
    """The messages of a queue with start <= req_id < stop. `last` was alive when planned."""

    store: str
    queue: str
    identity: str
    start: int
    stop: int
    last: int


def position(identity: str, first: int, stop: int) -> Position:
    return {"id": identity, "from": first, "to": stop}


# --- where a stream begins and ends --------------------------------------------------------------


def read_bounds(option: str, text: str) -> str | dict[str, Any]:
    """startingOffsets and endingOffsets: a word, {queue: ReqId} or {store: {queue: ReqId}}."""
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    try:
        bounds = json.loads(text)
    except ValueError:
        bounds = None
    if isinstance(bounds, dict) and all(_is_bound(value) for value in bounds.values()):
        return bounds
    raise ValueError(
        f"{option} is 'earliest', 'latest', JSON like {{\"orders\": 1000}} (queue: ReqId), or"
        f' {{"/data/store": {{"orders": 1000}}}}, not {text!r}'
    )


def _is_bound(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(inner) is int and inner >= 0 for inner in value.values())
    return type(value) is int and value >= 0


def bound_of(bounds: str | dict[str, Any], store: str, queue: str) -> int | None:
    """The ReqId that is asked for, if one is."""
    if isinstance(bounds, str):
        return None
    of_store = bounds.get(store)
    found = of_store.get(queue) if isinstance(of_store, dict) else bounds.get(queue)
    return found if type(found) is int else None


def initial_offset(starting: str | dict[str, Any], views: Views) -> Offset:
    """Where the stream begins; what a JSON text does not name begins with what is there."""
    offset: Offset = {}
    for store, queues in sorted(views.items()):
        offset[store] = {}
        for name, view in sorted(queues.items()):
            first = bound_of(starting, store, name) or 0
            if starting == LATEST:
                first = view.last + 1
            offset[store][name] = position(view.identity, first, first)
    return offset


# --- going on ------------------------------------------------------------------------------------


def follow(start: Offset, views: Views, on_loss: Callable[[str], None]) -> Offset:
    """`start`, for the queues that are there now: new ones from 0, without those that are gone.

    Each loss is told to `on_loss`, which may raise.
    """
    for store, name in _names(start):
        if name not in views.get(store, {}):
            on_loss(f"the queue {name!r} of {store} is gone: it was deleted, or moved away")
    offset: Offset = {}
    for store, queues in sorted(views.items()):
        offset[store] = {}
        for name, view in sorted(queues.items()):
            known = start.get(store, {}).get(name)
            if known is not None and known["id"] != view.identity:
                on_loss(f"the queue {name!r} of {store} was deleted and made again")
                known = None
            offset[store][name] = known or position(view.identity, 0, 0)
    return offset


def _names(offset: Offset) -> Iterator[tuple[str, str]]:
    for store, queues in offset.items():
        for name in queues:
            yield store, name


def news(
    offset: Offset, views: Views, ending: str | dict[str, Any], horizon: Offset | None
) -> list[Range]:
    """What is there behind the offset, a range per queue, up to where the stream ends."""
    found = []
    for store, name in _names(offset):
        here = offset[store][name]
        stop = views[store][name].last + 1
        if (end := bound_of(ending, store, name)) is not None:
            stop = min(stop, end)
        if horizon is not None:
            stop = min(stop, horizon.get(store, {}).get(name, here)["to"])
        if stop > here["to"]:
            found.append(Range(store, name, here["id"], here["to"], stop, stop - 1))
    return found


def shares(wanted: Iterable[int], limit: int) -> list[int]:
    """Split a limit fairly: nobody gets more than wanted, what one leaves goes to the others.

    Everybody gets one at least, so that nobody waits for ever.
    """
    wishes = sorted(enumerate(wanted), key=lambda wish: wish[1])
    limit = max(limit, len(wishes))
    given = [0] * len(wishes)
    for number, (who, wish) in enumerate(wishes):
        given[who] = min(wish, -(-limit // (len(wishes) - number)))
        limit -= given[who]
    return given


def advance(offset: Offset, ranges: Iterable[Range]) -> Offset:
    """The offset behind these ranges."""
    moved = {store: dict(queues) for store, queues in offset.items()}
    for each in ranges:
        here = moved[each.store][each.queue]
        moved[each.store][each.queue] = position(here["id"], here["from"], each.stop)
    return moved


# --- a batch -------------------------------------------------------------------------------------


def ranges_between(start: Offset, end: Offset) -> list[Range]:
    """What belongs to the batch that leads from `start` to `end`."""
    found = []
    for store, name in _names(end):
        to = end[store][name]
        since = start.get(store, {}).get(name)
        # Another `from`: `since` is an initial offset that was asked for anew after a crash.
        goes_on = since is not None and (since["id"], since["from"]) == (to["id"], to["from"])
        first = since["to"] if since is not None and goes_on else to["from"]
        if first < to["to"]:
            found.append(Range(store, name, to["id"], first, to["to"], to["to"] - 1))
    return found


def split(each: Range, messages: int, per_task: int) -> list[Range]:
    """Pieces of a range that holds up to so many messages."""
    count = min(PIECES_MAX, max(1, -(-min(messages, each.stop - each.start) // per_task)))
    step = -(-(each.stop - each.start) // count)
    starts = range(each.start, each.stop, step)
    return [each._replace(start=at, stop=min(at + step, each.stop)) for at in starts]


def pack(ranges: Iterable[Range], per_task: int) -> list[list[Range]]:
    """Ranges to tasks: small ones together, in order, until a task has its messages."""
    tasks: list[list[Range]] = []
    room = 0
    for each in ranges:
        size = each.stop - each.start
        if not tasks or size > room:
            tasks.append([])
            room = per_task
        tasks[-1].append(each)
        room -= size
    return tasks
