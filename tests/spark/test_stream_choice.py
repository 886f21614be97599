"""What a stream takes and acks: no more than rows had; other options than before are told of."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import qindex

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'qindex[spark]'")
pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

from pyspark.sql.streaming.datasource import ReadMaxRows
from spark_streams import ALL, bodies, filled, reader, rows

from qindex.spark import stream as module
from qindex.spark.stream_offsets import OtherChoice
from qindex.spark.stream_store import apply_acks


@pytest.fixture
def store(tmp_path: Path) -> Iterator[qindex.Store]:
    with qindex.open(tmp_path / "store", segment_entries=64) as opened:
        yield opened


def test_what_is_acked_is_what_rows_had(tmp_path: Path) -> None:
    """One had expired before, one expires between its row and its ack, one is a dead letter."""
    path = str(tmp_path / "store")
    with qindex.open(path, expire=False) as store:
        queue = store.queue("q", dead_letters=True)
        queue.publish(b"rejected")
        queue.nack(queue.get(), requeue=False)
        queue.publish(b"late", expires_at=1.0)
        queue.publish(b"expires soon", ttl=2)
        queue.publish(b"stays")
    stream = reader(path, ack=True)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    seen = bodies(stream, start, end)
    assert seen == [b"expires soon", b"stays"]
    time.sleep(2.1)
    assert bodies(stream, start, end) == seen  # a batch that is read again is the same
    stream.commit(end)
    with qindex.open(path, expire=False, read_only=True) as store:
        assert [message.body for message in store.queue("q").browse()] == [b"rejected", b"late"]


def test_an_owner_buries_what_no_row_had(store: qindex.Store) -> None:
    queue = store.queue("q", dead_letters=True)
    stream = reader(store, ack="owner")
    queue.publish(b"stays")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    assert bodies(stream, start, end) == [b"stays"]
    queue.publish(b"late", expires_at=1.0)
    after = stream.latestOffset(end, ALL)
    assert bodies(stream, end, after) == []
    stream.commit(after)
    apply_acks(store)
    queue.expire()
    assert (len(queue), queue.dead) == (1, 1) or queue.dead == 1


def test_the_error_and_the_docs_do_not_advise_where_behind_an_ack(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"what the query leaves out \(.where\(\)\) is acked, too"):
        reader(str(tmp_path), ack=True, minReqId=3)
    assert "A row that\n.where(), .filter(), .limit() or a join leaves out is acked" in str(
        module.__doc__
    )


# --- started again with other options ------------------------------------------------------------


def test_other_queues_than_before_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = filled(tmp_path)
    with qindex.open(path) as store:
        store.queue("r").publish(b"r")
        store.queue("s").publish(b"s")
    first = reader(path, queues="q,r")
    end = first.latestOffset(first.initialOffset(), ALL)
    with pytest.raises(OtherChoice, match=r"checkpoint has 'r' of .*/store, which queues = 'q,s'"):
        reader(path, queues="q,s").latestOffset(end, ALL)
    assert "takes up 's' of" in caplog.text
    caplog.clear()
    again = reader(path, queues="q,s", failOnDataLoss=False)
    after = again.latestOffset(end, ALL)
    assert "which queues = 'q,s'" in caplog.text
    assert after[path].keys() == {"q", "s"}
    assert bodies(again, end, after) == [b"s"]
    same = reader(path, queues="q,r")
    caplog.clear()
    assert same.latestOffset(end, ALL) == end
    assert caplog.text == ""


def test_other_paths_than_before_are_told_of(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with qindex.open(tmp_path / name) as store:
            store.queue("q").publish(b"x")
    both = reader(f"{tmp_path}/*")
    end = both.latestOffset(both.initialOffset(), ALL)
    with pytest.raises(OtherChoice, match=r"'q' of .*/two, which queues = '' and the paths"):
        reader(f"{tmp_path}/one").latestOffset(end, ALL)


# --- when a batch is made ------------------------------------------------------------------------


def test_a_batch_waits_for_enough_messages_but_not_for_ever(store: qindex.Store) -> None:
    queue = store.queue("q")
    queue.publish_many([b"1", b"2"])
    stream = reader(store, minOffsetsPerTrigger=3, maxTriggerDelay="1h")
    start = stream.initialOffset()
    assert stream.latestOffset(start, ALL) == start
    queue.publish(b"3")
    end = stream.latestOffset(start, ReadMaxRows(3))
    assert bodies(stream, start, end) == [b"1", b"2", b"3"]
    queue.publish(b"4")
    assert stream.latestOffset(end, ALL) == end
    stream.options = type(stream.options)(**{**vars(stream.options), "delay_max": 0.0})
    assert bodies(stream, end, stream.latestOffset(end, ALL)) == [b"4"]


def test_gaps_do_not_count_as_messages(store: qindex.Store) -> None:
    queue = store.queue("q")
    queue.publish_many([b"%d" % i for i in range(100)])
    messages = queue.get_many(100)
    queue.ack_many(messages[1:99])
    stream = reader(store, minMessagesPerTrigger=3)
    start = stream.initialOffset()
    assert stream.latestOffset(start, ALL) == start


def test_a_stream_begins_with_what_was_published_since_a_moment(tmp_path: Path) -> None:
    """Never too late; here every message is synced, so never too early either."""
    path, moments = str(tmp_path / "store"), []
    with qindex.open(path) as store:
        for number in range(4):
            moments.append(int(time.time() * 1000))
            time.sleep(0.01)
            store.queue("q").publish(b"%d" % number, priority=number % 2, confirm=True)
            time.sleep(0.01)
    moments.append(int(time.time() * 1000))
    everything = {b"0", b"1", b"2", b"3"}
    for number, moment in enumerate([0, *moments]):
        stream = reader(path, startingTimestamp=moment)
        start = stream.initialOffset()
        found = set(bodies(stream, start, stream.latestOffset(start, ALL)))
        expected = {b"%d" % i for i in range(max(0, number - 1), 4)}
        assert expected <= found <= everything
        if number > 1:
            assert found == expected
    with pytest.raises(ValueError, match="not both"):
        reader(path, startingTimestamp=1, startingOffsets="latest")


def test_what_was_flushed_before_a_moment_is_left_out(store: qindex.Store) -> None:
    queue = store.queue("q")
    queue.publish(b"flushed")
    before = int(time.time() * 1000) - 1
    queue.flush()
    time.sleep(0.01)
    since = int(time.time() * 1000)
    queue.publish(b"new")
    for moment, expected in ((since, [b"new"]), (before, [b"flushed", b"new"])):
        stream = reader(store, startingTimestamp=moment)
        start = stream.initialOffset()
        assert bodies(stream, start, stream.latestOffset(start, ALL)) == expected
        assert rows(stream, start, start) == []
