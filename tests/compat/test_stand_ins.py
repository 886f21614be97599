"""What qindex.compat adds to the originals: items survive; and what an item may be."""

import asyncio
import json
import pickle
import queue
import threading

import pytest

import qindex
from qindex.compat import (
    PLAIN,
    AsyncLifoQueue,
    AsyncPriorityQueue,
    AsyncQueue,
    LifoQueue,
    PriorityQueue,
    Queue,
)

ITEMS = [
    b"", b"\x00\xff", b'"text"', "text", "", "\ud800", 0, -1, 10**40, 1.5, True, None, [], {}, (),
    [1, [2, {"a": [None]}]], (1, ("a", [(2,)])), {"a": (1,), "": {"b": []}},
]  # fmt: skip
REFUSED = [{1, 2}, object(), {1: "a"}, {"()": []}, [b"a"], bytearray(b"a"), float("nan"), print]


@pytest.fixture
def place(tmp_path):
    return tmp_path / "queue"


@pytest.mark.parametrize("item", ITEMS, ids=repr)
def test_an_item_comes_back_as_it_was(place, item):
    with Queue(place) as items:
        items.put(item)
    with Queue(place) as items:
        again = items.get()
    assert again == item
    assert repr(again) == repr(item)  # the types within, too


@pytest.mark.parametrize("item", REFUSED, ids=lambda item: type(item).__name__)
def test_what_would_come_back_changed_is_refused(place, item):
    with Queue(place) as items:
        with pytest.raises(TypeError):
            items.put(item)
        assert items.qsize() == 0
        assert items.unfinished_tasks == 0


@pytest.mark.parametrize("data", [b"", b"{", b"nonsense", b"\xff", b"[1", b"[" * 100_000])
def test_foreign_bytes_are_an_error_and_no_more(data):
    with pytest.raises((ValueError, RecursionError)):
        PLAIN.loads(data)


@pytest.mark.parametrize("serializer", [json, pickle])
def test_another_serializer_may_be_given(place, serializer):
    with Queue(place, serializer=serializer) as items:
        items.put({"a": [1]})
        assert items.get() == {"a": [1]}


@pytest.mark.parametrize(("kind", "order"), [(Queue, [1, 2, 3]), (LifoQueue, [2, 1, 0])])
def test_items_and_their_order_survive_the_queue(place, kind, order):
    with kind(place) as items:
        for i in range(4):
            items.put(i)
        items.get()
    with kind(place, maxsize=2) as items:
        assert items.full()
        assert [items.get() for _ in range(items.qsize())] == order
        assert isinstance(items, getattr(queue, kind.__name__))


def test_the_smallest_item_is_first_also_after_a_restart(place):
    with PriorityQueue(place) as items:
        for item in [(2, "b"), (1, "z"), (3, "a"), (1, "a")]:
            items.put(item)
        assert items.get() == (1, "a")
    with PriorityQueue(place) as items:
        items.put((2, "a"))
        assert items.unfinished_tasks == items.qsize() == 4
        assert [items.get() for _ in range(4)] == [(1, "z"), (2, "a"), (2, "b"), (3, "a")]
        assert isinstance(items, queue.PriorityQueue)
    with qindex.open(place) as store:
        assert len(store.queue("queue")) == 0


def test_of_equal_items_the_oldest_is_first(place):
    with PriorityQueue(place) as items:
        for item in (1, 1.0, True):
            items.put(item)
        assert repr([items.get() for _ in range(3)]) == "[1, 1.0, True]"


def test_an_item_without_an_order_is_refused(place):
    with PriorityQueue(place) as items:
        items.put(1)
        for item in ("text", None, {}):
            with pytest.raises(TypeError):
                items.put(item)
        assert (items.qsize(), items.unfinished_tasks) == (1, 1)
    with PriorityQueue(place) as items:
        assert [items.get() for _ in range(items.qsize())] == [1]


def test_join_waits_for_what_an_earlier_process_left(place):
    with Queue(place) as items:
        items.put("left")
    with Queue(place) as items:
        joined = threading.Event()
        thread = threading.Thread(target=lambda: (items.join(), joined.set()))
        thread.start()
        assert items.get() == "left"
        assert not joined.is_set()
        items.task_done()
        thread.join(30)
        assert joined.is_set()


def test_the_asyncio_queues_do_the_same(tmp_path):
    async def play(kind):
        with kind(tmp_path / kind.__name__) as items:
            for i in range(3):
                await items.put(i)
            await items.get()
        with kind(tmp_path / kind.__name__) as items:
            got = []
            while not items.empty():
                got.append(await items.get())
                items.task_done()
            await items.join()
            return got

    assert asyncio.run(play(AsyncQueue)) == [1, 2]
    assert asyncio.run(play(AsyncLifoQueue)) == [1, 0]
    assert asyncio.run(play(AsyncPriorityQueue)) == [1, 2]


def test_a_queue_of_an_open_store_can_be_used(place):
    with qindex.open(place) as store:
        items = Queue(store.queue("a"))
        items.put("x")
        assert store.queue("a").ready == 1
        items.sync()
        assert store.queue("a").stats().unsynced_bytes == 0
        items.close()  # not the store
        assert items.get() == "x"
        with pytest.raises(TypeError, match="options"):
            Queue(store.queue("a"), sync="never")


def test_eight_threads_put_and_eight_get(place):
    with Queue(place, maxsize=50) as items:
        taken = []

        def produce(number):
            for i in range(200):
                items.put((number, i))

        def consume():
            while (item := items.get()) is not None:
                taken.append(item)
                items.task_done()

        consumers = [threading.Thread(target=consume) for _ in range(8)]
        producers = [threading.Thread(target=produce, args=(n,)) for n in range(8)]
        for thread in consumers + producers:
            thread.start()
        for thread in producers:
            thread.join(60)
        items.join()
        for _ in consumers:
            items.put(None)
        for thread in consumers:
            thread.join(60)
        assert sorted(taken) == [(n, i) for n in range(8) for i in range(200)]
