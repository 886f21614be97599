"""Offsets of a stream: how far it has come in each queue, as a checkpoint keeps it. No I/O here.

An offset is JSON:

    store -> queue -> {"id", "lanes": {lane: [from, to]}, "left": [[first, stop]], "at": us}

A queue's ReqIds count in lanes, one for each priority and some for delays; a ReqId says which is
its lane, so that `from` and `to` are ReqIds. The stream has what is alive in all [from, to), but
for what is `left`: that waited for its time, or was a dead letter, when the stream came by. `from`
is where it began and never changes, `id` is the queue's identity: a queue that was deleted and made
again counts anew. `at` is when the last batch of the queue was planned: what had expired by then is
in no batch and is not acked. An offset without it comes from an earlier version.

So what belongs to the batch between two offsets follows from them alone: what `to` has passed and
is not left, and what was left and is not any more. Read again, it is the same.

`from` makes two things exact that Spark leaves open. If the driver dies in its first batch, Spark
asks for the initial offset again and gets another one ("latest" has moved on); what belongs to the
batch then begins at the `from` of its end. And acks can be repeated: all of [from, to) is settled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from qindex.spark.stream_store import LANE, PRIORITIES, QueueView, Run, lane_of

Position = dict[str, Any]  # id: str, lanes: dict[str, list[int]], left: list[list[int]]
Offset = dict[str, dict[str, Position]]
Views = Mapping[str, Mapping[str, QueueView]]  # store -> queue -> what is there

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
PIECES_MAX: Final = 1000  # of one range
TOLD_MAX: Final = 10


class DataLoss(RuntimeError):
    """Something between the checkpoint and now is not there any more."""


class OtherChoice(RuntimeError):
    """The options leave out a queue that the checkpoint has."""


class Range(NamedTuple):
    """The messages of a queue with start <= req_id < stop, all in one lane.

    `last` was alive when planned, wherever it is; -1: nothing is known of it.
    """

    store: str
    queue: str
    identity: str
    start: int
    stop: int
    last: int
    at: int = 0  # when the batch was planned, microseconds; 0: not known


def position(identity: str, lanes: Mapping[str, list[int]], left: Iterable[Run] = ()) -> Position:
    return {"id": identity, "lanes": dict(lanes), "left": [list(run) for run in left]}


def runs_left(position: Position) -> list[Run]:
    return [(first, stop) for first, stop in position["left"]]


def subtract(runs: Iterable[Run], holes: Sequence[Run]) -> Iterator[Run]:
    """The parts of `runs` that no hole covers. Both are sorted, and neither overlaps itself."""
    for first, stop in runs:
        for hole_first, hole_stop in holes:
            if hole_stop <= first or hole_first >= stop:
                continue
            if first < hole_first:
                yield first, hole_first
            first = hole_stop
        if first < stop:
            yield first, stop


# --- where a stream begins and ends --------------------------------------------------------------


def read_bounds(option: str, text: str) -> str | dict[str, Any]:
    """startingOffsets and endingOffsets: a word, {queue: ReqId} or {store: {queue: ReqId}}.

    Instead of a ReqId, a list of them: one for each lane.
    """
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
        return all(_is_bound(inner) and not isinstance(inner, dict) for inner in value.values())
    several = value if isinstance(value, list) else [value]
    return all(type(each) is int and each >= 0 for each in several)


def bounds_of(bounds: str | dict[str, Any], store: str, queue: str) -> dict[int, int]:
    """Lane -> the ReqId that is asked for, where one is."""
    if isinstance(bounds, str):
        return {}
    of_store = bounds.get(store)
    found = of_store.get(queue) if isinstance(of_store, dict) else bounds.get(queue)
    if found is None or isinstance(found, dict):
        return {}
    return {lane_of(each): each for each in (found if isinstance(found, list) else [found])}


def initial_offset(starting: str | dict[str, Any], views: Views) -> Offset:
    """Where the stream begins; what a JSON text does not name begins with what is there."""
    offset: Offset = {}
    for store, queues in sorted(views.items()):
        offset[store] = {}
        for name, view in sorted(queues.items()):
            first = bounds_of(starting, store, name)
            if starting == LATEST:
                first = {lane: last + 1 for lane, last in view.lasts.items()}
            lanes = {str(lane): [req_id, req_id] for lane, req_id in sorted(first.items())}
            offset[store][name] = position(view.identity, lanes)
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
            offset[store][name] = known or position(view.identity, {})
    return offset


def told_of(queues: Mapping[str, Iterable[str]]) -> str:
    """'a', 'b' of /data/one and 'c' of /data/two; empty if there are none."""
    told = []
    for store, names in sorted(queues.items()):
        if listed := sorted(names):
            more = f" and {len(listed) - TOLD_MAX:,} more" if len(listed) > TOLD_MAX else ""
            told.append(f"{', '.join(map(repr, listed[:TOLD_MAX]))}{more} of {store}")
    return " and ".join(told)


def _names(offset: Offset) -> Iterator[tuple[str, str]]:
    for store, queues in offset.items():
        for name in queues:
            yield store, name


def news(
    offset: Offset, views: Views, ending: str | dict[str, Any], horizon: Offset | None
) -> list[Range]:
    """What is there behind the offset, a range per lane, up to where the stream ends."""
    found = []
    for store, name in _names(offset):
        here = offset[store][name]
        ends = bounds_of(ending, store, name)
        for lane, last in views[store][name].lasts.items():
            start = _at(here, lane)[1]
            stop = min(last + 1, ends.get(lane, last + 1))
            if horizon is not None:
                of_queue = horizon.get(store, {}).get(name)
                stop = min(stop, _at(of_queue, lane)[1] if of_queue else start)
            if stop > start:
                found.append(Range(store, name, here["id"], start, stop, stop - 1))
    return found


def _at(position: Position, lane: int) -> list[int]:
    """From and to; a lane that comes later begins at its beginning."""
    found: list[int] = position["lanes"].get(str(lane), [lane * LANE, lane * LANE])
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
        lane = lane_of(each.start)
        lanes = {**here["lanes"], str(lane): [_at(here, lane)[0], each.stop]}
        moved[each.store][each.queue] = {**here, "lanes": lanes}
    return moved


# --- a batch -------------------------------------------------------------------------------------


def ranges_between(start: Offset, end: Offset) -> list[Range]:
    """What belongs to the batch that leads from `start` to `end`; high priorities first."""
    found: list[Range] = []
    for store, name in _names(end):
        to = end[store][name]
        since = start.get(store, {}).get(name)
        if since is None or since["id"] != to["id"]:
            since = position(to["id"], {})
        left, at = runs_left(to), to.get("at", 0)
        pieces = subtract(runs_left(since), left)
        found += [Range(store, name, to["id"], *piece, -1, at) for piece in pieces]
        for lane in sorted(map(int, to["lanes"]), key=_rank):
            begin, stop = _at(to, lane)
            before = _at(since, lane)
            # Another `from`: `since` is an initial offset that was asked for anew after a crash.
            first = before[1] if before[0] == begin else begin
            pieces = subtract([(first, stop)] if first < stop else [], left)
            found += [Range(store, name, to["id"], *piece, stop - 1, at) for piece in pieces]
    return found


def _rank(lane: int) -> int:
    return -lane if lane < PRIORITIES else lane


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
