"""get, get_many, ack, nack, purge: who has a message, and what a refusal leaves behind."""

import pytest
from helpers import asked_for, bodies, crash, ids, queue_directory

import qindex


def fill(queue, count=40):
    """Embedded and stored bodies in turn, over several segments of 16."""
    return queue.publish_many([b"%d" % i * (1 if i % 2 else 50) for i in range(count)])


def test_messages_come_in_the_order_they_were_published(queue):
    fill(queue)
    assert [queue.get().req_id for _ in range(40)] == list(range(40))
    assert queue.get() is None


def test_get_from_an_empty_queue_is_none(queue):
    assert queue.get() is None
    assert queue.peek() is None
    assert queue.get_many(10) == []
    assert list(queue.browse()) == []


def test_get_many_takes_what_is_there(queue):
    fill(queue)
    assert ids(queue.get_many(7)) == list(range(7))
    assert queue.get_many(0) == []
    assert ids(queue.get_many(1_000_000)) == list(range(7, 40))
    with pytest.raises(ValueError, match="count"):
        queue.get_many(-1)


def test_a_message_is_with_one_consumer_until_it_is_acked(queue):
    fill(queue, 3)
    message = queue.get()
    assert (len(queue), queue.ready, queue.unacked) == (3, 2, 1)
    assert queue.get().req_id == 1
    queue.ack(message)
    assert (len(queue), queue.ready, queue.unacked) == (2, 1, 1)


def test_ack_takes_a_message_or_its_id(queue):
    fill(queue, 4)
    first, second, third, fourth = queue.get_many(4)
    queue.ack(first)
    queue.ack(second.req_id)
    queue.ack_many([third, fourth.req_id])
    assert len(queue) == 0


def test_acks_may_come_in_any_order(queue):
    fill(queue)
    queue.get_many(40)
    queue.ack_many(range(39, -1, -3))
    queue.ack_many(i for i in range(40) if i % 3)
    assert len(queue) == 0


def test_acking_nothing_changes_nothing(queue):
    fill(queue)
    before = asked_for(queue.stats())
    queue.ack_many([])
    queue.nack_many([])
    assert asked_for(queue.stats()) == before


def refusals(queue):
    """0 acked, 1 to 4 delivered, the rest ready: everything that must be refused, and how."""
    unknown, acked = qindex.UnknownMessage, qindex.AlreadyAcked
    return [
        (unknown, lambda: queue.ack(5)),
        (unknown, lambda: queue.ack(1_000_000)),
        (unknown, lambda: queue.ack(2**62 - 1)),
        (acked, lambda: queue.ack(0)),
        (unknown, lambda: queue.nack(5)),
        (unknown, lambda: queue.nack(1_000_000)),
        (acked, lambda: queue.nack(0)),
        (unknown, lambda: queue.nack(5, requeue=False)),
        (unknown, lambda: queue.ack_many([1, 2, 5])),
        (unknown, lambda: queue.ack_many([1, 2, 999])),
        (acked, lambda: queue.ack_many([1, 0, 2])),
        (ValueError, lambda: queue.ack_many([1, 2, 1])),
        (unknown, lambda: queue.nack_many([1, 2, 5])),
        (acked, lambda: queue.nack_many([4, 3, 0])),
        (ValueError, lambda: queue.nack_many([1, 2, 1], requeue=False)),
        (ValueError, lambda: queue.nack_many([2, 1, 1])),
    ]


@pytest.mark.parametrize("number", range(16))
@pytest.mark.parametrize("flushed", [False, True], ids=["journal", "flushed"])
@pytest.mark.parametrize("io", ["mmap", "pwrite"])
def test_a_refused_settlement_leaves_no_trace(open_store, io, flushed, number):
    # Nothing is flushed or marked as durable by the worker while the figures are compared.
    quiet = {"max_journal_entries": 1000, "idle": 60, "sync": "never"}
    queue = open_store(io=io, **quiet).queue("orders")
    fill(queue)
    queue.get_many(5)
    queue.ack(0)
    if flushed:
        queue.flush()
    error, refused = refusals(queue)[number]
    before, listed = (
        asked_for(queue.stats()),
        [(m.req_id, m.delivery_count) for m in queue.browse()],
    )
    with pytest.raises(error):
        refused()
    assert asked_for(queue.stats()) == before
    assert [(m.req_id, m.delivery_count) for m in queue.browse()] == listed
    queue.ack_many([1, 2, 3, 4])


