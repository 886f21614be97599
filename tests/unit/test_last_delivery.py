"""A message leaves when its last allowed delivery ends, not at the next get: at any time ready,
dead, peek and browse say the same."""

import time

import pytest
from helpers import FEW, bodies

import qindex
from qindex.testing import abandon


def agree(queue, ready=(), unacked=(), dead=()):
    assert (queue.ready, queue.unacked, queue.dead) == (len(ready), len(unacked), len(dead))
    for state, expected in (("ready", ready), ("unacked", unacked), ("dead", dead)):
        assert bodies(queue.browse(state=state)) == list(expected)
    first = queue.peek()
    assert (first and first.body) == (ready[0] if ready else None)


def end_deliveries(queue, disk, how, times):
    for _ in range(times):
        if how == "nack":
            queue.nack(queue.get())
        elif how == "nack_many":
            queue.nack_many([queue.get()])
        else:
            assert queue.get(lease=1)
            disk.advance(2)


@pytest.mark.parametrize("how", ["nack", "nack_many", "lease"])
@pytest.mark.parametrize("kept", [True, False])
def test_it_leaves_when_the_delivery_ends(disk, simulated, how, kept):
    queue = simulated.queue("a", max_deliveries=2, dead_letters=kept)
    queue.publish(b"poison")
    end_deliveries(queue, disk, how, 1)
    agree(queue, ready=[b"poison"])
    end_deliveries(queue, disk, how, 1)
    agree(queue, dead=[b"poison"] if kept else [])


def test_one_that_came_back_between_others_leaves_alone(simulated):
    queue = simulated.queue("a", max_deliveries=2, dead_letters=True)
    queue.publish_many([b"0", b"1", b"2"])
    first = queue.get()
    for _ in range(2):
        queue.nack(queue.get())
    queue.nack(first)
    agree(queue, ready=[b"0", b"2"], dead=[b"1"])
    assert bodies(queue.get_many(9)) == [b"0", b"2"]


def test_a_delivery_that_does_not_count_does_not_end_its_tries(tmp_path):
    with qindex.open(tmp_path / "data", format=2) as store:
        queue = store.queue("a", max_deliveries=1, dead_letters=True)
        queue.publish(b"prefetched")
        queue.nack(queue.get(), count=False)
        agree(queue, ready=[b"prefetched"])


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_delivery_that_ends_with_the_process_is_seen_from_the_first_use_on(
    disk, simulated, end, flushed
):
    queue = simulated.queue("a")
    queue.publish_many([b"0", b"1", b"2"])
    queue.get_many(2)
    if flushed:
        queue.flush()
    queue.sync()
    if end == "close":
        simulated.close()
    disk = disk.kill()
    if end == "kill":
        abandon(simulated)
    with qindex.open("/", disk=disk, **FEW) as store:
        queue = store.queue("a", max_deliveries=1, dead_letters=True)
        agree(queue, ready=[b"2"], dead=[b"0", b"1"])


def test_fewer_deliveries_end_the_tries_of_what_waits(simulated):
    queue = simulated.queue("a")
    queue.publish_many([b"%d" % n for n in range(3000)])
    queue.nack_many(queue.get_many(2000))
    queue.flush()
    queue = simulated.queue("a", max_deliveries=1, dead_letters=True)
    assert (queue.ready, queue.dead) == (1000, 2000)
    assert queue.peek().body == b"2000"


def test_what_was_delivered_before_it_came_here_is_no_exception(simulated):
    queue = simulated.queue("a", max_deliveries=1, dead_letters=True)
    queue.publish(b"had", redelivered=True)
    queue.publish(b"new")
    agree(queue, ready=[b"new"], dead=[b"had"])


def test_it_is_in_the_other_queue_when_nack_returns(tmp_path):
    with qindex.open(tmp_path / "data", format=2) as store:
        other = store.queue("other")
        queue = store.queue("a", max_deliveries=1, dead_letters="other")
        queue.publish(b"poison")
        queue.nack(queue.get())
        assert (len(queue), other.peek().body) == (0, b"poison")


def test_a_lease_that_ends_where_nobody_looks_sends_it_on(tmp_path):
    """The consumers of the other queue do not use this one."""
    with qindex.open(tmp_path / "data", format=2) as store:
        other = store.queue("other")
        queue = store.queue("a", max_deliveries=1, dead_letters="other")
        queue.publish(b"poison")
        queue.get(lease=0.01)
        message = other.get(timeout=30)
        assert message is not None
        assert message.body == b"poison"


@pytest.mark.parametrize("version", [1, 2])
def test_a_full_queue_takes_a_lease_that_has_ended_into_account(tmp_path, version):
    with qindex.open(tmp_path / "data", format=version) as store:
        queue = store.queue("a", max_messages=1, overflow="drop-head")
        queue.publish(b"old")
        queue.get(lease=0.001)
        time.sleep(0.01)
        queue.publish(b"new")
        agree(queue, ready=[b"new"])


def test_a_look_at_a_queue_in_which_nothing_has_to_leave_changes_no_file(disk, simulated):
    with simulated:
        simulated.queue("a", max_deliveries=2).publish(b"0", confirm=True)
    with qindex.open("/", disk=disk, io="pwrite", **FEW) as store:
        queue = store.queue("a", max_deliveries=2)
        before = disk.changes
        agree(queue, ready=[b"0"])
        assert disk.changes == before
