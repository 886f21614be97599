"""What the sweep of faults found: one call of the disk fails, and nothing may be taken for gone.

Each test plays a few calls again and again on copies of one disk; each time another call fails.
"""

import contextlib

import pytest
from helpers import SMALL, damage

import qindex
from qindex.testing import SimulatedDisk, abandon, tick

# All that a call of the engine may raise when the disk fails.
REFUSED = (qindex.QindexError, MemoryError)


def open_on(disk, **options):
    return qindex.open("/", disk=disk, **{**SMALL, "sync": "never", **options})


def with_each_call_failing(left, kind, play):
    """Play on a copy of the disk `left`, with the first call failing, the second ...; yield what
    each time is there when nothing fails any more."""
    plain = left.kill()
    before = plain.calls
    play(plain)
    assert plain.calls > before
    for call in range(1, plain.calls - before + 1):
        disk = left.kill()
        disk.fault(call, kind)
        with contextlib.suppress(*REFUSED):
            play(disk)
        disk.heal()
        yield disk


def open_and_browse(disk):
    with contextlib.ExitStack() as stack:
        store = open_on(disk)
        stack.callback(abandon, store)
        return [message.body for message in store.queue("a", create=False).browse()]


def look(disk):
    """What a store shows of queue a, and that it calls nothing damaged."""
    store = open_on(disk)
    found = [message.body for message in store.queue("a", create=False).browse()]
    store.check()
    assert damage(store) == []
    abandon(store)
    return found


@pytest.fixture(params=[True, False], ids=["mapped", "written"])
def disk(request):
    return SimulatedDisk(seed=1, mapping=request.param)


@pytest.mark.parametrize("kind", ["eio", "enomem"])
def test_what_the_disk_does_not_give_while_a_store_opens_is_not_gone(disk, kind):
    """An unread body was a missing one and cut the journal before its record; an unread header was
    a retired journal; an unread segment was damage; a list that memory cut short was believed."""
    store = open_on(disk)
    queue = store.queue("a")
    queue.publish_many([b"%d" % i for i in range(40)])
    queue.flush()
    queue.publish_many([b"%d" % i * 40 for i in range(40, 50)])
    queue.publish(b"a body of its own" * 20)
    published = [message.body for message in queue.browse()]
    queue.sync()  # a sync that fails may lose what no sync covered before
    left = disk.kill()
    abandon(store)
    for after in with_each_call_failing(left, kind, open_and_browse):
        assert look(after) == published


def test_a_queue_whose_directory_cannot_be_opened_is_not_created_anew(disk):
    """It was: the queue that was there already counted as one that is not."""
    store = open_on(disk)
    store.queue("a").publish(b"first")
    store.close()
    left = disk.kill()

    def publish(disk):
        store = open_on(disk)
        try:
            store.queue("a").publish(b"second", confirm=True)
        finally:
            abandon(store)

    for after in with_each_call_failing(left, "eio", publish):
        assert look(after) in ([b"first"], [b"first", b"second"])


def idle_store(disk):
    """A store whose queue a was left alone until it closed its files, after a transient message."""
    store = open_on(disk, idle=1)
    queue = store.queue("a")
    queue.publish(b"transient", persistent=False)
    for _ in range(3):
        disk.advance(2)
        tick(store)
    return store, queue


def test_a_wake_that_failed_leaves_a_clean_end():
    """The MARK before a SESSION that could not be written was wiped without a sync. After close() a
    power cut could bring it back behind the CLOSE: an unclean end, and transients were gone."""
    call, refused = 0, 0
    while refused == call:
        call += 1
        disk = SimulatedDisk(seed=1, mapping=False)
        store, queue = idle_store(disk)
        disk.fault(call, "eio")
        try:
            queue.publish(b"more")
        except REFUSED:
            refused += 1
        disk.heal()
        if refused < call:
            break  # it came through before its turn
        with contextlib.suppress(qindex.StoreFailed):
            store.close()
            for seed in range(20):
                assert look(disk.power_cut(seed))[:1] == [b"transient"]
    assert refused > 5


def test_a_queue_that_was_deleted_unread_blocks_no_compaction():
    """Its references to message files could not be read and stayed counted; compact() then said
    that it was not told all survivors. Now nothing is freed until the store is opened again."""
    disk = SimulatedDisk(seed=1)
    store = open_on(disk)
    for i in range(30):
        store.queue("a").publish_many([b"%d" % i * 200] * 2)
        store.queue("b").publish(b"%d" % i * 200)
    store.close()
    left, calls, call = disk.kill(), 1, 0
    while call < calls:
        call += 1
        disk = left.kill()
        store = open_on(disk)
        queue = store.queue("a")
        store.compact()  # counts every reference
        queue.ack_many(queue.get_many(60))
        before = disk.calls
        disk.fault(call, "enomem")
        with contextlib.suppress(*REFUSED):
            store.delete_queue("b")
        calls = disk.calls - before
        disk.heal()
        with contextlib.suppress(qindex.StoreFailed):
            store.compact()
            assert damage(store) == []
        abandon(store)
    assert call > 5


def each_call_failing(left, kind, play):
    """The same in one session: opens a copy of the disk, plays with a call failing; yields what
    play() needs, healed."""
    calls, call = 1, 0
    while call < calls:
        call += 1
        disk = left.kill()
        store = open_on(disk)
        before = disk.calls
        disk.fault(call, kind)
        with contextlib.suppress(*REFUSED):
            play(store)
        calls = disk.calls - before
        disk.heal()
        yield store
        abandon(store)


@pytest.mark.parametrize("kind", ["eio", "enomem"])
def test_a_segment_that_was_read_by_half_is_read_again(disk, kind):
    """Its maps kept what the first try had put in, and the second one counted it twice."""
    store = open_on(disk)
    queue = store.queue("a")
    queue.publish_many([b"%d" % i * 100 for i in range(16)])
    queue.flush()
    queue.ack_many(queue.get_many(3))
    queue.nack_many(queue.get_many(3))
    store.close()
    left = disk.kill()

    def get(store):
        queue = store.queue("a")
        queue.nack_many(queue.get_many(20))

    for store in each_call_failing(left, kind, get):
        queue = store.queue("a")
        assert [message.req_id for message in queue.browse()] == list(range(3, 16))
        assert len(queue) == 13
        assert damage(store) == []
        assert not [finding for finding in store.check() if finding.severity == "damage"]


def test_a_census_that_the_disk_stopped_begins_again(disk):
    """The background's census gave up for good when a call failed: nothing was freed any more, and
    compact() called a queue damaged that could be read again. And it said so again in each round,
    as damage."""
    store = open_on(disk)
    for name in "abc":
        store.queue(name).publish_many([b"x" * 200] * 9)
    store.close()
    left = disk.kill()

    def count(store):
        for _ in range(4):
            tick(store)

    for store in each_call_failing(left, "eio", count):
        assert len(store.findings) <= 1
        assert damage(store) == []
        with contextlib.suppress(qindex.StoreFailed):
            store.compact()
            assert store.stats().live_references == 27
