"""How a batch is cut out of what is there: arithmetic, without stores and without Spark."""

from __future__ import annotations

import pytest

from qindex.spark.stream_offsets import Range, initial_offset, pack, ranges_between, shares, split
from qindex.spark.stream_store import QueueView


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


def test_a_batch_covers_each_queue_once() -> None:
    view = QueueView("id", 9)
    start = initial_offset("earliest", {"/s": {"a": view, "b": view}})
    end = initial_offset("earliest", {"/s": {"a": view, "b": view, "c": view}})
    for name in "ac":
        end["/s"][name]["to"] = 10
    assert [(each.queue, each.start, each.stop) for each in ranges_between(start, end)] == [
        ("a", 0, 10),
        ("c", 0, 10),
    ]
