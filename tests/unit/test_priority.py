"""The highest priority first, first in first out within one."""

import random

import pytest

import qindex
from qindex.testing import SimulatedDisk, abandon


def take_all(queue):
    return [(m.priority, m.body) for m in iter(queue.get, None)]


def test_the_highest_comes_first_and_each_in_order(queue):
    dice = random.Random(1)
    published = [(dice.choice([0, 0, 1, 9, 255]), b"%d" % n) for n in range(500)]
    for priority, body in published:
        queue.publish(body, priority=priority)
    assert queue.peek().priority == 255
    assert take_all(queue) == sorted(published, key=lambda one: -one[0])


def test_a_batch_is_taken_across_priorities(queue):
    queue.publish_many([b"low"] * 3)
    queue.publish_many([b"high"] * 2, priority=200)
    queue.publish(b"middle", priority=7)
    got = queue.get_many(5)
    assert [m.body for m in got] == [b"high", b"high", b"middle", b"low", b"low"]
    queue.ack_many(got)
    assert (len(queue), queue.ready) == (1, 1)


def test_a_nack_goes_back_to_its_place(queue):
    queue.publish(b"low")
    for body in (b"a", b"b", b"c"):
        queue.publish(body, priority=5)
    a, b = queue.get(), queue.get()
    queue.nack(a)
    assert [body for _, body in take_all(queue)] == [b"a", b"c", b"low"]
    queue.nack(b)
    assert queue.get().body == b"b"


def test_the_newest_is_that_of_the_highest_priority(queue):
    for priority, body in ((0, b"a"), (3, b"b"), (3, b"c"), (0, b"d")):
        queue.publish(body, priority=priority)
    assert [queue.get_newest().body for _ in range(4)] == [b"c", b"b", b"d", b"a"]


@pytest.mark.parametrize("priority", [-1, 256, 1000])
def test_a_priority_that_cannot_be_is_refused(store, queue, priority):
    for publish in (
        lambda: queue.publish(b"x", priority=priority),
        lambda: queue.publish_many([b"x"], priority=priority),
        lambda: store.publish(["orders"], b"x", priority=priority, create=True),
    ):
        with pytest.raises(ValueError, match="priority must be a whole number from 0 to 255"):
            publish()
    with pytest.raises(TypeError):
        queue.publish(b"x", priority="high")
    assert len(queue) == 0


@pytest.mark.parametrize("end", ["close", "kill", "power cut"])
def test_priorities_outlive_any_end_and_no_id_is_given_twice(end):
    disk = SimulatedDisk(seed=1)
    store = qindex.open("/", disk=disk, segment_entries=16, max_journal_entries=24)
    queue = store.queue("a")
    published = [(n % 4 * 80, b"%d" % n) for n in range(120)]
    ids = {queue.publish(body, priority=priority) for priority, body in published}
    queue.sync()
    if end == "close":
        store.close()
        left = disk.kill()
    else:
        left = disk.kill() if end == "kill" else disk.power_cut(seed=5)
        abandon(store)
    with qindex.open("/", disk=left) as again:
        queue = again.queue("a")
        assert take_all(queue) == sorted(published, key=lambda one: -one[0])
        more = {queue.publish(b"x", priority=n % 4 * 80) for n in range(40)}
        assert not ids & more
        assert again.check() == []


def test_a_queue_whose_priorities_were_all_acked_gives_no_id_again():
    disk = SimulatedDisk(seed=1)
    given = []
    for _ in range(4):
        with qindex.open("/", disk=disk, segment_entries=8, max_journal_entries=12) as store:
            queue = store.queue("a")
            given += [queue.publish(b"x", priority=5) for _ in range(10)]
            queue.ack_many(queue.get_many(10))
            queue.flush()
        disk = disk.kill()
    assert len(set(given)) == 40
    assert sorted(given) == given
