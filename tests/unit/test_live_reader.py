"""A reader beside a writer: what the writer took away since is gone, not damaged."""

import threading
from pathlib import Path

import pytest
from helpers import SMALL, crash, damage, ids, queue_directory

import qindex


def settle(store, queue, count):
    """Ack the first messages and take away what they alone needed: bodies, segments, journals."""
    queue.ack_many(queue.get_many(count))
    queue.flush()
    store.compact()


@pytest.fixture
def pair(open_store):
    """A writer's queue with 100 messages, half of them stored bodies; a reader's view of it."""
    store = open_store()
    queue = store.queue("a")
    queue.publish_many([b"%d" % i * (300 if i % 2 else 1) for i in range(100)])
    queue.flush()
    reader = qindex.open(store.path, read_only=True)
    yield store, queue, reader, reader.queue("a")
    reader.close()


def test_what_was_acked_meanwhile_is_gone_for_browse_and_peek(pair):
    store, queue, reader, view = pair
    assert view.peek().req_id == 0
    settle(store, queue, 50)
    assert view.peek().req_id in (0, 50)  # an embedded body may still be in memory
    assert [i for i in ids(view.browse()) if i >= 50] == list(range(50, 100))
    assert [i for i in ids(view.browse()) if i % 2 and i < 50] == []
    assert not damage(reader)


def test_a_segment_that_died_meanwhile_is_gone_too(pair):
    store, queue, reader, view = pair
    settle(store, queue, 64)  # four segments of 16
    assert ids(view.browse()) == list(range(64, 100))
    assert not damage(reader)


def test_a_segment_that_was_written_anew_meanwhile_shows_no_wrong_bytes(open_store):
    """Written anew twice, it has its old name again, and other places for its records."""
    store = open_store(max_journal_entries=10_000, embed_below=65536)
    queue = store.queue("a")
    bodies = [b"%02d" % i + bytes(60_000) for i in range(32)]
    queue.publish_many(bodies)
    queue.flush()
    with qindex.open(store.path, read_only=True) as reader:
        view = reader.queue("a")
        assert len(list(view.browse())) == 32
        for gone in (range(4), range(4, 8)):
            taken = queue.get_many(100)
            queue.ack_many(m for m in taken if m.req_id in gone)
            queue.nack_many(m for m in taken if m.req_id not in gone)
            queue.flush()
            store.compact()
        assert (queue_directory(store.path, "a") / "0.idx").stat().st_size < 600_000
        seen = list(view.browse(8))
        assert ids(seen) == list(range(8, 32))
        assert all(m.body == bodies[m.req_id] for m in seen)
        assert not damage(reader)


def test_check_beside_a_writer_finds_no_damage(pair):
    store, queue, reader, _ = pair
    settle(store, queue, 50)
    assert [str(finding) for finding in reader.check()] == []


def test_what_is_missing_and_still_alive_is_damage(pair):
    store, queue, reader, view = pair
    queue.ack(queue.get())  # so that the reader looks at the journals again
    for file in Path(store.path).glob("messages/*.qms"):
        file.unlink()
    with pytest.raises(qindex.StoreCorrupt) as caught:
        list(view.browse())
    assert caught.value.req_id == 1
    assert len([text for text in map(str, reader.check()) if "message 1:" in text]) == 1
    crash(store)


@pytest.mark.slow
def test_a_reader_of_a_busy_store_never_finds_damage(tmp_path):
    """The writer acks, flushes and compacts all the time; readers look at all of it."""
    with qindex.open(tmp_path / "data", **SMALL) as store:
        queue = store.queue("a")
        queue.publish_many([b"x" * 300] * 40)

        def write():
            for _ in range(40):
                queue.publish_many([b"x" * 300] * 20)
                settle(store, queue, 20)

        writer = threading.Thread(target=write)
        writer.start()
        while writer.is_alive():
            with qindex.open(store.path, read_only=True) as reader:
                view = reader.queue("a")
                assert all(message.body == b"x" * 300 for message in view.browse())
                reader.check()
                assert not damage(reader)
        writer.join()
        assert len(queue) == 40


def test_a_queue_that_its_writer_deletes_is_missing_and_nothing_else_is(open_store):
    store = open_store()
    for name in ("goes", "stays"):
        store.queue(name).publish(b"x")
    with qindex.open(store.path, read_only=True) as reader:
        assert sorted(reader.queues()) == ["goes", "stays"]
        store.delete_queue("goes")
        with pytest.raises(qindex.QueueMissing):
            reader.queue("goes")
        assert reader.queue("stays").peek().body == b"x"
        assert reader.check() == []
