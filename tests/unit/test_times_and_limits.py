"""due=0, what redrive took back, another time for a dead letter, and when the next is due."""

import random

import pytest

import qindex
from qindex.testing import SimulatedDisk, abandon, tick

NOW = 1_780_000_000.0
DROPS = {"overflow": "drop-head", "dead_letters": True}


@pytest.fixture
def disk():
    return SimulatedDisk(seed=1, wall=NOW)


def take_all(queue):
    return [message.body for message in iter(queue.get, None)]


# --- due=0 ------------------------------------------------------------------------------------

PAST = [0, 0.0, 1e-6, 2e-6, 2.9e-6]
WAYS = {
    "publish": lambda queue, due: queue.publish(b"x", due=due, expires_at=NOW + 5),
    "publish_many": lambda queue, due: queue.publish_many([b"x"], due=due, expires_at=NOW + 5),
    "fan-out": lambda queue, due: queue._store.publish(
        ["a"], b"x", due=due, expires_at=NOW + 5, create=True
    ),
    "nack": lambda queue, due: (
        queue.publish(b"x", expires_at=NOW + 5),
        queue.nack(queue.get(), due=due),
    ),
    "reschedule": lambda queue, due: queue.reschedule(
        queue.publish(b"x", expires_at=NOW + 5), due=due
    ),
    "reschedule later": lambda queue, due: queue.reschedule(
        queue.publish(b"x", expires_at=NOW + 5, delay=1), due=due
    ),
}


@pytest.mark.parametrize("due", PAST)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_time_at_the_beginning_of_time_is_over_and_switches_no_expiry_off(
    disk, simulated, way, due
):
    queue = simulated.queue("a", max_deliveries=9)
    way(queue, due)
    assert (queue.ready, queue.delayed, queue.next_due) == (1, 0, None)
    message = queue.peek()
    assert message.due == 0
    disk.advance(6)
    assert queue.get() is None
    assert len(queue) == 0


@pytest.mark.parametrize("due", PAST)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_it_leaves_by_itself_and_for_a_place_as_any_other(disk, simulated, way, due):
    queue = simulated.queue("a", max_messages=1, **DROPS)
    way(queue, due)
    queue.publish(b"new")
    assert [message.body for message in queue.browse()] == [b"new"]
    queue.purge()
    way(queue, due)
    disk.advance(6)
    assert queue.expire() == 1
    assert queue.dead == 1


def test_due_0_comes_first_of_all_times(simulated):
    queue = simulated.queue("a")
    queue.publish(b"place")
    queue.publish(b"1970", due=1)
    queue.publish(b"zero", due=0)
    queue.publish(b"zero again", due=0)
    assert take_all(queue) == [b"zero", b"zero again", b"1970", b"place"]


@pytest.mark.parametrize("end", ["open", "kill"])
def test_due_0_is_no_mark_on_the_disk(disk, simulated, end):
    queue = simulated.queue("a", max_deliveries=1)
    queue.publish(b"x", due=0)
    queue.flush()
    store = simulated if end == "open" else qindex.open("/", disk=disk.kill())
    queue = store.queue("a", max_deliveries=1)
    queue.nack(queue.get())
    assert (queue.get(), len(queue)) == (None, 0), "it had its one delivery"
    if end == "kill":
        store.close()


# --- what was taken back, in a queue that is full ---------------------------------------------


@pytest.mark.parametrize("bound", [{"max_messages": 5}, {"max_bytes": 50}])
@pytest.mark.parametrize("overflow", ["drop-head", "dead-letter"])
@pytest.mark.parametrize("delay", [None, 1])
@pytest.mark.parametrize("flush", [False, True])
def test_what_was_taken_back_does_not_leave_for_a_publish(
    disk, simulated, bound, overflow, delay, flush
):
    queue = simulated.queue("a", overflow=overflow, dead_letters=True, **bound)
    queue.publish_many([b"dead %05d" % n for n in range(3)], delay=delay)
    disk.advance(2)
    queue.nack_many(queue.get_many(3), requeue=False)
    queue.publish_many([b"next %05d" % n for n in range(3)])
    assert queue.redrive() == 3
    if flush:
        queue.flush()
    queue.publish(b"last 00000")
    assert len(queue) - queue.dead == 5, "three that came back, and of the others the last"
    with pytest.raises(qindex.QueueFull):  # to drop the others is not enough for three
        queue.publish_many([b"more %05d" % n for n in range(3)])
    taken = [queue.get() for _ in range(5)]
    bodies = [*(b"dead %05d" % n for n in range(3)), b"next 00002", b"last 00000"]
    assert [message.body for message in taken] == bodies
    queue.nack_many(taken)  # each had its delivery: they are as any others
    full = [b"full %05d" % n for n in range(5)]
    queue.publish_many(full)
    assert take_all(queue) == full


