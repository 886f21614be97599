"""A delayed message is ready at its time, in the order of times, whatever happens meanwhile."""

import random
import threading
import time

import pytest
from helpers import LONG, PATIENCE, Getter, asleep

import qindex
from qindex.testing import abandon

MINUTE = 60.0


def take_all(queue):
    taken = []
    while (message := queue.get()) is not None:
        taken.append(message.body)
    return taken


def test_it_is_delivered_at_its_time_and_not_before(disk, simulated):
    queue = simulated.queue("a")
    queue.publish(b"later", delay=10)
    queue.publish(b"now")
    assert (len(queue), queue.ready, queue.delayed) == (2, 1, 1)
    assert queue.get().body == b"now"
    assert queue.get() is None
    disk.advance(9.99)
    assert queue.get() is None
    disk.advance(0.01)
    assert (queue.ready, queue.delayed) == (1, 0)
    assert queue.get().body == b"later"


def test_due_messages_come_in_the_order_of_their_times_before_the_others(disk, simulated):
    queue = simulated.queue("a")
    queue.publish(b"ready")
    order = list(range(200))
    random.Random(1).shuffle(order)
    for n in order:
        queue.publish(b"%03d" % n, delay=1 + n)
    disk.advance(300)
    assert take_all(queue) == [b"%03d" % n for n in range(200)] + [b"ready"]


def test_those_of_the_same_time_come_in_the_order_of_publishing(disk, simulated):
    queue = simulated.queue("a")
    queue.publish_many([b"a", b"b", b"c"], due=2e9)
    queue.publish(b"d", due=2e9)
    disk.set_wall(2e9)
    with_clock = disk.kill()
    abandon(simulated)
    with qindex.open("/", disk=with_clock) as store:
        assert take_all(store.queue("a")) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("end", ["close", "kill", "power cut"])
@pytest.mark.parametrize("rest", [0, 5, 90 * MINUTE, 400 * 86400])
def test_a_restart_of_any_length_keeps_times_and_order(disk, simulated, end, rest):
    queue = simulated.queue("a")
    due = {}
    for n in range(100):
        queue.publish(b"%d" % n, delay=1 + n * 97 % 100 * MINUTE, priority=n % 3)
        due[b"%d" % n] = n * 97 % 100
        if n == 60:
            queue.flush()
    queue.sync()
    if end == "close":
        simulated.close()
        left = disk.kill()
    else:
        left = disk.kill() if end == "kill" else disk.power_cut(seed=3)
        abandon(simulated)
    left.advance(rest)
    with qindex.open("/", disk=left) as store:
        again = store.queue("a")
        over = {body for body, minute in due.items() if 1 + minute * MINUTE <= rest}
        assert (again.ready, again.delayed) == (len(over), 100 - len(over))
        taken = take_all(again)
        assert taken == sorted(over, key=lambda body: (-(int(body) % 3), due[body]))
        left.advance(100 * MINUTE)
        assert set(take_all(again)) == set(due) - over
        assert store.check() == []


def test_the_next_time_and_the_counts_are_known_without_looking(disk, simulated):
    queue = simulated.queue("a")
    assert queue.next_due is None
    queue.publish(b"b", due=3e9)
    first = queue.publish(b"a", due=2.5e9)
    assert (queue.next_due, queue.delayed) == (2.5e9, 2)
    queue.delete(first)
    assert (queue.next_due, queue.delayed) == (3e9, 1)


def test_a_delayed_message_can_be_listed_looked_at_changed_and_cancelled(disk, simulated):
    queue = simulated.queue("a")
    queue.publish(b"ready")
    ids = {name: queue.publish(name, delay=60) for name in (b"a", b"b", b"c")}
    assert [m.body for m in queue.browse(state="delayed")] == [b"a", b"b", b"c"]
    assert [m.body for m in queue.browse(state="ready")] == [b"ready"]
    seen = queue.peek(ids[b"b"])
    assert (seen.body, seen.delivery_count, seen.due) == (b"b", 0, queue.next_due)
    queue.reschedule(ids[b"c"], delay=5)
    queue.reschedule(ids[b"b"])
    queue.delete(ids[b"a"])
    with pytest.raises(qindex.AlreadyAcked):
        queue.delete(ids[b"a"])
    assert queue.get().body == b"b"
    disk.advance(5)
    assert take_all(queue) == [b"c", b"ready"]


