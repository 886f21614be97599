"""The deliveries that copies had elsewhere: what salvage and a replay note behind their publish."""

from array import array

import pytest

import qindex
from qindex._core import ffi, lib
from qindex.errors import raise_error
from qindex.testing.simulated import SimulatedDisk, abandon

FEW = {"segment_entries": 16, "max_journal_entries": 40}


def had(queue, counts):
    req_ids, times = array("Q", counts), array("H", counts.values())
    code = lib.qi_had(
        queue._handle,
        ffi.from_buffer("uint64_t[]", req_ids),
        ffi.from_buffer("uint16_t[]", times),
        len(counts),
    )
    if code < 0:
        raise_error(code)


def told(queue):
    return [(m.req_id, m.delivery_count, m.redelivered) for m in queue.browse()]


@pytest.mark.parametrize("end", ["none", "close", "flush", "kill", "cut"])
def test_they_are_there_after_every_end(end):
    disk = SimulatedDisk(seed=1)
    store = qindex.open("/", disk=disk, format=2, sync="never", **FEW)
    queue = store.queue("a")
    queue.publish_many([b"x"] * 20)
    had(queue, {0: 3, 2: 0, 17: 1, 19: 70})
    if end in ("flush", "cut"):
        queue.flush() if end == "flush" else store.sync()
    if end in ("close", "flush"):
        store.close()
        store = qindex.open("/", disk=disk)
    elif end != "none":
        abandon(store)
        store = qindex.open(
            "/", disk=disk.kill() if end == "kill" else disk.power_cut(1, "nothing")
        )
    found = {req_id: rest for req_id, *rest in told(store.queue("a"))}
    unclean = end in ("kill", "cut")
    assert found[0] == [3, True]
    assert found[2] == [0, True]
    assert (found[17], found[19], found[5]) == ([1, True], [70, True], [0, unclean])
    assert [m.delivery_count for m in store.queue("a").get_many(3)] == [4, 1, 1]
    assert [each for each in store.check() if each.severity == "damage"] == []
    store.close()


@pytest.mark.parametrize("mode", ["nothing", "all", "mixed"])
def test_a_power_cut_leaves_all_of_them_or_none(mode):
    for seed in range(20):
        disk = SimulatedDisk(seed=seed)
        store = qindex.open("/", disk=disk, format=2, sync="never", **FEW)
        queue = store.queue("a")
        queue.publish_many([b"x"] * 8)
        store.sync()
        had(queue, {n: n for n in range(8)})
        cut = disk.power_cut(seed, mode)
        abandon(store)
        with qindex.open("/", disk=cut) as store:
            counts = [count for _, count, _ in told(store.queue("a"))]
            assert counts in ([0] * 8, list(range(8)))
            assert [each for each in store.findings if each.severity == "damage"] == []


def test_only_copies_that_nobody_had_here(tmp_path):
    with qindex.open(tmp_path / "s", format=2, max_memory=1 << 30) as store:
        queue = store.queue("a")
        queue.publish_many([b"x"] * 3)
        queue.nack(queue.get())
        with pytest.raises(ValueError, match="message 0 was delivered here already"):
            had(queue, {1: 0, 0: 1})
        queue.get_many(2)
        with pytest.raises(qindex.MessageDelivered):
            had(queue, {1: 1})
        assert [count for _, count, _ in told(queue)] == [2, 1, 0]
        had(queue, {2: 0})
        assert told(queue)[2] == (2, 0, True)
    with qindex.open(tmp_path / "old", format=1) as store:
        queue = store.queue("a")
        queue.publish(b"x")
        with pytest.raises(qindex.FormatError, match="format 2"):
            had(queue, {0: 0})
        had(queue, {0: 2})
        assert told(queue) == [(0, 2, True)]
