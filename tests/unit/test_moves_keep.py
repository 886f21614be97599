"""What a move keeps of a message, and the place that it makes."""

import pytest

import qindex
from qindex.testing.simulated import SimulatedDisk, abandon


@pytest.mark.parametrize("dies", [False, True])
def test_a_move_does_not_forget_that_a_consumer_may_have_had_the_message(dies):
    """A power cut took the record of its delivery; that it may have had one stays true."""
    disk = SimulatedDisk(seed=1)
    store = qindex.open("/", disk=disk, format=2, sync="never")
    store.queue("to")
    queue = store.queue("from", dead_letters="to")
    queue.publish(b"m")
    store.sync()
    queue.get()
    cut = disk.power_cut(seed=0, mode="nothing")
    abandon(store)
    with qindex.open("/", disk=cut) as store:
        queue = store.queue("from")
        first = queue.peek()
        assert (first.redelivered, first.delivery_count) == (True, 0)
        if dies:
            queue.configure(max_messages=1, overflow="dead-letter")
            queue.publish(b"full")
        else:
            store.move([first.req_id], to="to", queue="from")
        moved = store.queue("to").peek()
        assert (moved.body, moved.redelivered, moved.delivery_count) == (b"m", True, 0)
        assert store.queue("to").get().delivery_count == 1


def publish_two(store, settled):
    with store.transaction() as t:
        t.publish("a", b"z" * 11)
        t.publish("a", b"z")
        t.ack(settled)


@pytest.mark.parametrize("limit", [{"max_messages": 2}, {"max_bytes": 20}])
def test_what_leaves_makes_place_in_a_full_store(tmp_path, limit):
    with qindex.open(tmp_path / "data", format=2, **limit) as store:
        queue, other = store.queue("a"), store.queue("b", dead_letters=True)
        queue.publish_many([b"x" * 10] * 2)
        store.move(queue.get(), to="b")
        with store.transaction() as t:
            t.publish("b", b"y" * 10)
            t.ack(queue.get())
        assert (len(queue), len(other)) == (0, 2)
        message = other.get()
        with pytest.raises(qindex.StoreFull):
            publish_two(store, message)
        message.nack(requeue=False)  # a dead letter has no place that it could give
        queue.publish(b"x" * 10)
        with pytest.raises(qindex.StoreFull):
            store.move([m.req_id for m in other.browse(state="dead")], to="a", queue="b")