def test_a_queue_full_of_what_was_taken_back_refuses(simulated):
    queue = simulated.queue("a", max_messages=3, **DROPS)
    for _ in range(2):
        queue.publish_many([b"x"] * 3)
        queue.nack_many(queue.get_many(3), requeue=False)
    queue.redrive()
    with pytest.raises(qindex.QueueFull):
        queue.publish(b"new")
    assert (queue.ready, queue.dead) == (6, 0)
    queue.ack_many(queue.get_many(4))
    queue.publish(b"new")
    assert [message.body for message in queue.browse()] == [b"x", b"x", b"new"]


def test_a_publish_into_a_queue_of_many_taken_back_looks_at_none_of_them(disk):
    """They stand in a heap of their own: no publish takes them out to see what is behind."""
    with qindex.open("/", disk=disk) as store:
        queue = store.queue("a", max_messages=2, **DROPS)
        for _ in range(3000):
            queue.publish_many([b"x"] * 2)
            queue.nack_many(queue.get_many(2), requeue=False)
        assert queue.redrive() == 6000
        before = disk.calls
        for _ in range(1000):
            with pytest.raises(qindex.QueueFull):
                queue.publish(b"new")
        assert disk.calls - before < 100
        assert len(take_all(queue)) == 6000


# --- what was taken back and had expired ------------------------------------------------------


def expired(disk, queue, **how):
    req_id = queue.publish(b"x", expires_at=NOW + 5, **how)
    disk.advance(6)
    assert queue.expire() == 1
    assert queue.dead == 1
    return req_id


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("delay", [None, 1])
@pytest.mark.parametrize("dead_letters", [False, True])
def test_it_is_delivered_once_more_and_then_leaves_by_itself(
    disk, simulated, flush, delay, dead_letters
):
    queue = simulated.queue("a", dead_letters=True)
    expired(disk, queue, delay=delay)
    if flush:
        queue.flush()
    assert queue.redrive() == 1
    simulated.queue("a", max_messages=99, dead_letters=dead_letters)
    assert queue.expire() == 0, "not before it was delivered"
    message = queue.get()
    assert (message.body, message.due) == (b"x", None)
    assert queue.expire() == 0
    queue.nack(message)
    assert queue.expire() == 1
    assert (len(queue), queue.dead) == ((1, 1) if dead_letters else (0, 0))


@pytest.mark.parametrize("end", ["close", "kill", "power cut"])
@pytest.mark.parametrize("got", [False, True])
def test_the_same_over_an_end(disk, simulated, end, got):
    queue = simulated.queue("a", dead_letters=True)
    expired(disk, queue)
    queue.flush()
    queue.redrive()
    queue.flush()
    if got:
        queue.get()
    simulated.sync()
    if end == "close":
        simulated.close()
    left = {"close": lambda: disk, "kill": disk.kill}.get(end, lambda: disk.power_cut(3))()
    with qindex.open("/", disk=left) as store:
        queue = store.queue("a", dead_letters=True)
        if not got:
            assert queue.expire() == 0
            queue.nack(queue.get())
        assert queue.expire() == 1
        assert queue.dead == 1


@pytest.mark.parametrize("taken_back", [False, True])
@pytest.mark.parametrize("delay", [None, 1])
def test_a_dead_letter_has_no_other_time(disk, simulated, taken_back, delay):
    """At that time it would die of the same again, undelivered."""
    queue = simulated.queue("a", dead_letters=True)
    req_id = expired(disk, queue, delay=delay)
    if taken_back:
        queue.redrive()
    for how in ({"delay": 3}, {"due": NOW + 100}, {"due": 0}):
        with pytest.raises(qindex.DeadLetter):
            queue.reschedule(req_id, **how)
        assert (queue.ready, queue.dead, queue.delayed) == (int(taken_back), 1 - taken_back, 0)
    queue.reschedule(req_id)  # takes it back, as redrive() does
    assert (queue.ready, queue.dead) == (1, 0)
    message = queue.get()
    assert message.body == b"x"
    queue.nack(message, delay=3)
    disk.advance(3)
    assert (queue.get(), queue.dead) == (None, 1)


def test_of_several_dead_letters_reschedule_takes_that_one_back(simulated):
    queue = simulated.queue("a", max_deliveries=1, dead_letters=True)
    ids = queue.publish_many([b"0", b"1", b"2"])
    queue.nack_many(queue.get_many(3))
    assert queue.get() is None
    queue.reschedule(ids[1])
    assert take_all(queue) == [b"1"]
    assert queue.dead == 2


# --- a time that nack or reschedule gave ------------------------------------------------------


