"""publish(timeout=): a full queue is waited for, by threads and by tasks."""

import asyncio
import time

import pytest
from helpers import Getter, asleep, on_a_loop

import qindex
from qindex import aio
from qindex.testing import SimulatedDisk


@pytest.fixture
def store(tmp_path):
    with qindex.open(tmp_path / "store") as store:
        yield store


def test_a_publish_waits_until_a_message_leaves(store):
    queue = store.queue("q", max_messages=2)
    queue.publish_many([b"1", b"2"])
    for leave in (
        lambda: queue.ack(queue.get()),
        lambda: queue.nack(queue.get(), requeue=False),
        lambda: queue.delete(queue.peek()),
    ):
        publisher = Getter(lambda: queue.publish(b"more", timeout=60, headers={"n": 1}))
        asleep(publisher)
        assert publisher.is_alive()
        leave()
        assert publisher.result() > 1
        assert queue.ready == 2


def test_a_batch_waits_for_a_place_for_all_of_it(store):
    queue = store.queue("q", max_bytes=10)
    queue.publish_many([b"12345", b"67890"])
    publisher = Getter(lambda: queue.publish_many([b"abc", b"def", b"ghi"], timeout=None))
    asleep(publisher)
    queue.ack(queue.get())
    asleep(publisher)
    assert publisher.is_alive()  # 5 are free, it needs 9
    assert queue.publish(b"four") == 2  # who needs less may pass
    queue.purge()
    assert list(publisher.result()) == [3, 4, 5]


def test_a_limit_of_the_store_is_waited_for_in_any_queue(tmp_path):
    with qindex.open(tmp_path / "store", max_messages=1) as store:
        one, other = store.queue("one"), store.queue("other")
        one.publish(b"1")
        publisher = Getter(lambda: other.publish(b"2", timeout=60))
        asleep(publisher)
        with pytest.raises(qindex.StoreFull):
            other.publish(b"3", timeout=0.01)
        one.purge()
        assert publisher.result() == 0


def test_the_time_ends(store):
    queue = store.queue("q", max_messages=1)
    queue.publish(b"1")
    begin = time.monotonic()
    with pytest.raises(qindex.QueueFull, match="queue q has 1 message"):
        queue.publish(b"2", timeout=0.05)
    assert time.monotonic() - begin >= 0.05
    assert (len(queue), queue.publish_many([], timeout=5)) == (1, range(1, 1))


def test_what_will_never_have_a_place_is_refused_at_once(store):
    queue = store.queue("q", max_bytes=10)
    queue.publish(b"12345")
    with pytest.raises(qindex.QueueFull, match="raise max_bytes"):
        queue.publish(b"x" * 11, timeout=None)
    with pytest.raises(qindex.QueueFull):
        queue.publish_many([b"x" * 6, b"x" * 6], timeout=None)
    assert len(queue) == 1


def test_a_higher_limit_is_a_place(tmp_path):
    with qindex.open(tmp_path / "store", format=2) as store:
        queue = store.queue("q", max_messages=1)
        queue.publish(b"1")
        publisher = Getter(lambda: queue.publish(b"2", timeout=60))
        asleep(publisher)
        queue.configure(max_messages=2)
        assert publisher.result() == 1


@pytest.mark.parametrize("end", ["close", "delete"])
def test_a_wait_ends_with_its_queue(tmp_path, end):
    store = qindex.open(tmp_path / "store")
    queue = store.queue("q", max_messages=1)
    queue.publish(b"1")
    publisher = Getter(lambda: queue.publish(b"2", timeout=None))
    asleep(publisher)
    store.close() if end == "close" else store.delete_queue("q")
    with pytest.raises(qindex.StoreClosed):
        publisher.result()
    store.close()


def test_time_passes_on_a_simulated_disk():
    disk = SimulatedDisk()
    with qindex.open("/", disk=disk) as store:
        queue = store.queue("q", max_messages=1, overflow="drop-head")
        queue.publish(b"1")
        queue.get(lease=5)  # what a consumer has cannot be dropped
        with pytest.raises(qindex.QueueFull):
            queue.publish(b"2", timeout=3)
        assert queue.publish(b"3", timeout=3) == 1
        assert [m.body for m in queue.browse()] == [b"3"]


