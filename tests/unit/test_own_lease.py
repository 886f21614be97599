"""A message with a lease of its own: kept through flushes, rewrites, closing and crashes."""

import re
import struct
from pathlib import Path

import pytest
from helpers import FEW, SMALL, on_a_loop, queue_directory

import qindex
from qindex import aio
from qindex.testing import SimulatedDisk, abandon

FORMAT = Path(__file__).parents[2] / "c_ext/FORMAT.rst"


@pytest.fixture
def disk():
    return SimulatedDisk(seed=1)


@pytest.fixture
def store(disk):
    store = qindex.open("/", disk=disk, format=2, **FEW)
    yield store
    abandon(store)


def taken(queue, disk, **get):
    """How long a consumer may keep the next message: in seconds, 0 for ever."""
    message = queue.get(**get)
    assert message is not None
    for seconds in (5, 25, 70):
        disk.advance(seconds)
        if queue.unacked == 0:
            return {5: 5, 25: 30, 70: 100}[seconds]
    queue.nack(message)
    return 0


def test_get_leases_for_as_long_as_the_message_says(disk, store):
    queue = store.queue("a")
    queue.publish(b"own", lease=30)
    assert taken(queue, disk) == 30
    assert taken(queue, disk, lease=100) == 100, "who gets it knows better"
    assert taken(queue, disk) == 30, "and next time it is as it was"


def test_every_way_of_getting_a_message_takes_its_lease(disk, store):
    queue = store.queue("a")
    queue.publish(b"plain")
    queue.publish(b"own", lease=30)
    queue.publish(b"short", lease=5)
    messages = queue.get_many(3)
    assert queue.unacked == 3
    disk.advance(5)
    assert queue.unacked == 2
    disk.advance(25)
    assert queue.unacked == 1
    queue.nack(messages[0])
    newest = queue.get_newest()
    assert newest.body == b"short"
    disk.advance(5)
    assert queue.unacked == 0


def flushed(queue, store, disk):
    queue.flush()
    return store, disk


def killed(queue, store, disk):
    disk = disk.kill()
    abandon(store)
    return qindex.open("/", disk=disk, **FEW), disk


def cut(queue, store, disk):
    store.sync()
    disk = disk.power_cut(seed=7)
    abandon(store)
    return qindex.open("/", disk=disk, **FEW), disk


def closed(queue, store, disk):
    store.close()
    return qindex.open("/", disk=disk, **FEW), disk


def rewritten(queue, store, disk):
    for number in range(40):
        queue.publish(b"%d" % number * 50)
    queue.flush()
    while (message := queue.get_newest()).body != b"own":
        queue.ack(message)
    queue.nack(message)
    queue.flush()
    store.compact()
    return store, disk


WAYS = [
    (flushed,), (killed,), (cut,), (closed,), (rewritten,), (flushed, killed), (flushed, closed),
    (killed, flushed), (rewritten, closed), (flushed, rewritten, cut),
    (closed, flushed, closed, rewritten, killed),
]  # fmt: skip


@pytest.mark.parametrize("ways", WAYS, ids=lambda ways: "-".join(way.__name__ for way in ways))
def test_the_lease_stays_whatever_happens_to_the_files(disk, store, ways):
    queue = store.queue("a")
    queue.publish(b"own", lease=30)
    for way in ways:
        store, disk = way(queue, store, disk)
        queue = store.queue("a")
        assert taken(queue, disk) == 30, way.__name__
    store.check()
    assert [f for f in store.findings if f.severity == "damage"] == []
    abandon(store)


def test_delays_priorities_and_stored_bodies_go_with_it(disk, store):
    queue = store.queue("a")
    queue.publish(b"x" * 9000, lease=30, priority=7, delay=10, headers={"k": 1}, redelivered=True)
    queue.flush()
    assert queue.get() is None
    disk.advance(10)
    message = queue.get()
    assert (message.body, message.headers, message.priority) == (b"x" * 9000, {"k": 1}, 7)
    disk.advance(30)
    assert queue.unacked == 0


def test_a_store_of_format_1_refuses_it_and_publishes_nothing(disk):
    store = qindex.open("/", disk=disk, format=1, **FEW)
    queue = store.queue("a")
    with pytest.raises(qindex.FormatError, match="needs a store of format 2"):
        queue.publish(b"own", lease=30)
    assert len(queue) == 0
    abandon(store)


def test_an_upgraded_store_keeps_it_also_where_its_files_are_older(disk):
    store = qindex.open("/", disk=disk, format=1, **FEW)
    store.queue("a").publish_many([b"%d" % number for number in range(10)])
    store.queue("a").flush()
    store.close()
    store = qindex.open("/", disk=disk, upgrade=True, **FEW)
    queue = store.queue("a")
    queue.publish(b"own", lease=30)
    for message in queue.get_many(10):
        queue.ack(message)
    for _ in range(2):
        assert taken(queue, disk) == 30
        queue.flush()
        store.close()
        store = qindex.open("/", disk=disk, **FEW)
        queue = store.queue("a")
    abandon(store)


