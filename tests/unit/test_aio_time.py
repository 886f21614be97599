"""qindex.aio: delays and leases wake the tasks that wait, without a thread that sleeps."""

import asyncio

import pytest
from helpers import SMALL, on_a_loop, settle

import qindex
from qindex import aio

PATIENCE = 30


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data"


@on_a_loop
async def test_a_task_that_waits_gets_what_time_makes_ready(path):
    async with aio.open(path, **SMALL) as store:
        queue = await store.queue("a")
        await queue.publish(b"before", delay=0.05)
        assert (await queue.get(timeout=PATIENCE)).body == b"before"
        waiting = asyncio.create_task(queue.get(timeout=PATIENCE))
        await settle()
        await queue.publish(b"much later", delay=1000)
        await queue.publish(b"meanwhile", delay=0.05, priority=3)
        message = await waiting
        assert (message.body, message.priority) == (b"meanwhile", 3)


@on_a_loop
async def test_a_task_that_waits_gets_what_another_held_too_long(path):
    async with aio.open(path, **SMALL) as store:
        queue = await store.queue("a", max_deliveries=2, dead_letters=True)
        await queue.publish(b"a")
        first = await queue.get(lease=1000)
        waiting = asyncio.create_task(queue.get(timeout=PATIENCE, lease=1000))
        await settle()
        await queue.touch(first, 0.05)
        again = await waiting
        assert again.delivery_count == 2
        with pytest.raises(qindex.LeaseExpired):
            await queue.ack(first)
        await queue.nack(again, delay=0.01)
        assert await queue.get(timeout=0.5) is None
        assert [m.dead async for m in queue.browse(state="dead")] == ["deliveries"]
        assert await queue.redrive() == 1
        await queue.nack(await queue.get(), delay=100)
        (waits,) = [m async for m in queue.browse(state="delayed")]
        await queue.reschedule(waits)
        await queue.nack(await queue.get())
        await queue.delete(waits.req_id)
        assert (await queue.stats()).dead == 0