@pytest.mark.parametrize("way", ["nack", "reschedule"])
@pytest.mark.parametrize("end", ["open", "kill"])
def test_it_counts_until_the_next_delivery_of_what_was_published_without_one(
    disk, simulated, way, end
):
    queue = simulated.queue("a")
    ids = queue.publish_many([b"0", b"1", b"2"])
    if way == "nack":
        queue.nack_many(queue.get_many(3)[1:2], due=NOW + 5)
        queue.nack_many([ids[0], ids[2]])
    else:
        queue.reschedule(ids[1], due=NOW + 5)
    disk.advance(6)
    first = queue.get()
    assert (first.body, first.due) == (b"1", NOW + 5)
    if end == "open":
        queue.nack(first)
        assert [(m.body, m.due) for m in queue.browse()] == [
            (b"0", None),
            (b"1", None),
            (b"2", None),
        ]
        assert take_all(queue) == [b"0", b"1", b"2"]
        return
    with qindex.open("/", disk=disk.kill()) as store:
        assert take_all(store.queue("a")) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("way", ["nack", "reschedule"])
@pytest.mark.parametrize("end", ["open", "kill"])
def test_it_is_the_place_of_what_was_published_with_one(disk, simulated, way, end):
    queue = simulated.queue("a")
    queue.publish(b"place")
    queue.publish(b"other", delay=3)
    req_id = queue.publish(b"delayed", delay=1)
    if way == "nack":
        disk.advance(1)
        message = queue.get()
        assert message.body == b"delayed"
        queue.nack(message, due=NOW + 5)
    else:
        queue.reschedule(req_id, due=NOW + 5)
    disk.advance(6)
    queue.nack_many(queue.get_many(3))
    store = simulated if end == "open" else qindex.open("/", disk=disk.kill())
    seen = [(message.body, message.due) for message in store.queue("a").get_many(3)]
    assert seen == [(b"other", NOW + 3), (b"delayed", NOW + 5), (b"place", None)]
    if end == "kill":
        store.close()


# --- when the next is due ---------------------------------------------------------------------


def look(disk):
    """At what is delayed, in a copy: to look reads segments."""
    with qindex.open("/", disk=disk.kill(), read_only=True) as copy:
        return list(copy.queue("a").browse(state="delayed"))


FEW = {"segment_entries": 16, "max_journal_entries": 24, "idle": 1.0}


def one_verb(dice, disk, store):
    """Something happens to what is delayed, mostly to what is next."""
    queue = store.queue("a")
    verb = dice.choice(["publish"] * 3 + ["drop"] * 3 + ["move", "now", "go"])
    delayed = look(disk)
    one = min(delayed, key=lambda message: message.due) if delayed else None
    if delayed and dice.random() < 0.3:
        one = dice.choice(delayed)
    if verb == "publish":
        delay = dice.choice([0.5, 5, 61, 3000, 90000]) * dice.random()
        queue.publish_many([b"x"] * dice.randrange(1, 6), delay=delay)
    elif verb == "drop" and one:
        queue.delete(one.req_id)
    elif verb == "move" and one:
        queue.reschedule(one.req_id, delay=dice.choice([1, 70, 9000]) * dice.random())
    elif verb == "now" and one:
        queue.reschedule(one.req_id)
        queue.ack(queue.get())
    elif verb == "go":
        disk.advance(dice.choice([0.1, 2, 70, 4000]) * dice.random())


def new_session(dice, disk, store):
    store.sync()
    if dice.random() < 0.5:
        store.close()
    else:
        disk = disk.power_cut(dice.randrange(1000))
        abandon(store)
    return disk, qindex.open("/", disk=disk, **FEW)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sample(4)
def test_next_due_is_the_earliest_time_of_what_is_delayed(seed):
    """Whatever happened to the one that was the earliest, and whether it is in memory or not."""
    dice = random.Random(seed)
    disk = SimulatedDisk(seed=seed, wall=NOW)
    store = qindex.open("/", disk=disk, **FEW)
    store.queue("a")
    for _ in range(80):
        if dice.random() < 0.2:
            disk, store = new_session(dice, disk, store)
        one_verb(dice, disk, store)
        if dice.random() < 0.4:
            store.queue("a").flush()
        if dice.random() < 0.3:
            tick(store)
            disk.advance(1.1)
            tick(store)  # it is idle: no maps stay in memory
        dues = [message.due for message in look(disk)]
        assert store.queue("a").next_due == min(dues, default=None)
    store.close()


@pytest.mark.parametrize("why", ["out", "taken back", "dead"])
def test_a_file_says_when_the_earliest_expires_also_if_it_must_stay_for_now(disk, simulated, why):
    """Else nobody would look for it after a reopen."""
    queue = simulated.queue("a", dead_letters=True)
    queue.publish(b"x", expires_at=NOW + 5)
    if why == "out":
        queue.get()
    disk.advance(6)
    assert queue.expire() == (0 if why == "out" else 1)
    if why == "taken back":
        queue.redrive()
        queue.publish(b"another look", expires_at=NOW + 6)
        assert queue.expire() == 1
    queue.flush()
    simulated.close()
    with qindex.open("/", disk=disk) as store:
        tick(store)
        queue = store.queue("a", dead_letters=True)
        if why == "taken back":
            queue.nack(queue.get())
        if why == "dead":
            queue.reschedule(0)
            queue.nack(queue.get())
        assert queue.expire() == 1
