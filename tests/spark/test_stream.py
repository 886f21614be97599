"""The streaming source without Spark: offsets, batches, acks and losses, on live stores."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import qindex

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'qindex[spark]'")
pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

from pyspark.sql.streaming.datasource import ReadMaxRows
from spark_streams import ALL, bodies, filled, left, reader, rows

from qindex.spark.stream_offsets import DataLoss
from qindex.spark.stream_store import apply_acks


@pytest.fixture
def store(tmp_path: Path) -> Iterator[qindex.Store]:
    """Live: this process has it open, as a broker does, while the stream reads it."""
    with qindex.open(tmp_path / "store", segment_entries=64) as opened:
        yield opened


def test_batches_follow_each_other_without_holes(store: qindex.Store) -> None:
    orders = store.queue("orders")
    orders.publish_many([b"a", b"b"])
    stream = reader(store)
    start = stream.initialOffset()
    first = stream.latestOffset(start, ALL)
    assert rows(stream, start, first) == [("orders", 0, b"a"), ("orders", 1, b"b")]
    assert stream.latestOffset(first, ALL) == first
    orders.publish(b"c")
    second = stream.latestOffset(first, ALL)
    assert bodies(stream, first, second) == [b"c"]


def test_a_queue_and_a_store_that_come_later_are_found(store: qindex.Store, tmp_path: Path) -> None:
    store.queue("a").publish(b"1")
    stream = reader(str(tmp_path / "*"), queues="a,new*")
    start = stream.initialOffset()
    first = stream.latestOffset(start, ALL)
    store.queue("new one").publish(b"2")
    store.queue("other").publish(b"not chosen")
    with qindex.open(tmp_path / "store2") as second_store:
        second_store.queue("a").publish(b"3")
        end = stream.latestOffset(first, ALL)
        assert sorted(bodies(stream, first, end)) == [b"2", b"3"]


def test_a_stream_begins_where_it_is_told(store: qindex.Store) -> None:
    queue = store.queue("q")
    queue.publish_many([b"0", b"1", b"2"])
    for text, expected in (
        ("earliest", [b"0", b"1", b"2", b"new"]),
        ("latest", [b"new"]),
        ('{"q": 2}', [b"2", b"new"]),
        (json.dumps({str(Path(store.path).absolute()): {"q": 1}}), [b"1", b"2", b"new"]),
    ):
        stream = reader(store, startingOffsets=text)
        start = stream.initialOffset()
        req_id = queue.publish(b"new")
        assert bodies(stream, start, stream.latestOffset(start, ALL)) == expected
        message = next(m for m in queue.get_many(100) if m.req_id == req_id)
        queue.ack(message)


def test_a_stream_ends_where_it_is_told(store: qindex.Store) -> None:
    store.queue("q").publish_many([b"0", b"1", b"2", b"3"])
    stream = reader(store, endingOffsets='{"q": 3}')
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    assert bodies(stream, start, end) == [b"0", b"1", b"2"]
    assert stream.latestOffset(end, ALL) == end


def test_a_first_batch_that_is_read_again_begins_where_it_began(store: qindex.Store) -> None:
    """Spark asks anew where the stream begins if the driver died in its first batch."""
    queue = store.queue("q")
    queue.publish(b"before")
    stream = reader(store, startingOffsets="latest")
    start = stream.initialOffset()
    queue.publish_many([b"1", b"2"])
    end = stream.latestOffset(start, ALL)
    again = reader(store, startingOffsets="latest")
    queue.publish(b"3")
    assert bodies(again, again.initialOffset(), end) == [b"1", b"2"]


def test_a_limit_is_shared_out_and_reached_in_the_end(store: qindex.Store) -> None:
    for name, count in (("big", 100), ("small", 3)):
        store.queue(name).publish_many([b"%d" % i for i in range(count)])
    stream = reader(store, maxMessagesPerTrigger=20)
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    offset = stream.initialOffset()
    sizes, seen = [], []
    while (end := stream.latestOffset(offset, limit)) != offset:
        batch = rows(stream, offset, end)
        sizes.append(len(batch))
        seen += batch
        offset = end
    assert sizes == [20, 20, 20, 20, 20, 3]
    assert len(seen) == len(set(seen)) == 103


def test_gaps_of_req_ids_make_no_empty_batches(tmp_path: Path) -> None:
    """After an unclean end ReqIds go on behind what was reserved: 131072 later, here."""
    path = str(tmp_path / "store")
    child = os.fork()
    if child == 0:
        qindex.open(path).queue("q").publish_many([b"0", b"1"])
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with qindex.open(path) as store:
        assert store.queue("q").publish_many([b"2", b"3"])[0] > 100_000
        stream = reader(path, messagesPerTask=1)
        offset = stream.initialOffset()
        found = []
        while (end := stream.latestOffset(offset, ReadMaxRows(1))) != offset:
            found.append(bodies(stream, offset, end))
            offset = end
        assert found == [[b"0"], [b"1"], [b"2"], [b"3"]]
        start = stream.initialOffset()
        whole = stream.latestOffset(start, ALL)
        assert bodies(stream, start, whole) == [b"0", b"1", b"2", b"3"]
        assert len(stream.partitions(start, whole)) <= 4


def test_available_now_ends_with_what_was_there(store: qindex.Store) -> None:
    queue = store.queue("q")
    queue.publish_many([b"1", b"2"])
    stream = reader(store)
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    queue.publish(b"3")
    store.queue("new").publish(b"4")
    end = stream.latestOffset(start, ALL)
    assert bodies(stream, start, end) == [b"1", b"2"]
    assert stream.latestOffset(end, ALL) == end


def test_what_has_expired_is_not_delivered(store: qindex.Store) -> None:
    queue = store.queue("q")
    queue.publish(b"gone", expires_at=1)
    queue.publish(b"here", expires_at=4e9)
    stream = reader(store)
    start = stream.initialOffset()
    assert bodies(stream, start, stream.latestOffset(start, ALL)) == [b"here"]


# --- acks ----------------------------------------------------------------------------------------


def test_a_batch_is_acked_when_spark_has_committed_it_and_not_before(tmp_path: Path) -> None:
    path = filled(tmp_path)
    stream = reader(path, ack=True)
    start = stream.initialOffset()
    first = stream.latestOffset(start, ReadMaxRows(2))
    assert bodies(stream, start, first) == [b"0", b"1"]
    assert left(path) == [b"0", b"1", b"2", b"3"]
    second = stream.latestOffset(first, ALL)  # asked for behind the commit of the first
    assert left(path) == [b"2", b"3"]
    stream.commit(second)
    assert left(path) == []
    stream.latestOffset(second, ALL)


def test_an_ack_leaves_what_was_before_the_stream_and_can_be_repeated(tmp_path: Path) -> None:
    path = filled(tmp_path)
    stream = reader(path, ack=True, startingOffsets='{"q": 1}')
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMaxRows(2))
    for again in (stream, reader(path, ack=True)):  # and after a restart
        again.commit(end)
        assert left(path) == [b"0", b"3"]
    with qindex.open(path) as store:
        assert [m.redelivered for m in store.queue("q").get_many(2)] == [False, False]
        assert store.check() == []


def test_without_ack_nothing_is_changed_and_no_lock_is_needed(store: qindex.Store) -> None:
    store.queue("q").publish(b"1")
    stream = reader(store)
    end = stream.latestOffset(stream.initialOffset(), ALL)
    stream.commit(end)
    stream.latestOffset(end, ALL)
    assert len(store.queue("q")) == 1


def test_an_ack_in_a_store_that_somebody_else_has_is_refused_with_advice(tmp_path: Path) -> None:
    path = filled(tmp_path)
    stream = reader(path, ack=True, lockWait=0.1)
    end = stream.latestOffset(stream.initialOffset(), ALL)
    with (
        qindex.open(path),
        pytest.raises(qindex.StoreLocked, match=r"ack = true.*lockWait.*nothing is lost"),
    ):
        stream.latestOffset(end, ALL)
    stream.latestOffset(end, ALL)
    assert left(path) == []


def test_the_owner_of_a_store_can_ack_for_the_stream(store: qindex.Store) -> None:
    queue = store.queue("q")
    queue.publish_many([b"0", b"1", b"2"])
    stream = reader(store, ack="owner")
    end = stream.latestOffset(stream.initialOffset(), ReadMaxRows(2))
    assert apply_acks(store) == 0
    stream.latestOffset(end, ALL)  # asked for behind the commit
    assert apply_acks(store) == 2
    assert apply_acks(store) == 0
    assert [message.body for message in queue.browse()] == [b"2"]
    store.delete_queue("q")
    store.queue("q").publish(b"of another queue with this name")
    assert apply_acks(store) == 0
    assert store.check() == []


def test_a_consumer_beside_an_acking_stream_is_noticed(tmp_path: Path) -> None:
    path = filled(tmp_path)
    stream = reader(path, ack=True)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    with qindex.open(path) as store:
        store.queue("q").ack_many(store.queue("q").get_many(4))
    with pytest.raises(RuntimeError, match="only consumer"):
        rows(stream, start, end)


# --- losses --------------------------------------------------------------------------------------


def test_a_queue_that_was_deleted_is_a_loss(store: qindex.Store) -> None:
    store.queue("q").publish(b"1")
    store.queue("stays").publish(b"2")
    for fail in (True, False):
        stream = reader(store, failOnDataLoss=fail)
        start = stream.initialOffset()
        end = stream.latestOffset(start, ALL)
        if fail:
            store.delete_queue("q")
            with pytest.raises(DataLoss, match=r"'q' .* is gone.*failOnDataLoss"):
                stream.latestOffset(end, ALL)
            with pytest.raises(DataLoss, match=r"'q' .* is gone"):
                rows(stream, start, end)
            store.queue("q").publish(b"1")
        else:
            store.delete_queue("q")
            assert bodies(stream, start, end) == [b"2"]
            assert next(iter(stream.latestOffset(end, ALL).values())).keys() == {"stays"}


def test_a_queue_that_was_made_again_is_a_loss_and_counts_anew(store: qindex.Store) -> None:
    store.queue("q").publish_many([b"1", b"2"])
    strict, lenient = reader(store), reader(store, failOnDataLoss=False)
    end = strict.latestOffset(strict.initialOffset(), ALL)
    store.delete_queue("q")
    store.queue("q").publish_many([b"3", b"4", b"5"])
    with pytest.raises(DataLoss, match="deleted and made again"):
        strict.latestOffset(end, ALL)
    following = lenient.latestOffset(end, ALL)
    assert bodies(lenient, end, following) == [b"3", b"4", b"5"]


def test_a_queue_that_cannot_be_read_is_a_loss(tmp_path: Path) -> None:
    path = filled(tmp_path)
    with qindex.open(path) as store:
        store.queue("whole").publish(b"here")
        folder = Path(path, store.queue_directory("q"))
    for name in ("journal.jif", "journal.alt"):
        if (folder / name).exists():
            (folder / name).write_bytes(bytes(9000))
    strict, lenient = reader(path), reader(path, failOnDataLoss=False)
    with pytest.raises(DataLoss, match=r"'q' of .* cannot be read"):
        strict.initialOffset()
    start = lenient.initialOffset()
    assert bodies(lenient, start, lenient.latestOffset(start, ALL)) == [b"here"]


def test_a_message_that_cannot_be_read_is_a_loss(store: qindex.Store) -> None:
    queue = store.queue("q")
    queue.publish_many([b"x" * 5000, b"y" * 5000])
    store.sync()
    file = Path(store.path, "messages/0.qms")
    data = bytearray(file.read_bytes())
    data[data.index(b"xxxx") + 9] ^= 1
    file.write_bytes(data)
    strict, lenient = reader(store), reader(store, failOnDataLoss=False)
    start = strict.initialOffset()
    end = strict.latestOffset(start, ALL)
    with pytest.raises(DataLoss, match=r"'q' of .*: the body of message 0"):
        rows(strict, start, end)
    assert bodies(lenient, start, end) == [b"y" * 5000]


# --- options ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "soon"}, "startingOffsets is"),
        ({"startingOffsets": '{"q": "x"}'}, "startingOffsets is"),
        ({"endingOffsets": "earliest"}, "endingOffsets is"),
        ({"maxMessagesPerTrigger": "many"}, "maxMessagesPerTrigger is a whole number"),
        ({"lockWait": "nan"}, "lockWait is a number"),
        ({"ack": "yes"}, "ack is false, true or owner"),
        ({"states": "ready"}, "no option states"),
        ({"table": "records"}, "a stream has the table messages"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        reader("/somewhere", **options)


def test_a_path_without_a_store_is_an_error_but_a_pattern_may_wait(tmp_path: Path) -> None:
    with pytest.raises(qindex.StoreMissing):
        reader(str(tmp_path / "none")).initialOffset()
    assert reader(str(tmp_path / "*")).initialOffset() == {}
    with pytest.raises(ValueError, match="not a local path"):
        reader("s3a://bucket/store").initialOffset()
