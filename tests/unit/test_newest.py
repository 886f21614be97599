"""get_newest(): a queue as a stack."""

from helpers import bodies

import qindex
from qindex.testing import SimulatedDisk


def test_the_last_comes_first(queue):
    queue.publish_many([b"%d" % i for i in range(40)])  # over three segments
    newest = [queue.get_newest() for _ in range(3)]
    assert bodies(newest) == [b"39", b"38", b"37"]
    queue.publish(b"40")
    assert queue.get_newest().body == b"40"
    queue.nack(newest[1])
    assert queue.get_newest().body == b"38"
    assert queue.get().body == b"0"
    rest = [queue.get_newest().body for _ in range(36)]
    assert rest == [b"%d" % i for i in range(36, 0, -1)]
    assert queue.get_newest() is None
    assert queue.get() is None


def test_it_leaves_the_older_ones_in_their_order(open_store, tmp_path):
    store = open_store()
    queue = store.queue("a")
    queue.publish_many([b"%d" % i for i in range(100)])
    queue.flush()
    for i in range(99, 49, -1):
        message = queue.get_newest()
        assert message.body == b"%d" % i
        queue.ack(message)
    store.close()
    queue = open_store().queue("a")
    assert bodies(queue.get_many(200)) == [b"%d" % i for i in range(50)]


def test_expired_ones_are_dropped_on_the_way():
    disk = SimulatedDisk(seed=1)
    with qindex.open("/", disk=disk, segment_entries=16) as store:
        queue = store.queue("a")
        queue.publish(b"stays")
        queue.publish_many([b"goes"] * 40, expires_at=1_780_000_000 + 10)
        disk.advance(20)
        assert queue.get_newest().body == b"stays"
        assert queue.get_newest() is None
        assert len(queue) == 1


def test_a_file_is_read_backwards(open_store):
    """More than the window that is read ahead: each body comes from its own place."""
    queue = open_store(
        segment_entries=4096, embed_below=4096, max_journal_entries=10_000, idle=3600
    ).queue("a")
    bodies_in = [b"%d " % i * (i % 700 + 1) for i in range(2000)]
    queue.publish_many(bodies_in)
    queue.flush()
    for body in reversed(bodies_in):
        assert queue.get_newest().body == body
    assert queue.get_newest() is None
