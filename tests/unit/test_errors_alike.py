"""Errors are typed, one for each meaning, and the same from both surfaces, word for word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import qindex
import qindex.aio
from qindex import errors

BIG = b"x" * 100
# Each call with the error that it ends in. The store has a queue "a" with four messages: 0 is
# acked, 1 is unacked, 2 and 3 are ready; and a queue "full", with a limit of one message.
CALLS: dict[str, tuple[type[Exception], Callable[[Any, Any], Any]]] = {
    "ack of nothing": (TypeError, lambda s, q: q.ack(None)),
    "ack of text": (ValueError, lambda s, q: q.ack("x")),
    "ack of what was acked": (errors.AlreadyAcked, lambda s, q: q.ack(0)),
    "ack of what nobody has": (errors.UnknownMessage, lambda s, q: q.ack(2)),
    "ack of what never was": (errors.UnknownMessage, lambda s, q: q.ack(99)),
    "ack_many of one": (TypeError, lambda s, q: q.ack_many(5)),
    "nack with a wrong delay": (TypeError, lambda s, q: q.nack(1, delay="5")),
    "nack with both times": (ValueError, lambda s, q: q.nack(1, delay=5, due=5)),
    "touch for no time": (ValueError, lambda s, q: q.touch(1, 0)),
    "delete of what somebody has": (errors.MessageDelivered, lambda s, q: q.delete(1)),
    "reschedule of what somebody has": (errors.MessageDelivered, lambda s, q: q.reschedule(1)),
    "a header that cannot be": (TypeError, lambda s, q: q.publish(b"x", headers={"a": (1,)})),
    "a body that is text": (TypeError, lambda s, q: q.publish("text")),
    "a priority too high": (ValueError, lambda s, q: q.publish(b"x", priority=256)),
    "a wrong time": (TypeError, lambda s, q: q.publish(b"x", ttl="5")),
    "two times": (ValueError, lambda s, q: q.publish(b"x", delay=1, due=1)),
    "an unknown option": (TypeError, lambda s, q: q.publish(b"x", prioritty=1)),
    "a flag that is none": (TypeError, lambda s, q: q.publish(b"x", confirm="no")),
    "a lease in format 1": (errors.FormatError, lambda s, q: q.publish(b"x", lease=5)),
    "headers of another number": (
        ValueError,
        lambda s, q: q.publish_many([b"x"], headers=[{}] * 2),
    ),
    "get of a number": (TypeError, lambda s, q: q.get(5)),
    "get for a wrong time": (ValueError, lambda s, q: q.get(timeout=-1)),
    "get with a wrong lease": (ValueError, lambda s, q: q.get(lease=0)),
    "get_many of a wrong count": (ValueError, lambda s, q: q.get_many(-1)),
    "peek at a wrong id": (ValueError, lambda s, q: q.peek(-1)),
    "purge of a wrong state": (ValueError, lambda s, q: q.purge(state="unacked")),
    "configure in format 1": (errors.FormatError, lambda s, q: q.configure(ttl=5)),
    "a queue without a name": (TypeError, lambda s, q: s.queue(5)),
    "a queue that is not there": (errors.QueueMissing, lambda s, q: s.queue("b", create=False)),
    "a rule that cannot be": (ValueError, lambda s, q: s.queue("b", max_messages=0)),
    "a full queue": (errors.QueueFull, lambda s, q: s.publish(["full"], BIG)),
    "deletion of none": (errors.QueueMissing, lambda s, q: s.delete_queue("b")),
    "deletion if empty": (errors.QueueNotEmpty, lambda s, q: s.delete_queue("a", if_empty=True)),
    "deletion if unused": (errors.QueueInUse, lambda s, q: s.delete_queue("a", if_unused=True)),
    "get of no queue": (errors.QueueMissing, lambda s, q: s.get(["b"])),
    "get of a text": (TypeError, lambda s, q: s.get("a")),
    "get of nothing": (ValueError, lambda s, q: s.get([])),
    "publish to no queue": (errors.QueueMissing, lambda s, q: s.publish(["b"], b"x")),
    "publish to nothing": (ValueError, lambda s, q: s.publish([], b"x")),
    "names that are one": (TypeError, lambda s, q: s.create_queues("abc")),
    "a name too long": (ValueError, lambda s, q: s.create_queues(["x" * 65_536])),
    "a move of nothing": (TypeError, lambda s, q: s.move(None, to="a")),
    "a consumer of none": (errors.QueueMissing, lambda s, q: s.consumer(["b"])),
    "events of no kind": (ValueError, lambda s, q: s.events(kinds=["odd"])),
}


def prepare(path: Path, form: int) -> None:
    with qindex.open(path, format=form) as store:
        queue = store.queue("a")
        queue.publish_many([b"0", b"1", b"2", b"3"])
        queue.ack(queue.get())  # type: ignore[arg-type]
        store.queue("full").publish(b"one")


def rules(store: Any) -> Any:
    return store.queue("full", max_messages=1)


def said_by_threads(path: Path, call: Callable[[Any, Any], Any]) -> Exception:
    with qindex.open(path) as store:
        queue = store.queue("a")
        rules(store)
        queue.get()
        with pytest.raises(Exception) as raised:
            call(store, queue)
        return raised.value


def said_by_a_loop(path: Path, call: Callable[[Any, Any], Any]) -> Exception:
    async def play() -> Exception:
        async with qindex.aio.open(path) as store:
            queue = await store.queue("a")
            await rules(store)
            await queue.get()
            with pytest.raises(Exception) as raised:
                await call(store, queue)
            return raised.value

    return asyncio.run(play())


@pytest.mark.parametrize("what", CALLS)
def test_an_error_is_the_same_from_both_surfaces(tmp_path: Path, what: str) -> None:
    kind, call = CALLS[what]
    prepare(tmp_path / "store", 1 if "format 1" in what else 2)
    one = said_by_threads(tmp_path / "store", call)
    other = said_by_a_loop(tmp_path / "store", call)
    assert type(one) is kind
    assert type(other) is kind
    assert str(one) == str(other)
    assert str(one)


def test_each_error_about_messages_and_queues_is_one_that_a_user_can_catch() -> None:
    """One for each meaning: no code of the core is told as the error of another one."""
    by_code = [kind for kind in errors._BY_CODE.values() if issubclass(kind, errors.QindexError)]
    assert len(by_code) == len(set(by_code))
    public = {name for name in qindex.__all__ if isinstance(getattr(qindex, name), type)}
    assert {kind.__name__ for kind in by_code} <= public
