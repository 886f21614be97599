"""Queues of the broker: order, turns, limits, dead letters; in memory and in a store alike."""

from __future__ import annotations

import time

import pytest
from broker_rooms import Consumer, declare, drain, publish, turns, vhost

from qindex.broker.errors import AccessRefused
from qindex.broker.message import Message
from qindex.broker.taken import Entry
from qindex.errors import DiskFull


def test_messages_come_in_order_and_requeued_ones_go_back_to_their_places(vhost):
    queue = declare(vhost)
    publish(vhost, b"1", b"2", b"3", b"4")
    first, second, third = queue.get(), queue.get(), queue.get()
    queue.requeue([third, first])
    assert (len(queue), queue.unacked) == (3, 1)
    again = queue.get()
    assert (again.message.body, again.redelivered, again.deliveries) == (b"1", True, 2)
    queue.ack([again, second])
    assert drain(queue) == [b"3", b"4"]
    assert (len(queue), queue.unacked) == (0, 0)


def test_a_message_keeps_what_it_was_published_with(vhost):
    queue = declare(vhost)
    publish(vhost, b"body", headers={"a": [1, "x"]}, message_id="m")
    message = queue.get().message
    assert (message.exchange, message.routing_keys, message.persistent) == ("", ["q"], True)
    assert message.headers == {"a": [1, "x"]}
    assert message.decoded.message_id == "m"


def test_the_highest_priority_comes_first_up_to_the_queues_own(vhost):
    queue = declare(vhost, max_priority=5)
    for priority, body in [(0, b"a"), (9, b"b"), (5, b"c"), (1, b"d")]:
        publish(vhost, body, priority=priority)
    assert drain(queue) == [b"b", b"c", b"d", b"a"]


def test_consumers_take_turns_as_long_as_they_have_credit(vhost, turns):
    queue = declare(vhost)
    one, two = Consumer(2), Consumer(10)
    queue.add_consumer(one, "q")
    queue.add_consumer(two, "q")
    publish(vhost, *(b"%d" % number for number in range(6)))
    turns.run()
    assert one.bodies == [b"0", b"2"]
    assert two.bodies == [b"1", b"3", b"4", b"5"]
    assert (len(queue), queue.unacked) == (0, 6)


def test_a_consumer_of_higher_priority_comes_first(vhost, turns):
    queue = declare(vhost)
    low, high = Consumer(), Consumer(2, priority=5)
    queue.add_consumer(low, "q")
    queue.add_consumer(high, "q")
    publish(vhost, b"0", b"1", b"2")
    turns.run()
    assert (high.bodies, low.bodies) == ([b"0", b"1"], [b"2"])


def test_a_consumer_that_has_credit_again_goes_on(vhost, turns):
    queue = declare(vhost)
    consumer = Consumer(1)
    queue.add_consumer(consumer, "q")
    publish(vhost, b"0", b"1")
    turns.run()
    assert consumer.bodies == [b"0"]
    queue.ack([consumer.entries.pop()])
    queue.may_take(consumer)
    turns.run()
    assert consumer.bodies == [b"1"]


def test_a_queue_does_not_listen_to_a_consumer_that_has_left(vhost, turns):
    queue = declare(vhost)
    gone = Consumer()
    queue.add_consumer(gone, "q")
    queue.remove_consumer(gone)
    queue.may_take(gone)
    publish(vhost, b"x")
    turns.run()
    assert (gone.bodies, len(queue)) == ([], 1)


def test_without_acks_a_message_is_gone_when_it_is_delivered(vhost, turns):
    queue = declare(vhost)
    consumer = Consumer(no_ack=True)
    queue.add_consumer(consumer, "q")
    publish(vhost, b"0")
    turns.run()
    assert consumer.bodies == [b"0"]
    assert (len(queue), queue.unacked, len(queue.backlog)) == (0, 0, 0)


def test_an_error_between_two_consumers_doubles_nothing_and_forgets_nothing(
    vhost, turns, monkeypatch
):
    queue = declare(vhost, max_length_bytes=1000)
    publish(vhost, b"old", expiration="1")
    publish(vhost, *(b"%d" % number for number in range(6)))
    time.sleep(0.01)
    keeps, forgets = Consumer(), Consumer(no_ack=True)
    queue.add_consumer(keeps, "q")
    queue.add_consumer(forgets, "q")
    real, errors = queue.backlog.ack, [DiskFull("no room")]

    def ack(places):
        if errors:
            raise errors.pop()
        real(places)

    monkeypatch.setattr(queue.backlog, "ack", ack)
    turns.run()
    assert (keeps.bodies, forgets.bodies) == ([b"0", b"2", b"4"], [])
    assert (len(queue), queue.unacked, queue._bytes) == (4, 3, 6)
    turns.fire()
    assert sorted(keeps.bodies + forgets.bodies) == [b"%d" % number for number in range(6)]
    assert (len(queue), queue.unacked, queue._bytes) == (0, len(keeps.bodies), 0)
    queue.ack(keeps.entries)
    assert [*queue.backlog.browse()] == []


