"""Dead letters that cannot move: they neither keep nor delay others, and cost nothing at rest."""

import pytest

import qindex
from qindex._core import ffi
from qindex._core import lib as core
from qindex.testing.simulated import tick

SETTINGS = {"format": 2, "sync_interval": 3600}


@pytest.fixture
def store(disk):
    with qindex.open("/store", disk=disk, **SETTINGS) as opened:
        opened.queue("dead")
        opened.queue("a", dead_letters="dead")
        yield opened


def bodies(store, name):
    return [message.body for message in store.queue(name).browse()]


def reject(store, name):
    store.queue(name).get().nack(requeue=False)


def test_what_was_reported_once_is_not_reported_again(store, disk):
    """Full, then not, then full again: findings stay, so a second line would say nothing."""
    dead = store.queue("dead", max_messages=1)
    for _ in range(3):
        store.queue("a").publish_many([b"1", b"2"])
        store.queue("a").nack_many(store.queue("a").get_many(2), requeue=False)
        assert (dead.ready, store.queue("a").dead) == (1, 1)
        dead.purge()
        disk.advance(2)
        tick(store)
        assert (dead.ready, store.queue("a").dead) == (1, 0)
        dead.purge()
    assert len(store.findings) == 1


def test_one_that_does_not_fit_keeps_no_others(store, disk):
    store.queue("dead", max_bytes=1000)
    store.queue("a").publish_many([b"x" * 2000, b"1", b"y" * 2000, b"2", b"3"])
    store.queue("a").nack_many(store.queue("a").get_many(5), requeue=False)
    assert bodies(store, "dead") == [b"1", b"2", b"3"]
    assert store.queue("a").stats().dead == 2
    assert len(store.findings) == 1
    assert "2000 bytes do not fit into queue dead" in store.findings[0].text
    store.queue("dead", max_bytes=3000)
    disk.advance(65)
    tick(store)
    assert (store.queue("a").stats().dead, len(bodies(store, "dead"))) == (1, 4)
    for _ in range(4):
        store.queue("dead").get().ack()
    disk.advance(65)
    tick(store)
    assert bodies(store, "dead") == [b"y" * 2000]


def test_a_pass_over_many_that_do_not_fit_remembers_them(store, disk):
    store.queue("dead", max_bytes=100)
    store.queue("a").publish_many([b"x" * 200] * 5000 + [b"fits"])
    store.queue("a").nack_many(store.queue("a").get_many(5001), requeue=False)
    for _ in range(3):
        tick(store)
    assert bodies(store, "dead") == [b"fits"]
    store.queue("dead").get().ack()
    store.queue("dead", max_bytes=300)
    disk.advance(65)
    for _ in range(3):
        tick(store)
    assert bodies(store, "dead") == [b"x" * 200]


def go_round(store, disk):
    store.queue("a")
    store.queue("b", ttl=5, dead_letters="a")
    store.queue("a", ttl=5, dead_letters="b").publish(b"round")
    for name in ("a", "b"):
        disk.advance(6)
        assert store.queue(name).get() is None
    assert bodies(store, "b") == [b"round"]


def test_one_that_stays_does_not_delay_those_that_come(disk):
    with qindex.open("/store", disk=disk, **SETTINGS) as store:
        go_round(store, disk)
        store.queue("b").publish(b"new")
        reject(store, "b")
        assert bodies(store, "a") == [b"new"]


def test_one_that_goes_round_is_no_reason_to_write(disk):
    with qindex.open("/store", disk=disk, idle=1, **SETTINGS) as store:
        go_round(store, disk)
        for _ in range(4):
            disk.advance(5)
            tick(store)
        before = disk.files()
        for _ in range(60):
            disk.advance(8)
            tick(store)
        assert disk.files() == before


def test_the_pause_of_one_queue_does_not_delay_another(disk):
    with qindex.open("/store", disk=disk, **SETTINGS) as store:
        for name in ("x", "dead"):
            store.queue(name)
        store.queue("a", dead_letters="x")
        store.queue("c", dead_letters="dead", max_messages=1, overflow="dead-letter")
        store.delete_queue("x")
        store.queue("a").publish(b"")
        reject(store, "a")
        for _ in range(5):
            disk.advance(17)
            tick(store)  # it waits the longest pause now
        store.queue("c").publish(b"1")
        store.queue("c").publish(b"2")
        tick(store)
        assert bodies(store, "dead") == [b"1"]


def test_a_move_of_dead_letters_leaves_what_lives(store):
    queue = store.queue("a")
    queue.publish(b"order")
    changes = ffi.new("qi_change[1]")
    changes[0].kind = core.QI_CHANGE_MOVE
    changes[0].queue = queue._handle
    changes[0].to = store.queue("dead")._handle
    changes[0].flags = core.QI_MOVE_DEAD
    failed = ffi.new("uint32_t *")
    assert core.qi_transaction(store._open_handle(), changes, 1, False, failed) == (
        core.QI_E_DELIVERED
    )
    assert bodies(store, "a") == [b"order"]


def test_a_target_that_is_damaged_does_not_keep_its_source_closed(tmp_path):
    with qindex.open(tmp_path / "store", format=2) as store:
        store.queue("dead").publish(b"1")
        store.queue("work", dead_letters="dead").publish(b"2")
        folder = tmp_path / "store" / store.queue_directory("dead")
    for file in folder.glob("journal*"):
        file.write_bytes(b"")
    with qindex.open(tmp_path / "store") as store:
        store.queue("work").get().nack(requeue=False)
        assert store.queue("work").stats().dead == 1
        assert any("do not move to dead" in finding.text for finding in store.findings)


@pytest.mark.slow
def test_a_long_chain_and_a_ring_open(disk):
    names = [f"q{i}" for i in range(2000)]
    with qindex.open("/store", disk=disk, **SETTINGS) as store:
        store.create_queues(names)
        for name, to in zip(names, names[1:] + names[:1], strict=True):
            store.queue(name, create=False).configure(dead_letters=to)
    with qindex.open("/store", disk=disk, **SETTINGS) as store:
        store.queue("q0").publish(b"order")
        reject(store, "q0")
        assert bodies(store, "q1") == [b"order"]
        reject(store, "q1")
        assert bodies(store, "q2") == [b"order"]


def test_a_pass_looks_at_few_segments_and_goes_on(disk):
    """Each may have to be read, and the store's lock is held."""
    with qindex.open("/store", disk=disk, segment_entries=16, **SETTINGS) as store:
        queue = store.queue("a", dead_letters=True)
        ids = list(queue.publish_many([b"%d" % i for i in range(40 * 16)]))
        queue.nack_many([m for m in queue.get_many(len(ids)) if m.req_id % 16 == 3], requeue=False)
        queue.flush()
    with qindex.open("/store", disk=disk, **SETTINGS) as store:
        store.queue("dead")
        store.queue("a", dead_letters="dead")
        tick(store)
        assert 0 < len(bodies(store, "dead")) <= 16
        for _ in range(40):
            tick(store)
        assert bodies(store, "dead") == [b"%d" % i for i in range(3, 640, 16)]
