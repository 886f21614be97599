"""Batches on an event loop: how many bytes they have, and what damage does to them."""

import pytest
from helpers import on_a_loop, without_worker

import qindex
from qindex import aio

KIB = 1024


def size(messages):
    return sum(len(message.body) for message in messages)


@pytest.mark.sample(3)
@pytest.mark.parametrize("each", [250 * KIB, 100 * KIB, 20 * KIB])
@on_a_loop
async def test_a_batch_ends_at_4_mib_and_a_thread_takes_all_but_its_first_256_kib(each):
    async with aio.open("/", disk=without_worker()) as store:
        queue = await store.queue("q")
        for _ in range(2):
            await queue.publish_many([bytes(each)] * 250)
        at_once, real = [], queue._get_now

        def get(**options):
            at_once.append(real(**options))
            return at_once[-1]

        queue._get_now = get
        batch = await queue.get_many(250)
        assert 4096 * KIB - each < size(batch) <= 4096 * KIB
        assert size(at_once) < 256 * KIB + each
        assert [message.req_id for message in batch] == list(range(len(batch)))
        assert len(batch) == len(queue._queue.get_many(250))


@on_a_loop
async def test_the_bytes_of_headers_count():
    async with aio.open("/", disk=without_worker()) as store:
        queue = await store.queue("q")
        await queue.publish_many([b"x" * 30 * KIB] * 250, headers={"h": "h" * 30 * KIB})
        assert 4000 * KIB < 2 * size(await queue.get_many(250)) <= 4096 * KIB


@on_a_loop
async def test_a_batch_of_an_empty_queue_needs_no_thread():
    async with aio.open("/", disk=without_worker()) as store:
        queue = await store.queue("q")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "_submit", None)
            assert await queue.get_many(5) == []
            assert await queue.get_many(5, timeout=0.001) == []


@on_a_loop
async def test_a_damaged_body_ends_the_batch_in_front_of_it(tmp_path):
    async with aio.open(tmp_path / "s") as store:
        queue = await store.queue("q")
        await queue.publish_many([letter * 5000 for letter in (b"A", b"B", b"C", b"D")])
        await store.sync()
        (file,) = (tmp_path / "s" / "messages").glob("*.qms")
        content = file.read_bytes()
        file.write_bytes(content.replace(b"C" * 5000, b"C" * 4999 + b"!"))
        assert [message.body[:1] for message in await queue.get_many(9)] == [b"A", b"B"]
        with pytest.raises(qindex.StoreCorrupt, match="message 2 is damaged"):
            await queue.get_many(9)
        assert [message.body[:1] for message in await queue.get_many(9)] == [b"D"]