def test_damaged_headers_are_delivered_again_as_they_are():
    raw = b"\x20\0\0\0\0\x05wrong"
    assert Entry(Message("", ["q"], raw, b""), (0, 0), True, 2).properties(counts=True) == raw


def test_of_a_single_active_consumer_the_next_one_takes_over(vhost, turns):
    queue = declare(vhost, single_active_consumer=True)
    one, two = Consumer(), Consumer()
    queue.add_consumer(one, "q")
    queue.add_consumer(two, "q")
    publish(vhost, b"0", b"1")
    turns.run()
    assert (one.bodies, two.bodies) == ([b"0", b"1"], [])
    queue.remove_consumer(one)
    publish(vhost, b"2")
    turns.run()
    assert two.bodies == [b"2"]


def test_an_exclusive_consumer_is_alone(vhost):
    queue = declare(vhost)
    queue.add_consumer(Consumer(exclusive=True), "queue 'q'")
    with pytest.raises(AccessRefused, match="queue 'q' in exclusive use"):
        queue.add_consumer(Consumer(), "queue 'q'")


@pytest.mark.parametrize(
    ("arguments", "left", "refused"),
    [
        ({"max_length": 2}, [b"3", b"4"], 0),
        ({"max_length": 2, "overflow": "reject-publish"}, [b"1", b"2"], 2),
        ({"max_length_bytes": 3}, [b"2", b"3", b"4"], 0),
        ({"max_length_bytes": 3, "overflow": "reject-publish"}, [b"1", b"2", b"3"], 1),
    ],
)
def test_a_full_queue_drops_its_head_or_refuses(vhost, arguments, left, refused):
    queue = declare(vhost, **arguments)
    outcomes = publish(vhost, b"1", b"2", b"3", b"4")
    assert sum(outcome.refused for outcome in outcomes) == refused
    assert drain(queue) == left


def test_a_full_queue_is_not_full_for_a_consumer_that_waits(vhost):
    queue = declare(vhost, max_length=1)
    consumer = Consumer()
    queue.add_consumer(consumer, "q")
    publish(vhost, b"1", b"2", b"3")
    assert consumer.bodies == [b"1", b"2", b"3"]


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish-dlx"])
def test_what_does_not_fit_goes_to_the_dead_letter_exchange(vhost, overflow):
    dead = declare(vhost, "dead")
    arguments = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
    queue = declare(vhost, max_length=1, overflow=overflow, **arguments)
    publish(vhost, b"1", b"2")
    entry = dead.get()
    assert entry.message.headers["x-death"][0]["reason"] == "maxlen"
    assert len(queue) == 1
    assert {entry.message.body, *drain(queue)} == {b"1", b"2"}


def test_a_rejected_message_becomes_a_dead_letter_with_its_story(vhost):
    dead = declare(vhost, "dead")
    arguments = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
    queue = declare(vhost, **arguments)
    publish(vhost, b"bad", headers={"CC": ["elsewhere"], "mine": 1}, expiration="100000")
    queue.reject([queue.get()])
    assert (len(queue), queue.unacked) == (0, 0)
    message = dead.get().message
    death = message.headers["x-death"][0]
    del death["time"]
    assert death == {
        "count": 1,
        "reason": "rejected",
        "queue": "q",
        "exchange": "",
        "routing-keys": ["q"],
        "original-expiration": "100000",
    }
    assert message.headers["x-first-death-queue"] == "q"
    assert message.headers["mine"] == 1
    assert "CC" not in message.headers
    assert message.decoded.expiration is None
    assert message.expires_us == 0


def test_deaths_are_counted_for_each_queue_and_reason(vhost):
    queue = declare(vhost, dead_letter_exchange="", dead_letter_routing_key="q")
    publish(vhost, b"again")
    for _ in range(3):
        queue.reject([queue.get()])
    assert [death["count"] for death in queue.get().message.headers["x-death"]] == [3]


def test_a_dead_letter_that_goes_in_a_circle_is_dropped(vhost, turns):
    queue = declare(vhost, max_length=1, dead_letter_exchange="", dead_letter_routing_key="q")
    publish(vhost, b"1", b"2")
    assert drain(queue) == [b"2"]
    assert vhost.dead_dropped == 1


def test_a_message_that_was_delivered_too_often_is_a_dead_letter(vhost):
    dead = declare(vhost, "dead")
    arguments = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
    queue = declare(vhost, delivery_limit=2, queue_type="quorum", **arguments)
    publish(vhost, b"poison")
    for _ in range(3):
        queue.requeue([queue.get()])
    assert len(queue) == 0
    assert dead.get().message.headers["x-death"][0]["reason"] == "delivery_limit"


