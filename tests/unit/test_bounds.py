"""Bounds of a queue and of a store; what becomes of a publish, or of the oldest, at one."""

import asyncio

import pytest
from helpers import FEW, bodies

import qindex
import qindex.aio
from qindex.testing import abandon


def dead(queue):
    return [(message.body, message.dead) for message in queue.browse(state="dead")]


# ---- messages of a queue ----


def test_a_full_queue_refuses_and_nothing_is_changed(simulated):
    queue, other = simulated.queue("a", max_messages=3), simulated.queue("b")
    queue.publish_many([b"1", b"2"])
    for publish in (
        lambda: queue.publish_many([b"3", b"4"]),
        lambda: simulated.publish(["b", "a", "a"], b"x", create=True),
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
        {"max_bytes": 0},
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
    assert dead(queue) == [(b, "full") for b in (b"0", b"1", b"2", b"due")]
    assert (len(queue), queue.dead) == (7, 4)
    assert queue.peek().body == b"3"
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
    with qindex.open("/", disk=disk, **FEW) as store:
        queue = store.queue("a", **rules)
        assert bodies(queue.get_many(9)) == [b"38", b"39"]
        assert dead(queue) == [(b"%d" % n, "full") for n in range(38)]


# ---- messages of a store ----


def test_a_full_store_refuses_whatever_queue_it_is_for(disk, simulated):
    simulated.queue("a").publish_many([b"x"] * 30)
    simulated.queue("b", dead_letters=True).publish_many([b"y"] * 3)
    simulated.queue("b").nack(simulated.queue("b").get(), requeue=False)
    simulated.close()
    with qindex.open("/", disk=disk, max_messages=34, **FEW) as store:
        assert store.stats().messages == 32, "also of queues that nobody has asked for"
        b = store.queue("b")
        for publish in (
            lambda: b.publish_many([b"z"] * 3),
            lambda: store.publish(["a", "b", "c"], b"z", create=True),
        ):
            with pytest.raises(qindex.StoreFull, match="max_messages"):
                publish()
        assert len(b) == 3, "two that wait and a dead letter"
        store.publish(["b", "c"], b"z", create=True)
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
    with qindex.open("/", disk=disk, max_messages=4, **FEW) as store:
        queue = store.queue("a", max_messages=2, overflow="drop-head")
        store.queue("b").publish_many([b"x"] * 2)
        for n in range(5):
            queue.publish(b"%d" % n)
            store.publish(["a", "a"], b"%d, twice" % n, create=True)
        with pytest.raises(qindex.StoreFull):
            store.publish(["a", "b"], b"of which b is one more", create=True)
        assert bodies(queue.browse()) == [b"4, twice", b"4, twice"]


@pytest.mark.parametrize("damage", [True, False])
def test_a_queue_beyond_reading_keeps_no_store_with_a_bound_from_opening(tmp_path, damage):
    with qindex.open(tmp_path / "s", **FEW) as store:
        for name in ("a", "b"):
            store.queue(name).publish_many([b"x"] * 10)
        folder = tmp_path / "s" / store.queue_directory("a")
    if damage:
        for journal in folder.glob("journal.*"):
            journal.write_bytes(b"?" * 8192)
    with qindex.open(tmp_path / "s", max_messages=21, **FEW) as store:
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
    for wrong in ({"max_messages": 0}, {"max_bytes": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            qindex.open(tmp_path / "s", **wrong)


# ---- bytes ----


def counted(store, *queues):
    """Their bytes, which a recount confirms."""
    assert store.check() == []
    return tuple(queue.stats().bytes for queue in queues)


def test_a_queue_may_have_so_many_bytes(simulated):
    queue = simulated.queue("a", max_bytes=10_000)
    assert queue.stats().bytes == 0
    queue.publish(b"x" * 4_000)
    queue.publish(b"y" * 6_000)  # in the message store, which counts as well
    for publish in (
        lambda: queue.publish(b"z"),
        lambda: queue.publish_many([b"", b"z"]),
        lambda: queue.publish(b"", headers={"k": 1}),
        lambda: simulated.publish(["b", "a"], b"z", create=True),
    ):
        with pytest.raises(qindex.QueueFull, match="max_bytes"):
            publish()
    queue.publish(b"")
    assert (len(queue), len(simulated.queue("b"))) == (3, 0)
    message = queue.get()
    with pytest.raises(qindex.QueueFull):
        queue.publish(b"what is delivered counts")
    queue.ack(message)
    assert counted(simulated, queue) == (6_000,)
    queue.publish(b"z" * 4_000)
    with pytest.raises(qindex.QueueFull, match="do not fit"):
        queue.publish(b"x" * 10_001)
    queue.purge()
    assert counted(simulated, queue) == (0,)


def test_headers_count_as_they_are_stored(simulated):
    queue = simulated.queue("a", max_bytes=1000)
    queue.publish(b"body", headers={"k": 1})
    bare = queue.stats().bytes - 4
    assert 0 < bare < 100
    queue.publish_many([b"", b"1"], headers={"k": 1})
    assert queue.stats().bytes == 3 * bare + 5


def test_as_many_heads_go_as_their_bytes_are_needed(disk, simulated):
    queue = simulated.queue("a", max_bytes=100, max_messages=50, overflow="drop-head")
    queue.publish_many([b"%02d" % n + b"." * 8 for n in range(10)])
    queue.publish(b"a" * 25)
    assert (len(queue), queue.stats().bytes) == (8, 95)
    assert queue.peek().body[:2] == b"03"
    first, *_ = queue.get_many(6)
    with pytest.raises(qindex.QueueFull):
        queue.publish(b"b" * 41)  # 60 are delivered
    assert len(queue) == 8, "and nothing went for it"
    queue.publish(b"b" * 40)
    assert len(queue) == 7
    queue.ack(first)
    assert counted(simulated, queue) == (90,)


def test_what_becomes_a_dead_letter_for_its_bytes_gives_them_back_when_it_is_taken_back(simulated):
    queue = simulated.queue("a", max_bytes=100, overflow="dead-letter", dead_letters=True)
    for n in range(30):
        queue.publish(b"%d" % n + b"." * 28)
    assert queue.ready == 3
    assert queue.dead == 27
    queue.flush()
    before = queue.stats().bytes
    assert counted(simulated, queue) == (before,)
    queue.redrive(5)
    assert queue.ready == 8
    assert before + 5 * 29 <= counted(simulated, queue)[0] <= before + 5 * 30
    with pytest.raises(qindex.QueueFull):  # what was taken back does not leave before it was got
        queue.publish(b"x" * 90)
    assert queue.ready == 8
    queue.nack_many(queue.get_many(5))
    queue.publish(b"x" * 90)
    assert bodies(queue.browse(state="ready")) == [b"x" * 90]
    assert counted(simulated, queue) == (90,)


def fill(store, name="a", **rules):
    """Messages in several segments, a journal and the message store; some of all kinds leave."""
    queue = store.queue(name, **rules)
    for n in range(120):
        queue.publish(b"%d" % n * (n % 40), persistent=n % 5 > 0, delay=99 if n % 7 == 0 else None)
    store.publish([name, "other"], b"f" * 900, create=True)
    for message in queue.get_many(60)[::2]:
        queue.ack(message)
    return queue


def waiting(queue):
    return sum(len(m.body) for m in queue.browse() if not m.dead)


@pytest.mark.parametrize("how", ["close", "kill", "power"])
@pytest.mark.parametrize("before", [{}, {"max_bytes": 10**9}])
@pytest.mark.parametrize("flushed", [True, False])
def test_a_queue_knows_its_bytes_however_it_was_left(disk, simulated, how, before, flushed):
    queue = fill(simulated, **before)
    if flushed:
        queue.flush()
        queue.nack(queue.get(), requeue=False)
    simulated.sync()
    if how == "close":
        simulated.close()
    else:
        abandon(simulated)
        disk.kill() if how == "kill" else disk.power_cut(seed=5, mode="mixed")
    for _ in range(2):
        with qindex.open("/", disk=disk, **FEW) as store:
            queue = store.queue("a", max_bytes=10**9)
            first = queue.stats().bytes
            assert first == waiting(queue) > 0
            assert counted(store, queue) == (first,)
            queue.ack(queue.get())
            queue.flush()


def test_a_backlog_that_was_never_counted_is_known_from_its_summaries(disk, simulated):
    queue = simulated.queue("a")
    for n in range(10):
        queue.publish_many([b"x" * n] * 16)
    queue.flush()
    simulated.close()
    with qindex.open("/", disk=disk, **FEW) as store:
        queue = store.queue("a")
        assert queue.stats().bytes is None
        store.queue("a", max_bytes=10**9)
        assert queue.stats().bytes == 16 * 45
        assert queue.stats().hot_segments == 0, "no segment was read"


def test_transients_that_died_are_not_counted_though_a_summary_has_them(disk, simulated):
    queue = simulated.queue("a")
    for n in range(64):
        queue.publish(b"x" * 10, persistent=n % 4 > 0)
    queue.flush()
    queue.sync()
    abandon(simulated)
    disk.kill()
    with qindex.open("/", disk=disk, **FEW) as store:
        queue = store.queue("a")
        store.compact()  # reads the summaries
        store.queue("a", max_bytes=10**9)
        assert counted(store, queue) == (480,)


def test_a_store_may_have_so_many_bytes(disk, simulated):
    fill(simulated)
    there = waiting(simulated.queue("a")) + waiting(simulated.queue("other"))
    simulated.close()
    with qindex.open("/", disk=disk, max_bytes=there + 1000, **FEW) as store:
        assert store.stats().bytes == there, "of all queues, before anybody has asked for one"
        assert store.stats().messages == 120 - 30 + 2
        queue = store.queue("new")
        store.publish(["new", "a"], b"x" * 400, create=True)
        with pytest.raises(qindex.StoreFull, match="max_bytes"):
            queue.publish(b"x" * 201)
        queue.publish(b"x" * 200)
        store.queue("a").purge(state="all")
        assert store.stats().bytes == 600 + 900
        store.delete_queue("other")
        assert store.stats().bytes == 600
        assert store.check() == []


def test_a_disk_that_fails_while_a_queue_is_measured_leaves_it_as_it_was(disk, simulated):
    fill(simulated).flush()
    simulated.close()
    with qindex.open("/", disk=disk, **FEW) as store:
        queue = store.queue("a")
        disk.fault(4, "eio")  # behind the write of the setting
        with pytest.raises(qindex.DiskError):
            store.queue("a", max_bytes=10**9)
        assert queue.stats().bytes is None
        queue.publish(b"there is no bound")
        store.queue("a", max_bytes=10**9)
        assert counted(store, queue) == (waiting(queue),)


def test_a_bound_that_is_lowered_by_far_takes_the_oldest_with_the_next_publish(tmp_path):
    with qindex.open(tmp_path / "s") as store:
        queue = store.queue("a")
        for _ in range(4):
            queue.publish_many([b"x"] * 75_000)
        store.queue("a", max_messages=5, overflow="drop-head")
        queue.publish(b"y")
        assert bodies(queue.browse()) == [b"x"] * 4 + [b"y"]
        store.queue("a")
        queue.publish_many([b"x"] * 5)
        with pytest.raises(qindex.QueueFull):
            queue.publish_many([b"z"] * 6)