@pytest.mark.parametrize("wrong", [-1, "5", float("nan")])
def test_a_timeout_is_checked_also_if_there_is_a_place(store, wrong):
    queue = store.queue("q")
    with pytest.raises((ValueError, TypeError)):
        queue.publish(b"1", timeout=wrong)
    with pytest.raises((ValueError, TypeError)):
        queue.publish_many([b"1"], timeout=wrong)
    assert len(queue) == 0
    assert queue.publish(b"1", timeout=None) == 0
    assert queue.publish(b"1", timeout=1) == 1


# --- the event loop ------------------------------------------------------------------------------


@on_a_loop
async def test_tasks_stand_in_line(tmp_path):
    async with await aio.open(tmp_path / "store") as store:
        queue = await store.queue("q", max_messages=1)
        await queue.publish(b"0")
        bodies = [b"%d" % n for n in range(1, 30)]
        tasks = []
        for body in bodies:
            tasks.append(asyncio.create_task(queue.publish(body, timeout=None)))
            await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        got = []
        while len(got) < 30:
            message = await queue.get(timeout=10)
            got.append(message.body)
            await queue.ack(message)
        assert sorted(got, key=int) == [b"0", *bodies]
        await asyncio.gather(*tasks)


@on_a_loop
async def test_the_time_of_a_task_ends(tmp_path):
    async with await aio.open(tmp_path / "store", max_messages=3) as store:
        queue = await store.queue("q", max_messages=2)
        await queue.publish_many([b"1", b"2"], timeout=1)
        with pytest.raises(qindex.QueueFull):
            await queue.publish(b"3", timeout=0.05)
        with pytest.raises(qindex.QueueFull):
            await queue.publish_many([b"x"] * 3, timeout=None)  # never
        first = asyncio.create_task(queue.publish_many([b"3", b"4"], timeout=None))
        second = asyncio.create_task(queue.publish(b"5", timeout=0.05))  # stands behind it
        with pytest.raises(qindex.QueueFull):
            await second
        assert await queue.purge() == 2
        assert list(await first) == [2, 3]
        for wrong in (-1, "5"):
            with pytest.raises((ValueError, TypeError)):
                await queue.publish(b"6", timeout=wrong)
        assert len(queue) == 2


@on_a_loop
async def test_a_task_that_is_cancelled_leaves_the_line(tmp_path):
    async with await aio.open(tmp_path / "store") as store:
        queue = await store.queue("q", max_messages=1)
        await queue.publish(b"0")
        tasks = [asyncio.create_task(queue.publish(b"%d" % n, timeout=None)) for n in (1, 2)]
        await asyncio.sleep(0.05)
        tasks[0].cancel()
        await asyncio.sleep(0.05)
        await queue.ack(await queue.get())
        assert await tasks[1] == 1
        assert (await queue.get()).body == b"2"


@on_a_loop
async def test_close_ends_the_wait_of_tasks(tmp_path):
    store = await aio.open(tmp_path / "store")
    queue = await store.queue("q", max_messages=1)
    await queue.publish(b"0")
    task = asyncio.create_task(queue.publish(b"1", timeout=None))
    await asyncio.sleep(0.05)
    await store.close()
    with pytest.raises(qindex.StoreClosed):
        await task


# --- one body to several queues ------------------------------------------------------------------


def test_a_fan_out_waits_until_each_of_its_queues_has_a_place(store):
    one, two = (store.queue(name, max_messages=1) for name in ("one", "two"))
    free = store.queue("free")
    one.publish(b"1")
    two.publish(b"1")
    names = ["one", "free", "two"]
    publisher = Getter(lambda: store.publish(names, b"2", timeout=60))
    asleep(publisher)
    one.ack(one.get())
    asleep(publisher)
    assert publisher.is_alive()
    assert len(free) == 0  # all of them, or none
    two.purge()
    assert publisher.result() == [1, 0, 1]


