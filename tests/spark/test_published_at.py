"""published_at in the columns that the core fills: of messages, and of records in both files."""

import time
from itertools import chain

import pytest

import qindex

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

from qindex.spark import columns


def exactly(seconds):
    return pytest.approx(seconds, rel=0, abs=1e-5)


def of_records(path):
    """ReqId -> when, of the publishes in one file."""
    found = {}
    for batch in columns.records(path.read_bytes(), ("kind", "req_id", "published_us"), rows=2):
        rows = zip(*(batch[name].to_pylist() for name in batch.schema.names), strict=True)
        found |= {req_id: when and when.timestamp() for kind, req_id, when in rows if kind < 2}
    return found


def of_messages(queue):
    names = ("req_id", "published_us")
    rows = chain.from_iterable(b.to_pylist() for b in columns.Messages(queue._handle, names))
    return {row["req_id"]: row["published_us"].timestamp() for row in rows}


@pytest.fixture
def store(tmp_path):
    with qindex.open(tmp_path / "store", format=2) as store:
        yield store


def test_messages_and_records_say_when_they_were_published(store, tmp_path):
    queue, other = store.queue("q"), store.queue("other")
    for number in range(4):
        queue.publish(b"%d" % number)
        time.sleep(0.012)
    store.move([queue.get()], to="other")
    told = {m.req_id: exactly(m.published_at) for m in queue.browse()}
    moved = {m.req_id: exactly(m.published_at) for m in other.browse()}
    assert of_messages(queue) == told
    assert of_messages(other) == moved
    folder = tmp_path / "store" / store.queue_directory("other")
    store.sync()  # the frame of a transaction ends its journal until then
    assert of_records(folder / "journal.jif") == moved  # the move's own time is another
    queue.flush()
    other.flush()
    assert of_messages(queue) == told
    assert of_records(folder / "0.idx") == moved
    folder = tmp_path / "store" / store.queue_directory("q")
    assert of_records(folder / "0.idx") == told


def test_a_store_of_format_1_says_nothing(tmp_path):
    with qindex.open(tmp_path / "store", format=1) as store:
        queue = store.queue("q")
        queue.publish(b"a")
        folder = tmp_path / "store" / store.queue_directory("q")
        assert of_records(folder / "journal.jif") == {0: None}
        queue.flush()
        assert of_records(folder / "0.idx") == {0: None}
