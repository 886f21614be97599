"""Options that mean nothing are refused, on both surfaces; nothing is made or changed by them."""

import asyncio

import pytest
from helpers import on_a_loop

import qindex
from qindex import aio

NO_BOOLEANS = ["no", "False", "", 0, 1, 5, None, b"", [], 1.0]


@pytest.mark.parametrize("value", NO_BOOLEANS, ids=repr)
def test_a_boolean_option_takes_booleans_only(tmp_path, value):
    for name in ("read_only", "create", "upgrade", "expire"):
        with pytest.raises(TypeError, match=f"{name} must be True or False"):
            qindex.open(tmp_path / "none", **{name: value})
    assert not (tmp_path / "none").exists()
    with qindex.open(tmp_path / "data") as store:
        queue = store.queue("a")
        for name in ("confirm", "persistent", "redelivered"):
            with pytest.raises(TypeError, match=f"{name} must be True or False"):
                queue.publish(b"x", **{name: value})
            if value == []:  # of a batch it is a list of none
                continue
            with pytest.raises(TypeError, match=f"{name} must be True or False"):
                queue.publish_many([b"x"], **{name: value})
        for name in ("confirm", "persistent", "create"):
            with pytest.raises(TypeError, match=f"{name} must be True or False"):
                store.publish(["a"], b"x", **{name: value})
        with pytest.raises(TypeError, match="create must be True or False"):
            store.queue("b", create=value)
        if value == "":  # another string is the name of a queue
            with pytest.raises(ValueError, match=r"dead.letters"):
                store.queue("b", dead_letters=value)
        elif value is not None and not isinstance(value, str):
            with pytest.raises(TypeError, match="dead_letters must be a bool, or the name of a"):
                store.queue("b", dead_letters=value)
        assert len(queue) == 0
        queue.publish(b"x")
        message = queue.get()
        for settle in (queue.nack, store.nack, lambda m, requeue: m.nack(requeue)):
            with pytest.raises(TypeError, match="requeue must be True or False"):
                settle(message, value)
        assert queue.unacked == 1


@pytest.mark.parametrize("value", ["no", None, 5])
@on_a_loop
async def test_an_event_loop_refuses_the_same(tmp_path, value):
    async with aio.open(tmp_path) as store:
        queue = await store.queue("a")
        for name in ("confirm", "persistent", "redelivered"):
            with pytest.raises(TypeError, match=f"{name} must be True or False"):
                await queue.publish(b"x", **{name: value})
            with pytest.raises(TypeError, match=f"{name} must be True or False"):
                await queue.publish_many([b"x"], **{name: value})
        assert len(queue) == 0
        with pytest.raises(ValueError, match="at least one queue"):
            await store.publish([], b"x")
        with pytest.raises(ValueError, match="needs a limit"):
            await store.queue("b", overflow="drop-head")
        await asyncio.sleep(0)


def test_one_of_a_list_of_booleans_may_be_wrong(tmp_path):
    with qindex.open(tmp_path) as store:
        queue = store.queue("a")
        with pytest.raises(TypeError, match="each of persistent must be True or False"):
            queue.publish_many([b"0", b"1"], persistent=[True, "no"])
        with pytest.raises(TypeError, match="persistent must be True or False"):
            queue.publish_many([b"0", b"1"], persistent="no")
        queue.publish_many([b"0", b"1"], persistent=[True, False], redelivered=False)
        assert [m.persistent for m in queue.browse()] == [True, False]


@pytest.mark.parametrize("overflow", ["drop-head", "dead-letter"])
def test_overflow_needs_a_limit(tmp_path, overflow):
    with qindex.open(tmp_path) as store:
        with pytest.raises(ValueError, match="max_messages or max_bytes"):
            store.queue("a", overflow=overflow, dead_letters=True)
        store.queue("a", overflow="reject")
        store.queue("a", overflow=overflow, dead_letters=True, max_bytes=100)


def test_a_fan_out_to_nobody_is_a_mistake(tmp_path):
    with qindex.open(tmp_path) as store, pytest.raises(ValueError, match="at least one queue"):
        store.publish([], b"x")
