"""New names that cannot be, that are no Unicode, and the queues that have to follow."""

import struct

import pytest
from helpers import bodies

import qindex
from qindex._core import ffi
from qindex._core import lib as core
from qindex.configuring import SETTINGS
from qindex.data import change_values
from qindex.testing import SimulatedDisk, abandon
from qindex.wakes import Wakes

BYTES = "caf\udce9"  # a byte that is not UTF-8


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


def test_dead_letters_follow_to_a_name_that_is_no_unicode(path):
    with qindex.open(path) as store:
        store.queue("dead").publish(b"1")
        store.queue("a", dead_letters="dead")
        store.rename_queue("dead", BYTES)
    with qindex.open(path) as store:
        assert store.queue("a").settings == qindex.Settings(dead_letters=BYTES)
        store.queue("a").publish(b"2")
        store.queue("a").get().nack(requeue=False)
        assert bodies(store.queue(BYTES).browse()) == [b"1", b"2"]
        store.queue("b", dead_letters=BYTES, max_deliveries=3)
        assert store.queue("b").settings == qindex.Settings(dead_letters=BYTES, max_deliveries=3)
        assert store.check() == []


def test_a_renaming_that_cannot_be_ended_keeps_no_store_shut(path, monkeypatch, caplog):
    def fail(store):
        raise ValueError("of this renaming")

    monkeypatch.setattr("qindex.opening.end_renaming", fail)
    with qindex.open(path) as store:
        store.queue("a").publish(b"1", confirm=True)
    assert "of this renaming" in caplog.text


def test_an_open_that_ends_with_an_error_lets_go_of_the_store(path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    qindex.open(path).close()
    with monkeypatch.context() as patched:
        patched.setattr(Wakes, "begin", fail)
        with pytest.raises(KeyboardInterrupt) as caught:
            qindex.open(path)
    qindex.open(path).close()
    assert caught.tb is not None  # which kept the frames of the open, and their store


def test_a_queue_does_not_become_that_of_its_own_dead_letters(path, run):
    with qindex.open(path) as store:
        store.queue("dead")
        queue = store.queue("a", dead_letters="dead")
        store.delete_queue("dead")
        with pytest.raises(ValueError, match=r"'a' move to 'dead'.*Nothing was renamed"):
            store.rename_queue("a", "dead")
        assert (store.queues(), queue.settings.dead_letters) == (["a"], "dead")
    for how in ("--dry-run", "--yes"):
        ran = run("rename", path, "a", "--to", "dead", how)
        assert (ran.code, ran.out) == (2, "")
        assert "cannot move from a queue to itself" in ran.err


def test_salvage_copies_a_queue_that_names_itself(path, run, tmp_path):
    """As a renaming once left it."""
    with qindex.open(path) as store:
        queue = store.queue("a", max_deliveries=3)
        queue.publish(b"1")
        named = {SETTINGS: qindex.Settings(dead_letters="a", max_deliveries=3)._to_stored()}
        change_values(store, queue._handle, named, confirm=True)
    ran = run("salvage", path, "--out", tmp_path / "copy")
    assert ran.code == 1
    assert "a: dead letters stay: dead letters cannot move from 'a' to itself" in ran.out + ran.err
    with qindex.open(tmp_path / "copy") as copy:
        assert bodies(copy.queue("a").browse()) == [b"1"]
        assert copy.queue("a").settings == qindex.Settings(dead_letters=True, max_deliveries=3)


@pytest.mark.parametrize("name", ["", "x" * 65536])
@pytest.mark.parametrize("how", ["--dry-run", "--yes"])
def test_the_command_refuses_a_name_that_cannot_be(path, run, name, how):
    with qindex.open(path) as store:
        store.queue("a")
    ran = run("rename", path, "a", "--to", name, how)
    assert (ran.code, ran.out) == (2, "")
    assert f"1 to 65535 bytes in UTF-8, not {len(name)}" in ran.err


@pytest.mark.parametrize("fault", ["eio", "eintr"])
def test_a_queue_that_the_disk_does_not_read_is_not_left_behind(fault):
    refused = 0
    for number in range(1, 40):
        disk = SimulatedDisk(seed=1)
        with qindex.open("/", disk=disk) as store:
            store.queue("dead")
            store.queue("a", dead_letters="dead")
        store = qindex.open("/", disk=disk)
        disk.fault(number, fault)
        try:
            store.rename_queue("dead", "died")
        except qindex.QindexError:
            refused += 1
        disk.heal()
        abandon(store)
        with qindex.open("/", disk=disk) as store:
            names = [name for name in store.queues() if name != "a"]
            assert [store.queue("a").settings.dead_letters] == names, number
    assert refused


@pytest.mark.parametrize("size", [1, 30])
def test_what_an_earlier_version_left_undone_is_done(path, size):
    old, new = "o" * size, "n" * size
    with qindex.open(path) as store:
        store.create_queues([old, new])
        store.queue("a", dead_letters=old)
        store.delete_queue(old)
        left = {b"\0renaming": struct.pack(">I", size) + old.encode() + new.encode()}
        change_values(store, ffi.NULL, left, confirm=True)
    with qindex.open(path) as store:
        assert store.queue("a").settings.dead_letters == new
        assert core.qi_data_count(store._handle, ffi.NULL) == 0
        store.rename_queue(new, old)
        assert store.queue("a").settings.dead_letters == old
