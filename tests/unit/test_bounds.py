"""Bounds of a queue and of a store; what becomes of a publish, or of the oldest, at one."""

import asyncio

import pytest

import qindex
import qindex.aio
from qindex.testing import SimulatedDisk, abandon

SMALL = {"segment_entries": 16, "max_journal_entries": 24}


@pytest.fixture
def disk():
    return SimulatedDisk(seed=1)


@pytest.fixture
def simulated(disk):
    store = qindex.open("/", disk=disk, **SMALL)
    yield store
    abandon(store)


def bodies(messages):
    return [message.body for message in messages]


def dead(queue):
    return [(message.body, message.dead) for message in queue.browse(state="dead")]


# ---- messages of a queue ----


def test_a_full_queue_refuses_and_nothing_is_changed(simulated):
    queue, other = simulated.queue("a", max_messages=3), simulated.queue("b")
    queue.publish_many([b"1", b"2"])
    for publish in (
        lambda: queue.publish_many([b"3", b"4"]),
        lambda: simulated.publish(["b", "a", "a"], b"x"),
    ):
        with pytest.raises(qindex.QueueFull, match="max_messages"):
            publish()
    assert (len(queue), len(other)) == (2, 0)
    queue.publish(b"3")
    message = queue.get()
    with pytest.raises(qindex.QueueFull):
        queue.publish(b"4")
    queue.ack(message)
    queue.publish(b"4")


def test_or_its_head_goes(disk, simulated):
    queue = simulated.queue("a", max_messages=3, overflow="drop-head")
    for n in range(10):
        queue.publish(b"%d" % n, priority=5 if n == 1 else 0)
    queue.publish_many([b"x", b"y"])
    assert bodies(queue.get_many(9)) == [b"1", b"x", b"y"]
    with pytest.raises(qindex.QueueFull):
        queue.publish(b"all are with consumers")
    with pytest.raises(qindex.QueueFull):
        queue.publish_many([b"too many at once"] * 4)


def test_dead_letters_take_no_place(simulated):
    queue = simulated.queue("a", max_messages=1, dead_letters=True)
    for n in range(5):
        queue.publish(b"%d" % n)
        queue.nack(queue.get(), requeue=False)
    assert queue.dead == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttl": 0},
        {"ttl": -1},
        {"max_messages": 0},
        {"max_deliveries": 0},
        {"max_deliveries": 65536},
        {"overflow": "drop-tail"},
        {"overflow": "dead-letter"},
    ],
)
def test_a_rule_that_cannot_be_is_refused(simulated, wrong):
    simulated.queue("a", max_messages=1)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        simulated.queue("a", **wrong)
    simulated.queue("a").publish(b"x")
    with pytest.raises(qindex.QueueFull):
        simulated.queue("a").publish(b"x")


# ---- the oldest becomes a dead letter ----


def test_or_it_becomes_a_dead_letter(disk, simulated):
    queue = simulated.queue("a", max_messages=3, overflow="dead-letter", dead_letters=True)
    queue.publish(b"due", delay=1)
    disk.advance(2)
    for n in range(4):
        queue.publish(b"%d" % n, priority=5 if n == 3 else 0)
    queue.publish_many([b"4", b"5"])
    assert dead(queue) == [(b"0", "full"), (b"1", "full"), (b"2", "full"), (b"3", "full")]
    assert (len(queue), queue.dead) == (7, 4)
    assert queue.peek().body == b"due"
    queue.publish_many([b"6", b"7", b"8"])
    assert dead(queue)[3:] == [(b, "full") for b in (b"4", b"5", b"3", b"due")]
    assert bodies(queue.get_many(9)) == [b"6", b"7", b"8"]
    with pytest.raises(qindex.QueueFull):
        queue.publish(b"all are with consumers")
    assert queue.redrive() == 7
    assert queue.ready == 7, "what is taken back may pass the bound"


