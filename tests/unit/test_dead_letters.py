"""What a queue would drop it can keep as dead letters; redrive takes them back."""

import pytest
from helpers import FEW, bodies

import qindex
from qindex.testing import abandon


def dead(queue):
    return [(message.body, message.dead) for message in queue.browse(state="dead")]


# ---- why ----


def test_what_expired_is_a_dead_letter_when_it_is_met(disk, simulated):
    queue = simulated.queue("a", dead_letters=True)
    queue.publish(b"short", expires_at=1)
    queue.publish(b"long")
    assert queue.get().body == b"long"
    assert dead(queue) == [(b"short", "expired")]
    assert (len(queue), queue.ready, queue.dead) == (2, 0, 1)


def test_a_rejected_message_is_a_dead_letter(simulated):
    queue = simulated.queue("a", dead_letters=True)
    queue.publish_many([b"a", b"b", b"c"], priority=7)
    a, b, _ = queue.get_many(3)
    queue.nack(b, requeue=False)
    queue.nack_many([a], requeue=False)
    assert dead(queue) == [(b"a", "rejected"), (b"b", "rejected")]
    assert queue.peek(a.req_id).priority == 7


def test_a_message_that_is_given_back_too_often_is_a_dead_letter(simulated):
    queue = simulated.queue("a", max_deliveries=3, dead_letters=True)
    queue.publish(b"poison")
    for count in (1, 2, 3):
        message = queue.get()
        assert message.delivery_count == count
        queue.nack(message)
    assert queue.get() is None
    assert dead(queue) == [(b"poison", "deliveries")]


def test_without_dead_letters_they_are_dropped(simulated):
    queue = simulated.queue("a", max_deliveries=1)
    queue.publish(b"expired", expires_at=1)
    queue.publish_many([b"rejected", b"poison"])
    queue.nack(queue.get(), requeue=False)
    queue.nack(queue.get())
    assert queue.get() is None
    assert (len(queue), queue.dead) == (0, 0)


def test_who_kills_its_consumers_is_a_dead_letter_too(disk, simulated):
    simulated.queue("a").publish(b"kills who takes it")
    for count in (1, 2, 3):
        disk = disk.kill()
        store = qindex.open("/", disk=disk, **FEW)
        queue = store.queue("a", max_deliveries=3, dead_letters=True)
        assert queue.get().delivery_count == count
        abandon(store)
    with qindex.open("/", disk=disk.kill(), **FEW) as store:
        queue = store.queue("a", max_deliveries=3, dead_letters=True)
        assert queue.get() is None
        assert dead(queue) == [(b"kills who takes it", "deliveries")]


# ---- and back ----


def test_redrive_makes_them_ready_once_more_whatever_they_died_of(disk, simulated):
    queue = simulated.queue("a", max_deliveries=2, dead_letters=True)
    queue.publish(b"expired", expires_at=1)
    queue.publish(b"poison")
    for _ in range(2):
        queue.nack(queue.get())
    assert queue.get() is None
    assert queue.redrive() == 2
    again = queue.get_many(5)
    assert [(m.body, m.delivery_count) for m in again] == [(b"expired", 1), (b"poison", 3)]
    queue.nack_many(again)
    assert bodies(queue.get_many(5)) == [b"poison"]
    assert dead(queue) == [(b"expired", "expired")]


def test_redrive_takes_as_many_as_it_is_told(simulated):
    queue = simulated.queue("a", dead_letters=True)
    queue.publish_many([b"%d" % n for n in range(50)])
    queue.nack_many(queue.get_many(50), requeue=False)
    assert (queue.redrive(20), queue.ready, queue.dead) == (20, 20, 30)
    assert bodies(queue.get_many(50)) == [b"%d" % n for n in range(20)]
    assert (queue.redrive(0), queue.redrive(), queue.redrive()) == (0, 30, 0)


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("end", ["close", "kill", "power cut"])
def test_dead_letters_outlive_any_end_and_are_in_one_place(disk, simulated, end, flushed):
    queue = simulated.queue("a", dead_letters=True)
    queue.publish_many([b"%d" % n for n in range(40)], delay=1)
    disk.advance(1)
    queue.nack_many(queue.get_many(30), requeue=False)
    if flushed:
        queue.flush()
    queue.sync()
    if end == "close":
        simulated.close()
        left = disk.kill()
    else:
        left = disk.kill() if end == "kill" else disk.power_cut(seed=2)
        abandon(simulated)
    with qindex.open("/", disk=left, **FEW) as store:
        queue = store.queue("a")
        assert (queue.dead, queue.ready, len(queue)) == (30, 10, 40)
        assert queue.redrive() == 30
        assert len(queue.get_many(50)) == 40
        assert store.check() == []


def test_a_dead_letter_can_be_deleted_and_purged(simulated):
    queue = simulated.queue("a", dead_letters=True)
    queue.publish_many([b"a", b"b"])
    a, _ = (messages := queue.get_many(2))
    queue.nack_many(messages, requeue=False)
    queue.delete(a)
    assert (queue.dead, len(queue)) == (1, 1)
    assert queue.purge() == 0
    assert queue.purge(state="dead") == 1
    assert (queue.dead, len(queue)) == (0, 0)


# ---- the queue's time to live ----


def test_a_queue_gives_its_ttl_to_those_that_have_no_shorter_one(disk, simulated):
    queue = simulated.queue("a", ttl=10)
    queue.publish(b"own", expires_at=1)
    queue.publish(b"the queue's")
    queue.publish(b"later", delay=8)
    disk.advance(9)
    assert bodies(queue.browse()) == [b"own", b"the queue's", b"later"]
    assert queue.get().body == b"later"
    assert queue.get().body == b"the queue's"
    assert len(queue) == 2
