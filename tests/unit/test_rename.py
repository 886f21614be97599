"""A queue gets another name, and keeps all that it has."""

import shutil
import struct
import threading
from pathlib import Path

import pytest
from helpers import Getter, asleep, bodies, content, on_a_loop, queue_directory, twice

import qindex
from qindex import aio
from qindex._core import lib as core
from qindex.testing.simulated import SimulatedDisk, tick

SETTINGS = {"format": 2, "sync_interval": 3600}


@pytest.fixture
def store(tmp_path):
    with qindex.open(tmp_path / "store", format=2, embed_below=64) as store:
        yield store


def test_all_that_it_has_stays(store, tmp_path):
    queue = store.queue("a", max_deliveries=7, expires=1000, dead_letters=True)
    queue.publish_many([b"one", b"two" * 100, b"three"], headers={"n": 1})
    queue.data[b"key"] = b"value"
    one, two = queue.get(lease=1000), queue.get()
    token = two.token
    queue.publish(b"later", delay=1000)
    before = content(store)["a"], queue.settings, queue.stats().next_req_id
    store.rename_queue("a", "ä/b")
    assert (queue.name, one.queue, repr(queue)) == ("ä/b", "ä/b", "<qindex.Queue 'ä/b'>")
    assert store.queue("ä/b") is queue
    assert (store.queues(), "a" in store) == (["ä/b"], False)
    assert (content(store)["ä/b"], queue.settings, queue.stats().next_req_id) == before
    assert dict(queue.data) == {b"key": b"value"}
    one.touch(2000)
    store.ack([one][0])
    store.ack(token)
    assert queue.get().queue == "ä/b"
    assert store.check() == []
    store.queue("a").publish(b"new")  # the name is free
    store.close()
    with qindex.open(tmp_path / "store") as again:
        assert again.queues() == ["a", "ä/b"]
        assert bodies(again.queue("ä/b").browse()) == [b"three", b"later"]
        assert again.queue("ä/b").settings == before[1]
        assert again.queue("ä/b").data[b"key"] == b"value"
        assert again.check() == []


def test_who_waits_waits_on(store):
    queue = store.queue("a")
    getter = Getter(lambda: queue.get(timeout=60))
    asleep(getter)
    consumer = store.consumer(["a"])
    store.rename_queue("a", "b")
    assert consumer.queues == ["b"]
    store.queue("b").publish(b"one")
    message = getter.result()
    assert (message.queue, message.body) == ("b", b"one")
    message.nack()
    assert consumer.get(timeout=60).queue == "b"
    consumer.close()
    with pytest.raises(qindex.QueueMissing):
        store.get(["a"])


@on_a_loop
async def test_tasks_wait_on(tmp_path):
    async with await aio.open(tmp_path / "store", format=2) as store:
        queue = await store.queue("a")
        async with await store.consumer(["a"]) as consumer:
            waiting = aio.asyncio.ensure_future(queue.get(timeout=60))
            await aio.asyncio.sleep(0.01)
            await store.rename_queue("a", "b")
            assert (queue.name, consumer.queues) == ("b", ["b"])
            assert await store.queue("b") is queue
            await (await store.queue("b")).publish(b"one")
            message = await waiting
            assert message.queue == "b"
            await store.ack(message)
            await store.publish(["b"], b"two", confirm=True)
            assert (await consumer.get(timeout=60)).body == b"two"
        with pytest.raises(qindex.QueueExists):
            await store.rename_queue("b", "b")
        with pytest.raises(qindex.QueueMissing):
            await store.queue("a", create=False)


@on_a_loop
async def test_a_task_has_the_new_name_also_behind_an_error(tmp_path, monkeypatch):
    async with await aio.open(tmp_path / "store", format=2) as store:
        queue, plain = await store.queue("a"), store._store
        renamed = plain.rename_queue

        def rename_and_raise(name, to):
            renamed(name, to)
            raise qindex.OutcomeUnknown("not all is stored")

        monkeypatch.setattr(plain, "rename_queue", rename_and_raise)
        with pytest.raises(qindex.OutcomeUnknown):
            await store.rename_queue("a", "b")
        assert (queue.name, await store.queue("b")) == ("b", queue)


def test_events_that_were_told_before_keep_the_old_name(store):
    queue = store.queue("a", max_deliveries=1)
    queue.publish(b"one")
    with store.events(marks={"a": 1}) as events:
        queue.get().nack()
        for number in range(100):
            store.rename_queue(queue.name, f"b{number}")
        queue.publish(b"two")
        told = [events.get(timeout=60) for _ in range(4)]
    assert [(event.kind, event.queue) for event in told] == [
        ("above", "a"),
        ("dropped", "a"),
        ("below", "a"),
        ("above", "b99"),
    ]