def test_many_are_settled_in_any_order(queue):
    fill(queue)
    queue.get_many(5)
    queue.nack_many([3, 1, 2])
    queue.ack_many([4, 0])
    assert queue.unacked == 0
    assert ids(queue.get_many(4)) == [1, 2, 3, 5]


def test_a_negative_or_too_big_id_is_refused(queue):
    fill(queue, 1)
    queue.get()
    for odd in (-1, 2**64):
        with pytest.raises(ValueError, match="a ReqId must be"):
            queue.ack(odd)
        with pytest.raises(ValueError, match="a ReqId must be"):
            queue.ack_many([odd])
    with pytest.raises(qindex.UnknownMessage):
        queue.ack(2**63 + 5)
    assert queue.unacked == 1


def test_an_ack_of_another_queues_message_is_refused_there(store):
    store.queue("a").publish_many([b"1", b"2"])
    store.queue("a").get_many(2)
    with pytest.raises(qindex.UnknownMessage):
        store.queue("b").ack(1)
    assert store.queue("a").unacked == 2


def test_a_nacked_message_goes_back_to_its_place(queue):
    fill(queue)
    messages = queue.get_many(10)
    queue.nack(messages[7])
    queue.nack_many([messages[3], 5])
    assert ids(queue.get_many(5)) == [3, 5, 7, 10, 11]


def test_nack_without_requeue_drops(queue):
    fill(queue, 3)
    queue.nack(queue.get(), requeue=False)
    queue.nack_many(queue.get_many(1), requeue=False)
    assert ids(queue.browse()) == [2]
    with pytest.raises(qindex.AlreadyAcked):
        queue.ack(0)


def test_a_requeued_message_counts_its_deliveries(queue):
    queue.publish(b"again")
    for count in range(1, 6):
        message = queue.get()
        assert (message.delivery_count, message.redelivered) == (count, count > 1)
        queue.nack(message)
    assert queue.peek().delivery_count == 5  # looking does not count


@pytest.mark.parametrize("flushed", [False, True], ids=["journal", "flushed"])
@pytest.mark.parametrize("clean", [False, True], ids=["crash", "close"])
def test_delivery_counts_live_on_after_a_reopen(open_store, flushed, clean):
    store = open_store()
    queue = store.queue("orders")
    fill(queue, 20)
    for _ in range(3):
        queue.nack(queue.get())
    queue.get_many(2)
    if flushed:
        queue.flush()
    store.close() if clean else crash(store)
    queue = open_store().queue("orders")
    first, second, third = queue.get_many(3)
    assert (first.delivery_count, second.delivery_count, third.delivery_count) == (5, 2, 1)
    assert first.redelivered
    assert second.redelivered


@pytest.mark.parametrize("clean", [False, True], ids=["crash", "close"])
def test_unacked_messages_are_ready_again_at_the_next_open(open_store, clean):
    store = open_store()
    fill(store.queue("orders"))
    store.queue("orders").get_many(30)
    store.queue("orders").ack_many(range(0, 30, 2))
    store.close() if clean else crash(store)
    queue = open_store().queue("orders")
    assert (queue.ready, queue.unacked) == (25, 0)
    messages = queue.get_many(40)
    assert ids(messages) == [*range(1, 30, 2), *range(30, 40)]
    assert all(message.redelivered for message in messages[:15])


def test_after_a_clean_close_only_the_delivered_are_redelivered(open_store):
    store = open_store()
    fill(store.queue("orders"))
    store.queue("orders").get_many(3)
    store.close()
    again = [m.redelivered for m in open_store().queue("orders").get_many(40)]
    assert again == [True] * 3 + [False] * 37


def test_purge_drops_the_ready_and_keeps_the_unacked(queue):
    fill(queue)
    kept = queue.get_many(5)
    assert queue.purge() == 35
    assert (len(queue), queue.ready, queue.unacked) == (5, 0, 5)
    queue.nack(kept[0])
    queue.ack_many(kept[1:])
    assert ids(queue.browse()) == [0]
    assert queue.purge() == 1
    assert queue.purge() == 0
    assert queue.publish(b"next") == 40


@pytest.mark.parametrize("clean", [False, True], ids=["crash", "close"])
def test_a_purge_is_not_undone_by_a_reopen(open_store, clean):
    store = open_store()
    queue = store.queue("orders")
    fill(queue)
    queue.get_many(2)
    queue.purge()
    fill(queue, 3)
    store.close() if clean else crash(store)
    assert ids(open_store().queue("orders").browse()) == [0, 1, 40, 41, 42]


