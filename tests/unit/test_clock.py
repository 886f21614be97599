"""Times of messages follow the wall clock, also when it is set; leases and ages do not (H17)."""

import pytest

import qindex
from qindex.testing import SimulatedDisk, abandon, tick

NOW = 1_780_000_000.0
YEAR = 365 * 86400.0


@pytest.fixture
def disk():
    return SimulatedDisk(seed=1, wall=NOW)


def clock_notes(store):
    return [f.text for f in store.findings if f.severity == "note" and "the clock says" in f.text]


# --- a clock that was ahead once --------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "kill", "power cut"])
@pytest.mark.parametrize("flush", [False, True])
def test_a_session_ten_years_ahead_spoils_nothing_for_later_ones(end, flush):
    disk = SimulatedDisk(seed=1, wall=NOW + 10 * YEAR)
    store = qindex.open("/", disk=disk)
    store.queue("a").publish(b"first", confirm=True)
    if flush:
        store.queue("a").flush()
    if end == "close":
        store.close()
    else:
        left = disk.kill() if end == "kill" else disk.power_cut(1)
        abandon(store)
        disk = left
    disk.set_wall(NOW)
    for name in "bc":
        with qindex.open("/", disk=disk) as store:
            assert store.queue("a").peek().body == b"first"
            [text] = clock_notes(store)
            assert "2026-05-28" in text
            assert "2036-05-25" in text
            queue = store.queue(name)
            queue.publish(b"hour", expires_at=NOW + 3600)
            queue.publish(b"ttl", ttl=3600)
            queue.publish(b"due", due=NOW + 3600)
            queue.publish(b"delay", delay=3600)
            assert (queue.ready, queue.delayed, queue.next_due) == (2, 2, NOW + 3600)
            assert [message.body for message in queue.get_many(9)] == [b"hour", b"ttl"]


def test_a_clock_that_is_right_again_is_no_finding(disk, simulated):
    simulated.queue("a").publish(b"x", confirm=True)
    disk.set_wall(NOW + 5)
    simulated.close()
    disk.set_wall(NOW + 4)  # NTP at work
    with qindex.open("/", disk=disk) as store:
        assert clock_notes(store) == []
    disk.set_wall(NOW + 60)
    with qindex.open("/", disk=disk) as store:
        assert clock_notes(store) == []


def test_an_open_store_tells_of_a_clock_that_is_set_back_once(disk, simulated):
    disk.set_wall(NOW + YEAR)
    tick(simulated)
    assert clock_notes(simulated) == []
    for wall in (NOW, NOW - 5, NOW + 1):
        disk.set_wall(wall)
        tick(simulated)
        assert len(clock_notes(simulated)) == 1
    simulated.close()
    with qindex.open("/", disk=disk) as store:
        assert len(clock_notes(store)) == 1, "it is in store.meta"


def test_a_journal_tells_of_a_clock_that_was_ahead_when_the_process_died(disk, simulated):
    queue = simulated.queue("a")
    disk.set_wall(NOW + YEAR)
    queue.publish(b"x", confirm=True)
    queue.publish(b"the MARK of the sync before comes with this")
    disk.set_wall(NOW)
    with qindex.open("/", disk=disk.kill()) as store:
        assert store.queue("a").ready == 2
        assert len(clock_notes(store)) == 1


def test_a_clock_note_is_no_damage(disk, simulated):
    disk.set_wall(NOW - YEAR)
    tick(simulated)
    assert clock_notes(simulated)
    assert [finding.severity for finding in simulated.check()] in ([], ["note"])


# --- steps in an open store -------------------------------------------------------------------


def test_what_a_forward_step_lets_expire_is_not_delivered(disk, simulated):
    queue = simulated.queue("a", dead_letters=True)
    queue.publish(b"hour", expires_at=NOW + 3600)
    queue.publish(b"day", ttl=86400)
    disk.set_wall(NOW + 7200)
    assert queue.get().body == b"day"
    assert [letter.body for letter in queue.browse(state="dead")] == [b"hour"]


def test_what_a_forward_step_makes_due_is_ready(disk, simulated):
    queue = simulated.queue("a")
    queue.publish_many([b"1", b"2"], due=NOW + 3600)
    queue.publish(b"far", delay=10 * YEAR)
    assert (queue.ready, queue.delayed) == (0, 3)
    disk.set_wall(NOW + 3601)
    assert (queue.ready, queue.delayed, queue.next_due) == (2, 1, NOW + 10 * YEAR)
    assert [message.body for message in queue.get_many(9)] == [b"1", b"2"]


@pytest.mark.parametrize("looks", ["get", "get_many", "get_newest", "peek", "stats", "browse"])
def test_what_a_backward_step_makes_early_again_waits(disk, simulated, looks):
    queue = simulated.queue("a")
    queue.publish(b"due", due=NOW + 100)
    queue.publish(b"late", due=NOW + 9)
    disk.set_wall(NOW + 200)
    assert (queue.ready, queue.delayed) == (2, 0)
    disk.set_wall(NOW + 10)
    seen = {
        "get": lambda: [queue.get().body, queue.get()],
        "get_many": lambda: [m.body for m in queue.get_many(5)] + [None],
        "get_newest": lambda: [queue.get_newest().body, queue.get_newest()],
        "peek": lambda: [queue.peek().body, None],
        "stats": lambda: [b"late" if queue.ready == queue.delayed == 1 else b"", None],
        "browse": lambda: [m.body for m in queue.browse(state="ready")] + [None],
    }[looks]()
    assert seen == [b"late", None]
    assert queue.next_due == NOW + 100
    disk.set_wall(NOW + 100)
    assert queue.get_many(5)[-1].body == b"due"


