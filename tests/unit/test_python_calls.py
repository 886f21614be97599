"""publish, get and ack have a quick way and a usual way: nobody can tell which one was taken."""

import gc
import sys
import threading
import time

import pytest

import qindex
from qindex.message import Details, Message


@pytest.fixture
def queue(tmp_path):
    with qindex.open(tmp_path / "a") as store:
        yield store.queue("q")


def test_the_quick_way_is_taken_for_what_is_usual(queue, monkeypatch):
    usual = []
    for name in ("_publish", "_get", "_ack"):
        method = getattr(qindex.Queue, name)

        def count(self, *arguments, method=method):
            usual.append(method)
            return method(self, *arguments)

        monkeypatch.setattr(qindex.Queue, name, count)
    for _ in range(1000):
        req_id = queue.publish(b"body")
        message = queue.get()
        assert (message.req_id, message.body, message.queue) == (req_id, b"body", "q")
        assert (message.redelivered, message.delivery_count) == (False, 1)
        queue.ack(message)
    assert queue.get() is None
    assert len(usual) < 500  # of 3000: the worker may have had the lock now and then


def test_both_ways_give_the_same(queue):
    queue.publish(b"quick")
    queue._publish(b"usual")
    one, other = queue.get(), queue._get()
    assert (one.body, other.body) == (b"quick", b"usual")
    assert other.req_id == one.req_id + 1
    queue.ack(one)
    queue._ack(other)
    with pytest.raises(qindex.AlreadyAcked):
        queue.ack(one)
    with pytest.raises(qindex.AlreadyAcked):
        queue._ack(one)


@pytest.mark.parametrize("body", [b"", bytearray(b"abc"), memoryview(b"abc"), b"x" * 70_000])
def test_every_kind_of_body_comes_back(queue, body):
    queue.publish(body)
    assert queue.get().body == bytes(body)


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [((), {}), ((b"a", b"b"), {}), ((b"a",), {"unknown": 1}), (("text",), {}), ((None,), {})],
)
def test_wrong_arguments_are_type_errors(queue, arguments, keywords):
    with pytest.raises(TypeError):
        queue.publish(*arguments, **keywords)
    assert len(queue) == 0


def test_the_body_may_be_named(queue):
    queue.publish(body=b"named", ttl=3600)
    assert queue.get().body == b"named"


@pytest.mark.parametrize("req_id", [-1, 1 << 64])
def test_a_number_that_is_no_req_id_is_refused(queue, req_id):
    with pytest.raises(ValueError, match="a ReqId must be"):
        queue.ack(req_id)


@pytest.mark.parametrize("thing", [b"text", None, 1.0, object()])
def test_what_is_no_message_cannot_be_acked(queue, thing):
    with pytest.raises(TypeError, match="a Message, its ReqId or its token is needed"):
        queue.ack(thing)


def test_a_message_is_read_only(queue):
    queue.publish(b"body")
    message = queue.get()
    with pytest.raises(AttributeError):
        message.body = b"other"
    with pytest.raises(AttributeError):
        message.other = 1


def test_the_garbage_collector_does_not_track_messages(queue):
    queue.publish_many([b"one", b"two"])
    assert not gc.is_tracked(queue.get())
    assert not any(gc.is_tracked(message) for message in queue.get_many(1))


def test_a_message_can_be_made_by_hand_and_needs_a_number():
    message = Message(req_id=7, body=b"b", details=Details("q"))
    assert (message.req_id, message.body, message.queue) == (7, b"b", "q")
    with pytest.raises(TypeError):
        Message("7", b"b", Details("q"))
    with pytest.raises(TypeError):
        Message(7)


def test_nothing_is_leaked(queue):
    def references():
        gc.collect()  # without the GIL, each thread counts its own until then
        return sys.getrefcount(queue._plain), sys.getrefcount(Message)

    before = references()
    for _ in range(1000):
        queue.publish(b"body")
        queue.ack(queue.get())
    assert references() == before


