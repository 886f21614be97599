"""Stores with many queues behind kill -9 or a power cut: one sync is the barrier of all queues.

The first few that are used sync their own files; the others wait for no sync of their own then.
What such a session has given out without a trace is never given out again.
"""

from pathlib import Path

import pytest
from helpers import SMALL, count_syncs, crash

import qindex
from qindex.testing import SimulatedDisk, abandon
from qindex.testing.simulated import Mode

MANY = 100  # more than the 64 from which everything is synced at once
COVERED = 58  # in store.meta: all that sessions wrote to queues is durable


def killed(path: Path, count: int) -> None:
    store = qindex.open(path, idle=3600, format=1)  # no commit log has anything of these queues
    store.create_queues(f"{i}" for i in range(count))
    for i in range(count):
        store.queue(f"{i}").publish_many([b"a", b"b"])
    crash(store)


USE_ALL = """
    import os, sys, qindex
    store = qindex.open(sys.argv[1], sync="never", idle=3600)
    for i in range(100):
        queue = store.queue(f"{i}")
        assert queue.peek().body == b"a"
        queue.ack(queue.get())
        queue.publish(b"c")
    os._exit(0)
    """


def test_the_first_use_behind_a_kill_costs_no_sync_for_each_queue(tmp_path: Path) -> None:
    killed(tmp_path / "store", MANY)
    of_everything, of_files = count_syncs(USE_ALL, tmp_path)
    assert of_everything == 1
    assert of_files < 20
    with qindex.open(tmp_path / "store") as store:  # behind another kill
        for i in range(MANY):
            queue = store.queue(f"{i}")
            assert [queue.get().body for _ in range(2)] == [b"b", b"c"]  # type: ignore[union-attr]
            assert queue.get() is None


def test_an_open_and_the_first_queues_wait_for_no_sync_of_everything(tmp_path: Path) -> None:
    killed(tmp_path / "store", MANY)
    use = USE_ALL.replace("range(100)", "range(4)")
    use = use.replace("os._exit", "store.create_queues(['new'])\n    os._exit")
    of_everything, _ = count_syncs(use, tmp_path)
    assert of_everything == 1  # of the creation


def test_a_store_that_ended_cleanly_remembers_that_its_queues_are_durable(tmp_path: Path) -> None:
    meta = tmp_path / "store" / "store.meta"
    killed(tmp_path / "store", MANY)
    with qindex.open(tmp_path / "store") as store:
        for name in "34567":  # the fifth syncs all
            assert store.queue(name).publish(b"c") > 1
        assert meta.read_bytes()[COVERED] == 0
    assert meta.read_bytes()[COVERED] == 1
    create = "store.create_queues(f'new {i}' for i in range(20))\n    for i"
    of_everything, of_files = count_syncs(USE_ALL.replace("for i", create, 1), tmp_path)
    assert of_everything == 1  # of the creation
    assert of_files < 20


def test_few_queues_are_made_durable_one_by_one(tmp_path: Path) -> None:
    killed(tmp_path / "store", 10)
    with qindex.open(tmp_path / "store") as store:
        assert store.queue("7").get() is not None
    assert (tmp_path / "store" / "store.meta").read_bytes()[COVERED] == 0


@pytest.mark.parametrize("mode", ["nothing", "all", "mixed", "prefix"])
def test_no_req_id_is_given_twice_where_sessions_leave_no_trace(mode: Mode) -> None:
    for seed in range(12):
        disk = SimulatedDisk(seed, crowd=1)
        given: set[int] = set()
        confirmed: list[bytes] = []
        for session in range(6):
            store = qindex.open("/", disk=disk, sync="never", **SMALL)
            queue = store.queue("a")
            for turn in range(seed % 5 * 4 + 1):
                body = b"%d.%d" % (session, turn)
                req_id = queue.publish(body)
                assert req_id not in given
                given.add(req_id)
                if session == 0 or (seed + session) % 3 == 0:
                    store.sync()
                    confirmed.append(body)
            disk = disk.power_cut(seed, mode)
            abandon(store)
        with qindex.open("/", disk=disk, sync="never", **SMALL) as store:
            queue = store.queue("a")
            found = [message.body for message in queue.browse()]
        assert [body for body in found if body in confirmed] == confirmed


def test_an_open_whose_sync_of_everything_fails_loses_nothing() -> None:
    """Each call of the open and of the first use fails in turn, once."""
    for call in range(1, 400):
        first = SimulatedDisk(call, crowd=1)
        store = qindex.open("/", disk=first, **SMALL)
        for name in "abc":
            store.queue(name).publish(name.encode())
        store.sync()
        for name in "abc":
            store.queue(name).publish(b"killed")
        disk = first.kill()
        abandon(store)
        disk.fault(call, "eio")
        before = disk.calls
        try:
            store = qindex.open("/", disk=disk, **SMALL)
            try:
                shown = {name: [m.body for m in store.queue(name).browse()] for name in "abc"}
                cut = disk.power_cut(call, "nothing")  # what was shown is durable
            finally:
                used = disk.calls - before
                abandon(store)
        except qindex.QindexError:
            used, shown, cut = call, {}, disk.power_cut(call, "nothing")
        with qindex.open("/", disk=cut, **SMALL) as store:
            for name in "abc":
                found = [message.body for message in store.queue(name).browse()]
                assert found[:1] == [name.encode()]
                assert found == shown.get(name, found), call
        if used < call:
            assert call > 20
            return
    raise AssertionError("not every call was tried")
