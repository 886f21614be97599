"""What qindex.aio does at once, without a thread; and what it leaves to one, which may wait."""

import asyncio

import pytest
from helpers import on_a_loop, without_worker

import qindex
from qindex import aio
from qindex.aio_queue import BUSY


async def filled(store, **rules):
    """A queue with a hundred messages, and twenty of them."""
    queue = await store.queue("q", **rules)
    await queue.publish_many([b"%d" % n for n in range(100)])
    return queue, [await queue.get() for _ in range(20)]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("rules", [{}, {"max_deliveries": 2, "dead_letters": True}])
@on_a_loop
async def test_what_settles_messages_needs_no_thread(version, rules):
    async with aio.open("/", disk=without_worker(), format=version) as store:
        queue, m = await filled(store, **rules)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "_submit", None)
            await queue.ack(m[0])
            await queue.touch(m[1], 60)
            await store.touch(m[1], 60)
            await queue.nack(m[1])
            await queue.nack(m[2], False)
            await queue.nack(m[3].req_id, delay=60)
            await queue.nack(m[4], requeue=True, due=4102444800)
            assert await queue.ack_many([m[6], m[5]]) == []
            assert await queue.nack_many([m[7], m[8]], missing_ok=True) == []
            assert await queue.nack_many(iter(m[9:11]), requeue=False) == []
            await store.ack(m[11])
            await store.nack(m[12])
            assert await store.ack_many(m[13:15]) == []
            assert await store.nack_many([m[15]], delay=60) == []
            if version == 2:
                await queue.nack(m[16], count=False)
                assert await queue.nack_many([m[17]], count=False) == []
        gone = 6 + (0 if rules else 3)
        figures = (len(queue), queue.unacked, queue.delayed, queue.dead)
        assert figures == (100 - gone, 4 - 2 * (version == 2), 3, 3 * bool(rules))


@on_a_loop
async def test_a_fan_out_needs_no_thread_once_its_queues_are_open():
    async with aio.open("/", disk=without_worker()) as store:
        assert await store.publish(["a", "b"], b"0", create=True) == [0, 0]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "_submit", None)
            assert await store.publish(["b", "a", "b"], b"1", headers={"n": 1}) == [1, 1, 2]
            assert await store.publish(iter(["a"]), bytearray(b"2"), priority=3) == [3 << 52]
        got = [await store.get(["a", "b"]) for _ in range(6)]
        assert [(m.queue, m.body) for m in got] == [
            *[("a", b"2"), ("a", b"0"), ("a", b"1")],
            *[("b", b"0"), ("b", b"1"), ("b", b"1")],
        ]
        assert got[2].headers == {"n": 1}


@on_a_loop
async def test_a_fan_out_with_confirm_shares_the_syncs_of_its_queues(tmp_path):
    async with aio.open(tmp_path, sync="never") as store:
        await store.create_queues(["a", "b"])
        for skip in ("raise", "skip"):
            await store.publish(["a", "b"], b"x", on_full=skip, confirm=True)
            for name in ("a", "b"):
                assert (await (await store.queue(name)).stats()).unsynced_bytes == 0


@on_a_loop
async def test_with_sync_always_what_is_done_at_once_is_synced_when_it_returns(tmp_path):
    async with aio.open(tmp_path, sync="always") as store:
        queue, m = await filled(store)
        steps = [
            lambda: queue.nack(m[0], delay=60),
            lambda: queue.nack_many([m[1]], requeue=False),
            lambda: queue.ack_many([m[2], m[3]]),
            lambda: store.nack(m[4], requeue=False),
            lambda: store.publish(["q"], b"x"),
        ]
        for step in steps:
            await step()
            assert (await queue.stats()).unsynced_bytes == 0


