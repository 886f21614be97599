"""Batches with long bodies: each is read into its bytes, without a buffer in between."""

import os

import pytest

import qindex
from qindex import Queue

LONG = 300_000  # more than a get with the GIL reads
MIXED = [10, LONG, 5_000, 1_000_000, 262_144, 262_145, 0, LONG, LONG]


def test_long_and_short_bodies_come_in_their_order(tmp_path):
    bodies = [os.urandom(size) for size in MIXED]
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("q")
        queue.publish_many(bodies)
        messages = queue.get_many(len(bodies))
        assert [message.body for message in messages] == bodies
        assert {message.delivery_count for message in messages} == {1}
        queue.ack_many(messages)
        assert queue.get_many(5) == []
        assert len(queue) == 0


def test_a_batch_of_long_bodies_needs_no_buffer(tmp_path, monkeypatch):
    bodies = [os.urandom(LONG) for _ in range(3)]
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("q")
        queue.publish_many(bodies)
        monkeypatch.setattr(Queue, "_get_many", None)
        monkeypatch.setattr(Queue, "_get_more", None)
        assert [message.body for message in queue.get_many(3)] == bodies


def test_a_batch_stops_after_4_mib_but_for_its_first_message(tmp_path):
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("q")
        for size in (5 << 20, 100, 3 << 20, 1 << 20, 100):
            queue.publish(bytes(size))
        sizes = []
        while messages := queue.get_many(10):
            sizes.append([len(message.body) for message in messages])
        assert sizes == [[5 << 20], [100, 3 << 20], [1 << 20, 100]]


def test_what_is_in_front_of_a_damaged_long_body_is_given_first(tmp_path):
    path = tmp_path / "store"
    with qindex.open(path) as store:
        queue = store.queue("q")
        queue.publish_many([b"first", b"?" * LONG, b"last"])
        store.sync()
        file = path / "messages" / "0.qms"
        data = bytearray(file.read_bytes())
        data[data.index(b"?" * 100) + 1000] ^= 1
        file.write_bytes(data)
        assert [message.body for message in queue.get_many(3)] == [b"first"]
        with pytest.raises(qindex.StoreCorrupt):
            queue.get_many(3)
        assert [message.body for message in queue.get_many(3)] == [b"last"]


def test_empty_bodies_come_where_each_get_may_have_to_wait(tmp_path):
    """A limit of deliveries is looked at by the way that may wait."""
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("q", max_deliveries=3)
        bodies = [b"", b"", b"short", b"", b"?" * LONG, b""]
        queue.publish_many(bodies)
        assert [message.body for message in queue.get_many(9)] == bodies