def test_a_backward_step_lets_what_has_not_left_live_on(disk, simulated):
    """An expiry is absolute: what nobody has dropped yet has not expired by the clock as it is."""
    queue = simulated.queue("a")
    queue.publish(b"dropped", expires_at=NOW + 50)
    disk.set_wall(NOW + 100)
    assert queue.expire() == 1
    queue.publish(b"kept", expires_at=NOW + 60)
    disk.set_wall(NOW)
    assert [message.body for message in queue.get_many(5)] == [b"kept"]


@pytest.mark.parametrize("end", ["open", "close", "kill", "power cut"])
@pytest.mark.parametrize("dead_letters", [False, True])
@pytest.mark.parametrize("way", ["expire", "get"])
def test_an_expiry_that_was_carried_out_never_revives(disk, simulated, end, dead_letters, way):
    queue = simulated.queue("a", dead_letters=dead_letters)
    queue.publish(b"gone", expires_at=NOW + 50)
    disk.set_wall(NOW + 100)
    assert queue.expire() == 1 if way == "expire" else queue.get() is None
    simulated.sync()
    disk.set_wall(NOW - YEAR)
    if end == "open":
        assert (queue.get(), queue.dead) == (None, int(dead_letters))
        return
    if end == "close":
        simulated.close()
    left = {"close": lambda: disk, "kill": disk.kill}.get(end, lambda: disk.power_cut(3))()
    with qindex.open("/", disk=left) as store:
        queue = store.queue("a", dead_letters=dead_letters)
        assert (queue.get(), queue.dead) == (None, int(dead_letters))


@pytest.mark.parametrize("step", [-YEAR, -10, 10, YEAR])
def test_a_lease_does_not_follow_a_step(disk, simulated, step):
    queue = simulated.queue("a")
    queue.publish(b"x")
    disk.set_wall(NOW - step)
    message = queue.get(lease=30)
    disk.advance(10)
    disk.set_wall(NOW + step)
    disk.advance(19)
    assert queue.get() is None
    queue.touch(message, 30)
    disk.set_wall(NOW)
    disk.advance(29)
    assert queue.get() is None
    disk.advance(1)
    assert queue.get().delivery_count == 2


@pytest.mark.parametrize("step", [-YEAR, -10, 10, YEAR])
@pytest.mark.parametrize("flush", [False, True])
def test_an_age_does_not_follow_a_step(disk, simulated, step, flush):
    queue = simulated.queue("a")
    queue.publish(b"x")
    disk.advance(5)
    queue.sync()
    disk.set_wall(NOW + step)
    if flush:
        queue.flush()
    disk.advance(60)
    queue.publish(b"y", confirm=True)
    assert queue.oldest_age_min == pytest.approx(60, abs=0.01)


@pytest.mark.parametrize("step", [-YEAR, YEAR])
def test_an_age_from_before_the_open_does_not_follow_a_step(disk, simulated, step):
    simulated.queue("a").publish(b"x", confirm=True)
    disk.advance(60)
    simulated.close()
    with qindex.open("/", disk=disk) as store:
        queue = store.queue("a")
        disk.set_wall(NOW + step)
        disk.advance(5)
        assert 60 <= queue.oldest_age_min == pytest.approx(65, abs=0.01)
        queue.publish(b"y", confirm=True)
        queue.flush()
        assert queue.oldest_age_min == pytest.approx(65, abs=0.01)


def test_a_clock_that_was_ahead_makes_nobody_older(disk):
    disk.set_wall(NOW + YEAR)
    with qindex.open("/", disk=disk) as store:
        store.queue("a").publish(b"x", confirm=True)
    disk.set_wall(NOW)
    with qindex.open("/", disk=disk) as store:
        disk.advance(7)
        assert store.queue("a").oldest_age_min == pytest.approx(7, abs=0.01)


def test_the_worker_looks_for_what_expires_after_a_step_back(disk, simulated):
    """Bounds of segments are times of messages: a look while the clock was ahead delays none."""
    queue = simulated.queue("a")
    queue.publish_many([b"a", b"b"], expires_at=NOW + YEAR)
    queue.publish(b"c", expires_at=NOW + 100)
    taken = queue.get()
    disk.set_wall(NOW + 2 * YEAR)
    assert queue.expire() == 2
    disk.set_wall(NOW)
    queue.nack(taken)
    assert queue.expire() == 0
    assert queue.ready == 1
    disk.set_wall(NOW + YEAR)
    assert queue.expire() == 1


def test_many_times_and_priorities_go_back_and_forth_with_the_clock(disk, simulated):
    queue = simulated.queue("a")
    dues = [NOW + 1 + n * 37 % 100 for n in range(100)]
    for n, due in enumerate(dues):
        queue.publish(b"%d" % n, due=due, priority=n % 3)
        if n == 50:
            queue.flush()
    for wall in (NOW + 50, NOW + 20, NOW + 90, NOW, NOW + 101, NOW + 33):
        disk.set_wall(wall)
        ready = [n for n, due in enumerate(dues) if due <= wall]
        assert queue.ready == len(ready)
        assert queue.delayed == 100 - len(ready)
        assert queue.next_due == min((due for due in dues if due > wall), default=None)
    ready.sort(key=lambda n: (-(n % 3), dues[n], n))
    assert [int(message.body) for message in queue.get_many(100)] == ready