@on_a_loop
async def test_what_is_wrong_is_told_as_on_the_plain_surface(tmp_path):
    async with aio.open(tmp_path, format=1) as store:
        queue, m = await filled(store)
        await queue.ack(m[0])
        wrong = [
            (lambda: queue.nack(m[0]), qindex.AlreadyAcked, "not in the queue any more"),
            (lambda: queue.nack(50), qindex.UnknownMessage, "was not delivered"),
            (lambda: queue.nack(None), TypeError, "nothing was ready"),
            (lambda: queue.nack(m[1], False, delay=3), ValueError, "cannot have a delay, too"),
            (lambda: queue.nack(m[1], delay=-1), ValueError, "delay"),
            (lambda: queue.nack(m[1], "no"), TypeError, "requeue must be True or False"),
            (lambda: queue.nack(m[1], count=False), qindex.FormatError, "format 2"),
            (lambda: queue.nack(m[1], delai=3), TypeError, r"Queue\.nack\(\)"),
            (lambda: queue.touch(m[0], 5), qindex.AlreadyAcked, "not in the queue any more"),
            (lambda: queue.touch(m[1], 0), ValueError, "lease"),
            (lambda: queue.touch(m[1], "5"), TypeError, "lease"),
            (lambda: queue.touch(m[1], None), TypeError, "lease must be a number of seconds"),
            (lambda: queue.touch("x", 5), ValueError, "a token has 32"),
            (lambda: queue.ack_many([m[0], m[1]]), qindex.AlreadyAcked, "not in the queue"),
            (lambda: queue.ack_many([m[1], m[1]]), ValueError, "twice"),
            (lambda: queue.ack_many(m[1]), TypeError, "messages must be a list"),
            (lambda: queue.ack_many([m[1]], missing_ok=1), TypeError, "missing_ok"),
            (lambda: queue.nack_many([m[1]], count=0), TypeError, "count must be True or False"),
            (lambda: store.publish(["none"], b""), qindex.QueueMissing, "no queue 'none'"),
            (lambda: store.publish("q", b""), TypeError, "queues must be a list"),
            (lambda: store.publish(["q", 5], b""), TypeError, "name"),
            (lambda: store.publish([], b""), ValueError, "name at least one queue"),
            (lambda: store.publish(["q"], b"", on_full="no"), ValueError, "on_full must be one"),
            (lambda: store.publish(["q"], b"", priority=256), ValueError, "priority"),
            (lambda: store.publish(["q"], b"", lease=5), qindex.FormatError, "format 2"),
            (lambda: store.publish(["q"], "text"), TypeError, "bytes"),
            (lambda: store.publish(["q"], b"", timeout=-1), ValueError, "timeout"),
            (lambda: store.ack(0), TypeError, "a ReqId alone does not say of which queue"),
        ]
        for call, kind, words in wrong:
            with pytest.raises(kind, match=words):
                await call()
        assert (len(queue), queue.unacked) == (99, 19)
        assert await queue.ack_many([m[0], m[1]], missing_ok=True) == [m[0]]


@on_a_loop
async def test_a_queue_that_was_deleted_and_made_anew_gets_what_is_published(tmp_path):
    async with aio.open(tmp_path) as store:
        await store.publish(["a"], b"0", create=True)
        assert await store.publish(["a"], b"1") == [1]
        await store.delete_queue("a")
        with pytest.raises(qindex.QueueMissing):
            await store.publish(["a"], b"2")
        assert await store.publish(["a"], b"3", create=True) == [0]
        assert await store.publish(["a"], b"4", confirm=True) == [1]


@on_a_loop
async def test_what_a_dead_letter_moves_by_a_nack_waits_in_a_thread(tmp_path):
    async with aio.open(tmp_path, format=2) as store:
        dead = await store.queue("dead")
        queue, m = await filled(store, dead_letters="dead", max_deliveries=1)
        await queue.nack(m[0], requeue=False)
        await queue.nack(m[1])  # its last delivery has ended
        assert await queue.nack_many(m[2:4]) == []
        moved = [(await dead.get()).body for _ in range(4)]
        assert sorted(moved) == [b"0", b"1", b"2", b"3"]


@on_a_loop
async def test_a_loop_of_fan_outs_lets_the_event_loop_breathe(tmp_path):
    async with aio.open(tmp_path) as store:
        await store.create_queues(["a"])
        await store.publish(["a"], b"")
        turns = 0

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        for _ in range(640):
            await store.publish(["a"], b"")
        task.cancel()
        assert turns >= 10