def test_the_limit_of_a_store_is_waited_for_by_all_that_a_fan_out_needs(tmp_path):
    with qindex.open(tmp_path / "store", max_messages=3) as store:
        one = store.queue("one")
        store.queue("two")
        one.publish_many([b"1", b"2"])  # there is a place for one more, and two are needed
        publisher = Getter(lambda: store.publish(["one", "two"], b"3", timeout=None))
        asleep(publisher)
        assert publisher.is_alive()
        one.ack(one.get())
        assert publisher.result() == [2, 0]


def test_a_queue_that_is_named_twice_needs_two_places(store):
    queue = store.queue("q", max_messages=2)
    queue.publish(b"1")
    publisher = Getter(lambda: store.publish(["q", "q"], b"2", timeout=60))
    asleep(publisher)
    assert publisher.is_alive()
    queue.purge()
    assert publisher.result() == [1, 2]


def test_the_time_of_a_fan_out_ends(store):
    full, free = store.queue("full", max_messages=1), store.queue("free", max_messages=5)
    full.publish(b"1")
    names = ["full", "free"]
    begin = time.monotonic()
    with pytest.raises(qindex.QueueFull, match="queue full has 1 message"):
        store.publish(names, b"2", timeout=0.05)
    assert store.publish(names, b"2", timeout=0.05, on_full="skip") == [None, 0]
    assert time.monotonic() - begin >= 0.1
    assert (len(full), len(free)) == (1, 1)
    with pytest.raises(qindex.QueueFull, match="raise max_messages"):
        store.publish(["full", "full"], b"3", timeout=None)  # never
    assert store.publish(["full", "full", "free"], b"3", timeout=None, on_full="skip") == [
        *(None, None, 1)
    ]
    for wrong in (-1, "5", float("nan")):
        with pytest.raises((ValueError, TypeError)):
            store.publish(["free", "new"], b"4", timeout=wrong, create=True)
    assert (len(free), "new" in store) == (2, False)


def test_time_passes_for_a_fan_out_on_a_simulated_disk():
    with qindex.open("/", disk=SimulatedDisk()) as store:
        queue = store.queue("q", max_messages=1, overflow="drop-head")
        store.queue("other")
        queue.publish(b"1")
        queue.get(lease=5)  # what a consumer has cannot be dropped
        with pytest.raises(qindex.QueueFull):
            store.publish(["q", "other"], b"2", timeout=3)
        assert store.publish(["other", "q"], b"3", timeout=3) == [0, 1]
        assert [m.body for m in queue.browse()] == [b"3"]


@on_a_loop
async def test_fan_outs_of_tasks_stand_in_line_in_each_queue(tmp_path):
    async with await aio.open(tmp_path / "store") as store:
        queues = [await store.queue(name, max_messages=1) for name in ("a", "b")]
        for queue in queues:
            await queue.publish(b"0")
        names = [["a", "b"], ["b", "a"], ["a"], ["b", "b", "a"], ["b"]]
        tasks = []
        for n, each in enumerate(names):
            tasks.append(asyncio.create_task(store.publish(each, b"%d" % n, timeout=None)))
            await asyncio.sleep(0)
        with pytest.raises(qindex.QueueFull):
            await tasks[3]  # two places in b, which has one: never
        for _ in range(6):
            for queue in queues:
                if (message := await queue.get(timeout=0.2)) is not None:
                    await queue.ack(message)
        got = [await task for n, task in enumerate(tasks) if n != 3]
        in_a, in_b = [got[0][0], got[1][1], *got[2]], [got[0][1], got[1][0], *got[3]]
        assert sorted(in_a) == sorted(in_b) == [1, 2, 3]


@on_a_loop
async def test_the_time_of_a_task_with_a_fan_out_ends(tmp_path):
    async with await aio.open(tmp_path / "store") as store:
        full = await store.queue("full", max_messages=1)
        await full.publish(b"1")
        with pytest.raises(qindex.QueueFull):
            await store.publish(["full", "new"], b"2", timeout=0.05, create=True)
        skipped = await store.publish(["new", "full"], b"2", timeout=0.05, on_full="skip")
        assert skipped == [0, None]
        task = asyncio.create_task(store.publish(["full", "new"], b"3", timeout=None))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await full.purge() == 1
        assert await store.publish(["full", "new"], b"4", timeout=None) == [1, 1]