def test_a_changed_time_outlives_a_power_cut(disk, simulated):
    queue = simulated.queue("a")
    moved, stays = queue.publish(b"moved", delay=60), queue.publish(b"stays", delay=60)
    queue.flush()
    queue.reschedule(moved, delay=600)
    queue.sync()
    left = disk.power_cut(seed=1)
    left.advance(61)
    with qindex.open("/", disk=left) as store:
        assert take_all(store.queue("a")) == [b"stays"]
        left.advance(600)
        assert take_all(store.queue("a")) == [b"moved"]
        assert stays != moved


def test_what_a_consumer_has_is_neither_rescheduled_nor_deleted(simulated):
    queue = simulated.queue("a")
    queue.publish(b"a")
    message = queue.get()
    for change in (lambda: queue.reschedule(message, delay=1), lambda: queue.delete(message)):
        with pytest.raises(qindex.MessageDelivered):
            change()
    assert (queue.unacked, queue.delayed) == (1, 0)
    queue.ack(message)


def test_nack_with_a_delay_gives_the_message_back_later(disk, simulated):
    queue = simulated.queue("a")
    queue.publish_many([b"a", b"b", b"c"])
    a, b = queue.get_many(2)
    queue.nack(a, delay=2)
    queue.nack_many([b], due=queue.next_due - 1)
    assert (queue.ready, queue.delayed) == (1, 2)
    assert take_all(queue) == [b"c"]
    disk.advance(2)
    again = queue.get_many(9)
    assert [(m.body, m.delivery_count, m.redelivered) for m in again] == [
        (b"b", 2, True),
        (b"a", 2, True),
    ]
    with pytest.raises(ValueError, match="requeue"):
        queue.nack(again[0], requeue=False, delay=1)


def test_a_delayed_message_that_was_delivered_goes_back_to_its_time(disk, simulated):
    queue = simulated.queue("a")
    queue.publish(b"first", delay=1)
    queue.publish(b"second", delay=2)
    queue.publish(b"plain")
    disk.advance(3)
    message = queue.get()
    queue.nack(message)
    assert take_all(queue) == [b"first", b"second", b"plain"]


def test_purge_takes_the_delayed_ones_if_it_is_told_to(disk, simulated):
    queue = simulated.queue("a")
    for n in range(40):
        queue.publish(b"%d" % n, delay=n % 2 * 90)
    kept = queue.get()
    assert queue.purge() == 19
    assert (queue.ready, queue.delayed, queue.unacked) == (0, 20, 1)
    queue.publish_many([b"more"] * 3)
    assert queue.purge(state="delayed") == 20
    assert (queue.ready, queue.delayed, queue.unacked) == (3, 0, 1)
    queue.publish(b"late", delay=90)
    assert queue.purge(state="all") == 4
    assert (len(queue), queue.delayed, queue.next_due) == (1, 0, None)
    queue.ack(kept)
    assert simulated.check() == []


def test_purge_takes_those_that_are_asked_for(simulated):
    queue = simulated.queue("a")
    for n in range(40):
        queue.publish(b"%d" % n, delay=n % 2 * 90, priority=n % 4)
    queue.get_many(3)
    assert queue.purge(lambda message: message.due is not None, state="delayed") == 20
    assert queue.purge(lambda message: message.priority == 2) == 7
    assert (queue.ready, queue.delayed, queue.unacked) == (10, 0, 3)
    assert simulated.check() == []


def test_a_fan_out_and_a_batch_can_be_delayed(disk, simulated):
    a, b = simulated.queue("a"), simulated.queue("b")
    simulated.publish(["a", "b"], b"x" * 5000, delay=5, priority=9, create=True)
    b.publish_many([b"1", b"2"], delay=3)
    disk.advance(5)
    assert [m.priority for m in (a.get(), b.get())] == [9, 9]
    assert take_all(b) == [b"1", b"2"]


def test_an_expired_one_is_not_delivered(disk, simulated):
    queue = simulated.queue("a")
    queue.publish(b"gone", delay=5, expires_at=1)
    queue.publish(b"there", delay=5)
    disk.advance(5)
    assert queue.get().body == b"there"
    assert len(queue) == 1


