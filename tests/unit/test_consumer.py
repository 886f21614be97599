"""A consumer of several queues: turns, limits, what it has, a changing set, its end."""

import threading
import time

import pytest

import qindex
from qindex.testing import SimulatedDisk, abandon


@pytest.fixture
def shop(store):
    for name in "abc":
        store.queue(name).publish_many([f"{name}{i}".encode() for i in range(4)])
    return store


def bodies(consumer, count):
    return [consumer.get().body for _ in range(count)]


def later(call):
    thread = threading.Thread(target=lambda: (time.sleep(0.05), call()))
    thread.start()
    return thread


def test_the_queues_take_turns(shop):
    with shop.consumer(["a", "b", "c"]) as consumer:
        assert bodies(consumer, 6) == [b"a0", b"b0", b"c0", b"a1", b"b1", b"c1"]
        shop.queue("b").purge()
        assert bodies(consumer, 4) == [b"a2", b"c2", b"a3", b"c3"]


def test_a_queue_that_always_has_messages_keeps_no_other_waiting(store):
    full, other = store.queue("full"), store.queue("other")
    full.publish_many([b"x"] * 100)
    with store.consumer(["full", "other"]) as consumer:
        bodies(consumer, 10)
        other.publish(b"y")
        assert b"y" in bodies(consumer, 2)


def test_by_preference_the_first_queue_goes_first(shop):
    with shop.consumer(["b", "a"], fair=False) as consumer:
        assert bodies(consumer, 5) == [b"b0", b"b1", b"b2", b"b3", b"a0"]
        shop.queue("b").publish(b"b4")
        assert bodies(consumer, 2) == [b"b4", b"a1"]


def test_its_limit_counts_what_is_unacked_whoever_settles_it(shop):
    with shop.consumer(["a", "b"], prefetch=3) as consumer:
        first, second, third = (consumer.get() for _ in range(3))
        assert consumer.get() is None
        assert consumer.get(timeout=0.01) is None
        assert consumer.unacked == [first, second, third]
        consumer.ack(first)
        assert consumer.get().body == b"b1"
        second.ack()  # past the consumer
        assert consumer.get().body == b"a2"
        shop.nack(third.token)
        assert consumer.get() is not None
        assert len(consumer.unacked) == 3


def test_a_message_whose_lease_has_ended_does_not_count(shop):
    with shop.consumer(["a"], prefetch=1, lease=0.01) as consumer:
        late = consumer.get()
        again = consumer.get(timeout=5)
        assert (again.body, again.delivery_count) == (b"a0", 2)
        with pytest.raises(qindex.LeaseExpired):
            consumer.ack(late)
        assert consumer.unacked == [again]  # that delivery is another one
        consumer.touch(again, 60)
        consumer.ack(again.token)
        assert consumer.unacked == []


def test_a_place_that_becomes_free_wakes_a_thread_that_waits_for_it(shop):
    with shop.consumer(["a"], prefetch=1) as consumer:
        message = consumer.get()
        thread = later(lambda: consumer.ack(message))
        assert consumer.get(timeout=10).body == b"a1"
        thread.join()