def test_an_expired_message_is_never_delivered(vhost, turns, monkeypatch):
    clock = [1_000_000_000_000]
    monkeypatch.setattr("qindex.broker.queues.now_us", lambda: clock[0])
    monkeypatch.setattr("qindex.broker.posting.now_us", lambda: clock[0])
    dead = declare(vhost, "dead")
    arguments = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
    queue = declare(vhost, message_ttl=1000, **arguments)
    publish(vhost, b"long")
    publish(vhost, b"short", expiration="10")
    turns.run()
    clock[0] += 1_000_001
    turns.fire()
    assert len(queue) == 0
    assert drain(dead) == [b"long", b"short"]


def test_a_time_to_live_of_0_reaches_a_consumer_that_waits_and_nobody_else(
    vhost, turns, monkeypatch
):
    clock = [1_000_000_000_000]
    monkeypatch.setattr("qindex.broker.queues.now_us", lambda: clock[0])
    monkeypatch.setattr("qindex.broker.posting.now_us", lambda: clock[0])
    queue = declare(vhost, message_ttl=0)
    consumer = Consumer(1)
    queue.add_consumer(consumer, "q")
    publish(vhost, b"taken", b"lost")
    clock[0] += 1
    turns.run()
    turns.fire()
    assert consumer.bodies == [b"taken"]
    assert len(queue) == 0


def test_a_delayed_message_waits_for_one_timer_which_an_earlier_one_moves(vhost, turns):
    queue = declare(vhost)
    consumer = Consumer()
    queue.add_consumer(consumer, "q")
    turns.run()
    now = time.time_ns() // 1000
    message = Message("", ["q"], b"", b"late", persistent=True)
    for seconds in (3600, 0.05, 1800):
        queue.publish(message, now, now + round(seconds * 1e6))
    armed = [timer for timer in turns.later if not timer.cancelled]
    assert len(armed) == 1
    assert 0 < armed[0].delay <= 0.06
    assert (len(queue), queue.backlog.delayed()) == (0, 3)
    turns.fire()  # too early
    assert consumer.bodies == []
    time.sleep(0.06)
    turns.fire()
    assert consumer.bodies == [b"late"]
    assert [entry.redelivered for entry in consumer.entries] == [False]
    (armed,) = [timer for timer in turns.later if not timer.cancelled]
    assert 1790 < armed.delay < 1801
    assert (queue.purge(), queue.backlog.delayed()) == (0, 2)


def test_a_due_message_that_is_taken_before_its_timer_is_counted_right(vhost, turns):
    queue = declare(vhost)
    publish(vhost, b"in its place")
    now = time.time_ns() // 1000
    queue.publish(Message("", ["q"], b"", b"due", persistent=True), now, now + 1)
    time.sleep(0.01)
    first = queue.get()
    turns.fire()
    assert len(queue) == 1
    assert {first.message.body, queue.get().message.body} == {b"due", b"in its place"}
    assert len(queue) == 0


def test_a_queue_goes_on_behind_an_error_of_ours(vhost, turns, monkeypatch):
    def fails(most):
        monkeypatch.undo()
        raise RuntimeError("a defect")

    queue, consumer = declare(vhost), Consumer()
    queue.add_consumer(consumer, "here")
    monkeypatch.setattr(queue, "_take", fails)
    publish(vhost, b"1", b"2")
    with pytest.raises(RuntimeError):
        turns.run()
    turns.fire()  # a second later
    assert consumer.bodies == [b"1", b"2"]


@pytest.mark.parametrize("known", [True, False])
def test_what_becomes_due_is_counted_without_a_look_at_what_is_ready(
    vhost, turns, monkeypatch, known
):
    """x-max-length-bytes: each message that became due had all that was ready read again."""
    queue = declare(vhost, max_length_bytes=400)
    publish(vhost, *[b"ready" * 2] * 30)
    looks = []
    ready_bytes = type(queue.backlog).ready_bytes
    monkeypatch.setattr(
        type(queue.backlog), "ready_bytes", lambda it: looks.append(ready_bytes(it)) or looks[-1]
    )
    delayed = [Message("", ["q"], b"\0\0", b"d" * n, persistent=True) for n in (7, 20, 50)]
    now = time.time_ns() // 1000
    numbers = [queue.publish(each, now, now + 30_000 + n) for n, each in enumerate(delayed[:2])]
    later = queue.publish(delayed[2], now, now + 3_600_000_000)
    if not known:
        queue.backlog.drop([numbers[0]])
        queue.count_again()
    looks.clear()
    time.sleep(0.04)
    turns.fire()
    assert queue._bytes == 300 + (27 if known else 20) == ready_bytes(queue.backlog)
    assert len(looks) == (0 if known else 1)
    queue.backlog.put_off([later], time.time_ns() // 1000 + 1)
    queue.due_timer.published(time.time_ns() // 1000)
    queue.count_again()
    looks.clear()
    time.sleep(0.01)
    turns.fire()
    assert queue._bytes == ready_bytes(queue.backlog) <= 400
    assert len(looks) <= 1
    queue.publish(delayed[0], now, time.time_ns() // 1000 + 1)  # nothing else is delayed
    looks.clear()
    time.sleep(0.01)
    turns.fire()
    assert (queue._bytes == ready_bytes(queue.backlog), looks) == (True, [])