def test_what_a_full_queue_put_aside_is_there_after_a_crash(disk, simulated):
    rules = {"max_messages": 2, "overflow": "dead-letter", "dead_letters": True}
    queue = simulated.queue("a", **rules)
    for n in range(40):
        queue.publish(b"%d" % n)
    queue.sync()
    abandon(simulated)
    disk.power_cut(seed=3, mode="nothing")
    with qindex.open("/", disk=disk, **SMALL) as store:
        queue = store.queue("a", **rules)
        assert bodies(queue.get_many(9)) == [b"38", b"39"]
        assert dead(queue) == [(b"%d" % n, "full") for n in range(38)]


# ---- messages of a store ----


def test_a_full_store_refuses_whatever_queue_it_is_for(disk, simulated):
    simulated.queue("a").publish_many([b"x"] * 30)
    simulated.queue("b", dead_letters=True).publish_many([b"y"] * 3)
    simulated.queue("b").nack(simulated.queue("b").get(), requeue=False)
    simulated.close()
    with qindex.open("/", disk=disk, max_messages=34, **SMALL) as store:
        assert store.stats().messages == 32, "also of queues that nobody has asked for"
        b = store.queue("b")
        for publish in (
            lambda: b.publish_many([b"z"] * 3),
            lambda: store.publish(["a", "b", "c"], b"z"),
        ):
            with pytest.raises(qindex.StoreFull, match="max_messages"):
                publish()
        assert len(b) == 3, "two that wait and a dead letter"
        store.publish(["b", "c"], b"z")
        with pytest.raises(qindex.StoreFull):
            store.queue("new").publish(b"one more")
        message = store.queue("a").get()
        with pytest.raises(qindex.StoreFull):
            b.publish(b"what is delivered counts")
        store.queue("a").ack(message)
        b.publish(b"in its place")
        assert store.stats().messages == 34
        store.queue("a").purge()
        assert store.stats().messages == 5
        store.delete_queue("b")
        assert store.stats().messages == 1


def test_a_queue_that_drops_its_head_needs_no_place_in_a_full_store(simulated, disk):
    abandon(simulated)
    with qindex.open("/", disk=disk, max_messages=4, **SMALL) as store:
        queue = store.queue("a", max_messages=2, overflow="drop-head")
        store.queue("b").publish_many([b"x"] * 2)
        for n in range(5):
            queue.publish(b"%d" % n)
            store.publish(["a", "a"], b"%d, twice" % n)
        with pytest.raises(qindex.StoreFull):
            store.publish(["a", "b"], b"of which b is one more")
        assert bodies(queue.browse()) == [b"4, twice", b"4, twice"]


@pytest.mark.parametrize("damage", [True, False])
def test_a_queue_beyond_reading_keeps_no_store_with_a_bound_from_opening(tmp_path, damage):
    with qindex.open(tmp_path / "s", **SMALL) as store:
        for name in ("a", "b"):
            store.queue(name).publish_many([b"x"] * 10)
        folder = tmp_path / "s" / store.queue_directory("a")
    if damage:
        for journal in folder.glob("journal.*"):
            journal.write_bytes(b"?" * 8192)
    with qindex.open(tmp_path / "s", max_messages=21, **SMALL) as store:
        assert store.stats().messages == (10 if damage else 20)
        store.queue("b").publish(b"y")
        if not damage:
            with pytest.raises(qindex.StoreFull):
                store.queue("b").publish(b"z")


def test_bounds_of_a_store_and_a_queue_for_an_event_loop(tmp_path):
    async def main():
        async with qindex.aio.open(tmp_path / "s", max_messages=2) as store:
            queue = await store.queue(
                "a", max_messages=1, overflow="dead-letter", dead_letters=True
            )
            await queue.publish(b"1")
            await queue.publish(b"2")
            assert [m.dead async for m in queue.browse()] == ["full", None]
            other = await store.queue("b")
            await other.publish(b"3")
            with pytest.raises(qindex.StoreFull):
                await other.publish(b"4")

    asyncio.run(main())


def test_a_bound_of_a_store_that_cannot_be_is_refused(tmp_path):
    with pytest.raises(ValueError, match="max_messages"):
        qindex.open(tmp_path / "s", max_messages=0)
