"""The consumer of qindex.aio: as that of threads, and tasks that share what comes."""

import asyncio
from collections import Counter

import pytest
from helpers import on_a_loop

import qindex
from qindex import aio


async def filled(store, names="abc", count=4):
    for name in names:
        queue = await store.queue(name)
        await queue.publish_many([f"{name}{i}".encode() for i in range(count)])


async def bodies(consumer, count):
    return [(await consumer.get()).body for _ in range(count)]


def later(call):
    async def run():
        await asyncio.sleep(0.05)
        await call

    return asyncio.create_task(run())


@on_a_loop
async def test_turns_preference_limit_and_end(tmp_path):
    async with aio.open(tmp_path) as store:
        await filled(store)
        async with await store.consumer(["a", "b", "c"], prefetch=5) as consumer:
            assert await bodies(consumer, 5) == [b"a0", b"b0", b"c0", b"a1", b"b1"]
            assert await consumer.get() is None
            assert await consumer.get(timeout=0.01) is None
            first = consumer.unacked[0]
            await consumer.ack(first)
            with pytest.raises(qindex.AlreadyAcked):
                await consumer.ack(first)
            await store.ack(consumer.unacked[0])
            assert await bodies(consumer, 2) == [b"c1", b"a2"]
            await consumer.nack(consumer.unacked[-1])
            await consumer.touch(consumer.unacked[0], 60)
            assert len(consumer.unacked) == 4
        assert [(q.ready, q.unacked) for q in await store.stats_all()] == [(3, 0), (3, 0), (4, 0)]
        async with await store.consumer(["c", "a"], fair=False) as consumer:
            assert await bodies(consumer, 5) == [b"c0", b"c1", b"c2", b"c3", b"a1"]
        with pytest.raises(qindex.StoreClosed):
            await consumer.get()
        assert [message async for message in consumer] == []


@on_a_loop
async def test_what_changes_wakes_a_task_that_waits(tmp_path):
    async with aio.open(tmp_path) as store:
        await filled(store, "a", 2)
        async with await store.consumer([], prefetch=1) as consumer:
            assert await consumer.get(timeout=0.01) is None
            task = later(consumer.add(["a"]))
            message = await consumer.get(timeout=10)
            assert (message.body, consumer.queues) == (b"a0", ["a"])
            await task
            task = later(consumer.ack(message))
            assert (await consumer.get(timeout=10)).body == b"a1"
            await task
            await consumer.nack(consumer.unacked[0])
            await consumer.pause()
            assert (consumer.paused, await consumer.get()) == (True, None)
            task = later(consumer.resume())
            message = await consumer.get(timeout=10)
            assert message.body == b"a1"
            await task
            await consumer.ack(message)
            waiting = asyncio.create_task(consumer.get(timeout=10))
            await asyncio.sleep(0.05)
            await consumer.pause()
            await (await store.queue("a")).publish(b"x")
            await asyncio.sleep(0.05)
            assert (waiting.done(), (await store.queue("a")).ready) == (False, 1)
            await consumer.resume()
            assert (await waiting).body == b"x"
            await consumer.remove(["a"])
            with pytest.raises(qindex.QueueMissing):
                await consumer.remove(["a"])
        assert (await store.queue("a")).ready == 1


@on_a_loop
async def test_closing_ends_the_waits_of_all_tasks(tmp_path):
    async with aio.open(tmp_path) as store:
        consumer = await store.consumer(["a"], create=True)
        tasks = [asyncio.create_task(consumer.get(timeout=None)) for _ in range(3)]
        await asyncio.sleep(0.05)
        await consumer.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [qindex.StoreClosed] * 3
        queue = await store.queue("a")
        await queue.publish(b"x")
        assert (queue.ready, queue.unacked) == (1, 0)
        consumer = await store.consumer(["a"])
    await consumer.close()


@on_a_loop
async def test_a_deleted_queue_leaves_the_set(tmp_path):
    async with aio.open(tmp_path) as store:
        await filled(store, "ab")
        async with await store.consumer(["a", "b"]) as consumer:
            assert await bodies(consumer, 2) == [b"a0", b"b0"]
            await store.delete_queue("a")
            assert await bodies(consumer, 3) == [b"b1", b"b2", b"b3"]
            assert consumer.queues == ["b"]
            waiting = [asyncio.create_task(consumer.get(timeout=0.3)) for _ in range(2)]
            await asyncio.sleep(0.05)
            await store.delete_queue("b")
            assert (await asyncio.gather(*waiting), consumer.queues) == ([None, None], [])
            assert consumer.unacked == []


@pytest.mark.parametrize("shared", [True, False], ids=["one consumer", "a queue"])
@on_a_loop
async def test_tasks_that_wait_share_a_burst_evenly(tmp_path, shared):
    tasks, burst = 5, 50
    taken = Counter()
    async with aio.open(tmp_path) as store:
        queue = await store.queue("a")
        source = await store.consumer(["a"]) if shared else queue

        async def work(name):
            while (message := await source.get(timeout=0.5)) is not None:
                taken[name] += 1
                await queue.ack(message)  # done at once: nothing here lets others run

        working = [asyncio.create_task(work(name)) for name in range(tasks)]
        await asyncio.sleep(0.05)
        await queue.publish_many([b"x"] * burst)
        await asyncio.gather(*working)
    assert sum(taken.values()) == burst
    assert min(taken.values()) >= burst // tasks // 2


@on_a_loop
async def test_a_task_alone_does_not_stand_in_line(tmp_path):
    async with aio.open(tmp_path) as store:
        await filled(store, "a", 100)
        queue = await store.queue("a")
        turns = []
        asyncio.get_running_loop().call_soon(turns.append, None)
        for _ in range(60):
            await queue.get()
        assert turns == []


@on_a_loop
async def test_a_task_that_is_cancelled_gives_back_what_it_took(tmp_path):
    async with aio.open(tmp_path) as store:
        queue = await store.queue("a")
        async with await store.consumer(["a"]) as consumer:
            for _ in range(30):
                task = asyncio.create_task(consumer.get(timeout=None))
                await asyncio.sleep(0)
                await queue.publish(b"x")
                task.cancel()
                await asyncio.wait([task])
                held = len(consumer.unacked)
                assert (queue.unacked, held) == (held, 0 if task.cancelled() else 1)
                for message in consumer.unacked:
                    await consumer.nack(message)
        assert queue.ready == 30