def test_peek_shows_what_get_would_return_and_takes_nothing(queue):
    fill(queue, 3)
    assert queue.peek().req_id == queue.peek().req_id == 0
    assert queue.peek().delivery_count == 0
    assert queue.unacked == 0
    queue.get()
    assert queue.peek().req_id == 1
    queue.nack(0)
    assert queue.peek().req_id == 0


def test_browse_sees_ready_and_unacked_in_order_and_changes_nothing(queue):
    fill(queue)
    queue.get_many(10)
    queue.ack_many([2, 3])
    before = queue.dirty_count
    expected = [i for i in range(40) if i not in (2, 3)]
    assert ids(queue.browse()) == expected
    assert ids(queue.browse(3, 20)) == [i for i in expected if 3 <= i < 20]
    assert ids(queue.browse(start=39)) == [39]
    assert ids(queue.browse(start=40)) == []
    assert ids(queue.browse(5, 5)) == []
    assert queue.stats().dirty_count == before
    assert [m.body for m in queue.browse(0, 2)] == [b"0" * 50, b"1"]


def test_browse_goes_on_while_the_queue_changes(queue):
    fill(queue, 20)
    seen = []
    for message in queue.browse():
        seen.append(message.req_id)
        if message.req_id == 5:
            queue.ack_many(queue.get_many(8))
            queue.publish(b"new")
    assert seen == [0, 1, 2, 3, 4, 5, *range(8, 21)]


def test_dirty_count_counts_each_publish_deliver_and_ack(open_store):
    queue = open_store(max_journal_entries=1000).queue("a")
    queue.publish_many([b""] * 5)
    assert queue.dirty_count == 5
    queue.get_many(3)
    assert queue.dirty_count == 8
    queue.ack(0)
    assert queue.dirty_count == 9
    queue.flush()
    assert queue.dirty_count == 0


def test_a_flush_changes_nothing_that_a_consumer_sees(queue):
    fill(queue)
    queue.get_many(10)
    queue.ack_many([0, 9])
    before = [(m.req_id, m.body, m.delivery_count) for m in queue.browse()]
    queue.flush()
    queue.flush()
    assert [(m.req_id, m.body, m.delivery_count) for m in queue.browse()] == before
    queue.nack(1)
    assert bodies(queue.get_many(2)) == [b"1", b"10" * 50]


def test_passing_max_journal_entries_flushes(open_store):
    queue = open_store(max_journal_entries=24).queue("a")
    for _ in range(25):
        queue.publish(b"")
    queue.publish(b"")
    queue.sync()
    assert queue.stats().epoch > 2
    assert queue.dirty_count <= 24


def test_a_fully_acked_segment_leaves_the_disk(store, queue, tmp_path):
    fill(queue, 64)
    queue.flush()
    assert len(list(tmp_path.rglob("*.idx"))) == 4
    queue.ack_many(queue.get_many(40))
    queue.flush()
    assert sorted(file.name for file in tmp_path.rglob("*.idx")) == ["2.idx", "3.idx"]
    assert ids(queue.browse()) == list(range(40, 64))


def test_a_purge_that_cannot_read_a_segment_changes_nothing(open_store):
    store = open_store(max_journal_entries=1000)
    queue = store.queue("a")
    queue.publish_many([b"x"] * 60)
    queue.flush()  # segments 1 and 2 leave the memory
    segment = queue_directory(store.path, "a") / "1.idx"
    moved = segment.rename(segment.with_name("moved"))
    segment.mkdir()
    assert (queue.ready, queue.dirty_count) == (60, 0)
    with pytest.raises(qindex.DiskError):
        queue.purge()
    assert (queue.ready, queue.dirty_count) == (60, 0)
    segment.rmdir()
    moved.rename(segment)
    assert queue.purge() == 60


def test_an_expired_message_that_get_many_stepped_over_leaves_at_the_next_get(queue):
    """Found by the crash explorer: it stayed in the queue, and in its length, until a reopen."""
    queue.publish(b"first")
    queue.publish(b"expired", expires_at=1.0)
    queue.publish(b"last")
    assert [message.body for message in queue.get_many(3)] == [b"first", b"last"]
    assert queue.get() is None
    assert len(queue) == 2