@pytest.mark.parametrize(
    ("name", "to", "error", "text"),
    [
        ("a", "b", qindex.QueueExists, "there is a queue 'b' already"),
        ("a", "a", qindex.QueueExists, "there is a queue 'a' already"),
        ("c", "d", qindex.QueueMissing, "there is no queue 'c'"),
        ("a", "x" * 65536, ValueError, "1 to 65535 bytes"),
        ("a", "", ValueError, "1 to 65535 bytes"),
        ("a", b"b", TypeError, "a queue's name is a str"),
        (1, "b", TypeError, "a queue's name is a str"),
    ],
)
def test_what_cannot_be_changes_nothing(store, name, to, error, text):
    store.queue("a", dead_letters="b") if "b" in store else store.create_queues(["a", "b"])
    with pytest.raises(error, match=text):
        store.rename_queue(name, to)
    assert store.queues() == ["a", "b"]
    assert len(store.data) == 0


def test_who_may_not_change_the_store_renames_nothing(store, tmp_path):
    store.queue("a")
    with qindex.open(tmp_path / "store", read_only=True) as reader, pytest.raises(qindex.ReadOnly):
        reader.rename_queue("a", "b")
    with qindex.open(tmp_path / "old", format=1) as old:
        old.queue("a")
        with pytest.raises(qindex.FormatError, match="format 2"):
            old.rename_queue("a", "b")
        assert old.queues() == ["a"]
    store.close()
    with pytest.raises(qindex.StoreClosed):
        store.rename_queue("a", "b")


def test_a_folder_in_its_place_is_not_replaced(store):
    store.queue("a").publish(b"one")
    place = queue_directory(store.path, "b")
    place.mkdir()
    with pytest.raises(qindex.QueueExists):
        store.rename_queue("a", "b")
    assert (place.is_dir(), bodies(store.queue("a").browse())) == (True, [b"one"])


def test_dead_letters_follow(store):
    store.queue("dead")
    sender, aside = store.queue("a", dead_letters="dead"), store.queue("c", dead_letters=True)
    store.rename_queue("dead", "died")
    assert sender.settings.dead_letters == "died"
    assert aside.settings.dead_letters is True
    sender.publish(b"one")
    sender.get().nack(requeue=False)
    (message,) = store.queue("died").browse()
    assert message.body == b"one"
    assert store.findings == []


def moments(change):
    """What a power cut leaves before each change of the disk that `change` makes."""
    number = 0
    while True:
        number += 1
        for mode in ("nothing", "mixed"):
            disk = SimulatedDisk(seed=number, wall=1e9)
            with qindex.open("/store", disk=disk, **SETTINGS) as store:
                store.queue("dead").publish_many([b"1", b"2"], confirm=True)
                store.queue("a", dead_letters="dead")
                store.sync()
                first = disk.changes
                disk.power_cut_at(number, seed=number, mode=mode)
                change(store)
                last = disk.changes - first
            left = disk.taken()
            if number > last:
                return
            yield number, left


def test_a_power_cut_leaves_one_of_the_two_names():
    seen = set()
    for _, disk in moments(lambda store: store.rename_queue("dead", "died")):
        with qindex.open("/store", disk=disk, read_only=True) as reader:
            name = {"dead", "died"} & set(reader.queues())
            assert len(name) == 1
            assert bodies(reader.queue(*name).browse()) == [b"1", b"2"]
            assert reader.check() == []
            seen |= name
    assert seen == {"dead", "died"}


def test_dead_letters_follow_also_when_a_crash_comes_between():
    seen = set()
    for _, disk in moments(lambda store: store.rename_queue("dead", "died")):
        with qindex.open("/store", disk=disk, **SETTINGS) as store:
            name = store.queue("a").settings.dead_letters
            assert store.queues() == ["a", name]
            seen.add(name)
            store.queue("a").publish(b"3")
            store.queue("a").get().nack(requeue=False)
            tick(store)
            assert bodies(store.queue(name).browse()) == [b"1", b"2", b"3"]
            assert (store.check(), core.qi_data_count(store._handle, qindex.store.ffi.NULL)) == (
                [],
                0,
            )
    assert seen == {"dead", "died"}


