"""What a queue and a store count: since the open, and in their lives."""

import random

import pytest
from helpers import crash, on_a_loop

import qindex
import qindex.aio
from qindex.testing import SimulatedDisk


def counts(queue):
    return queue.stats().counters


def balance(queue, of):
    return len(queue) + of.acked + of.dropped + of.purged + of.moved


def test_each_verb_counts_once(tmp_path):
    with qindex.open(tmp_path, format=2) as store:
        queue = store.queue("a")
        queue.publish_many([b"123"] * 8)
        queue.publish(b"4567", headers={"k": 1})
        queue.ack(queue.get())
        queue.ack_many(queue.get_many(2))
        queue.nack(queue.get())
        queue.nack(queue.get(), requeue=False)  # dropped: it keeps no dead letters
        queue.delete(queue.get_many(1)[0].req_id + 1)
        store.move(queue.get(), to=store.queue("b").name)
        queue.purge()
        seen = counts(queue).since_open
        assert (seen.published, seen.acked, seen.returned, seen.dropped) == (9, 3, 1, 1)
        assert (seen.delivered, seen.redelivered) == (7, 1)
        assert (seen.moved, seen.purged, seen.dead, seen.expired) == (1, 3, 0, 0)
        assert seen.published_bytes == 8 * 3 + len(b"4567") + 11  # headers as a field table
        assert seen.delivered_bytes == 7 * 3
        assert counts(store.queue("b")).since_open.published == 1
        assert len(queue) == 1
        assert seen.published == balance(queue, seen)


def test_what_the_engine_does_by_itself_is_counted(tmp_path):
    disk = SimulatedDisk(wall=1_000_000)
    with qindex.open("/", disk=disk, format=2) as store:
        queue = store.queue("a", dead_letters=True, max_deliveries=1)
        queue.publish(b"expires", ttl=1)
        queue.publish(b"tried")
        queue.publish(b"rejected")
        disk.advance(2)
        queue.expire()
        assert queue.get(lease=5).body == b"tried"
        queue.nack(queue.get(), requeue=False)
        disk.advance(6)
        assert queue.get() is None
        seen = counts(queue).since_open
        assert (seen.expired, seen.dead, seen.leases_ended, seen.dropped) == (1, 3, 1, 0)
        full = store.queue("full", max_messages=2, overflow="drop-head")
        for _ in range(5):
            full.publish(b"x")
        assert counts(full).since_open.dropped == 3
        assert counts(full).since_open.published == balance(full, counts(full).since_open)


def test_life_long_counts_are_exact_after_each_close(tmp_path):
    total = 0
    for session in range(3):
        with qindex.open(tmp_path, format=2) as store:
            queue = store.queue("a")
            assert counts(queue).exact
            for _ in range(session + 1):
                queue.publish(b"x")
            total += session + 1
            seen = counts(queue)
            assert seen.since_open.published == session + 1
            assert seen.lifetime.published == total
            assert store.stats().counters.lifetime.published == total
            assert store.stats().counters.exact
    with qindex.open(tmp_path, read_only=True) as store:
        assert counts(store.queue("a", create=False)).lifetime.published == total


def test_a_first_session_without_messages_does_not_make_later_counts_doubtful(tmp_path):
    with qindex.open(tmp_path, format=2) as store:
        store.queue("a")
    with qindex.open(tmp_path) as store:
        store.queue("a").publish(b"x")
    with qindex.open(tmp_path) as store:
        assert store.stats().counters.exact
        assert counts(store.queue("a")).exact
        assert counts(store.queue("a")).lifetime.published == 1


def test_after_an_unclean_end_they_are_lower_bounds_and_say_so_for_ever(tmp_path):
    with qindex.open(tmp_path, format=2) as store:
        store.queue("a").publish(b"x")
    store = qindex.open(tmp_path)
    store.queue("a").publish(b"y")
    crash(store)
    for _ in range(2):
        with qindex.open(tmp_path) as store:
            queue = store.queue("a")
            assert not counts(queue).exact
            assert not store.stats().counters.exact
            queue.publish(b"z")
            fresh = store.queue("fresh")
            assert counts(fresh).exact
    with qindex.open(tmp_path) as store:
        seen = counts(store.queue("a"))
        assert (seen.exact, seen.lifetime.published) == (False, 3)
        assert len(store.queue("a")) == 4


