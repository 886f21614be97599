"""ack_many and nack_many with missing_ok: the late ones are returned, all others are settled."""

import pytest
from helpers import on_a_loop

import qindex
from qindex import aio


@pytest.fixture
def store(tmp_path):
    with qindex.open(tmp_path / "data") as store:
        yield store


def late_ones(queue):
    """Ten messages of a consumer, three of which are not its own any more."""
    queue.publish_many([b"%d" % n for n in range(10)])
    messages = queue.get_many(10)
    queue.ack(messages[2])
    queue.nack(messages[5])
    queue.nack(messages[9])
    queue.get()  # somebody else has 5 now
    return messages, [messages[2], messages[5], messages[9]]


@pytest.mark.parametrize("of_the_store", [False, True])
def test_the_late_ones_are_returned_and_the_others_settled(store, of_the_store):
    queue = store.queue("a")
    messages, late = late_ones(queue)
    settle = store.ack_many if of_the_store else queue.ack_many
    with pytest.raises((qindex.AlreadyAcked, qindex.DeliveryEnded, qindex.UnknownMessage)):
        settle(messages)
    assert (len(queue), queue.unacked) == (9, 8)  # nothing was changed
    assert settle(messages, missing_ok=True) == late
    assert (len(queue), queue.unacked, queue.ready) == (2, 1, 1)
    assert settle([], missing_ok=True) == settle([]) == []


@pytest.mark.parametrize("of_the_store", [False, True])
def test_giving_back_says_which_were_late(store, of_the_store):
    queue = store.queue("a", dead_letters=True)
    messages, late = late_ones(queue)
    give_back = store.nack_many if of_the_store else queue.nack_many
    assert give_back(messages[:4], missing_ok=True) == late[:1]
    assert give_back(messages[4:], requeue=False, missing_ok=True) == late[1:]
    assert (queue.ready, queue.unacked, queue.dead) == (4, 1, 4)


def test_other_mistakes_are_errors_all_the_same(store):
    queue = store.queue("a")
    messages, _ = late_ones(queue)
    with pytest.raises(ValueError, match="twice"):
        queue.ack_many([messages[0], messages[0]], missing_ok=True)
    with pytest.raises(TypeError, match="Message"):
        queue.ack_many([messages[0], None], missing_ok=True)
    with pytest.raises(TypeError, match="missing_ok"):
        queue.ack_many(messages, missing_ok="yes")
    assert len(queue) == 9


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("verb", ["ack_many", "nack_many"])
@pytest.mark.parametrize("of_the_store", [False, True])
def test_a_late_delivery_beside_the_current_one_is_returned(store, of_the_store, verb, turned):
    queue = store.queue("a")
    queue.publish_many([b"0", b"1", b"2"])
    messages = queue.get_many(3)
    queue.nack(messages[1])
    again = queue.get()
    batch = [messages[0], messages[1], again, messages[2]]
    settle = getattr(store if of_the_store else queue, verb)
    with pytest.raises(ValueError, match="twice"):
        settle(batch)
    for same in (batch[2], *([] if of_the_store else [again.req_id])):  # or: whichever is current
        with pytest.raises(ValueError, match="twice"):
            settle([*batch, same], missing_ok=True)
    assert queue.unacked == 3  # nothing was changed
    assert settle(batch[::-1] if turned else batch, missing_ok=True) == [messages[1]]
    assert (queue.unacked, queue.ready) == (0, 0 if verb == "ack_many" else 3)


def test_many_late_ones_cost_few_calls(store, monkeypatch):
    from qindex import settling

    queue = store.queue("a")
    queue.publish_many([b"x"] * 4096)
    messages = queue.get_many(4096)
    queue.ack_many(messages[1000:1010])
    calls = []
    monkeypatch.setattr(settling, "raise_error", counted(settling.raise_error, calls))
    assert queue.ack_many(messages, missing_ok=True) == messages[1000:1010]
    assert len(calls) < 10 * 13
    assert len(queue) == 0


def counted(call, calls):
    def counting(*arguments):
        calls.append(arguments)
        return call(*arguments)

    return counting


@on_a_loop
async def test_the_same_on_an_event_loop(tmp_path):
    async with aio.open(tmp_path / "data") as store:
        queue = await store.queue("a")
        await queue.publish_many([b"0", b"1", b"2", b"3"])
        messages = await queue.get_many(4)
        await queue.ack(messages[1])
        assert await queue.ack_many(messages[:2], missing_ok=True) == [messages[1]]
        assert await store.ack_many(messages[:2], missing_ok=True) == messages[:2]
        assert await store.nack_many(messages[1:3], missing_ok=True) == [messages[1]]
        assert await queue.nack_many(messages[2:], missing_ok=True) == [messages[2]]
        assert (queue.ready, queue.unacked) == (2, 0)


@on_a_loop
async def test_a_late_delivery_beside_the_current_one_on_an_event_loop(tmp_path):
    async with aio.open(tmp_path / "data") as store:
        queue = await store.queue("a")
        for settle in (queue.ack_many, store.ack_many, queue.nack_many, store.nack_many):
            await queue.publish(b"twice")
            late = await queue.get()
            await queue.nack(late)
            batch = [late, await queue.get()]
            with pytest.raises(ValueError, match="twice"):
                await settle([*batch, late], missing_ok=True)
            assert await settle(batch, missing_ok=True) == [late]
            assert queue.unacked == 0
