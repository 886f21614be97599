"""A dead letter finds no room on the disk: its message stays, once, where consumers can get it."""

from __future__ import annotations

import time

import pytest
from broker_rooms import Consumer, declare, drain, publish, turns, vhost

from qindex.broker.message import Message
from qindex.errors import DiskFull


@pytest.fixture
def room(vhost, monkeypatch):
    """How many dead letters there is room for."""
    dead, left = declare(vhost, "dead"), [0]
    real = dead.backlog.publish

    def put(*args):
        if left[0] == 0:
            raise DiskFull("no room")
        left[0] -= 1
        return real(*args)

    monkeypatch.setattr(dead.backlog, "publish", put)
    return left


def with_dead_letters(vhost, **arguments):
    return declare(vhost, dead_letter_exchange="", dead_letter_routing_key="dead", **arguments)


def test_what_has_expired_stays_until_there_is_room(vhost, turns, room):
    queue = with_dead_letters(vhost, message_ttl=1)
    publish(vhost, b"1", b"2", b"3")
    time.sleep(0.01)
    for places, ready in ((0, 3), (0, 3), (1, 2), (0, 2)):
        room[0] = places
        turns.fire()
        assert (len(queue), queue.unacked) == (ready, 0)
    room[0] = 100
    turns.fire()
    assert (len(queue), sorted(drain(vhost.queues["dead"]))) == (0, [b"1", b"2", b"3"])


def test_a_publish_that_is_in_is_no_error_if_the_head_cannot_leave(vhost, turns, room):
    queue = with_dead_letters(vhost, max_length=2)
    publish(vhost, b"1", b"2", b"3")  # without an error, which would be tried again
    assert len(queue) == 3
    room[0] = 100
    turns.fire()
    assert drain(vhost.queues["dead"]) == [b"1"]
    assert drain(queue) == [b"2", b"3"]


def test_what_was_rejected_is_ready_again(vhost, room):
    queue = with_dead_letters(vhost)
    publish(vhost, b"1", b"2", b"3")
    entries = [queue.get() for _ in range(3)]
    room[0] = 1
    with pytest.raises(DiskFull):
        queue.reject(entries)
    assert (len(queue), queue.unacked) == (2, 0)
    assert drain(vhost.queues["dead"]) == [b"1"]
    assert drain(queue) == [b"2", b"3"]


def test_what_was_delivered_too_often_keeps_nothing_else_back(vhost, room):
    queue = with_dead_letters(vhost, delivery_limit=1)
    publish(vhost, b"1", b"2")
    queue.requeue([queue.get()])
    entries = [queue.get(), queue.get()]
    with pytest.raises(DiskFull):
        queue.requeue(entries)
    assert drain(queue) == [b"1", b"2"]


def test_what_is_alive_is_delivered_beside_what_has_expired(vhost, turns, room):
    queue = with_dead_letters(vhost)
    publish(vhost, b"old", expiration="1")
    publish(vhost, b"new")
    time.sleep(0.01)
    consumer = Consumer()
    queue.add_consumer(consumer, "queue 'q'")
    turns.run()
    assert (consumer.bodies, len(queue)) == ([b"new"], 1)
    room[0] = 1
    turns.fire()
    assert (drain(vhost.queues["dead"]), len(queue)) == ([b"old"], 0)


def test_a_dead_letter_that_is_refused_is_counted(vhost):
    with_dead_letters(vhost)
    declare(vhost, "dead", max_length=1, overflow="reject-publish")
    publish(vhost, b"1", b"2")
    queue = vhost.queues["q"]
    queue.reject([queue.get(), queue.get()])
    assert (len(vhost.queues["dead"]), vhost.dead_dropped) == (1, 1)


def test_what_has_become_due_is_delivered_although_the_head_cannot_leave(vhost, turns, room):
    queue = with_dead_letters(vhost, max_length=1)
    consumer = Consumer()
    queue.add_consumer(consumer, "queue 'q'")
    turns.run()
    now = time.time_ns() // 1000
    for body in (b"1", b"2"):
        queue.publish(Message("", ["q"], b"\0\0", body, persistent=True), now, now + 1)
    time.sleep(0.01)
    turns.fire()
    assert sorted(consumer.bodies) == [b"1", b"2"]
    assert (len(queue), queue.unacked) == (0, 2)


def test_however_often_it_fails_one_timer_tries_again(vhost, turns, room):
    queue = with_dead_letters(vhost, max_length=1)
    for number in range(5):
        publish(vhost, b"%d" % number)
        turns.run()
    assert len([timer for timer in turns.later if not timer.cancelled]) == 1
    room[0] = 100
    turns.fire()
    assert drain(queue) == [b"4"]
