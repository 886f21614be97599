"""max_memory: what all stores of a process keep in memory of their messages has a limit."""

import contextlib
import gc
import shutil
import threading

import pytest

import qindex

MOST = 16 << 20
BATCH = [b""] * 20_000


def fill(queue, publish=None):
    """Publish and take until there is no memory left; return what was taken."""
    publish = publish or (lambda: queue.publish_many(BATCH))
    taken = []
    while len(taken) < 10_000_000:
        try:
            publish()
        except qindex.StoreFull as error:
            if "bytes of memory, and may use 16777216: " not in str(error):
                raise
            return taken
        taken += queue.get_many(len(BATCH))
    raise AssertionError("nothing was refused")


@pytest.fixture
def small(tmp_path):
    with qindex.open(tmp_path / "small", max_memory=MOST, sync="never", idle=3600) as store:
        yield store


def test_queues_that_are_not_used_give_their_memory_back(small):
    names = [f"q{i}" for i in range(40)]
    for name in names:
        small.queue(name).publish_many(BATCH * 3, timeout=60)
        assert small.stats().memory < MOST * 1.1
    assert [len(small.queue(name)) for name in names] == [len(BATCH) * 3] * len(names)
    assert small.queue(names[0]).get().body == b""


@pytest.mark.slow
def test_a_queue_that_cannot_be_opened_keeps_no_other_from_giving_back(tmp_path):
    options = {"max_memory": MOST, "max_open_files": 24, "sync": "never", "idle": 3600}
    store = qindex.open(tmp_path / "small", **options)
    store.queue("gone").publish_many(BATCH)
    for number in range(40):  # it was used the longest time ago: it is parked
        store.queue(f"p{number}").publish(b"")
    shutil.rmtree(tmp_path / "small" / store.queue_directory("gone"))
    names = [f"q{i}" for i in range(60)]
    for name in names:
        store.queue(name).publish_many(BATCH * 3, timeout=20)
    assert [len(store.queue(name)) for name in names] == [len(BATCH) * 3] * len(names)
    with contextlib.suppress(qindex.QindexError):
        store.close()


def test_a_publish_is_refused_and_acks_go_on(small):
    queue = small.queue("a")
    taken = fill(queue)
    for publish in (
        lambda: queue.publish(b""),
        lambda: queue.publish(b"x" * 5000),  # a stored body
        lambda: small.publish(["a"], b""),
    ):
        taken += fill(queue, publish)
    assert queue.ack_many(taken, missing_ok=True) == []
    queue.publish(b"again", timeout=60)
    assert queue.get().body == b"again"


def test_a_publish_waits_until_there_is_memory(small):
    queue = small.queue("a")
    taken = fill(queue)
    timer = threading.Timer(0.2, queue.ack_many, [taken])
    timer.start()
    queue.publish_many(BATCH, timeout=60)
    timer.join()
    assert queue.unacked == 0


@pytest.mark.slow
def test_the_limit_is_one_for_all_stores_and_the_smallest_counts(small, tmp_path):
    with qindex.open(tmp_path / "other", sync="never") as other:
        taken = fill(other.queue("a"))
        fill(small.queue("b"))
        small.close()
        other.queue("a").publish_many(BATCH)  # no store names a limit any more
        other.queue("a").ack_many(taken)


def test_a_closed_store_keeps_no_memory(tmp_path):
    with qindex.open(tmp_path / "watch") as watch:
        gc.collect()  # stores of other tests
        before = watch.stats().memory
        for _ in range(3):
            with qindex.open(tmp_path / "data", format=2) as store:
                store.queue("moved")
                for name in "abc":
                    queue = store.queue(name, max_deliveries=1, dead_letters=True, ttl=3600)
                    for delay in (None, 3600):
                        queue.publish_many([b"x", b"y" * 5000], delay=delay, priority=7)
                        queue.publish(b"x", headers={"a": 1}, lease=60)
                    queue.nack(queue.get())
                    store.move([queue.get()], to="moved")
                    queue.data[b"key"] = b"value"
                store.compact()
                assert store.stats().memory > before
            del store, queue
            gc.collect()
            assert watch.stats().memory == before
