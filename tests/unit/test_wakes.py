"""Queues that nobody has opened do what their settings say, and only those are read."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import pytest

import qindex
from qindex.data import own_entries
from qindex.testing import SimulatedDisk, abandon
from qindex.wakes import _ENTRY, _VALUE

WAIT = 30.0  # longer than any of it takes


def made(path: Any, ttl: float | None, others: int = 20, **options: Any) -> qindex.Store:
    store = qindex.open(path, format=2, **options)
    store.queue("dead")
    for i in range(others):
        store.queue(f"other {i}", dead_letters="dead").publish(b"stays")
    store.queue("wait", dead_letters="dead").publish(b"retry", ttl=ttl)
    return store


def times(store: qindex.Store) -> dict[str, int]:
    entries = own_entries(store, _ENTRY).values()
    return {value[_VALUE.size :].decode(): _VALUE.unpack_from(value)[1] for value in entries}


def opened(store: qindex.Store) -> set[str]:
    return set(store._queues)


def test_what_expires_reaches_the_queue_of_its_dead_letters(tmp_path: Path) -> None:
    made(tmp_path, ttl=0.01).close()
    with qindex.open(tmp_path) as store:
        message = store.queue("dead").get(timeout=WAIT)
        assert message is not None
        assert message.body == b"retry"
        assert message.deaths[0].why == "expired"
        assert opened(store) == {"dead", "wait"}  # and none of the others


def test_a_queue_is_read_when_its_time_comes(tmp_path: Path) -> None:
    made(tmp_path, ttl=1.5).close()
    with qindex.open(tmp_path) as store:
        assert store.queue("dead").get(timeout=WAIT) is not None
    with qindex.open(tmp_path) as store:
        assert times(store)["wait"] == 0
        time.sleep(0.2)
        assert opened(store) == set()


def test_behind_a_kill_all_of_them_are_read(tmp_path: Path) -> None:
    made(tmp_path, ttl=None).close()
    store = qindex.open(tmp_path)
    store.queue("other 3").publish(b"late", ttl=0.01)
    abandon(store)
    with qindex.open(tmp_path) as store:
        message = store.queue("dead").get(timeout=WAIT)
        assert message is not None
        assert message.body == b"late"
    with qindex.open(tmp_path) as store:  # what those that were read have is known now
        assert set(times(store).values()) == {0}


@pytest.mark.parametrize("seed", range(8))
def test_no_power_cut_makes_a_time_count_that_is_too_late(seed: int) -> None:
    disk = SimulatedDisk(seed)
    store = made("/", ttl=3600, others=1, disk=disk)
    store.sync()
    store.close()
    store = qindex.open("/", disk=disk)
    store.queue("wait").publish(b"sooner", ttl=10, confirm=True)
    (store.close if seed % 2 else store.sync)()
    disk = disk.power_cut(seed, "mixed")
    abandon(store)
    with qindex.open("/", disk=disk) as store:
        after = qindex._core.lib.qi_store_kept_after(store._handle)
        session, us = next(
            _VALUE.unpack_from(value)
            for value in own_entries(store, _ENTRY).values()
            if value.endswith(b"wait")
        )
        soon = store._now_us() + 60_000_000
        assert session <= after or us < soon
        assert ("wait" in opened(store)) == (session <= after)


def test_what_a_close_knew_of_messages_that_nobody_has_read_since_stays_known(
    tmp_path: Path,
) -> None:
    with made(tmp_path, ttl=3600, others=2) as store:
        for name in ("wait", "other 0", "other 1"):
            store.queue(name).flush()
    with qindex.open(tmp_path, expire=False) as store:
        known = times(store)
        assert known["wait"] > 1
        assert known["other 0"] == known["other 1"] == 0
        store.stats_all()  # it reads the journals, and no segment
    with qindex.open(tmp_path, expire=False) as store:
        assert times(store) == known
        store.queue("wait").publish(b"sooner", ttl=60)
    with qindex.open(tmp_path, expire=False) as store:
        assert 1 < times(store)["wait"] < known["wait"]
        abandon(store)
    with qindex.open(tmp_path, expire=False) as store:
        store.stats_all()
    with qindex.open(tmp_path, expire=False) as store:  # nothing that a close knew counts
        assert set(times(store).values()) == {1}


@pytest.mark.parametrize("error", [qindex.DiskError, qindex.DiskFull, MemoryError])
def test_a_queue_that_could_not_be_read_is_tried_again(error: Any, monkeypatch: Any) -> None:
    disk = SimulatedDisk(1)
    made("/", ttl=10, others=0, disk=disk).close()
    with qindex.open("/", disk=disk) as store:
        read, calls = store._ruled_queue, []

        def fails_once(*arguments: Any, **options: Any) -> Any:
            calls.append(arguments)
            if len(calls) == 1:
                raise error("for once")
            return read(*arguments, **options)

        monkeypatch.setattr(store, "_ruled_queue", fails_once)
        for _ in range(2):
            disk.advance(61)
            store._wakes.look()
        assert [name for name, *_ in calls] == ["wait", "wait"]


def test_dead_letters_that_could_not_move_are_looked_at_again(tmp_path: Path) -> None:
    with made(tmp_path, ttl=0.01) as store:
        store.queue("dead", max_messages=1).publish(b"in the way")
        while not store.queue("wait").dead:
            time.sleep(0.01)
    with qindex.open(tmp_path) as store:
        dead = store.queue("dead")
        dead.ack(dead.get())  # type: ignore[arg-type]
        message = dead.get(timeout=WAIT)
        assert message is not None
        assert message.body == b"retry"


def test_a_setting_that_goes_and_a_queue_that_goes_take_the_entry_along(tmp_path: Path) -> None:
    with made(tmp_path, ttl=None, others=2) as store:
        assert times(store).keys() == {"other 0", "other 1", "wait"}
        store.queue("other 0").configure(dead_letters=True)
        store.delete_queue("other 1")
        assert times(store).keys() == {"wait"}


@pytest.mark.parametrize("options", [{"read_only": True}, {"expire": False}])
def test_who_only_looks_reads_none(tmp_path: Path, options: Any) -> None:
    made(tmp_path, ttl=1).close()  # so long that a slow machine, too, closes it before
    with qindex.open(tmp_path, **options) as store:
        time.sleep(1.2)
        assert opened(store) == set()
        assert times(store)["wait"] > 0


def test_the_thread_ends_with_a_store_that_nobody_has_any_more(tmp_path: Path) -> None:
    made(tmp_path, ttl=3600).close()
    store = qindex.open(tmp_path)
    wakes = store._wakes
    assert wakes.look() > 0
    del store
    end = time.monotonic() + WAIT
    while wakes.look() > 0:  # the thread has the store while it looks
        assert time.monotonic() < end
        gc.collect()
    assert not wakes._times


def test_a_queue_that_was_only_looked_at_does_what_it_says_once_it_is_asked_for(
    tmp_path: Path,
) -> None:
    """Its settings come when the background thread has nothing else to do, and wake it."""
    with qindex.open(tmp_path, format=2) as store:
        store.queue("q", dead_letters=True).publish(b"x", ttl=0.01)
    with qindex.open(tmp_path) as store:
        assert store.stats_all()[0].dead == 0
        time.sleep(1.5)  # it sleeps
        queue = store.queue("q")
        until = time.monotonic() + WAIT
        while not queue.dead and time.monotonic() < until:
            time.sleep(0.01)
        assert queue.dead == 1
