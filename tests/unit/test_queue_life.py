"""Deleting a queue under conditions, which are looked at in the same step."""

import threading

import pytest
from helpers import Getter, asleep, on_a_loop

import qindex
from qindex import aio


@pytest.fixture
def store(tmp_path):
    with qindex.open(tmp_path / "store") as store:
        yield store


def test_a_queue_with_messages_stays(store):
    queue = store.queue("q", dead_letters=True)
    queue.publish(b"one")
    with pytest.raises(qindex.QueueNotEmpty, match="queue q has 1 message: it was not deleted"):
        store.delete_queue("q", if_empty=True)
    queue.nack(queue.get(), requeue=False)
    with pytest.raises(qindex.QueueNotEmpty):  # a dead letter is a message
        store.delete_queue("q", if_empty=True)
    queue.purge(state="dead")
    queue.publish(b"later", delay=100)
    with pytest.raises(qindex.QueueNotEmpty):
        store.delete_queue("q", if_empty=True)
    assert (queue.delayed, len(queue)) == (1, 1)
    queue.purge(state="delayed")
    store.delete_queue("q", if_empty=True)
    assert "q" not in store
    with pytest.raises(qindex.StoreClosed):
        queue.publish(b"too late")


def test_a_queue_that_a_consumer_uses_stays(store):
    queue = store.queue("q")
    queue.publish(b"one")
    message = queue.get()
    with pytest.raises(qindex.QueueInUse, match="consumers have 1 message of queue q"):
        store.delete_queue("q", if_unused=True)
    queue.nack(message)
    store.delete_queue("q", if_unused=True)  # it has a message: nobody asked about that
    assert "q" not in store


def test_a_queue_that_somebody_waits_for_stays(store):
    queue = store.queue("q")
    getter = Getter(lambda: queue.get(timeout=60))
    asleep(getter)
    with pytest.raises(qindex.QueueInUse, match="consumers wait for messages of queue q"):
        store.delete_queue("q", if_unused=True, if_empty=True)
    queue.publish(b"one")
    assert getter.result().body == b"one"


def test_no_message_goes_with_a_queue_that_was_empty(store):
    """Who publishes at the same time either keeps the queue, or is told that it is gone."""
    for number in range(30):
        name = f"q{number}"
        queue = store.queue(name)
        said = []

        def publish(queue=queue, said=said):
            try:
                said.append(queue.publish(b"one"))
            except qindex.StoreClosed:
                said.append("gone")

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            store.delete_queue(name, if_empty=True)
            gone = True
        except qindex.QueueNotEmpty:
            gone = False
        thread.join()
        assert said == ["gone" if gone else 0]
        assert (name in store) is not gone


@pytest.mark.parametrize("option", ["if_empty", "if_unused"])
def test_a_condition_is_true_or_false(store, option):
    store.queue("q")
    with pytest.raises(TypeError, match=option):
        store.delete_queue("q", **{option: 1})
    with pytest.raises(qindex.QueueMissing):
        store.delete_queue("other", **{option: True})
    assert "q" in store


@on_a_loop
async def test_an_event_loop_asks_the_same(tmp_path):
    async with await aio.open(tmp_path / "store") as store:
        queue = await store.queue("q")
        await queue.publish(b"one")
        with pytest.raises(qindex.QueueNotEmpty):
            await store.delete_queue("q", if_empty=True)
        message = await queue.get()
        with pytest.raises(qindex.QueueInUse):
            await store.delete_queue("q", if_unused=True)
        await queue.ack(message)  # the queue is as it was
        await store.delete_queue("q", if_empty=True, if_unused=True)
        assert "q" not in store
