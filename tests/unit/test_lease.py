"""A leased message comes back when its lease ends; only who has it now can settle it."""

import time

import pytest
from helpers import LONG, PATIENCE, Getter, asleep

import qindex


def test_without_an_ack_in_time_the_message_is_ready_again(disk, simulated):
    queue = simulated.queue("a")
    queue.publish_many([b"a", b"b"])
    first = queue.get(lease=30)
    assert (first.delivery_count, first.redelivered) == (1, False)
    disk.advance(29.9)
    assert queue.get_many(9)[0].body == b"b"
    disk.advance(0.1)
    assert (queue.ready, queue.unacked) == (1, 1)
    again = queue.get(lease=30)
    assert (again.body, again.delivery_count, again.redelivered) == (b"a", 2, True)


def test_an_ack_in_time_is_an_end(disk, simulated):
    queue = simulated.queue("a")
    queue.publish_many([b"a", b"b", b"c"])
    queue.ack(queue.get(lease=30))
    queue.ack_many(queue.get_many(2, lease=30))
    disk.advance(60)
    assert len(queue) == 0
    assert queue.get() is None


@pytest.mark.parametrize("taken_again", [False, True])
def test_who_is_late_settles_nothing(disk, simulated, taken_again):
    queue = simulated.queue("a")
    queue.publish(b"a")
    late = queue.get(lease=1)
    disk.advance(1)
    other = queue.get(lease=100) if taken_again else None
    for settle in (
        lambda: queue.ack(late),
        lambda: queue.ack_many([late]),
        lambda: queue.nack(late),
        lambda: queue.nack(late, delay=5),
        lambda: queue.nack(late, requeue=False),
        lambda: queue.touch(late, 30),
    ):
        with pytest.raises(qindex.LeaseExpired):
            settle()
    assert (queue.ready, queue.unacked) == ((0, 1) if taken_again else (1, 0))
    queue.ack(other or queue.get())
    assert len(queue) == 0


def test_one_that_is_late_in_a_batch_keeps_all_of_it(disk, simulated):
    queue = simulated.queue("a")
    queue.publish_many([b"a", b"b"])
    late = queue.get_many(2, lease=1)
    disk.advance(1)
    again = queue.get_many(2, lease=100)
    with pytest.raises(qindex.LeaseExpired):
        queue.ack_many([again[0], late[1]])
    assert queue.unacked == 2
    queue.ack_many(again)
    assert len(queue) == 0


def test_touch_extends_the_lease_from_now(disk, simulated):
    queue = simulated.queue("a")
    queue.publish(b"a")
    message = queue.get(lease=10)
    for _ in range(5):
        disk.advance(9)
        queue.touch(message, 10)
    disk.advance(9.9)
    assert queue.get() is None
    disk.advance(0.2)
    assert queue.get().delivery_count == 2


def test_touch_makes_a_lease_of_a_delivery_without_one(disk, simulated):
    queue = simulated.queue("a")
    queue.publish(b"a")
    message = queue.get()
    disk.advance(1e6)
    queue.touch(message, 10)
    disk.advance(10)
    assert queue.ready == 1


def test_a_nack_ends_the_lease(disk, simulated):
    queue = simulated.queue("a")
    queue.publish(b"a")
    queue.nack(queue.get(lease=5))
    message = queue.get()
    disk.advance(100)
    assert queue.unacked == 1
    queue.ack(message)


def test_the_number_of_deliveries_outlives_a_kill(disk, simulated):
    queue = simulated.queue("a")
    queue.publish(b"a")
    for _ in range(5):
        queue.get(lease=1)
        disk.advance(1)
    queue.get(lease=1000)
    with qindex.open("/", disk=disk.kill()) as store:
        message = store.queue("a").get()
        assert (message.delivery_count, message.redelivered) == (7, True)


def test_who_waits_gets_what_another_held_too_long(queue):
    queue.publish(b"a")
    begin = time.monotonic()
    queue.get(lease=0.05)
    message = queue.get(timeout=LONG, lease=60)
    assert message.delivery_count == 2
    assert 0.04 <= time.monotonic() - begin < PATIENCE


def test_who_waits_already_gets_it_when_the_lease_ends(queue):
    queue.publish(b"a")
    first = queue.get()
    waiting = Getter(lambda: queue.get(timeout=LONG))
    asleep(waiting)
    queue.touch(first, 0.05)
    assert waiting.result().delivery_count == 2


def test_leases_of_several_queues_and_of_the_newest(disk, simulated):
    a, b = simulated.queue("a"), simulated.queue("b")
    b.publish(b"x")
    assert simulated.get(["a", "b"], lease=2, create=True).queue == "b"
    a.publish(b"y")
    assert a.get_newest(lease=2).body == b"y"
    disk.advance(2)
    assert (a.ready, b.ready) == (1, 1)


@pytest.mark.parametrize("lease", [0, -1, float("nan"), float("inf")])
def test_a_lease_that_cannot_be_is_refused(simulated, lease):
    queue = simulated.queue("a")
    queue.publish(b"a")
    for get in (
        lambda: queue.get(lease=lease),
        lambda: queue.get_many(1, lease=lease),
        lambda: queue.get_newest(lease=lease),
    ):
        with pytest.raises(ValueError, match="lease"):
            get()
    assert queue.ready == 1


def test_many_short_leases_leave_no_trail_in_memory(queue):
    queue.publish_many([b"x"] * 20_000)
    for _ in range(40):
        for message in queue.get_many(500, lease=3600):
            queue.ack(message)
    assert len(queue) == 0


def test_a_purge_leaves_what_is_leased(disk, simulated):
    queue = simulated.queue("a")
    queue.publish_many([b"a", b"b", b"c"])
    queue.get(lease=5)
    queue.get(lease=500)
    disk.advance(5)
    assert queue.purge() == 2
    assert (queue.ready, queue.unacked) == (0, 1)
