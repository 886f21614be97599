"""What a get took and nobody has seen goes back, and its delivery does not count (format 2)."""

import asyncio
import contextlib
import threading

import pytest
from helpers import on_a_loop

import qindex
from qindex import aio

TAKES = {
    "get": lambda queue: [queue.get()],
    "get_many": lambda queue: queue.get_many(5),
    "get_newest": lambda queue: [queue.get_newest()],
}


@pytest.mark.parametrize("take", TAKES.values(), ids=TAKES)
@on_a_loop
async def test_a_task_that_is_cancelled_buries_nothing(tmp_path, take):
    async with aio.open(tmp_path, format=2) as store:
        queue = await store.queue("q", max_deliveries=1, dead_letters=True)
        await queue.publish(b"only")
        go_on = threading.Event()

        def taken():
            messages = take(queue._queue)
            go_on.wait()
            return messages

        task = asyncio.create_task(queue._take_in_thread(taken))
        while not queue.unacked:
            await asyncio.sleep(0.001)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        go_on.set()
        message = await queue.get(timeout=30)
        assert (message.body, message.delivery_count) == (b"only", 1)
        assert queue.dead == 0


@pytest.mark.parametrize(("version", "count"), [(1, 2), (2, 1)])
def test_a_message_that_could_not_be_handed_on(tmp_path, version, count):
    """Format 1 has no place to say that a delivery does not count."""
    with qindex.open(tmp_path, format=version) as store:
        queue = store.queue("q")
        queue.publish(b"a")
        queue.get()._returned  # noqa: B018
        assert queue.get().delivery_count == count
