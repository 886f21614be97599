"""Priorities, delays and dead letters in streams: each lane goes on for itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import qindex

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'qindex[spark]'")
pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

from pyspark.sql.streaming.datasource import ReadMaxRows
from spark_streams import ALL, bodies, left, reader

from qindex.spark.stream_store import apply_acks

MUCH_LATER = 4e9  # the same for all, so that they are in one lane


@pytest.fixture
def store(tmp_path: Path) -> Iterator[qindex.Store]:
    """Live: this process has it open, as a broker does, while the stream reads it."""
    with qindex.open(tmp_path / "store", segment_entries=64) as opened:
        yield opened


def test_each_priority_is_a_lane_of_its_own_and_high_ones_come_first(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    stream = reader(path, ack=True)
    with qindex.open(path) as store:
        store.queue("q").publish_many([b"0", b"1"])
        store.queue("q").publish(b"high", priority=9)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    assert bodies(stream, start, end) == [b"high", b"0", b"1"]
    with qindex.open(path) as store:
        store.queue("q").publish(b"middle", priority=5)
        store.queue("q").publish(b"2")
        store.queue("q").publish(b"high, too", priority=9)
    following = stream.latestOffset(end, ALL)
    assert left(path) == [b"2", b"middle", b"high, too"]
    assert bodies(stream, end, following) == [b"high, too", b"middle", b"2"]
    stream.commit(following)
    assert left(path) == []


def test_a_limit_holds_over_all_priorities(store: qindex.Store) -> None:
    for priority in (0, 1, 2):
        store.queue("q").publish_many([b"%d" % priority] * 10, priority=priority)
    stream = reader(store)
    offset, sizes = stream.initialOffset(), []
    while (end := stream.latestOffset(offset, ReadMaxRows(12))) != offset:
        sizes.append(len(bodies(stream, offset, end)))
        offset = end
    assert sizes == [12, 12, 6]


def ready_again(store: qindex.Store, queue: qindex.Queue, body: bytes) -> None:
    """Its time is over, without waiting for it."""
    (message,) = (message for message in queue.browse() if message.body == body)
    queue.reschedule(message.req_id, delay=0)


def test_what_is_delayed_comes_when_its_time_is_over_and_only_then(store: qindex.Store) -> None:
    queue = store.queue("q")
    for number in range(6):
        queue.publish(b"%d" % number, due=MUCH_LATER)
    ready_again(store, queue, b"2")
    queue.publish(b"now")
    stream = reader(store, ack="owner")
    start = stream.initialOffset()
    first = stream.latestOffset(start, ALL)
    assert bodies(stream, start, first) == [b"now", b"2"]
    assert stream.latestOffset(first, ALL) == first
    assert apply_acks(store) == 2
    for body in (b"4", b"0"):
        ready_again(store, queue, body)
    second = stream.latestOffset(first, ALL)
    ready_again(store, queue, b"1")  # behind the plan: it belongs to the next batch
    assert bodies(stream, first, second) == [b"0", b"4"]
    assert bodies(reader(store), first, second) == [b"0", b"4"]  # and after a crash, too
    third = stream.latestOffset(second, ALL)
    assert apply_acks(store) == 2
    assert bodies(stream, second, third) == [b"1"]
    stream.commit(third)
    assert apply_acks(store) == 1
    assert [message.body for message in queue.browse()] == [b"3", b"5"]


def test_what_was_given_back_with_a_delay_is_not_acked_before_it_was_seen(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    with qindex.open(path) as store:
        queue = store.queue("q", dead_letters=True)
        queue.publish_many([b"dead", b"later", b"here", b"dead, too"])
        messages = queue.get_many(4)
        queue.nack_many([messages[0], messages[3]], requeue=False)
        queue.nack(messages[1], delay=3600)
        queue.nack(messages[2])
    stream = reader(path, ack=True)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    assert bodies(stream, start, end) == [b"here"]
    with qindex.open(path) as store:
        queue = store.queue("q", dead_letters=True)
        ready_again(store, queue, b"later")
        assert queue.redrive(1) == 1
    stream.commit(end)
    assert left(path) == [b"dead", b"later", b"dead, too"]
    following = stream.latestOffset(end, ALL)
    assert bodies(stream, end, following) == [b"dead", b"later"]
    stream.commit(following)
    assert left(path) == [b"dead, too"]


def test_where_too_much_is_left_a_stream_waits(
    store: qindex.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from qindex.spark import stream as module

    monkeypatch.setattr(module, "RUNS_LEFT_MAX", 2)
    queue = store.queue("q")
    for number in range(8):
        queue.publish(b"%d" % number, due=MUCH_LATER)
    for number in (1, 3, 5, 7):
        ready_again(store, queue, b"%d" % number)
    stream = reader(store)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    assert bodies(stream, start, end) == [b"1", b"3"]
    assert "more than 2 runs" in caplog.text
    ready_again(store, queue, b"0")
    following = stream.latestOffset(end, ALL)
    assert bodies(stream, end, following) == [b"0", b"5"]
