"""How old the oldest message is, at least: from the clocks of syncs, MARKs and journals."""

import pytest

import qindex
from qindex.testing import SimulatedDisk, abandon, tick

SMALL = {"segment_entries": 16, "max_journal_entries": 24, "sync": "never"}


@pytest.fixture
def disk():
    return SimulatedDisk(seed=1)


@pytest.fixture
def simulated(disk):
    store = qindex.open("/", disk=disk, **SMALL)
    yield store
    abandon(store)


def close_to(age):
    return pytest.approx(age, abs=0.01)


def test_who_waits_since_a_sync_is_as_old_as_that(disk, simulated):
    queue = simulated.queue("a")
    assert queue.oldest_age_min is None
    queue.publish(b"1")
    assert queue.oldest_age_min == close_to(0)
    disk.advance(5)
    queue.publish(b"2")
    queue.sync()
    disk.advance(60)
    assert queue.oldest_age_min == close_to(65), "who asked for it knows it since then"
    message = queue.get()
    assert queue.oldest_age_min == close_to(65), "what is delivered waits, too"
    queue.ack(message)
    assert queue.stats().oldest_age_min == close_to(60)
    queue.ack(queue.get())
    assert queue.oldest_age_min is None


def test_dead_letters_and_what_was_delayed_have_no_age(disk, simulated):
    queue = simulated.queue("a", dead_letters=True)
    queue.publish(b"later", delay=1)
    queue.publish(b"dead")
    queue.nack(queue.get(), requeue=False)
    queue.sync()
    disk.advance(50)
    assert queue.oldest_age_min is None
    queue.redrive()
    assert queue.oldest_age_min == close_to(50)


def test_each_priority_counts(disk, simulated):
    queue = simulated.queue("a")
    queue.publish(b"high", priority=9)
    queue.sync()
    disk.advance(10)
    queue.publish(b"low")
    queue.sync()
    disk.advance(10)
    assert queue.oldest_age_min == close_to(20)
    queue.ack(queue.get())
    assert queue.oldest_age_min == close_to(10)


def test_a_flush_makes_nobody_younger(disk, simulated):
    queue = simulated.queue("a")
    for _ in range(1000):
        queue.publish_many([b"x"] * 2)
        disk.advance(1)
        queue.sync()
    before = queue.oldest_age_min
    queue.flush()
    assert 999 <= before <= queue.oldest_age_min <= 1000
    for _ in range(9):
        queue.ack_many(queue.get_many(200))
        alive, age = len(queue) / 2, queue.oldest_age_min
        assert alive - 1000 / 30 <= age <= alive, "a bit less than it is"


def test_to_ask_wakes_no_idle_queue(disk, simulated):
    queue = simulated.queue("a")
    queue.publish(b"x")
    disk.advance(3)
    queue.sync()
    tick(simulated)
    disk.advance(9)
    tick(simulated)
    assert not queue.stats().loaded
    assert queue.oldest_age_min == close_to(9), "the sync was then"
    assert not queue.stats().loaded


def test_many_priorities_share_the_memory_of_moments(disk, simulated):
    queue = simulated.queue("a")
    for n in range(200):
        queue.publish(b"x", priority=n)
        queue.sync()
        disk.advance(1)
    assert 0 <= queue.oldest_age_min <= 200
    for _ in range(150):
        queue.ack(queue.get())
    assert 0 <= queue.oldest_age_min <= 200
    queue.purge()
    assert queue.oldest_age_min is None


def test_a_priority_that_is_empty_leaves_the_others_their_moments(disk, simulated):
    queue = simulated.queue("a")
    for _ in range(200):
        queue.publish(b"high", priority=9)
        queue.sync()
        queue.ack(queue.get())
        queue.publish(b"low")
        queue.sync()
        disk.advance(1)
    assert queue.oldest_age_min == close_to(200)


def test_moments_behind_a_cold_backlog_are_kept(disk, simulated):
    queue = simulated.queue("a")
    queue.publish_many([b"x"] * 100)
    queue.flush()
    simulated.close()
    with qindex.open("/", disk=disk, **SMALL) as store:
        queue = store.queue("a")
        for _ in range(200):
            queue.publish(b"y")
            queue.sync()
            disk.advance(1)
        assert queue.oldest_age_min == close_to(200)
        queue.ack_many(queue.get_many(100))
        assert 200 * (1 - 1 / 30) <= queue.oldest_age_min <= 200


@pytest.mark.parametrize("end", ["close", "kill"])
def test_after_an_open_the_journal_tells(disk, simulated, end):
    queue = simulated.queue("a")
    queue.publish_many([b"x"] * 3)
    disk.advance(7)
    queue.publish(b"with whom the MARK of the sync before is written")
    queue.sync()
    disk.advance(20)
    queue.publish(b"y")
    simulated.close() if end == "close" else abandon(simulated)
    if end == "kill":
        disk = disk.kill()
    disk.advance(100)
    with qindex.open("/", disk=disk, **SMALL) as store:
        queue = store.queue("a")
        assert queue.oldest_age_min == close_to(120)
        queue.flush()
        disk.advance(3)
        assert queue.oldest_age_min == close_to(123), "the journal is gone, but was asked before"
        queue.ack(queue.get())
        assert queue.oldest_age_min == close_to(3), "since it was opened"
    with qindex.open("/", disk=disk.kill(), read_only=True) as reader:
        assert reader.queue("a").oldest_age_min == close_to(3), "since the last flush"


def test_a_cold_backlog_is_as_old_as_the_journal_behind_it(disk, simulated):
    queue = simulated.queue("a")
    queue.publish_many([b"x"] * 100)
    queue.flush()
    disk.advance(40)
    queue.publish(b"y")
    simulated.close()
    with qindex.open("/", disk=disk, **SMALL) as store:
        queue = store.queue("a")
        assert queue.stats().hot_segments <= 1
        assert queue.oldest_age_min == close_to(40)