def test_the_highest_number_was_never_published(queue):
    with pytest.raises(qindex.UnknownMessage):
        queue.ack((1 << 64) - 1)


def test_a_store_that_always_syncs_takes_the_usual_way(tmp_path):
    with qindex.open(tmp_path / "a", sync="always") as store:
        queue = store.queue("q")
        queue.publish(b"body")
        assert queue.stats().unsynced_bytes == 0
        queue.ack(queue.get())
        assert queue.get() is None


def test_calls_belong_to_one_queue(queue):
    with pytest.raises(RuntimeError):
        queue._attach(1, Message, Details("q"), True, True)
    queue.publish(b"body")
    assert queue.get().body == b"body"


def test_a_queue_without_a_store_does_not_crash():
    empty = qindex.Queue.__new__(qindex.Queue)
    for call in (empty.get, lambda: empty.publish(b"a"), lambda: empty.ack(1)):
        with pytest.raises(AttributeError):
            call()


def test_a_busy_queue_leaves_the_worker_its_turn(tmp_path):
    """Flushes went undone for seconds: one was begun to make room, and nobody told the worker."""
    with qindex.open(tmp_path / "a", max_journal_entries=1000) as store:
        queue = store.queue("q")
        for _ in range(30_000):
            queue.publish(b"x" * 100)
        for _ in range(30_000):
            queue.ack(queue.get())
        end = time.perf_counter() + 10
        while queue.dirty_count > 1000 and time.perf_counter() < end:
            time.sleep(0.001)
        assert queue.dirty_count <= 1000


def test_a_verb_waits_for_who_comes_back_from_a_sync(tmp_path):
    with qindex.open(tmp_path / "a") as store:
        queue = store.queue("q")
        stop = threading.Event()

        def publish():
            while not stop.is_set():
                for _ in range(1000):
                    queue.publish(b"x" * 10)

        threads = [threading.Thread(target=publish) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(20):
                queue.sync()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert [message.body for message in queue.get_many(3)] == [b"x" * 10] * 3


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 1, "due": 2},
        {"delay": 0, "due": 2},
        {"due": 2.0, "delay": 0.0},
        {"delay": float("nan")},
        {"delay": 1e9},
        {"delay": -0.5},
        {"due": 1 << 35},
        {"due": 10**400},
        {"priority": -1},
        {"priority": 256},
        {"priority": 10**30},
    ],
)
def test_options_that_cannot_be_are_refused_by_the_fast_way_too(queue, options):
    with pytest.raises((ValueError, OverflowError)):
        queue.publish(b"body", **options)
    assert len(queue) == 0


def test_what_is_got_at_once_says_the_same_as_what_is_got_slowly(queue):
    for get in (queue.get, queue._get):
        queue.publish(b"both", priority=7, due=5.5)
        queue.publish(b"priority", priority=7)
        queue.publish(b"due", due=5)
        queue.publish(b"zero", delay=0, priority=1)
        seen = [
            (m.body, m.priority, m.due, m.delivery_count, m.redelivered) for m in iter(get, None)
        ]
        assert seen == [
            (b"both", 7, 5.5, 1, False),
            (b"priority", 7, None, 1, False),
            (b"zero", 1, None, 1, False),
            (b"due", 0, 5, 1, False),
        ]


def test_a_late_ack_of_a_lease_is_refused_also_by_the_fast_way(queue):
    queue.publish(b"body")
    late = queue.get(lease=0.001)
    again = queue.get(timeout=10, lease=60)
    with pytest.raises(qindex.LeaseExpired):
        queue.ack(late)
    with pytest.raises(qindex.LeaseExpired):
        queue.ack_many([late])
    queue.ack(again)
    assert len(queue) == 0


def test_a_get_takes_its_options_by_name_only(queue):
    queue.publish(b"x")
    for call in (lambda: queue.get(1), lambda: queue.get(1, timeout=0)):
        with pytest.raises(TypeError):
            call()
    assert queue.stats().ready == 1
    assert queue.get(timeout=0).body == b"x"
