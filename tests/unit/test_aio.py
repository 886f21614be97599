"""qindex.aio: the same verbs, awaited; nothing slow on the event loop; cancelling loses nothing."""

import asyncio
import functools
import gc
import threading
from collections import Counter
from pathlib import Path

import pytest
from helpers import SMALL, bodies, on_a_loop, settle

import qindex
from qindex import aio
from qindex.aio_queue import BUSY

PATIENCE = 30


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data"


@pytest.mark.parametrize("sync", ["group", "always", "never"])
@on_a_loop
async def test_every_verb_does_what_it_does_without_await(path, sync):
    async with aio.open(path, sync=sync, **SMALL) as store:
        queue = await store.queue("a")
        assert await store.queue("a") is queue
        assert await queue.publish(b"zero") == 0
        assert await queue.publish(bytearray(b"one"), headers={"n": 1}, confirm=True) == 1
        assert await queue.publish_many([b"two", b"three", b"x" * 1000], confirm=True) == range(
            2, 5
        )
        assert await store.publish(["a", "b"], b"both", create=True) == [5, 0]
        assert (await queue.peek()).body == b"zero"
        assert [m.req_id async for m in queue.browse()] == list(range(6))
        assert [m.req_id async for m in queue.browse(1, 3)] == [1, 2]
        first = await queue.get()
        await queue.nack(first)
        again = await queue.get()
        assert (again.req_id, again.delivery_count) == (0, 2)
        await queue.ack(again)
        with pytest.raises(qindex.AlreadyAcked):
            await queue.ack(again)
        one, two = await queue.get_many(2)
        assert one.headers == {"n": 1}
        await queue.nack_many([one])
        await queue.ack_many([two])
        assert (await queue.get_newest()).body == b"both"
        assert (await store.get(["b", "a"], create=True)).queue == "b"
        await queue.sync()
        await queue.flush()
        figures = await queue.stats()
        assert (figures.ready, figures.unacked, figures.dirty_count) == (3, 1, 0)
        assert await queue.purge() == 3
        assert await queue.get() is None
        assert await queue.get_many(3) == []
        assert await store.queues() == ["a", "b"]
        await store.delete_queue("b")
        await store.sync()
        await store.compact()
        assert await store.check() == []
        assert (await store.stats()).queues >= 1
    with pytest.raises(qindex.StoreClosed):
        await queue.publish(b"late")
    with pytest.raises(qindex.StoreClosed):
        await queue.get()
    await store.close()


@on_a_loop
async def test_open_can_be_awaited_and_raises_what_open_raises(path):
    store = await aio.open(path)
    with pytest.raises(qindex.StoreLocked):
        await aio.open(path)
    await store.close()
    with pytest.raises(TypeError):
        await aio.open(path, colour="red")
    with pytest.raises(qindex.StoreMissing):
        async with aio.open(path / "none", create=False):
            pass


@pytest.mark.parametrize("timeout", [0, 0.01])
@on_a_loop
async def test_a_get_ends_when_its_time_is_over(path, timeout):
    async with aio.open(path) as store:
        queue = await store.queue("a")
        assert await queue.get(timeout=timeout) is None
        assert await queue.get_many(2, timeout=timeout) == []
        assert await store.get(["a", "b"], timeout=timeout, create=True) is None
        for get in (queue.get, functools.partial(store.get, ["a"])):
            with pytest.raises(ValueError, match="timeout"):
                await get(timeout=-1)


@on_a_loop
async def test_a_publish_of_a_task_or_of_a_thread_wakes(path):
    async with aio.open(path) as store:
        queue = await store.queue("a")
        for publish in (
            lambda: queue.publish(b"a"),
            lambda: asyncio.to_thread(store._store.queue("a").publish, b"a"),
            lambda: store.publish(["a"], b"a", create=True),
        ):
            for get in (
                queue.get(timeout=None),
                queue.get_many(1, timeout=PATIENCE * 2),
                store.get(["b", "a"], timeout=None, create=True),
            ):
                getter = asyncio.create_task(get)
                await settle()
                await publish()
                assert await getter


