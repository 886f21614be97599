"""What a publish to several queues says when one of them goes while it waits for the syncs."""

import asyncio

import pytest
from helpers import bodies, on_a_loop

import qindex
from qindex import aio


def afterwards(store, then):
    """store.publish() as it is, and `then()` before its caller goes on."""
    real = store.publish

    def publish(*arguments, **options):
        req_ids = real(*arguments, **options)
        then()
        return req_ids

    store.publish = publish


@pytest.mark.parametrize("end", ["deleted", "renamed", "deleted and closed", "renamed and closed"])
@on_a_loop
async def test_a_task_is_told_that_the_others_have_it(tmp_path, end):
    store = await aio.open(tmp_path / "store", format=2)
    plain = store._store
    plain.create_queues(["a", "b"])

    def then():
        if end.startswith("deleted"):
            plain.delete_queue("b")
        else:
            plain.rename_queue("b", "c")
        if end.endswith("closed"):
            store._loop.call_soon_threadsafe(lambda: asyncio.ensure_future(store.close()))

    afterwards(plain, then)
    assert await store.publish(["a", "b"], b"x", confirm=True) == [0, 0]
    await store.close()
    with qindex.open(tmp_path / "store") as again:
        assert again.queues() == (["a"] if end.startswith("deleted") else ["a", "c"])
        assert [bodies(again.queue(name).browse()) for name in again.queues()] == [
            [b"x"] for _ in again.queues()
        ]


@pytest.mark.parametrize("gone", ["a", "b"])
def test_a_thread_is_told_that_the_others_have_it(tmp_path, gone):
    with qindex.open(tmp_path / "store", format=2) as store:
        first, other = store.queue("a"), store.queue("b")
        confirmed = []

        def confirm(queue, real):
            def call():
                if gone in store:
                    store.delete_queue(gone)
                real()
                confirmed.append(queue.name)

            return call

        for queue in (first, other):
            queue._confirm = confirm(queue, queue._confirm)
        assert store.publish(["a", "b"], b"x", confirm=True) == [0, 0]
        assert confirmed == ["b" if gone == "a" else "a"]


def test_a_closed_store_confirms_nothing_to_a_thread(tmp_path):
    store = qindex.open(tmp_path / "store", format=2)
    queue = store.queue("a")
    real = queue._confirm

    def confirm():
        store.close()
        real()

    queue._confirm = confirm
    with pytest.raises(qindex.StoreClosed):
        store.publish(["a"], b"x", confirm=True)
