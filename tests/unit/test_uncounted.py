"""nack(count=False): what was prefetched and never looked at was not delivered once more."""

import asyncio

import pytest
from helpers import FEW, crash, on_a_loop

import qindex
import qindex.aio
from qindex.testing import SimulatedDisk


@pytest.fixture
def store(tmp_path):
    with qindex.open(tmp_path / "data", format=2, **FEW) as opened:
        yield opened


def counts(queue):
    return [message.delivery_count for message in queue.browse()]


def test_a_delivery_that_does_not_count_leaves_the_count_as_it_was(store):
    queue = store.queue("a")
    queue.publish(b"x")
    for _ in range(3):
        message = queue.get()
        assert message.delivery_count == 1
        queue.nack(message, count=False)
    message = queue.get()
    assert (message.delivery_count, message.redelivered) == (1, True)
    queue.nack(message)
    assert queue.get().delivery_count == 2


def test_deliveries_that_do_not_count_are_told_apart_all_the_same(store):
    queue = store.queue("a")
    queue.publish(b"x")
    first = queue.get()
    queue.nack(first, count=False)
    second = queue.get()
    assert first.delivery_count == second.delivery_count == 1
    with pytest.raises(qindex.DeliveryEnded):
        queue.ack(first)
    queue.ack(second)


def test_a_message_does_not_die_of_deliveries_that_do_not_count(store):
    queue = store.queue("a", max_deliveries=2, dead_letters=True)
    queue.publish(b"x")
    for _ in range(5):
        queue.nack(queue.get(), count=False)
    queue.nack(queue.get())
    queue.nack(queue.get(), count=False)
    queue.nack(queue.get())
    assert queue.get() is None
    assert queue.dead == 1
    queue.redrive()
    queue.nack(queue.get(), count=False)
    message = queue.get()  # it was taken back for one more try, which it has not had yet
    assert message is not None
    queue.nack(message)


@pytest.mark.parametrize("end", ["close", "kill", "cut", "flush"])
def test_it_is_kept_through_every_end(end):
    disk = SimulatedDisk(seed=1)
    store = qindex.open("/", disk=disk, format=2, **FEW)
    queue = store.queue("a")
    queue.publish_many([b"x"] * 5)
    queue.nack_many(queue.get_many(5))
    queue.nack_many(queue.get_many(4), count=False)
    if end == "flush":
        queue.flush()
        queue.nack_many(queue.get_many(3), count=False)
    if end in ("flush", "close"):
        store.close()
    else:
        queue.sync()
        crash(store)
        disk = disk.kill() if end == "kill" else disk.power_cut(1, "nothing")
    with qindex.open("/", disk=disk, format=2) as store:
        queue = store.queue("a")
        assert counts(queue) == [1, 1, 1, 1, 1]
        assert [message.delivery_count for message in queue.get_many(5)] == [2] * 5
        assert [each for each in store.check() if each.severity == "damage"] == []


def test_a_moved_message_takes_along_the_deliveries_that_count(store):
    queue = store.queue("a")
    store.queue("b")
    queue.publish(b"x")
    queue.nack(queue.get())
    queue.nack(queue.get(), count=False)
    store.move(queue.get(), to="b")
    assert counts(store.queue("b")) == [2]


def test_wrong_uses_say_what_to_do(store, tmp_path):
    queue = store.queue("a")
    queue.publish(b"x")
    message = queue.get()
    for options in ({"delay": 5}, {"requeue": False}):
        with pytest.raises(ValueError, match="it is ready at once"):
            queue.nack(message, count=False, **options)
    with pytest.raises(TypeError, match="count must be True or False"):
        queue.nack(message, count=0)
    with qindex.open(tmp_path / "old", format=1) as old:
        queue = old.queue("a")
        queue.publish(b"x")
        with pytest.raises(qindex.FormatError, match="format 2"):
            queue.nack(queue.get(), count=False)
        assert queue.unacked == 1


@on_a_loop
async def test_a_get_that_was_cancelled_does_not_count(tmp_path):
    async with qindex.aio.open(tmp_path, format=2) as store:
        queue = await store.queue("a")
        for _ in range(20):
            task = asyncio.create_task(queue.get(timeout=None))
            await asyncio.sleep(0)
            await queue.publish(b"x")
            await asyncio.sleep(0.002)
            task.cancel()
            got = (await asyncio.gather(task, return_exceptions=True))[0]
            message = got if isinstance(got, qindex.Message) else await queue.get(timeout=5)
            assert message.delivery_count == 1
            await queue.nack(message, count=False)
            await queue.ack(await queue.get())
