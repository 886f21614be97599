"""Which queues have the setting `expires` is listed in the store: an open looks at no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import qindex
from qindex import Store
from qindex._core import ffi
from qindex.data import change_values, own_entries
from qindex.queue_life import _ENTRY, _EXPIRES
from qindex.testing import SimulatedDisk


def listed(store: Store) -> set[bytes]:
    return set(own_entries(store, _ENTRY).values())


def test_an_open_looks_at_those_with_the_setting_only() -> None:
    disk = SimulatedDisk(seed=1)
    with qindex.open("/", disk=disk, format=2) as store:
        store.create_queues([f"q{number}" for number in range(40)])
        store.queue("q7", expires=60)
        store.queue("\N{SNOWMAN}" * 20000 + "\udcff", expires=60)  # nearly as long as may be
        store.queue("q9", expires=60)
        store.queue("q9").configure(expires=None)
        store.queue("q8", expires=60)
        store.delete_queue("q8")
    with qindex.open("/", disk=disk) as store:
        expected = {"q7", "\N{SNOWMAN}" * 20000 + "\udcff"}
        assert set(store._queues) == set(store._watch._seconds) == expected
        assert list(store.data) == []
        for _ in range(8):
            disk.advance(10)
            store._watch.look()
        assert len(store.queues()) == 39 - 1
        assert listed(store) == set()


CHANGES: dict[str, Callable[[Store], object]] = {
    "given": lambda store: store.queue("a", expires=60),
    "given to a new one": lambda store: store.queue("new", expires=60),
    "changed": lambda store: store.queue("b").configure(expires=50),
    "taken back": lambda store: store.queue("b").configure(expires=None),
    "deleted": lambda store: store.delete_queue("b"),
    "deleted and made again": lambda store: (
        store.delete_queue("b"),
        store.queue("b", expires=30),
    ),
}


@pytest.mark.parametrize("mode", ["nothing", "prefix", "sectors512"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.sample(3)
def test_a_power_cut_at_any_moment_leaves_none_out(
    change: Callable[[Store], object], mode: Any
) -> None:
    cuts = 0
    for cut in range(1, 100):
        for seed in range(10):
            disk = SimulatedDisk(seed=seed)
            store = qindex.open("/", disk=disk, format=2)
            store.queue("a").publish(b"", confirm=True)
            store.queue("b", expires=60)
            disk.power_cut_at(cut, seed=seed, mode=mode)
            change(store)
            store.close()
            if (left := disk.taken()) is None:
                break
            cuts += 1
            check_listed(left)
        else:
            continue
        break
    assert cuts >= 10


def check_listed(disk: SimulatedDisk) -> None:
    with qindex.open("/", disk=disk) as store:
        found = set(store._watch._seconds)
        names = listed(store)
        settings = {name: store.queue(name).settings.expires for name in store.queues()}
        with_setting = {name for name, seconds in settings.items() if seconds is not None}
        assert found == with_setting
        assert names == {name.encode() for name in with_setting}


def test_an_entry_without_its_queue_goes_with_the_next_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk(seed=1)
    with qindex.open("/", disk=disk, format=2) as store:
        store.queue("a", expires=60)
        store.queue("b", expires=60)
        with monkeypatch.context() as patch:  # as if it were killed in between
            patch.setattr(store._watch, "forget", lambda name: None)
            store.delete_queue("a")
            store.queue("b").configure(expires=None)
        assert listed(store) == {b"a", b"b"}
    with qindex.open("/", disk=disk) as store:
        assert listed(store) == set()
        assert store._watch._seconds == {}


def test_a_store_of_an_earlier_version_is_looked_through_once() -> None:
    disk = SimulatedDisk(seed=1)
    with qindex.open("/", disk=disk, format=2) as store:
        store.create_queues([f"q{number}" for number in range(10)])
        store.queue("q5", expires=60)
        old: dict[bytes, bytes | None] = dict.fromkeys(own_entries(store, _ENTRY))
        change_values(store, ffi.NULL, old | {_EXPIRES: b"1"}, confirm=True)
    with qindex.open("/", disk=disk) as store:
        assert set(store._watch._seconds) == {"q5"}
        assert len(store._queues) == 10
        assert listed(store) == {b"q5"}
    with qindex.open("/", disk=disk) as store:
        assert set(store._queues) == {"q5"}
