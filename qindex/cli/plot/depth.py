"""Depth of a queue and age of its oldest message, record by record through its journals."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from qindex.brokers.tree import Findings, Tree
from qindex.look.sources import StoreSource
from qindex.look.text import printable
from qindex.moments import utc
from qindex.native.frames import Purge
from qindex.native.records import Record, clock_of, journals_in, purge_of
from qindex.native.times import is_burial, is_wait

POINTS_MAX: Final = 300


@dataclass(slots=True)
class Curve:
    """Behind record numbers[i] of the journals the queue had depth[i] messages.

    age_seconds[i]: since its oldest message was published; at least that if older[i]: that was
    before these journals. None: the queue is empty, or no clock was written behind this
    record. The list is empty if the journals do not tell the time. began and ended: the first and
    the last clock, seconds since 1970; None likewise. buried[i] and held[i]: how many of these
    records up to there made a message a dead letter, and how many gave one a time to wait for;
    empty if the journals are not a store's, which write neither.
    """

    queue: str
    records: int = 0
    numbers: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    age_seconds: list[float | None] = field(default_factory=list)
    older: list[bool] = field(default_factory=list)
    buried: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    began: float | None = None
    ended: float | None = None

    def as_json(self) -> dict[str, Any]:
        told = asdict(self)
        for old, new in (("began", "began_at"), ("ended", "ended_at")):
            moment = told.pop(old)
            told[new] = moment and utc(moment)
        told["record_count"] = told.pop("records")
        return told


def curve_of(source: StoreSource, name: str) -> Curve:
    """Cost: reads the journals; memory for their records."""
    stats = source.store.queue(name, create=False).stats()
    records: list[Record] = []
    purges: dict[int, Purge] = {}  # by the number of records before it
    clocks: list[tuple[int, int]] = []  # (number of records before it, microseconds)
    with closing(Tree(source.root, Findings())) as tree:
        for journal in journals_in(tree, source.store.queue_directory(name)):
            if journal.epoch > stats.epoch:
                continue  # newer than what this look shows
            clocks.append((len(records), journal.created_us))
            end = stats.journal_bytes if journal.epoch == stats.epoch else None
            data, found = journal.read(end)
            for record in found:
                if record.verb in ("publish", "deliver", "ack", "time"):
                    records.append(record)
                elif record.verb == "purge":
                    purges[len(records)] = purge_of(data, record)
                    records.append(record)
                elif record.verb in ("mark", "close") and (clock_us := clock_of(data, record)):
                    clocks.append((len(records), clock_us))
    curve = Curve(printable(name), len(records))
    depth = stats.ready + stats.unacked + stats.delayed + stats.dead
    _walk(curve, records, purges, Clock(clocks), depth)
    return curve


class Clock:
    """When a record was written: between the two nearest clocks, by its number."""

    def __init__(self, clocks: list[tuple[int, int]]) -> None:
        self._clocks = sorted(clocks)
        self.is_known = len({us for _, us in clocks}) > 1

    def at(self, number: int) -> float | None:
        """Seconds since 1970; None before the first clock and behind the last."""
        place = bisect_right(self._clocks, (number, 1 << 63))
        if place == 0:
            return None
        before, before_us = self._clocks[place - 1]
        if place == len(self._clocks):
            return before_us / 1e6 if before == number else None
        after, after_us = self._clocks[place]
        return (before_us + (after_us - before_us) * (number - before) / (after - before)) / 1e6

    def ends(self) -> tuple[float, float]:
        return self._clocks[0][1] / 1e6, self._clocks[-1][1] / 1e6


def _walk(
    curve: Curve, records: list[Record], purges: dict[int, Purge], clock: Clock, depth: int
) -> None:
    """Forwards; what was there before the journals follows from what is there at their end."""
    born = {r.req_id: number for number, r in enumerate(records) if r.verb == "publish"}
    acked = {r.req_id for r in records if r.verb == "ack"}
    # (the record that published it, or -1 if that is in no journal; ReqId)
    waiting = [(-1, req_id) for req_id in acked if req_id not in born]
    now = _depth_before(records, depth)
    if now > len(waiting):
        waiting.append((-1, -1))  # one that stays
    heapq.heapify(waiting)
    gone: set[int] = set()
    buried = held = 0
    step = max(1, -(-len(records) // POINTS_MAX))
    for number, record in enumerate([*records, None]):
        if number % step == 0 or record is None:
            while waiting and waiting[0][1] in gone:
                gone.remove(heapq.heappop(waiting)[1])
            _add_point(curve, number, now, waiting[0][0] if waiting and now else None, clock)
            curve.buried.append(buried)
            curve.held.append(held)
        if record is None:
            break
        if record.verb == "publish":
            heapq.heappush(waiting, (number, record.req_id))
            now += 1
        elif record.verb == "ack":
            gone.add(record.req_id)
            now -= 1
        elif record.verb == "time":
            buried += is_burial(record.due_us)
            held += is_wait(record.due_us)
        elif record.verb == "purge":
            kept = purges[number].kept - gone
            waiting = sorted((born.get(req_id, -1), req_id) for req_id in kept)
            gone.clear()
            now = len(waiting)
    if clock.is_known:
        curve.began, curve.ended = clock.ends()


def _depth_before(records: list[Record], depth: int) -> int:
    """Before the first record. Of a purge nobody knows how many it took: then as few as can be."""
    change = least = 0
    for record in records:
        if record.verb == "purge":
            return -least
        change += (record.verb == "publish") - (record.verb == "ack")
        least = min(least, change)
    return max(depth - change, -least)


def _add_point(curve: Curve, number: int, depth: int, oldest: int | None, clock: Clock) -> None:
    """`oldest`: the record that published the oldest message; None: there is none."""
    curve.numbers.append(number)
    curve.depth.append(depth)
    if not clock.is_known:
        return
    now = clock.at(number)
    then = clock.at(max(0, oldest or 0))
    if oldest is None or now is None or then is None:
        curve.age_seconds.append(None)
    else:
        curve.age_seconds.append(max(0.0, now - then))
    curve.older.append(oldest == -1)
