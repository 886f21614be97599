"""One body for several queues: stored once, counted once, freed after the last ack."""

import contextlib
import resource
from pathlib import Path

import pytest
from helpers import SMALL, crash

import qindex

NAMES = [f"q{number}" for number in range(10)]
BODY = b"F" * 300
FRAME = 300 + 25
PER_FILE = (SMALL["message_file_size"] - 64) // FRAME


def message_bytes(store):
    return sum(file.stat().st_size for file in Path(store.path).glob("messages/*.qms"))


@pytest.fixture
def shared(open_store):
    """A store whose first message file holds one living body of ten queues; the rest is acked."""
    store = open_store()
    store.publish(NAMES, BODY, create=True)
    queue = store.queue("q0")
    queue.get()
    queue.publish_many([b"G" * 300] * (2 * PER_FILE - 1))
    queue.ack_many(queue.get_many(2 * PER_FILE))
    return store


def test_the_live_bytes_are_not_more_than_what_is_there(open_store):
    store = open_store()
    for _ in range(30):
        store.publish(NAMES, BODY, create=True)
    figures = store.stats()
    assert figures.live_references == 300
    assert 30 * FRAME - 300 <= figures.live_bytes <= 30 * FRAME


@pytest.mark.parametrize("ending", ["none", "close", "crash"])
def test_a_file_with_one_fan_out_body_is_compacted(open_store, shared, ending):
    if ending == "close":
        shared.close()
    elif ending == "crash":
        crash(shared)
    store = shared if ending == "none" else open_store()
    store.compact()
    assert all(store.queue(name).peek().body == BODY for name in NAMES[1:])
    assert not (Path(store.path) / "messages" / "0.qms").exists()
    for name in NAMES:
        store.queue(name).purge()


def test_a_file_whose_fan_out_bodies_live_in_one_queue_is_not_copied_in_vain(open_store):
    store = open_store()
    for _ in range(2 * PER_FILE + 1):
        store.publish(NAMES, BODY, create=True)
    for name in NAMES[1:]:
        store.queue(name).purge()
    before = sorted(Path(store.path).glob("messages/*"))
    assert store.stats().live_bytes <= message_bytes(store) / 5  # shares: looks like garbage
    for _ in range(3):
        assert store.compact() == 0
    assert sorted(Path(store.path).glob("messages/*")) == before


def test_a_fan_out_file_is_looked_at_again_when_more_was_acked(open_store):
    store = open_store()
    for _ in range(2 * PER_FILE + 1):
        store.publish(NAMES, BODY, create=True)
    for name in NAMES[1:]:
        store.queue(name).purge()
    assert store.compact() == 0
    before = message_bytes(store)
    queue = store.queue("q0")
    queue.ack_many(queue.get_many(PER_FILE * 2 // 3))
    store.compact()
    assert before - message_bytes(store) > PER_FILE // 2 * FRAME
    assert all(message.body == BODY for message in queue.browse())


def test_a_body_may_have_more_than_255_references(open_store):
    store = open_store()
    store.publish(["many"] * 300, BODY, create=True)
    store.queue("other").publish_many([b"G" * 300] * (2 * PER_FILE))
    store.queue("other").purge()
    assert store.stats().live_references == 300
    store.compact()
    assert not (Path(store.path) / "messages" / "0.qms").exists()
    assert all(message.body == BODY for message in store.queue("many").get_many(300))


@pytest.mark.parametrize("io", ["mmap", "pwrite"])
def test_all_queues_get_it_or_none(open_store, io):
    """The second queue's journal cannot grow: the first one must not have the message either."""
    store = open_store(io=io, embed_below=65536, max_journal_entries=10_000)
    a, b = store.queue("a"), store.queue("b")
    b.publish_many([BODY] * 5000)  # a longer journal than that of a
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = max(file.stat().st_size for file in Path(store.path).rglob("journal.*"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with contextlib.suppress(qindex.DiskFull):
            while len(a) < 200:
                store.publish(["a", "b"], bytes(60_000), create=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(a) == len(b) - 5000 < 200
    assert store.publish(["a", "b"], BODY, create=True) == [len(a) - 1, len(b) - 1]


@pytest.mark.parametrize("body", [b"small", b"x" * 5000], ids=["embedded", "stored"])
def test_queues_that_are_full_are_left_out(tmp_path, body):
    with qindex.open(tmp_path / "store") as store:
        store.queue("full", max_messages=1).publish(b"first")
        names = ["a", "full", "b", "full", "a"]
        assert store.publish(names, body, create=True, on_full="skip") == [0, None, 0, None, 1]
        with pytest.raises(qindex.QueueFull):
            store.publish(names, body)
        with pytest.raises(qindex.QueueFull):
            store.publish(names, body, on_full="raise")
        assert store.publish(["full"], body, on_full="skip", confirm=True) == [None]
        assert [len(store.queue(name)) for name in ("a", "full", "b")] == [2, 1, 1]
        for name in ("a", "a", "b"):
            message = store.queue(name).get()
            assert message.body == body
            message.ack()
        assert store.check() == []
        assert store.stats().live_references == 0
        with pytest.raises(ValueError, match="on_full must be one of raise, skip"):
            store.publish(["a"], b"x", on_full="drop")


def test_a_full_store_skips_nothing(tmp_path):
    with qindex.open(tmp_path / "store", max_messages=2) as store:
        store.queue("full", max_messages=1).publish(b"first")
        with pytest.raises(qindex.StoreFull):
            store.publish(["a", "full", "b"], b"x", create=True, on_full="skip")
        assert store.publish(["a", "full"], b"x", on_full="skip") == [0, None]


def test_a_queue_that_is_left_out_drops_nothing(tmp_path):
    with qindex.open(tmp_path / "store") as store:
        heads = store.queue("heads", max_bytes=10, overflow="drop-head")
        heads.publish_many([b"12345", b"6789"])
        assert store.publish(["heads", "a"], b"x" * 11, create=True, on_full="skip") == [None, 0]
        assert [m.body for m in heads.browse()] == [b"12345", b"6789"]
        assert store.publish(["heads", "a"], b"abc", on_full="skip") == [2, 1]
        assert [m.body for m in heads.browse()] == [b"6789", b"abc"]
