"""When a delivered message is stuck: what came after it was delivered or acked, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import crash

import qindex

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

from qindex.spark.examine import Limits, examine
from qindex.spark.plan import find

LIMITS = Limits(stuck_behind=100)
SMALL = {"segment_entries": 64, "sync": "never", "expire": False}


def stuck(path: Path) -> list[tuple[str, int, int]]:
    """Queue, first ReqId, how many."""
    (unit,) = find([str(path)])
    rows = examine(unit, LIMITS).findings
    return [(r["queue"], r["req_id"], r["count"]) for r in rows if r["kind"] == "stuck"]


@pytest.mark.parametrize("end", ["close", "crash", "open"])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_backlog_makes_nothing_stuck(tmp_path: Path, end: str, flushed: bool) -> None:
    """A consumer that has a few of very many is at work."""
    store = qindex.open(tmp_path / "s", **SMALL)
    queue = store.queue("q")
    queue.publish_many([b"x"] * 2000)
    queue.get_many(5)
    if flushed:
        queue.flush()
    if end != "open":
        (store.close if end == "close" else lambda: crash(store))()
    assert stuck(tmp_path / "s") == []
    if end == "open":
        store.close()


def leave_behind(queue: Any, later: int) -> None:
    """Three are taken and kept, so many that come later are acked."""
    queue.publish_many([b"kept"] * 3)
    queue.get_many(3)
    queue.publish_many([b"x"] * later)
    while messages := queue.get_many(later):
        queue.ack_many(messages)


@pytest.mark.parametrize("backlog", [0, 500])
@pytest.mark.parametrize("end", ["close", "crash"])
def test_what_was_left_behind_is_stuck_with_a_backlog_too(
    tmp_path: Path, backlog: int, end: str
) -> None:
    store = qindex.open(tmp_path / "s", **SMALL)
    queue = store.queue("q")
    leave_behind(queue, 1000)
    queue.publish_many([b"waits"] * backlog)
    queue.flush()
    (store.close if end == "close" else lambda: crash(store))()
    found = stuck(tmp_path / "s")
    if end == "crash" and not backlog:  # no file tells of what was acked, nor of the next ReqId
        assert found in ([], [("q", 0, 3)])
    else:
        assert found == [("q", 0, 3)]


def test_each_priority_is_measured_by_itself(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "s", **SMALL) as store:
        queue = store.queue("q")
        queue.publish_many([b"low"] * 3)
        queue.get_many(3)
        queue.publish_many([b"high"] * 1000, priority=1)
        queue.ack_many(queue.get_many(1000))
        queue.publish_many([b"waits"] * 1000)
    assert stuck(tmp_path / "s") == []


def test_req_ids_that_a_crash_skips_are_no_progress(tmp_path: Path) -> None:
    store = qindex.open(tmp_path / "s", **SMALL)
    store.queue("q").publish_many([b"x"] * 3)
    store.queue("q").get_many(3)
    store.sync()
    crash(store)
    with qindex.open(tmp_path / "s", **SMALL) as store:
        assert store.queue("q").publish_many([b"waits"] * 500)[0] > 1000
    assert stuck(tmp_path / "s") == []


def test_what_only_expired_is_waited_for_by_nobody(tmp_path: Path) -> None:
    """An expired message in front is no backlog: the queue has passed it."""
    with qindex.open(tmp_path / "s", **SMALL) as store:
        queue = store.queue("q")
        queue.publish(b"late", expires_at=1.0)
        leave_behind(queue, 1000)
    assert stuck(tmp_path / "s") == [("q", 1, 3)]