def test_threads_share_one_limit(shop):
    most, seen, lock = 2, [], threading.Lock()

    def work(consumer):
        while (message := consumer.get(timeout=0.2)) is not None:
            with lock:
                seen.append(len(consumer.unacked))
            time.sleep(0.001)
            consumer.ack(message)

    with shop.consumer(["a", "b", "c"], prefetch=most) as consumer:
        threads = [threading.Thread(target=work, args=[consumer]) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (len(seen), max(seen) <= most) == (12, True)
    assert sum(len(shop.queue(name)) for name in "abc") == 0


def test_at_its_end_what_it_has_goes_back_to_its_place(shop):
    with shop.consumer(["a", "b"]) as consumer:
        consumer.ack(consumer.get())
        consumer.get().ack()
        assert bodies(consumer, 3) == [b"a1", b"b1", b"a2"]
    assert (shop.queue("a").ready, shop.queue("b").ready) == (3, 3)
    assert (shop.queue("a").unacked, shop.queue("b").unacked) == (0, 0)
    assert [shop.queue("a").get().body for _ in range(3)] == [b"a1", b"a2", b"a3"]
    consumer.close()
    for call in (consumer.get, consumer.pause, lambda: consumer.add(["c"])):
        with pytest.raises(qindex.StoreClosed, match="consumer is closed"):
            call()
    assert list(consumer) == []


def test_closing_ends_a_wait_and_takes_nothing(shop):
    consumer = shop.consumer(["empty"], create=True)
    thread = later(consumer.close)
    assert list(consumer) == []
    thread.join()
    shop.queue("empty").publish(b"x")
    assert (shop.queue("empty").ready, shop.queue("empty").unacked) == (1, 0)


def test_a_closed_store_ends_it(shop):
    consumer = shop.consumer(["a"])
    consumer.get()
    shop.close()
    with pytest.raises(qindex.StoreClosed):
        consumer.get()
    consumer.close()


def test_while_it_is_paused_it_takes_nothing(shop):
    with shop.consumer(["a"]) as consumer:
        consumer.pause()
        assert consumer.paused
        assert consumer.get() is None
        thread = later(consumer.resume)
        assert consumer.get(timeout=10).body == b"a0"
        assert not consumer.paused
        thread.join()


def test_a_thread_that_waits_for_a_message_hears_of_a_pause(store):
    queue, found = store.queue("q"), []
    with store.consumer(["q"]) as consumer:
        thread = threading.Thread(target=lambda: found.append(consumer.get(timeout=10)))
        thread.start()
        time.sleep(0.05)
        consumer.pause()
        time.sleep(0.2)
        queue.publish(b"x")
        time.sleep(0.1)
        assert (found, queue.ready) == ([], 1)
        consumer.resume()
        thread.join()
        assert found[0].body == b"x"


def test_queues_come_and_go(shop):
    with shop.consumer(["a"]) as consumer:
        consumer.add(["b", "a", "b"])
        assert consumer.queues == ["a", "b"]
        taken = bodies(consumer, 2)
        consumer.remove(["a"])
        assert (taken, bodies(consumer, 2)) == ([b"a0", b"b0"], [b"b1", b"b2"])
        assert len(consumer.unacked) == 4
        with pytest.raises(qindex.QueueMissing, match="'a'"):
            consumer.remove(["b", "a"])
        with pytest.raises(qindex.QueueMissing):
            consumer.add(["c", "typo"])
        assert consumer.queues == ["b"]
        assert "typo" not in shop


def test_a_wait_without_queues_ends_when_one_comes(shop):
    with shop.consumer([]) as consumer:
        assert consumer.get(timeout=0.01) is None
        thread = later(lambda: consumer.add(["new"], create=True))
        other = later(lambda: (time.sleep(0.1), shop.queue("new").publish(b"x")))
        assert consumer.get(timeout=10).body == b"x"
        thread.join()
        other.join()


def test_a_deleted_queue_leaves_the_set(shop):
    with shop.consumer(["a", "b"]) as consumer:
        bodies(consumer, 2)
        shop.delete_queue("a")
        assert consumer.queues == ["b"]
        assert bodies(consumer, 3) == [b"b1", b"b2", b"b3"]
        assert consumer.queues == ["b"]
        assert [message.body for message in consumer.unacked] == [b"b0", b"b1", b"b2", b"b3"]
        thread = later(lambda: shop.delete_queue("b"))
        assert consumer.get(timeout=0.3) is None
        thread.join()
        assert consumer.queues == []
    assert shop.queues() == ["c"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"queues": "a"}, TypeError),
        ({"queues": [b"a"]}, TypeError),
        ({"queues": ["a"], "prefetch": 0}, ValueError),
        ({"queues": ["a"], "prefetch": 1.5}, TypeError),
        ({"queues": ["a"], "fair": 1}, TypeError),
        ({"queues": ["a"], "lease": -1}, ValueError),
        ({"queues": ["a", "typo"]}, qindex.QueueMissing),
    ],
    ids=str,
)
def test_wrong_options_are_refused(shop, options, error):
    with pytest.raises(error):
        shop.consumer(**options)
    assert shop.queues() == ["a", "b", "c"]


def test_a_message_of_somebody_else_is_refused_or_settled_as_the_store_does(shop):
    with shop.consumer(["a"]) as consumer:
        mine, other = consumer.get(), shop.queue("a").get()
        consumer.ack(other)
        assert consumer.unacked == [mine]
        with pytest.raises(TypeError):
            consumer.ack(mine.req_id)
        with pytest.raises(TypeError, match="None"):
            consumer.nack(None)
        with pytest.raises(qindex.AlreadyAcked):
            consumer.ack(other)
        assert consumer.unacked == [mine]


@pytest.mark.parametrize("end", ["close", "kill", "power cut"])
def test_what_a_consumer_had_is_ready_again_after_any_end(end):
    disk = SimulatedDisk(seed=3)
    store = qindex.open("/", disk=disk, format=2)
    store.queue("a").publish_many([b"0", b"1", b"2"], confirm=True)
    consumer = store.consumer(["a"], prefetch=2)
    assert [consumer.get().body, consumer.get().body] == [b"0", b"1"]
    token = next(iter(consumer.unacked)).token
    consumer.pause()
    store.sync()
    if end == "close":
        store.close()
    else:
        disk = disk.kill() if end == "kill" else disk.power_cut(seed=3)
        abandon(store)
    with qindex.open("/", disk=disk) as store:
        assert store.queue("a").unacked == 0
        with pytest.raises(qindex.DeliveryEnded):
            store.ack(token)
        messages = store.queue("a").get_many(5)
        assert [message.body for message in messages] == [b"0", b"1", b"2"]
        assert [message.redelivered for message in messages[:2]] == [True, True]
