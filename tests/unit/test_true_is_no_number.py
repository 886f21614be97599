"""True and False are ints to Python: where a number is meant, they are refused by its name."""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import qindex
import qindex.aio
from qindex import Queue, QueueIndex, Store
from qindex.rules import Changes
from qindex.transaction import Transaction

NUMBERS = {"int", "float", "Seconds", "Moment"}


def takes_a_number(annotation: str) -> bool:
    words = set(annotation.replace("|", " ").replace("[", " ").replace("]", " ").split())
    return bool(words & NUMBERS) and "bool" not in words and not annotation.startswith("tuple")


def of(call: Callable[..., Any]) -> list[str]:
    """The parameters that take a number."""
    parameters = inspect.signature(call).parameters.values()
    return [each.name for each in parameters if takes_a_number(str(each.annotation))]


# What else a call needs. Options of calls that are written in C are those of the Python methods.
NEEDED: dict[tuple[type, str], tuple[Any, ...]] = {
    (Queue, "publish"): (b"x",),
    (Queue, "get"): (),
    (Queue, "publish_many"): ([b"x"],),
    (Queue, "get_many"): (1,),
    (Queue, "get_newest"): (),
    (Queue, "peek"): (),
    (Queue, "browse"): (),
    (Queue, "nack"): (0,),
    (Queue, "nack_many"): ([0],),
    (Queue, "touch"): (0, 5),
    (Queue, "reschedule"): (0,),
    (Queue, "redrive"): (),
    (Store, "publish"): (["a"], b"x"),
    (Store, "get"): (["a"],),
    (Store, "consumer"): (["a"],),
    (Store, "nack"): (0,),
    (Store, "nack_many"): ([0],),
    (Store, "touch"): (0, 5),
}
# Their numbers are ReqIds (test_wrong_arguments), or they have a test of their own below.
LEFT_OUT = {
    (Queue, "ack"),
    (Queue, "ack_many"),
    (Queue, "delete"),
    (Store, "move"),
    (Store, "events"),
    (Store, "queue"),
}
REQ_IDS = {"message", "messages"}


def verb_of(public: type, name: str) -> Callable[..., Any]:
    return getattr(public, f"_{name}", None) or getattr(public, name)


def cases() -> list[Any]:
    return [
        pytest.param(public, verb, needed, name, id=f"{public.__name__}.{verb}-{name}")
        for (public, verb), needed in NEEDED.items()
        for name in of(verb_of(public, verb))
        if name not in REQ_IDS
    ]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with qindex.open(tmp_path / "store", format=2) as store:
        queue = store.queue("a")
        queue.publish_many([b"taken", b"ready"])
        queue.get()
        yield store


@pytest.mark.parametrize(("public", "verb", "needed", "name"), cases())
def test_a_verb_refuses_it(store: Store, public: type, verb: str, needed: Any, name: str) -> None:
    queue = store.queue("a")
    parameters = list(inspect.signature(verb_of(public, verb)).parameters)[1:]
    given = dict(zip(parameters, needed, strict=False)) | {name: True}
    positional = [given.pop(each) for each in parameters[: len(needed)]]
    if public is Store and verb in ("nack", "nack_many", "touch"):
        message = queue.get()
        positional[0] = [message] if verb == "nack_many" else message
    counts = len(queue), queue.unacked
    with pytest.raises(TypeError, match=f"{name} must be"):
        getattr(store if public is Store else queue, verb)(*positional, **given)
    assert (len(queue), queue.unacked) == counts


def test_every_verb_with_a_number_is_in_the_table() -> None:
    verbs = {
        (public, name)
        for public in (Queue, Store)
        for name in dir(public)
        if not name.startswith("_")
        and callable(getattr(public, name))
        and inspect.isfunction(verb_of(public, name))
        and of(verb_of(public, name))
    }
    assert verbs - LEFT_OUT <= set(NEEDED)


def test_marks_of_events_refuse_it(store: Store) -> None:
    for wrong in (True, (True, True), (5, True)):
        with pytest.raises(TypeError, match="mark of 'a' must be"):
            store.events(marks={"a": wrong})
    with pytest.raises(TypeError, match="room must be"):
        store.events(room=True)


@pytest.mark.parametrize(
    "name",
    [n for n, kind in typing.get_type_hints(Changes).items() if bool not in typing.get_args(kind)],
)
def test_a_setting_refuses_it(store: Store, name: str) -> None:
    if name == "overflow":
        return
    before = store.queue("a").settings
    with pytest.raises(TypeError, match=f"{name} must be"):
        store.queue("a", **{name: True})
    with pytest.raises(TypeError, match=f"{name} must be"):
        store.queue("a").configure(**{name: True})
    assert store.queue("a").settings == before


@pytest.mark.parametrize("surface", [qindex.open, qindex.aio.open, QueueIndex])
def test_opening_refuses_it_and_makes_nothing(tmp_path: Path, surface: Any) -> None:
    async def opened(path: Path, **options: Any) -> None:
        await qindex.aio.open(path, **options)

    def run(path: Path, **options: Any) -> None:
        asyncio.run(opened(path, **options))

    names = of(surface if inspect.isfunction(surface) else surface.__init__)
    assert {"max_journal_bytes", "sync_interval"} <= set(names)
    call = run if surface is qindex.aio.open else surface
    for name in [*names, *(["format"] if surface is qindex.open else [])]:
        with pytest.raises(TypeError, match=f"{name} must be"):
            call(tmp_path / "store", **{name: True})
    assert not (tmp_path / "store").exists()


def test_a_transaction_refuses_it(store: Store) -> None:
    names = of(Transaction.publish)
    assert {"priority", "delay", "lease"} <= set(names)
    for name in names:
        with store.transaction() as transaction, pytest.raises(TypeError, match=f"{name} must be"):
            transaction.publish("a", b"x", **{name: True})
    assert len(store.queue("a")) == 2


def test_an_index_refuses_it(tmp_path: Path) -> None:
    with QueueIndex(tmp_path / "index") as index:
        index.publish_many(3)
        for wrong in (True, [True], [0, True], (True,)):
            with pytest.raises(TypeError, match="ReqIds must be whole numbers"):
                index.deliver(wrong)
        with pytest.raises(TypeError, match="whole number"):
            index.publish_many(True)
        with pytest.raises(TypeError, match="sizes must be whole numbers"):
            index.publish_many(1, [True])
        assert not any(entry.delivered for entry in index.read(0, 9))
