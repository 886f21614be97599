"""The setting `expires`: a queue that nobody uses is deleted, as RabbitMQ's x-expires does it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import qindex
import qindex.aio
from qindex import Store
from qindex.testing import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(seed=1)


@pytest.fixture
def store(disk: SimulatedDisk) -> Iterator[Store]:
    """On a disk with a clock of its own; the test looks where a thread does otherwise."""
    with qindex.open("/", disk=disk, format=2) as store:
        store.queue("kept").publish(b"kept")
        yield store


def pass_time(disk: SimulatedDisk, store: Store, seconds: float) -> None:
    for _ in range(10):
        disk.advance(seconds / 10)
        store._watch.look()


def test_a_queue_that_nobody_uses_goes_with_its_messages(disk: SimulatedDisk, store: Store) -> None:
    queue = store.queue("reply", expires=60)
    queue.publish(b"answer")
    assert queue.settings.expires == 60
    pass_time(disk, store, 59)
    assert "reply" in store
    pass_time(disk, store, 16)  # up to a quarter later
    assert store.queues() == ["kept"]
    with pytest.raises(qindex.StoreClosed):
        queue.publish(b"late")
    assert len(store.queue("reply")) == 0  # a new one, without the setting
    assert store.queue("reply").settings.expires is None
    assert not store.check()


USES: dict[str, Callable[[Store], object]] = {
    "get": lambda store: store.queue("q", create=False).get(),
    "get of nothing": lambda store: store._queues["q"].get(),
    "get_many": lambda store: store._queues["q"].get_many(5),
    "get_newest": lambda store: store._queues["q"].get_newest(),
    "get of several": lambda store: store.get(["kept", "q"]),
    "declared": lambda store: store.queue("q"),
    "a wait": lambda store: store._queues["q"].get(timeout=0.001),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_each_use_begins_the_time_anew(
    disk: SimulatedDisk, store: Store, use: Callable[[Store], object]
) -> None:
    store.queue("q", expires=60)
    for _ in range(3):
        pass_time(disk, store, 50)
        use(store)
    assert "q" in store
    pass_time(disk, store, 80)  # the mark of a use is seen up to a quarter of the span later
    assert "q" not in store


@pytest.mark.parametrize("held", [41, 43, 46, 50])
def test_it_never_goes_early(disk: SimulatedDisk, store: Store, held: int) -> None:
    queue = store.queue("q", expires=40)
    queue.publish(b"")
    message = queue.get()
    for second in range(held):
        disk.advance(1)
        if second % 5 == 0:  # an eighth of the span
            store._watch.look()
    queue.ack(message)
    for _ in range(39):
        disk.advance(1)
        store._watch.look()
    assert "q" in store
    for _ in range(11):
        disk.advance(1)
        store._watch.look()
    assert "q" not in store


def test_publishes_of_any_kind_are_no_uses(disk: SimulatedDisk, store: Store) -> None:
    store.queue("q", expires=40)
    for _ in range(60):
        if "q" in store:
            store.publish(["q"], b"")
            store.move(store.publish(["kept"], b""), to="q", queue="kept")
            with store.transaction() as t:
                t.publish("q", b"")
                t.change({b"k": b"v"}, queue="q")
        disk.advance(1)
        store._watch.look()
    assert "q" not in store


def test_stored_limits_hold_for_the_first_publish_of_any_kind(disk: SimulatedDisk) -> None:
    with qindex.open("/", disk=disk, format=2) as store:
        store.queue("q", max_messages=1).publish(b"")
        store.queue("kept").publish(b"")
    with qindex.open("/", disk=disk) as store, pytest.raises(qindex.QueueFull):
        store.publish(["q"], b"")
    with qindex.open("/", disk=disk) as store, pytest.raises(qindex.QueueFull):
        store.move([0], to="q", queue="kept")


def test_a_setting_that_is_taken_back_is_not_found_again(store: Store, monkeypatch: Any) -> None:
    """The look behind an open reads the setting; meanwhile somebody takes it back."""
    queue = store.queue("q", expires=40)
    know, late = store._watch.know, []

    def slow(name: str, seconds: float | None) -> None:
        if not late and threading.current_thread() is not threading.main_thread():
            late.append(name)
            taker.start()
            time.sleep(0.2)
        know(name, seconds)

    monkeypatch.setattr(store._watch, "know", slow)
    taker = threading.Thread(target=queue.configure, kwargs={"expires": None})
    finder = threading.Thread(target=store._watch._find_all, args=(store,))
    finder.start()
    finder.join()
    taker.join()
    assert late
    assert "q" not in store._watch


def test_the_thread_lives_on_when_settings_change_meanwhile(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "s", format=2) as store:
        for number in range(100):
            store.queue(f"q{number}", expires=3000)
        end = time.monotonic() + 1
        store.queue("often", expires=0.1)
        while time.monotonic() < end:
            for number in range(20):
                store.queue(f"q{number}").configure(expires=None)
                store.queue(f"q{number}").configure(expires=3000)
        store.queue("last", expires=0.1)
        end = time.monotonic() + 30
        while "last" in store:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_publish_and_a_look_are_no_uses(disk: SimulatedDisk, store: Store) -> None:
    queue = store.queue("q", expires=60)
    for _ in range(3):
        pass_time(disk, store, 15)
        queue.publish(b"x")
        queue.peek()
        queue.stats()
    pass_time(disk, store, 30)
    assert "q" not in store


def test_a_message_that_a_consumer_has_keeps_its_queue(disk: SimulatedDisk, store: Store) -> None:
    queue = store.queue("q", expires=60)
    queue.publish(b"x")
    message = queue.get()
    assert message is not None
    pass_time(disk, store, 600)
    queue.ack(message)
    pass_time(disk, store, 50)
    assert "q" in store
    pass_time(disk, store, 20)
    assert "q" not in store


def test_the_setting_is_stored_and_the_time_begins_anew_with_an_open(disk: SimulatedDisk) -> None:
    with qindex.open("/", disk=disk, format=2) as store:
        store.queue("q", expires=60)
        store.queue("other")
        pass_time(disk, store, 50)
    with qindex.open("/", disk=disk) as store:
        pass_time(disk, store, 50)
        assert store.queues() == ["other", "q"]
        pass_time(disk, store, 20)
        assert store.queues() == ["other"]
    with qindex.open("/", disk=disk) as store:
        assert store.queues() == ["other"]


def test_a_setting_that_is_taken_back_ends_it(disk: SimulatedDisk, store: Store) -> None:
    store.queue("q", expires=60)
    store.queue("q").configure(expires=None)
    pass_time(disk, store, 600)
    assert "q" in store
    store.queue("q").configure(expires=1000)
    store.delete_queue("q")
    store.queue("q").publish(b"another of that name")
    pass_time(disk, store, 5000)
    assert "q" in store


@pytest.mark.parametrize("options", [{"read_only": True}, {"expire": False}])
def test_who_only_looks_deletes_nothing(disk: SimulatedDisk, options: dict[str, Any]) -> None:
    with qindex.open("/", disk=disk, format=2) as store:
        store.queue("q", expires=60)
    with qindex.open("/", disk=disk, **options) as store:
        assert store.queue("q", create=False).settings.expires == 60
        pass_time(disk, store, 600)
        assert "q" in store


@pytest.mark.parametrize("mode", ["nothing", "mixed"])
def test_a_power_cut_leaves_the_queue_or_its_deletion(disk: SimulatedDisk, mode: Any) -> None:
    store = qindex.open("/", disk=disk, format=2)
    store.queue("q", expires=60).publish(b"x", confirm=True)
    for change in range(1, 30):
        with qindex.open("/", disk=disk.power_cut(change, mode)) as after:
            assert [m.body for m in after.queue("q", create=False).browse()] == [b"x"]
            assert after.queue("q").settings.expires == 60
    pass_time(disk, store, 70)
    with qindex.open("/", disk=disk.power_cut(1, mode)) as after:
        assert after.queues() == []
        assert not after.findings
    store.close()


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-1, ValueError), ("5", TypeError)])
def test_what_is_no_span_is_refused(store: Store, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="expires must be"):
        store.queue("q", expires=value)
    assert "q" not in store


def test_a_get_between_the_look_and_the_deletion_keeps_it(
    disk: SimulatedDisk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = store.queue("q", expires=60)
    delete = store._watch._delete

    def late(*arguments: Any) -> None:
        queue.get()
        delete(*arguments)

    monkeypatch.setattr(store._watch, "_delete", late)
    pass_time(disk, store, 61)
    assert "q" in store
    monkeypatch.undo()
    pass_time(disk, store, 90)
    assert "q" not in store


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("form", [1, 2])
def test_a_thread_looks_and_a_log_line_says_what_it_did(
    tmp_path: Path, form: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "qindex")
    with qindex.open(tmp_path / "store", format=form) as store:
        store.queue("short", expires=0.05).publish(b"x")
        store.queue("long", expires=3600)
        wait_for(lambda: store.queues() == ["long"])
        wait_for(lambda: "queue 'short' was deleted" in caplog.text)


def test_a_queue_that_only_an_earlier_session_knew_expires_too(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "store", format=2) as store:
        store.queue("q", expires=0.3)
        store.queue("stays")
    with qindex.open(tmp_path / "store") as store:
        wait_for(lambda: store.queues() == ["stays"])


def test_a_task_that_waits_uses_the_queue(tmp_path: Path) -> None:
    async def play() -> None:
        async with qindex.aio.open(tmp_path / "store", format=2) as store:
            queue = await store.queue("q", expires=0.1)
            waiting = asyncio.create_task(queue.get(timeout=None))
            await asyncio.sleep(0.5)
            await queue.publish(b"there")
            message = await waiting
            assert message is not None
            assert message.body == b"there"
            await queue.ack(message)
            for _ in range(3000):
                if "q" not in store:
                    break
                await asyncio.sleep(0.01)
            assert await store.queues() == []
            again = await store.queue("q")
            assert await again.publish(b"another queue") == 0

    asyncio.run(play())
