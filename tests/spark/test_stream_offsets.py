"""How a batch is cut out of what is there: arithmetic, without stores and without Spark."""

from __future__ import annotations

import pytest

from qindex.spark.stream_offsets import (
    Offset,
    Range,
    advance,
    follow,
    initial_offset,
    news,
    pack,
    position,
    ranges_between,
    read_bounds,
    shares,
    split,
    subtract,
)
from qindex.spark.stream_store import LANE, QueueView


@pytest.mark.parametrize(
    ("wanted", "limit", "given"),
    [
        ([10, 10], 10, [5, 5]),
        ([1, 100], 10, [1, 9]),
        ([3, 1, 2], 100, [3, 1, 2]),
        ([5, 5, 5], 2, [1, 1, 1]),
        ([], 5, []),
    ],
)
def test_shares_of_a_limit(wanted: list[int], limit: int, given: list[int]) -> None:
    assert shares(wanted, limit) == given


def test_ranges_are_split_and_packed_without_holes() -> None:
    whole = Range("/s", "q", "id", 10, 110, 109)
    pieces = split(whole, 100, 30)
    assert [piece.start for piece in pieces] == [10, 35, 60, 85]
    assert [piece.stop for piece in pieces] == [35, 60, 85, 110]
    assert len(split(whole._replace(stop=1 << 40), 5, 1)) == 5
    small = [Range("/s", str(i), "id", 0, 10, 9) for i in range(7)]
    assert [len(task) for task in pack([*small, *pieces], 30)] == [3, 3, 1, 1, 1, 1, 1]


def view(**lasts: int) -> QueueView:
    lanes = {int(lane[1:]): last for lane, last in lasts.items()}
    return QueueView("id", lanes, False, (0, 0), float("inf"))


def batch(start: Offset, end: Offset) -> list[tuple[str, int, int]]:
    return [(each.queue, each.start, each.stop) for each in ranges_between(start, end)]


def test_a_batch_covers_each_queue_once() -> None:
    views = {"/s": {"a": view(_0=9), "b": view(), "c": view(_0=9)}}
    start = initial_offset("earliest", {"/s": {"a": views["/s"]["a"], "b": views["/s"]["b"]}})
    offset = follow(start, views, str)
    end = advance(offset, news(offset, views, "latest", None))
    assert batch(start, end) == [("a", 0, 10), ("c", 0, 10)]


def test_high_priorities_come_first_and_each_lane_counts_for_itself() -> None:
    low, high, late = 9, 7 * LANE + 3, 600 * LANE + 5
    views = {"/s": {"a": view(_0=low, _7=high, _600=late)}}
    bounds = read_bounds("startingOffsets", f'{{"a": [4, {7 * LANE + 1}]}}')
    start = initial_offset(bounds, views)
    end = advance(start, news(start, views, "latest", None))
    assert batch(start, end) == [
        ("a", 7 * LANE + 1, high + 1),
        ("a", 4, low + 1),
        ("a", 600 * LANE, late + 1),
    ]
    until = read_bounds("endingOffsets", '{"a": 5}')
    assert [each.stop for each in news(start, views, until, None)] == [5, high + 1, late + 1]
    latest = initial_offset("latest", views)
    assert news(latest, views, "latest", None) == []
    assert news(start, views, "latest", start) == news(latest, views, "latest", latest) == []


def test_what_was_left_comes_when_it_is_not_left_any_more() -> None:
    def offset(to: int, left: list[tuple[int, int]]) -> Offset:
        return {"/s": {"a": position("id", {"0": [0, to]}, left)}}

    first = offset(10, [(2, 4), (8, 9)])
    assert batch(offset(0, []), first) == [("a", 0, 2), ("a", 4, 8), ("a", 9, 10)]
    assert batch(first, offset(10, [(3, 4)])) == [("a", 2, 3), ("a", 8, 9)]
    assert batch(first, offset(12, [(2, 4), (8, 9), (11, 12)])) == [("a", 10, 11)]
    assert batch(first, first) == []


def test_holes_are_cut_out_of_runs() -> None:
    assert list(subtract([(0, 10), (20, 30)], [(0, 2), (5, 6), (9, 21), (29, 40)])) == [
        (2, 5),
        (6, 9),
        (21, 29),
    ]
    assert list(subtract([(0, 3)], [(0, 3)])) == []
