"""What the machine and hostile files found in lanes, times and leases: each its own short story."""

import pytest
from helpers import FEW, damage

import qindex
from qindex.testing import abandon


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_delayed_message_that_was_redriven_dies_again_as_any_other(disk, simulated, end):
    queue = simulated.queue("a", max_deliveries=2, dead_letters=True)
    queue.publish(b"poison", delay=1)
    disk.advance(1)
    for _ in range(2):
        queue.nack(queue.get())
    assert queue.get() is None
    assert queue.redrive() == 1
    assert queue.get().delivery_count == 3
    if end == "kill":
        disk = disk.kill()
    simulated.close() if end == "close" else abandon(simulated)
    with qindex.open("/", disk=disk, **FEW) as store:
        queue = store.queue("a", max_deliveries=2, dead_letters=True)
        again = queue.get()
        assert again.delivery_count == 4
        queue.nack(again)
        assert queue.get() is None
        assert [m.dead for m in queue.browse()] == ["deliveries"]


@pytest.mark.parametrize("end", ["close", "kill"])
def test_what_was_delayed_and_is_out_during_a_flush_is_ready_after_the_next_open(
    disk, simulated, end
):
    """The MANIFEST counted it as one that nothing holds, so nobody looked for its time."""
    queue = simulated.queue("a")
    queue.publish_many([b"one", b"two"], delay=1)
    disk.advance(1)
    assert queue.get().body == b"one"
    queue.flush()
    queue.ack(queue.get())
    if end == "kill":
        disk = disk.kill()
    simulated.close() if end == "close" else abandon(simulated)
    with qindex.open("/", disk=disk, **FEW) as store:
        queue = store.queue("a")
        assert (queue.ready, queue.delayed) == (1, 0)
        assert queue.get().body == b"one"


def test_a_late_ack_is_refused_also_when_the_maps_were_out_of_memory(disk, simulated):
    queue = simulated.queue("a")
    queue.publish_many([b"%d" % n for n in range(64)])
    late = queue.get_many(20, lease=1)[-1]
    disk.advance(1)
    queue.flush()
    again = queue.get_many(20)[-1]
    assert again.req_id == late.req_id
    for verb in (queue.ack, queue.nack, lambda m: queue.ack_many([m])):
        with pytest.raises(qindex.LeaseExpired):
            verb(late)
    queue.ack(again)


def test_a_lease_of_a_message_that_was_delivered_more_often_than_is_counted(simulated):
    queue = simulated.queue("a")
    queue.publish(b"poison")
    for _ in range(65_540):
        message = queue.get(lease=1)
        queue.nack(message)
    assert message.delivery_count == 65_535
    queue.ack(queue.get(lease=1))
    assert len(queue) == 0


def test_recovery_finds_room_for_all_times_whatever_it_has_read_already(disk, simulated):
    """Entries for cold segments took the place of those that were read: a heap overflowed."""
    queue = simulated.queue("a")
    now = simulated._now_us() // 1_000_000
    first = now - now % (512 * 60) + 512 * 60  # the minute of the first lane
    for minute in range(200, 500):
        queue.publish(b"cold", due=first + 60 * minute)
    queue.flush()
    abandon(simulated)
    disk = disk.kill()
    store = qindex.open("/", disk=disk, max_journal_entries=1000)
    for n in range(100):
        store.queue("a").publish(b"%d" % n, due=first + 1)
    left = disk.kill()
    abandon(store)
    with qindex.open("/", disk=left, max_journal_entries=1000) as store:
        assert store.queue("a").delayed == 400
        assert damage(store) == []