def test_a_plain_store_is_as_before(tmp_path):
    """nack and touch are in C there, too."""
    with qindex.open(tmp_path, format=2) as store:
        queue = store.queue("q", max_deliveries=3, dead_letters=True)
        queue.publish(b"x")
        for how in ({}, {"count": False}, {"requeue": True}):
            message = queue.get()
            queue.touch(message, lease=60)
            queue.touch(message.req_id, 60)
            queue.nack(message, **how)
        assert queue.peek().delivery_count == 2
        queue.nack(queue.get(), False)
        assert queue.dead == 1
        assert queue.get() is None


@on_a_loop
async def test_fan_outs_are_slowed_down_to_what_the_disk_takes(tmp_path):
    opening = aio.open(tmp_path, sync_interval=3600, max_unconfirmed=4000)
    async with opening as store:
        queues = [await store.queue(name) for name in ("a", "b")]
        for _ in range(200):  # of 150 bytes in each queue
            await store.publish(["a", "b"], b"x" * 100)
        for queue in queues:
            assert (await queue.stats()).unsynced_bytes < 8000


@on_a_loop
async def test_a_cancelled_fan_out_has_published_to_all_or_to_none(tmp_path):
    async with aio.open(tmp_path) as store:
        queues = [await store.queue(name, max_messages=1) for name in ("a", "b")]
        await queues[0].publish(b"full")
        for _ in range(20):
            task = asyncio.create_task(store.publish(["a", "b"], b"x", timeout=None))
            await asyncio.sleep(0.002)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert [len(queue) for queue in queues] == [1, 0]
        await queues[0].purge()
        assert await store.publish(["a", "b"], b"y", timeout=5) == [1, 0]


@on_a_loop
async def test_a_batch_of_small_messages_is_taken_without_a_thread():
    async with aio.open("/", disk=without_worker()) as store:
        queue = await store.queue("q")
        await queue.publish_many([b"%d" % n for n in range(300)])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "_submit", None)
            first = await queue.get_many(200, lease=60)
            assert [message.body for message in first] == [b"%d" % n for n in range(200)]
            assert len(await queue.get_many(200)) == 100
        assert queue.unacked == 300
        await queue.ack_many(first)
        assert await queue.get_many(5) == []
        assert await queue.get_many(0) == []
        for wrong, error in ((-1, ValueError), (True, TypeError), ("5", TypeError)):
            with pytest.raises(error, match="count must be a whole number"):
                await queue.get_many(wrong)


async def mixed(store):
    """A queue with three messages that are taken at once, and two that a thread has to read."""
    queue = await store.queue("q")
    await queue.publish_many([b"1", b"2", b"3", b"4", b"5"])
    real, quick = queue._get_now, iter(range(3))
    queue._get_now = lambda **options: BUSY if next(quick, None) is None else real(**options)
    return queue


@on_a_loop
async def test_a_thread_takes_the_rest_of_a_batch():
    async with aio.open("/", disk=without_worker()) as store:
        queue = await mixed(store)
        taken = await queue.get_many(4)
        assert [message.body for message in taken] == [b"1", b"2", b"3", b"4"]
        assert (queue.unacked, queue.ready) == (4, 1)


@on_a_loop
async def test_a_batch_that_is_cancelled_goes_back_whole():
    async with aio.open("/", disk=without_worker(), format=2) as store:
        queue = await mixed(store)
        task = asyncio.ensure_future(queue.get_many(5))
        await asyncio.sleep(0)
        assert queue.unacked >= 3  # the thread may have begun
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while queue.unacked:
            await asyncio.sleep(0.001)
        assert [message.delivery_count for message in await queue.get_many(5)] == [1] * 5


@on_a_loop
async def test_a_batch_ends_in_front_of_an_error_which_the_next_call_raises():
    async with aio.open("/", disk=without_worker()) as store:
        queue = await mixed(store)
        real, count = queue._get_now, iter(range(2))

        def get(**options):
            if next(count, None) is None:
                raise qindex.StoreCorrupt("damaged")
            return real(**options)

        queue._get_now = get
        assert [message.body for message in await queue.get_many(5)] == [b"1", b"2"]
        with pytest.raises(qindex.StoreCorrupt):
            await queue.get_many(5)
        assert (queue.unacked, queue.ready) == (2, 3)