@pytest.mark.parametrize(
    "wrong",
    [{"delay": -1}, {"delay": float("nan")}, {"due": -1}, {"due": 1e99}, {"delay": 1, "due": 2}],
)
def test_a_time_that_cannot_be_is_refused(simulated, wrong):
    queue = simulated.queue("a")
    req_id = queue.publish(b"a", delay=9)
    for change in (
        lambda: queue.publish(b"b", **wrong),
        lambda: queue.publish_many([b"b"], **wrong),
        lambda: simulated.publish(["a"], b"b", **wrong, create=True),
        lambda: queue.reschedule(req_id, **wrong),
    ):
        with pytest.raises(ValueError, match=r"delay|due"):
            change()
    assert (len(queue), queue.delayed) == (1, 1)


# ---- waiting ----


def test_who_waits_gets_it_at_its_time(queue):
    begin = time.monotonic()
    queue.publish(b"later", delay=0.05)
    assert queue.get(timeout=LONG).body == b"later"
    assert 0.05 <= time.monotonic() - begin < PATIENCE


def test_on_a_simulated_disk_time_passes_while_one_waits(simulated):
    queue = simulated.queue("a")
    queue.publish(b"later", delay=3600)
    assert queue.get(timeout=3599) is None
    assert queue.get(timeout=2).body == b"later"
    queue.publish(b"later", delay=3600)
    assert queue.get(timeout=None).body == b"later"


def test_an_earlier_time_ends_the_sleep_of_those_who_wait(queue):
    queue.publish(b"much later", delay=1000)
    getter = Getter(lambda: queue.get(timeout=LONG))
    asleep(getter)
    queue.publish(b"soon", delay=0.05)
    assert getter.result().body == b"soon"


def test_each_of_several_sleepers_gets_one(queue):
    queue.publish_many([b"a", b"b", b"c", b"d"], delay=0.1)
    got = []
    threads = [
        threading.Thread(target=lambda: got.append(queue.get(timeout=LONG).body)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert sorted(got) == [b"a", b"b", b"c", b"d"]


# ---- memory ----


def test_only_what_is_due_soon_is_in_memory(disk):
    store = qindex.open("/", disk=disk, segment_entries=1024, max_journal_entries=2048)
    queue = store.queue("a")
    for hour in range(1, 21):
        queue.publish_many([b"x"] * 1000, delay=hour * 3600)
    first = queue.next_due
    queue.flush()
    stats = queue.stats()
    assert (stats.delayed, stats.segments) == (20_000, 20)
    assert stats.hot_segments <= 1
    store.close()
    with qindex.open("/", disk=disk.kill()) as again:
        queue = again.queue("a")
        stats = queue.stats()
        assert (stats.delayed, stats.hot_segments) == (20_000, 1)  # which says what is next
        assert stats.next_due == pytest.approx(first, abs=1)


def test_messages_of_any_times_in_a_day_lie_in_few_segments(disk):
    with qindex.open("/", disk=disk) as store:
        queue = store.queue("a")
        for n in range(2000):
            queue.publish(b"x", delay=n * 43)
        assert queue.stats().segments <= 60 + 48 + 2  # minutes of an hour, half hours of a day


@pytest.mark.parametrize("size", [10, 1000, 3000])
def test_cold_segments_are_read_in_the_order_of_times(disk, size):
    store = qindex.open("/", disk=disk, segment_entries=256, max_journal_entries=512)
    order = list(range(1500))
    random.Random(2).shuffle(order)
    for n in order:
        store.queue("a").publish(b"%05d" % n * (size // 5), delay=5 + n / 10)
    store.close()
    left = disk.kill()
    left.advance(200)
    with qindex.open("/", disk=left) as store:
        taken = take_all(store.queue("a"))
    assert taken == [b"%05d" % n * (size // 5) for n in range(1500)]


def test_a_state_that_is_none_is_refused(simulated):
    queue = simulated.queue("a")
    queue.publish(b"stays")
    for wrong in ("unacked", "reddy", None):
        with pytest.raises(ValueError, match="state must be one of ready, delayed, dead, all"):
            queue.purge(state=wrong)
    assert queue.ready == 1


def test_what_is_due_is_ready_for_a_purge(disk, simulated):
    queue = simulated.queue("a")
    for n in range(10):
        queue.publish(b"%d" % n, delay=5 + n)
    queue.publish(b"far", delay=500)
    queue.flush()
    disk.advance(9.5)
    assert queue.purge() == 5
    assert (queue.ready, queue.delayed) == (0, 6)
    disk.advance(10)
    assert queue.purge(state="delayed") == 1
    assert [m.body for m in queue.browse()] == [b"5", b"6", b"7", b"8", b"9"]
    assert queue.get().body == b"5"
    assert simulated.check() == []