@on_a_loop
async def test_a_hundred_tasks_wait_and_each_gets_its_own(path):
    async with aio.open(path) as store:
        queue = await store.queue("a")
        getters = [asyncio.create_task(queue.get(timeout=None)) for _ in range(100)]
        await settle()
        await queue.publish_many([b"%d" % i for i in range(60)])
        for i in range(60, 100):
            await queue.publish(b"%d" % i)
        got = await asyncio.gather(*getters)
        assert sorted(m.req_id for m in got) == list(range(100))


@on_a_loop
async def test_waiting_threads_and_waiting_tasks_share_a_queue(path):
    async with aio.open(path) as store:
        queue, plain = await store.queue("a"), store._store.queue("a")
        taken = []

        def consume():
            while (message := plain.get(timeout=None)).body != b"end":
                taken.append(message.req_id)

        async def consume_too():
            while (message := await queue.get(timeout=None)).body != b"end":
                taken.append(message.req_id)

        threads = [threading.Thread(target=consume) for _ in range(3)]
        for thread in threads:
            thread.start()
        tasks = [asyncio.create_task(consume_too()) for _ in range(3)]
        for i in range(3000):
            await queue.publish(b"%d" % i)
            if i % 50 == 0:
                await asyncio.sleep(0)
        for _ in range(6):
            await queue.publish(b"end")
        await asyncio.gather(*tasks, *[asyncio.to_thread(thread.join) for thread in threads])
        assert sorted(taken) == list(range(3000))


@on_a_loop
async def test_iteration_waits_and_ends_with_the_store(path):
    got = []

    async def consume(queue):
        async for message in queue:
            got.append(message.body)
            await queue.ack(message)

    async with aio.open(path) as store:
        queue = await store.queue("a")
        consumers = [asyncio.create_task(consume(queue)) for _ in range(3)]
        for i in range(20):
            await queue.publish(b"%d" % i)
            await asyncio.sleep(0)
        while len(got) < 20:
            await asyncio.sleep(0.001)
    await asyncio.gather(*consumers)
    assert Counter(got) == Counter(b"%d" % i for i in range(20))


@on_a_loop
async def test_close_and_delete_end_every_wait(path):
    store = await aio.open(path)
    queue, gone = await store.queue("a"), await store.queue("gone")
    for target, end in ((gone, store.delete_queue("gone")), (queue, store.close())):
        waits = [asyncio.create_task(target.get(timeout=None)) for _ in range(3)]
        await settle()
        await end
        for result in await asyncio.gather(*waits, return_exceptions=True):
            assert isinstance(result, qindex.StoreClosed)


# --- cancelling ----------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", range(8))
@on_a_loop
async def test_a_get_that_is_cancelled_when_it_is_woken_passes_the_message_on(path, turns):
    async with aio.open(path) as store:
        queue = await store.queue("a")
        first, second = (asyncio.create_task(queue.get(timeout=None)) for _ in range(2))
        await settle()
        await queue.publish(b"a")
        await settle(turns)  # the message is on its way, further each time
        first.cancel()
        await asyncio.wait([first])
        if first.cancelled():
            assert (await second).body == b"a"
        else:
            assert first.result().body == b"a"
            second.cancel()


@on_a_loop
async def test_a_get_that_is_cancelled_in_its_thread_gives_the_message_back(path, monkeypatch):
    async with aio.open(path) as store:
        queue = await store.queue("a")
        await queue.publish_many([b"a", b"b", b"c"])
        began, go_on = threading.Event(), threading.Event()
        get, get_many = queue._queue._get, queue._queue.get_many

        def slowly(get, *arguments, **options):
            taken = get(*arguments, **options)
            began.set()
            go_on.wait()
            return taken

        monkeypatch.setattr(queue, "_get_now", lambda **_options: BUSY)
        monkeypatch.setattr(queue._queue, "_get", functools.partial(slowly, get))
        monkeypatch.setattr(queue._queue, "get_many", functools.partial(slowly, get_many))
        for take in (queue.get, functools.partial(queue.get_many, 2), queue.get):
            began.clear()
            go_on.clear()
            getter = asyncio.create_task(take())
            assert await asyncio.to_thread(began.wait, PATIENCE)
            assert (await queue.stats()).unacked > 0
            getter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await getter
            go_on.set()
            while (await queue.stats()).unacked:
                await asyncio.sleep(0.001)
            assert [m.body async for m in queue.browse()] == [b"a", b"b", b"c"]


