"""Depth and age of a quorum queue over its Raft log: each entry has the leader's time."""

from __future__ import annotations

from typing import Final

from qindex.brokers.rabbitmq.quorum.history import History, Step, time_of
from qindex.brokers.rabbitmq.quorum.queues import QuorumQueue
from qindex.cli.plot.depth import POINTS_MAX, Curve
from qindex.look.screen import CommandError
from qindex.look.text import printable

_STAYS: Final = ("deliver", "return")


def curve_of_log(name: str, queue: QuorumQueue) -> Curve:
    """`numbers` are indexes of entries. Cost: a replay; memory for the live messages."""
    curve = Curve(printable(name))
    history = History(queue.outcome.server)
    born: dict[int, float] = {}  # when each live message was published, the oldest first
    step_size, last = 1, queue.outcome.server.last_index
    for step in history.steps(restart=False):
        if step.entry is None:
            step_size = max(1, -(-(last - history.first + 1) // POINTS_MAX))
            continue
        at = time_of(step.entry)
        if at is not None:
            curve.began = at if curve.began is None else curve.began
            curve.ended = at
        moved = None  # a message that was given back has a new index, and its old age
        for event in step.events:
            if event.verb == "publish":
                born[event.message] = at or 0.0 if moved is None else moved
            elif event.verb not in _STAYS:
                gone = born.pop(event.message, None)
                moved = gone if event.verb == "move" else None
        curve.records += 1
        if step.entry.index % step_size == 0 or step.entry.index == last:
            _add_point(curve, step, born, at)
    if not curve.numbers:
        raise CommandError(f"the log of {printable(name)} cannot be played: see qindex recover")
    return curve


def _add_point(curve: Curve, step: Step, born: dict[int, float], now: float | None) -> None:
    """A message of the snapshot is older than the log; its age is at least that of the log."""
    live = step.machine.live
    is_older = live > len(born)
    oldest = curve.began if is_older else next(iter(born.values()), None)
    unknown = not live or now is None or oldest is None
    curve.numbers.append(step.entry.index if step.entry else 0)
    curve.depth.append(live)
    curve.age_seconds.append(None if unknown else max(0.0, (now or 0) - (oldest or 0)))
    curve.older.append(is_older)
