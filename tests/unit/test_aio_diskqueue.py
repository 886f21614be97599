"""qindex.aio.DiskQueue: the answers of qindex.DiskQueue; cancelling loses nothing."""

import asyncio
import threading

import pytest
from helpers import on_a_loop

import qindex
from qindex import aio

FORMATS = pytest.mark.parametrize("kind", ["qindex", "nsq"])


@FORMATS
@on_a_loop
async def test_messages_come_in_order_and_once_also_after_a_restart(tmp_path, kind):
    bodies = [b"%d" % n * (n % 5) for n in range(20)]
    async with aio.DiskQueue("q", tmp_path, format=kind) as queue:
        for body in bodies:
            await queue.put(body)
        assert (queue.depth, len(queue), queue.damaged, bool(queue)) == (20, 20, 0, True)
        assert await queue.peek() == bodies[0]
        assert [await queue.get() for _ in range(5)] == bodies[:5]
        await queue.sync()
        with pytest.raises(ValueError, match="allowed are"):
            await queue.put(b"x" * (2 << 20))
    with pytest.raises(qindex.StoreClosed):
        await queue.get()
    await queue.close()
    queue = await aio.DiskQueue("q", tmp_path, format=kind)
    assert [body async for body in queue] == bodies[5:]
    assert await queue.get(timeout=0.01) is None
    await queue.put(b"more")
    await queue.empty()
    assert await queue.peek() is None
    await queue.delete()
    assert "closed" in repr(queue)


@on_a_loop
async def test_a_queue_that_is_not_open_says_what_to_do(tmp_path):
    queue = aio.DiskQueue("q", tmp_path)
    with pytest.raises(qindex.StoreClosed, match="await it"):
        await queue.put(b"x")
    await queue.close()
    with pytest.raises(ValueError, match="sync_every"):
        await aio.DiskQueue("q", tmp_path, sync_every=0)


@FORMATS
@on_a_loop
async def test_each_of_many_waiting_tasks_gets_one(tmp_path, kind):
    async with aio.DiskQueue("q", tmp_path, format=kind) as queue:
        getters = [asyncio.create_task(queue.get(timeout=None)) for _ in range(20)]
        idle = asyncio.create_task(queue.get(timeout=None))
        await asyncio.gather(*(queue.put(b"%d" % n) for n in range(20)))
        done, _ = await asyncio.wait([*getters, idle], return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 20:
            done, _ = await asyncio.wait([*getters, idle], timeout=0.01)
        found = sorted(int(task.result()) for task in done)
        assert found == list(range(20))
        (waiting,) = {*getters, idle} - done
    with pytest.raises(qindex.StoreClosed):
        await waiting


@FORMATS
@on_a_loop
async def test_what_a_cancelled_get_had_taken_comes_next(tmp_path, kind, monkeypatch):
    async with aio.DiskQueue("q", tmp_path, format=kind) as queue:
        for body in (b"first", b"", b"last"):
            await queue.put(body)
        for expected in (b"first", b""):
            await cancel_in_the_thread(queue, monkeypatch)
            assert queue.depth == (3 if expected else 2)
            assert await queue.peek() == expected
            await cancel_in_the_thread(queue, monkeypatch)
            assert await queue.get() == expected
        await cancel_in_the_thread(queue, monkeypatch)
    async with aio.DiskQueue("q", tmp_path, format=kind) as queue:
        assert [body async for body in queue] == [b"last"]


async def cancel_in_the_thread(queue, monkeypatch):
    """Cancel a get() while its thread is taking a message, which it then takes all the same."""
    inside, go_on = threading.Event(), threading.Event()
    take = queue._take_now

    def held_up(opened):
        inside.set()
        go_on.wait()
        return take(opened)

    with monkeypatch.context() as patch:
        patch.setattr(queue, "_take_now", held_up)
        getting = asyncio.create_task(queue.get())
        await asyncio.to_thread(inside.wait)
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting
        go_on.set()
    await queue.sync()  # behind it in the same thread


@on_a_loop
async def test_a_cancelled_open_leaves_nothing_open(tmp_path, monkeypatch):
    inside, go_on = threading.Event(), threading.Event()
    queue = aio.DiskQueue("q", tmp_path)
    make = queue._make

    def held_up():
        inside.set()
        go_on.wait()
        return make()

    monkeypatch.setattr(queue, "_make", held_up)
    opening = asyncio.ensure_future(queue._open())
    await asyncio.to_thread(inside.wait)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    go_on.set()
    await asyncio.to_thread(queue._pool.shutdown)
    async with aio.DiskQueue("q", tmp_path):
        pass
