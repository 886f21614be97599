"""A rename that fails, or that a signal handler stops: the queue has one of its two names, and all
else goes by that, in this session and in the next one."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from helpers import bodies

import qindex
from qindex import renaming
from qindex.data import change_values as change_really
from qindex.data import own_entries
from qindex.handle import directory_of
from qindex.testing.simulated import SimulatedDisk, abandon, tick

SETTINGS: dict[str, Any] = {"format": 2, "sync_interval": 3600}


def scene(seed: int = 1) -> tuple[SimulatedDisk, qindex.Store]:
    """The dead letters of `src` move to `a`, whose own move to `end`."""
    disk = SimulatedDisk(seed=seed, wall=1e9)
    store = qindex.open("/store", disk=disk, **SETTINGS)
    store.queue("end")
    store.queue("a", dead_letters="end", expires=1e6).publish(b"1")
    store.queue("src", dead_letters="a", max_deliveries=1).publish_many([b"2", b"3"])
    store.sync()
    return disk, store


def own_keys(store: qindex.Store) -> set[bytes]:
    return {key for key in own_entries(store, b"\0") if not key.startswith(b"\0counters")}


def keys_of(store: qindex.Store, name: str) -> set[bytes]:
    """What the store's mapping has when `a` has this name, and nothing is under way."""
    mine = {prefix + directory_of(name) for prefix in (b"\0expires:", b"\0next:")}
    return mine | {b"\0expires", b"\0next:" + directory_of("src")}


def check(store: qindex.Store, name: str) -> None:
    """The queue has this name, for everybody."""
    other = "b" if name == "a" else "a"
    assert store.queues() == sorted([name, "end", "src"])
    queue, src = store.queue(name, create=False), store.queue("src")
    assert (queue.name, src.settings.dead_letters) == (name, name)
    with pytest.raises(qindex.QueueMissing):
        store.queue(other, create=False)
    message = src.get()
    assert message is not None
    message.nack()
    tick(store)
    assert bodies(queue.browse())[-1] == message.body
    assert (store.check(), own_keys(store)) == ([], keys_of(store, name))


def check_twice(disk: SimulatedDisk, store: qindex.Store, name: str) -> None:
    check(store, name)
    store.close()
    with qindex.open("/store", disk=disk, **SETTINGS) as again:
        check(again, name)


def stopped_at(line: int) -> Any:
    """Raise at the line-th line of renaming.py that is run: a handler may do so behind each."""
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != renaming.__file__:
            return None
        left -= event == "line"
        if left == 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    return trace


def test_a_signal_handler_leaves_one_of_the_two_names() -> None:
    seen: list[str] = []
    line, is_done = 0, False
    while not is_done:
        line += 1
        disk, store = scene()
        queue, before = store.queue("a"), sys.gettrace()
        sys.settrace(stopped_at(line))
        try:
            store.rename_queue("a", "b")
            is_done = True
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        seen.append(queue.name)
        check_twice(disk, store, seen[-1])
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == ("a", "b")
    assert seen.count("b") > 20


@pytest.mark.parametrize("kind", ["enospc", "eio", "enomem"])
def test_an_error_changes_nothing_or_says_so(kind: Any) -> None:
    said = set()
    disk, store = scene()
    first = disk.calls
    store.rename_queue("a", "b")
    calls = disk.calls - first
    assert calls > 15
    store.close()
    for call in range(1, calls + 1):
        disk, store = scene(call)
        disk.fault(call, kind)
        try:
            store.rename_queue("a", "b")
            error, name = None, "b"
        except Exception as raised:
            error, name = type(raised), "a"
        disk.heal()
        said.add(error)
        if error is not qindex.OutcomeUnknown:
            check_twice(disk, store, name)
            continue
        with pytest.raises(qindex.StoreFailed):
            store.queues()
        abandon(store)
        with qindex.open("/store", disk=disk, **SETTINGS) as again:
            check(again, "b" if "b" in again else "a")
    whole = {"enospc": qindex.DiskFull, "eio": qindex.DiskError, "enomem": MemoryError}[kind]
    assert said == {None, whole} | ({qindex.OutcomeUnknown} if kind != "enospc" else set())


def test_a_rename_that_failed_can_be_tried_again() -> None:
    """Also to another name, and the first one is free."""
    for call in range(1, 20):
        disk, store = scene(call)
        disk.fault(call, "enospc")
        try:
            store.rename_queue("a", "c")
        except qindex.DiskFull:
            store.rename_queue("a", "b")
            check_twice(disk, store, "b")
        else:
            store.close()


def test_who_cannot_follow_now_follows_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(store: Any, queue: Any, changes: Any, *, confirm: bool) -> None:
        if changes.keys() & {renaming.SETTINGS}:
            raise qindex.DiskFull("the disk is full")
        change_really(store, queue, changes, confirm=confirm)

    for ends in ("a renaming", "an open"):
        disk, store = scene()
        with monkeypatch.context() as patch:
            patch.setattr(renaming, "change_values", full)
            with pytest.raises(qindex.OutcomeUnknown, match="queue 'a' is now 'b', but"):
                store.rename_queue("a", "b")
        assert store.queue("src").settings.dead_letters == "a"
        message = store.queue("src").get()
        assert message is not None
        message.nack()
        tick(store)
        assert bodies(store.queue("b").browse()) == [b"1", b"2"]
        store.queue("a")  # the name is free
        if ends == "a renaming":
            store.rename_queue("end", "last")
        else:
            store.close()
            store = qindex.open("/store", disk=disk, **SETTINGS)
        assert store.queue("src").settings.dead_letters == "b"
        assert renaming._RENAMING not in own_keys(store)
        store.close()


def test_an_entry_that_could_not_be_removed_renames_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Although there is a queue of the new name by then, and none of the old one."""

    def full(store: Any, queue: Any, changes: Any, *, confirm: bool) -> None:
        if changes == {renaming._RENAMING: None}:
            raise qindex.DiskFull("the disk is full")
        change_really(store, queue, changes, confirm=confirm)

    monkeypatch.setattr(renaming, "change_values", full)
    for call in range(1, 30):
        disk, store = scene()
        disk.fault(call, "enospc")
        try:
            store.rename_queue("a", "b")
        except qindex.DiskFull:
            break
        except qindex.OutcomeUnknown:
            store.close()
    monkeypatch.undo()
    disk.heal()
    assert renaming._RENAMING in own_keys(store)
    store.delete_queue("a")
    store.queue("b")
    store.close()
    with qindex.open("/store", disk=disk, **SETTINGS) as again:
        assert again.queue("src").settings.dead_letters == "a"
        assert renaming._RENAMING not in own_keys(again)


def test_the_next_open_looks_at_it_whatever_a_power_cut_leaves() -> None:
    """What says so is durable before the new name is, also if nobody's dead letters move to it."""
    seen = set()
    for change in range(1, 40):
        disk = SimulatedDisk(seed=change, wall=1e9)
        store = qindex.open("/store", disk=disk, **SETTINGS)
        store.queue("end")
        store.queue("a", dead_letters="end", expires=1000)
        store.sync()
        disk.power_cut_at(change, seed=change, mode="nothing")
        store.rename_queue("a", "b")
        left = disk.taken()
        abandon(store)
        if left is None:
            break
        with qindex.open("/store", disk=left, **SETTINGS) as again:
            (name,) = {"a", "b"} & set(again.queues())
            assert keys_of(again, name) - {b"\0next:" + directory_of("src")} <= own_keys(again)
            seen.add(name)
    assert seen == {"a", "b"}
