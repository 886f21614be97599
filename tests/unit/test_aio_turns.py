"""A loop of calls that never wait leaves turns to other tasks; one call has all queues' figures."""

import asyncio

import pytest
from helpers import on_a_loop

import qindex
from qindex import aio

CALLS = 2000


async def count_turns(turns):
    while True:
        turns.append(None)
        await asyncio.sleep(0)


@pytest.mark.parametrize("verb", ["publish", "get", "iterate"])
@on_a_loop
async def test_other_tasks_have_turns_between_calls_that_never_wait(tmp_path, verb):
    async with aio.open(tmp_path) as store:
        queue = await store.queue("a")
        await queue.publish_many([b"x"] * CALLS)
        turns = []
        other = asyncio.create_task(count_turns(turns))
        if verb == "iterate":
            left = CALLS
            async for message in queue:
                await queue.ack(message)
                left -= 1
                if not left:
                    break
        else:
            for _ in range(CALLS):
                await (queue.publish(b"y") if verb == "publish" else queue.get())
        other.cancel()
        assert len(turns) >= CALLS // 64


@on_a_loop
async def test_a_task_that_is_cancelled_in_such_a_turn_has_taken_nothing(tmp_path):
    async with aio.open(tmp_path) as store:
        queue = await store.queue("a")
        await queue.publish_many([b"x"] * 200)
        seen = []

        async def take():
            while True:
                seen.append(await queue.get())

        taking = asyncio.create_task(take())
        await asyncio.sleep(0)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        assert 0 < len(seen) < 200
        assert queue.unacked == len(seen)


@on_a_loop
async def test_tasks_that_wait_on_one_queue_share_a_burst(tmp_path):
    async with aio.open(tmp_path) as store:
        queue = await store.queue("a")
        everybody = asyncio.Barrier(5)

        async def work():
            message = await queue.get(timeout=None)
            await everybody.wait()  # nobody goes on before each task has one
            await queue.ack(message)

        tasks = [asyncio.create_task(work()) for _ in range(5)]
        while len(queue._waiters) < 5:
            await asyncio.sleep(0)
        await queue.publish_many([b"x"] * 5)
        await asyncio.gather(*tasks)
        assert len(queue) == 0


def test_one_call_has_the_figures_of_all_queues(tmp_path):
    names = [f"q{n:03}" for n in range(50)]
    with qindex.open(tmp_path) as store:
        assert store.stats_all() == []
        store.create_queues(names)
        for number, name in enumerate(names):
            store.queue(name).publish_many([b"x"] * number)
    with qindex.open(tmp_path) as store:
        store.queue(names[7]).get()
        found = store.stats_all()
        assert [figures.name for figures in found] == names
        assert [figures.ready + figures.unacked for figures in found] == list(range(50))
        assert (found[7].unacked, found[7].next_req_id) == (1, 7)
        store.delete_queue(names[3])
        assert [figures.name for figures in store.stats_all()] == [*names[:3], *names[4:]]
    with pytest.raises(qindex.StoreClosed):
        store.stats_all()


def test_a_queue_that_is_deleted_meanwhile_is_left_out(tmp_path, monkeypatch):
    with qindex.open(tmp_path) as store:
        store.create_queues(["a", "b"])
        monkeypatch.setattr(store, "queues", lambda: ["a", "b", "gone"])
        assert [figures.name for figures in store.stats_all()] == ["a", "b"]


@on_a_loop
async def test_the_same_on_an_event_loop(tmp_path):
    async with aio.open(tmp_path) as store:
        await (await store.queue("a")).publish(b"x")
        assert [(figures.name, figures.ready) for figures in await store.stats_all()] == [("a", 1)]