def test_a_close_on_a_full_disk_lets_the_counts_go_and_says_so():
    disk = SimulatedDisk(seed=1)
    with qindex.open("/store", disk=disk, format=2) as store:
        store.queue("a").publish(b"0")
    store = qindex.open("/store", disk=disk, sync_interval=3600)
    store.queue("a").publish(b"x", persistent=False)
    store.sync()
    for i in range(200):  # more than the log has room for
        store.queue(f"more{i}").publish(b"")
    disk.fill()
    store.close()
    for published in (2, 3):
        with qindex.open("/store", disk=disk) as store:
            for name in store.queues()[2:150]:
                store.delete_queue(name)  # there is space again
            seen = counts(store.queue("a"))
            assert (seen.exact, seen.lifetime.published) == (False, published)
            assert not store.stats().counters.exact
            store.queue("a").publish(b"y")
    store = qindex.open("/store", disk=disk)
    crash(store)
    with qindex.open("/store", disk=disk) as store:
        assert not counts(store.queue("a")).exact
        store.queue("fresh").publish(b"")
    with qindex.open("/store", disk=disk) as store:
        assert counts(store.queue("fresh")).exact


def test_a_deleted_queue_stays_in_the_sums_of_its_store(tmp_path):
    with qindex.open(tmp_path, format=2) as store:
        store.queue("a").publish(b"x")
        store.delete_queue("a")
        assert store.stats().counters.since_open.published == 1
        assert counts(store.queue("a")).lifetime.published == 0
    with qindex.open(tmp_path) as store:
        assert store.stats().counters.lifetime.published == 1


def test_a_store_of_format_1_counts_since_the_open_only(tmp_path):
    with qindex.open(tmp_path, format=1) as store:
        store.queue("a").publish(b"x")
        seen = counts(store.queue("a"))
        assert (seen.since_open.published, seen.lifetime, seen.exact) == (1, None, False)
        assert store.stats().lifetime_syncs is None
    with qindex.open(tmp_path, upgrade=True) as store:
        seen = counts(store.queue("a"))
        assert (seen.lifetime.published, seen.exact) == (0, False)
        assert counts(store.queue("new")).exact


def test_syncs_and_their_times_are_counted(tmp_path):
    with qindex.open(tmp_path, format=2, sync="never") as store:
        queue = store.queue("a")
        before = store.stats().syncs.count
        for _ in range(3):
            queue.publish(b"x", confirm=True)
        syncs = store.stats().syncs
        assert syncs.count == before + 3
        assert sum(syncs.histogram.values()) == syncs.count
        assert 0 < syncs.longest <= syncs.seconds
        assert syncs.longest <= max(syncs.histogram)
    with qindex.open(tmp_path) as store:
        assert store.stats().lifetime_syncs.count > store.stats().syncs.count


def play(disk, seed):
    """Two sessions on a disk; what was published in them."""
    dice = random.Random(seed)
    published = 0
    for _ in range(2):
        with qindex.open("/", disk=disk, format=2, segment_entries=16) as store:
            queue = store.queue("a")
            for _ in range(dice.randrange(1, 30)):
                queue.publish(b"x", confirm=dice.random() < 0.3)
                published += 1
                if dice.random() < 0.5 and (message := queue.get()):
                    queue.ack(message)
    return published


@pytest.mark.parametrize("mode", ["nothing", "all", "mixed"])
def test_after_a_power_cut_anywhere_no_count_says_more_than_what_is_there(mode):
    exact = 0
    for change in range(1, 400, 3):
        disk = SimulatedDisk(seed=1)
        disk.power_cut_at(change, seed=change, mode=mode)
        published = play(disk, 5)
        left = disk.taken()
        if left is None:
            break
        with qindex.open("/", disk=left, format=2) as store:
            queue = store.queue("a")
            seen = counts(queue)
            assert seen.lifetime.published <= published
            if seen.exact:
                exact += 1
                assert seen.lifetime.published == balance(queue, seen.lifetime)
                assert store.stats().counters.lifetime.published == seen.lifetime.published
            else:
                assert seen.lifetime.published <= balance(queue, seen.lifetime)
    assert change > 30
    assert exact > 0


@on_a_loop
async def test_the_other_surface_says_the_same(tmp_path):
    async with qindex.aio.open(tmp_path, format=2) as store:
        queue = await store.queue("a")
        await queue.publish(b"x")
        await queue.ack(await queue.get())
        seen = (await queue.stats()).counters
        assert (seen.since_open.published, seen.lifetime.acked, seen.exact) == (1, 1, True)
        assert [each.counters for each in await store.stats_all()] == [seen]