@pytest.mark.parametrize("lease", [0, -1, "1", 1e12])
def test_a_lease_that_cannot_be_is_refused(store, lease):
    with pytest.raises((ValueError, TypeError), match="lease"):
        store.queue("a").publish(b"x", lease=lease)
    assert len(store.queue("a")) == 0


@pytest.fixture(params=[False, True])
def path(request, tmp_path):
    """With the lease in the journal, or in a segment."""
    with qindex.open(tmp_path / "data", format=2, **SMALL) as store:
        queue = store.queue("orders")
        queue.publish(b"plain")
        queue.publish(b"own", lease=30)
        if request.param:
            queue.flush()
    return tmp_path / "data"


def test_the_tools_show_it(run, path):
    assert "lease" in run("dump", path).out
    traced = run("trace", path, "orders:1")
    assert traced.code == 0
    assert "30000000 us" in traced.out
    assert run("check", path).code == 0
    assert run("replay", path, "--verify").code == 0


def test_columns_leave_it_out(path):
    columns = pytest.importorskip("qindex.spark.columns")
    for file in path.glob("queues/*/*"):
        if file.suffix in (".idx", ".jif", ".alt"):
            for batch in columns.records(file.read_bytes()):
                assert set(batch["kind"].to_pylist()) <= {0}


@on_a_loop
async def test_the_same_for_an_event_loop(tmp_path):
    async with await aio.open(tmp_path / "data", format=2) as store:
        queue = await store.queue("a")
        await queue.publish(b"own", lease=30)
        assert (await queue.get()).body == b"own"


def test_the_document_shows_the_bytes_that_the_engine_writes(tmp_path):
    """FORMAT.rst, sections 4 and 5: the lease of 30 seconds of the message with ReqId 5."""
    text = FORMAT.read_text("utf-8")
    blocks = re.findall(r"(?:in a journal|in a segment)::\n\n((?:    .+\n)+)", text)
    in_journal, in_segment = (
        bytes.fromhex("".join(line.partition(";")[0] for line in block.splitlines()))
        for block in blocks
    )
    side = struct.pack(">QQQ", 2 << 62 | 1023 << 52 | 1 << 36 | 8, 5, 30_000_000)
    assert in_journal == side
    assert in_segment == struct.pack(">HHHIQ", 5, 1, 1, 8, 30_000_000)
    with qindex.open(tmp_path / "data", format=2, **SMALL) as store:
        queue = store.queue("orders")
        for _ in range(5):
            queue.publish(b"plain")
        queue.publish(b"own", lease=30)
        store.sync()
        folder = queue_directory(tmp_path / "data", "orders")
        assert sum(file.read_bytes().count(side) for file in folder.glob("journal.*")) == 1
        queue.flush()
        assert (folder / "0.idx").read_bytes().count(in_segment) == 1


def test_a_batch_and_a_fan_out_have_leases_of_their_own(disk, store):
    queue = store.queue("a")
    queue.publish_many([b"%d" % number for number in range(300)], lease=30)
    store.queue("b")
    store.publish(["a", "b"], b"both", lease=5)
    store, disk = killed(queue, store, disk)
    queue = store.queue("a")
    assert len(queue.get_many(500)) == 301
    assert store.queue("b").get().body == b"both"
    disk.advance(5)
    assert (queue.unacked, store.queue("b").unacked) == (300, 0)
    disk.advance(25)
    assert queue.unacked == 0
    assert store.check() == store.findings
    assert not [finding for finding in store.findings if finding.severity == "damage"]
    store.close()


def test_format_1_refuses_them_of_each_kind_and_publishes_nothing():
    with qindex.open("/", disk=SimulatedDisk(seed=1), format=1) as store:
        queue = store.queue("a")
        calls = (
            lambda: queue.publish(b"x", lease=5),
            lambda: queue.publish_many([b"x"], lease=5),
            lambda: store.publish(["a"], b"x", lease=5),
        )
        for call in calls:
            with pytest.raises(qindex.FormatError, match="lease needs a store of format 2"):
                call()
        assert len(queue) == 0


@on_a_loop
async def test_an_event_loop_s_batch_and_fan_out_have_them_too(tmp_path):
    async with aio.open(tmp_path, format=2) as store:
        queue = await store.queue("a")
        await queue.publish_many([b"0", b"1"], lease=0.05)
        await store.publish(["a"], b"2", lease=0.05)
        for number in range(3):
            assert (await queue.get()).body == b"%d" % number
        for number in range(3):
            message = await queue.get(timeout=30)
            assert message.redelivered
            assert message.body == b"%d" % number
            await queue.ack(message)
