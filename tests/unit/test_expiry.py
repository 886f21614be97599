"""What has expired leaves: at once with expire(), by itself within about a second."""

import time

import pytest
from helpers import FEW, bodies

import qindex
from qindex.testing import abandon


def wait_until(is_so, seconds=10):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


# ---- expire() ----


def test_it_leaves_from_behind_those_that_stay(simulated):
    queue = simulated.queue("a")
    for number in range(40):
        queue.publish(b"%d" % number, expires_at=1 if number % 3 else None)
    assert queue.ready == 40
    assert queue.expire() == 26
    assert (len(queue), queue.ready) == (14, 14)
    assert bodies(queue.browse()) == [b"%d" % number for number in range(0, 40, 3)]
    assert queue.expire() == 0


def test_only_what_has_expired_leaves(simulated):
    queue = simulated.queue("a")
    queue.publish(b"soon", ttl=1000)
    queue.publish(b"over", expires_at=1)
    queue.publish(b"ever")
    assert queue.expire() == 1
    assert bodies(queue.browse()) == [b"soon", b"ever"]


@pytest.mark.parametrize("count", [1023, 1024, 1025, 2048, 3000])
def test_more_than_one_frame_of_them(disk, count):
    store = qindex.open("/", disk=disk)
    queue = store.queue("a")
    queue.publish(b"first")
    queue.publish_many([b"over"] * count, expires_at=1)
    queue.publish(b"last")
    assert queue.expire() == count
    assert bodies(queue.get_many(10)) == [b"first", b"last"]
    abandon(store)


def test_of_segments_that_nobody_read_since_the_open(disk):
    store = qindex.open("/", disk=disk, **FEW)
    queue = store.queue("a")
    for number in range(100):
        queue.publish(b"%d" % number, expires_at=1 if number in (3, 50, 98) else None)
    queue.flush()
    store.close()
    store = qindex.open("/", disk=disk, **FEW)
    queue = store.queue("a")
    assert queue.expire() == 3
    assert len(queue) == 97
    store.close()
    store = qindex.open("/", disk=disk, **FEW)
    assert store.queue("a").expire() == 0
    assert len(store.queue("a")) == 97
    abandon(store)


def test_a_later_batch_does_not_hide_what_expires_in_an_earlier_one(disk):
    store = qindex.open("/", disk=disk, **FEW)
    queue = store.queue("a")
    queue.publish(b"over", expires_at=1)
    queue.flush()
    queue.publish(b"ever")  # the same segment: its last summary is about both
    queue.flush()
    store.close()
    store = qindex.open("/", disk=disk, **FEW)
    assert store.queue("a").expire() == 1
    abandon(store)


def test_an_unacked_one_stays_until_it_is_given_back(disk, simulated):
    queue = simulated.queue("a")
    queue.publish(b"out", ttl=10)
    message = queue.get()
    disk.advance(20)
    assert queue.expire() == 0
    assert queue.unacked == 1
    queue.nack(message)
    assert queue.get() is None
    assert len(queue) == 0


@pytest.mark.parametrize("delay", [None, 5])
def test_one_that_was_out_at_the_last_look_leaves_when_it_is_back(disk, simulated, delay):
    """The look put the segment off for a minute, and expire() let the message stay (found by the
    explorer in a million crash points)."""
    queue = simulated.queue("a")
    queue.publish_many([b"out", b"behind"], ttl=10)
    message = queue.get()
    disk.advance(20)
    assert queue.expire() == 1
    queue.nack(message, delay=delay)
    assert queue.expire() == 1
    assert len(queue) == 0


def test_they_are_dead_letters_of_a_queue_that_keeps_those(simulated):
    queue = simulated.queue("a", dead_letters=True)
    queue.publish(b"first")
    queue.publish_many([b"over"] * 20, expires_at=1, priority=7)
    assert queue.expire() == 20
    assert (queue.ready, queue.dead) == (1, 20)
    assert {message.dead for message in queue.browse(state="dead")} == {"expired"}
    assert queue.expire() == 0


def test_one_that_was_taken_back_is_delivered_once_more(simulated):
    queue = simulated.queue("a", dead_letters=True)
    queue.publish(b"over", expires_at=1)
    queue.expire()
    assert queue.redrive() == 1
    assert queue.expire() == 0
    assert queue.get().body == b"over"


def test_delayed_ones_and_all_priorities(simulated):
    queue = simulated.queue("a")
    queue.publish(b"late", delay=1000, expires_at=1)
    queue.publish(b"high", priority=200, expires_at=1)
    queue.publish(b"stays", delay=1000)
    assert queue.expire() == 2
    assert (queue.ready, queue.delayed, len(queue)) == (0, 1, 1)


def test_bodies_of_the_message_store_are_freed(disk):
    store = qindex.open("/", disk=disk, message_file_size=1 << 20)
    queue = store.queue("a")
    queue.publish_many([b"B" * 100_000] * 30, expires_at=1)
    assert sum(map(len, disk.files().values())) > 3_000_000
    assert queue.expire() == 30
    queue.flush()
    store.compact()
    bodies_left = sum(b"BBBB" in file for file in disk.files().values())
    assert bodies_left <= 1  # the newest file stays
    abandon(store)


# ---- by itself ----


def test_it_leaves_by_itself(tmp_path):
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("a")
        queue.publish(b"ever")
        queue.publish_many([b"over"] * 100, ttl=0.05)
        wait_until(lambda: len(queue) == 1)
        assert queue.get().body == b"ever"


def test_what_expires_later_leaves_without_another_call(tmp_path):
    with qindex.open(tmp_path / "store", idle=0.2) as store:
        queue = store.queue("a")
        queue.publish(b"ever")
        queue.publish(b"over", ttl=3.0)  # the queue is idle by then
        time.sleep(0.5)
        assert len(queue) == 2
        wait_until(lambda: len(queue) == 1)


def test_a_full_queue_has_room_again(tmp_path):
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("a", max_messages=3)
        queue.publish_many([b"over"] * 3, ttl=0.01)

        def has_room():
            try:
                return queue.publish(b"new") > 0
            except qindex.QueueFull:
                return False

        wait_until(has_room)


def test_nothing_leaves_before_the_rules_are_known(tmp_path):
    with qindex.open(tmp_path / "store", expire=False) as store:
        store.queue("a").publish_many([b"over"] * 5, ttl=1.5)
    with qindex.open(tmp_path / "store") as store:
        time.sleep(2.5)
        queue = store.queue("a", dead_letters=True)
        wait_until(lambda: queue.dead == 5)
        assert len(queue) == 5


def test_nothing_leaves_where_a_tool_has_opened_the_store(tmp_path):
    with qindex.open(tmp_path / "store", expire=False) as store:
        queue = store.queue("a")
        queue.publish_many([b"over"] * 5, ttl=0.01)
        time.sleep(1.5)
        assert len(queue) == 5
        assert queue.expire() == 5


# ---- get_many ----


def test_what_expired_does_not_hide_what_is_due(disk, simulated):
    queue = simulated.queue("a")
    queue.publish(b"first", delay=1)
    queue.publish(b"over", delay=2, ttl=3)
    queue.publish(b"last", delay=3)
    disk.advance(10)
    assert bodies(queue.get_many(10)) == [b"first", b"last"]
    assert queue.get() is None
    assert len(queue) == 2