def test_a_queue_with_both_names_is_the_one_that_its_folder_says(store, tmp_path, run):
    """As a power cut leaves it, for whoever reads the files: no damage, and one queue."""
    store.queue("a").publish_many([b"1", b"2"])
    store.close()
    path = tmp_path / "store"
    meta = (queue_directory(path, "a") / "queue.meta").read_bytes()[: 32 + 1]
    head = sealed(meta[:8] + struct.pack(">I", 2) + meta[12:])
    folder = queue_directory(path, "b").name.encode()
    both = sealed(head + folder + struct.pack(">I", 1) + b"b")
    (queue_directory(path, "a") / "queue.meta").write_bytes(twice(both))
    for name in ("a", "b"):
        if name == "b":
            queue_directory(path, "a").rename(queue_directory(path, "b"))
        assert [line.split()[0] for line in run("ls", path).out.splitlines()[1:2]] == [name]
        assert run("check", path).code == 0
        assert run("cat", path, name).out == "1\n2\n"
        salvaged = run("salvage", path, "--out", tmp_path / f"salvaged-{name}")
        assert salvaged.code == 0
        with qindex.open(tmp_path / f"salvaged-{name}") as copy:
            assert content(copy) == {name: [(0, b"1"), (1, b"2")]}
        (path / "store.meta").rename(path / "aside")  # without it salvage reads the files itself
        raw = run("salvage", path, "--out", tmp_path / f"raw-{name}")
        assert f"queue {name}" in raw.out or name in raw.out
        with qindex.open(tmp_path / f"raw-{name}") as copy:
            assert content(copy) == {name: [(0, b"1"), (1, b"2")]}
        (path / "aside").rename(path / "store.meta")
        with qindex.open(path, read_only=True) as reader:
            assert content(reader) == {name: [(0, b"1"), (1, b"2")]}
    assert (queue_directory(path, "b") / "queue.meta").read_bytes() == twice(both)
    with qindex.open(path) as again:
        again.queue("b").publish(b"3")
    after = (queue_directory(path, "b") / "queue.meta").read_bytes()
    assert after == twice(sealed(meta[:32] + b"b"))  # its next use has tidied up


def sealed(head):
    return head + struct.pack(">I", core.qi_crc32c(0, head, len(head)))


def test_a_backup_is_one_moment_before_or_behind(store, tmp_path):
    store.queue("a").publish(b"1")
    store.backup(tmp_path / "copy")
    store.rename_queue("a", "b")
    store.backup(tmp_path / "copy")
    with qindex.open(tmp_path / "copy", read_only=True) as copy:
        assert content(copy) == {"b": [(0, b"1")]}
        assert copy.check() == []


def test_threads_publish_and_consume_meanwhile(store):
    queue = store.queue("a")
    over, acked = threading.Event(), []

    def consume():
        while (message := queue.get(timeout=0.01)) is not None or not over.is_set():
            if message is not None:
                acked.append(message.body)
                message.ack()

    def publish(number):
        for each in range(200):
            queue.publish(b"%d.%d" % (number, each), confirm=each % 50 == 0)

    consumers = [threading.Thread(target=consume) for _ in range(2)]
    publishers = [threading.Thread(target=publish, args=(number,)) for number in range(2)]
    for thread in consumers + publishers:
        thread.start()
    for number in range(30):
        store.rename_queue(queue.name, f"b{number}")
    for thread in publishers:
        thread.join()
    over.set()
    for thread in consumers:
        thread.join()
    assert sorted(acked) == sorted(b"%d.%d" % (n, each) for n in range(2) for each in range(200))
    assert (store.queues(), store.check()) == (["b29"], [])


def test_the_command_renames(run, tmp_path):
    with qindex.open(tmp_path / "s", format=2) as store:
        store.queue("a").publish(b"1")
        store.queue("b")
    ran = run("rename", tmp_path / "s", "a", "--to", "c", "--yes")
    assert (ran.code, ran.out) == (
        0,
        "will rename queue a, with 1 message, to c\na is now c\n",
    )
    ran = run("rename", tmp_path / "s", "c", "--to", "b", "--yes")
    assert (ran.code, ran.out) == (2, "")
    assert "there is a queue b already: nothing was changed" in ran.err
    assert run("rename", tmp_path / "s", "x", "--to", "y", "--yes").code == 2
    with qindex.open(tmp_path / "old", format=1) as store:
        store.queue("a")
    ran = run("rename", tmp_path / "old", "a", "--to", "c", "--dry-run")
    assert (ran.code, ran.out) == (2, "")
    assert "format 1" in ran.err
    served = tmp_path / "node" / "vhosts"
    served.mkdir(parents=True)
    shutil.copytree(tmp_path / "s", served / "0")
    shutil.copytree(tmp_path / "s", Path(tmp_path / "node" / "node"))
    ran = run("rename", served / "0", "c", "--to", "d", "--yes")
    assert (ran.code, ran.out) == (2, "")
    assert "qindex serve" in ran.err