@on_a_loop
async def test_a_cancelled_wait_leaves_nothing_behind(path):
    async with aio.open(path) as store:
        queue = await store.queue("a")
        getter = asyncio.create_task(queue.get(timeout=None))
        await settle()
        getter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getter
        assert not queue._waiters
        thread = asyncio.create_task(
            asyncio.to_thread(store._store.queue("a").get, timeout=PATIENCE * 2)
        )
        await asyncio.sleep(0.02)
        await queue.publish(b"a")  # no bell is armed that would take this
        assert (await thread).body == b"a"


@on_a_loop
async def test_a_cancelled_publish_has_published_all_or_nothing(path, monkeypatch):
    async with aio.open(path) as store:
        queue = await store.queue("a")
        began, go_on = threading.Event(), threading.Event()
        publish = queue._queue.publish_many

        def slowly(*arguments, **options):
            began.set()
            go_on.wait()
            return publish(*arguments, **options)

        monkeypatch.setattr(queue._queue, "publish_many", slowly)
        publisher = asyncio.create_task(queue.publish_many([b"a", b"b"]))
        await asyncio.to_thread(began.wait)
        publisher.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publisher
        go_on.set()
    with qindex.open(path) as store:
        assert bodies(store.queue("a").get_many(9)) == [b"a", b"b"]


def test_a_closed_store_keeps_no_descriptor(tmp_path):
    async def use():
        async with aio.open(tmp_path / "s") as store:
            queue = await store.queue("q")
            await queue.publish(b"x")

    asyncio.run(use())
    gc.disable()  # stores refer to their queues, and these to their store
    try:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(5):
            asyncio.run(use())
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    finally:
        gc.enable()


@on_a_loop
async def test_a_closed_store_gives_no_queue_and_no_consumer(path):
    store = await aio.open(path)
    await store.queue("q")
    await store.close()
    with pytest.raises(qindex.StoreClosed):
        await store.queue("q")
    with pytest.raises(qindex.StoreClosed):
        await store.consumer(["q"])


def test_another_event_loop_is_refused_before_anything_is_done(tmp_path):
    loop = asyncio.new_event_loop()

    async def opened():
        store = await aio.open(tmp_path / "store")
        return store, await store.queue("q")

    store, queue = loop.run_until_complete(opened())
    calls = (
        lambda: queue.publish(b"x", confirm=True),
        lambda: queue.get(timeout=1),
        lambda: queue.publish_many([b"x"]),
        lambda: store.publish(["q"], b"x", confirm=True),
        lambda: store.publish(["q"], b"x", confirm=True, on_full="skip"),
        lambda: queue.sync(),
        lambda: store.queue("other"),
        lambda: store.stats(),
    )
    for call in calls:
        with pytest.raises(RuntimeError, match="belongs to another event loop"):
            asyncio.run(call())
    assert len(queue) == 0
    assert loop.run_until_complete(queue.publish(b"x", confirm=True)) == 0
    loop.run_until_complete(store.close())
    loop.close()


def test_another_event_loop_is_refused_where_each_verb_waits_for_a_sync(tmp_path):
    loop = asyncio.new_event_loop()

    async def opened():
        store = await aio.open(tmp_path / "store", sync="always")
        queue = await store.queue("q")
        await queue.publish_many([b"x"] * 2)
        return store, queue, await queue.get()

    store, queue, message = loop.run_until_complete(opened())
    calls = (
        lambda: queue.publish(b"x"),
        lambda: store.publish(["q"], b"x"),
        lambda: queue.ack(message),
        lambda: queue.ack_many([message]),
        lambda: queue.nack(message, requeue=False),
        lambda: queue.nack_many([message], requeue=False),
    )
    for call in calls:
        with pytest.raises(RuntimeError, match="belongs to another event loop"):
            asyncio.run(call())
        assert (len(queue), queue.unacked) == (2, 1)
    loop.run_until_complete(queue.ack(message))
    loop.run_until_complete(store.close())
    loop.close()
