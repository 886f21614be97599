"""get(timeout=...) waits without polling and never sleeps while there is a message."""

import itertools
import signal
import threading
import time
from collections import Counter

import pytest
from helpers import LONG, PATIENCE, Getter, asleep, bodies

import qindex
from qindex._core import lib
from qindex.testing import SimulatedDisk, abandon


@pytest.mark.parametrize("timeout", [0, 0.0, 0.001, 0.02])
def test_an_empty_queue_gives_none_when_the_time_is_over(queue, timeout):
    begin = time.monotonic()
    assert queue.get(timeout=timeout) is None
    assert timeout <= time.monotonic() - begin < PATIENCE


def test_a_message_that_is_there_needs_no_wait(queue):
    queue.publish(b"a")
    queue.publish_many([b"b", b"c", b"x" * 100_000])
    assert queue.get(timeout=LONG).body == b"a"
    assert queue.get(timeout=None).body == b"b"
    assert bodies(queue.get_many(2, timeout=None)) == [b"c", b"x" * 100_000]


@pytest.mark.parametrize("timeout", [-1, -0.5, float("nan")])
def test_a_time_below_zero_is_refused(store, queue, timeout):
    queue.publish(b"a")
    for get in (
        lambda: queue.get(timeout=timeout),
        lambda: queue.get_many(1, timeout=timeout),
        lambda: queue.get_many(0, timeout=timeout),
        lambda: store.get(["orders"], timeout=timeout, create=True),
    ):
        with pytest.raises(ValueError, match="timeout"):
            get()
    assert (queue.ready, queue.unacked) == (1, 0)


@pytest.mark.parametrize("arguments", [{"timeout": "soon"}, {"wait": 1}, {"timeout": 0, "a": 1}])
def test_what_is_no_time_is_a_type_error(queue, arguments):
    with pytest.raises(TypeError):
        queue.get(**arguments)
    with pytest.raises(TypeError):
        queue.get(1)


@pytest.mark.parametrize("timeout", [LONG, 10**12, float("inf"), None])
def test_a_publish_wakes_who_waits(queue, timeout):
    getter = Getter(lambda: queue.get(timeout=timeout))
    asleep(getter)
    queue.publish(b"a")
    assert getter.result().body == b"a"


PUBLISHES = {
    "plain": lambda store, queue: queue.publish(b"a"),
    "headers": lambda store, queue: queue.publish(b"a", headers={"n": 1}),
    "big": lambda store, queue: queue.publish(b"a" * 100_000),
    "batch": lambda store, queue: queue.publish_many([b"a", b"b"]),
    "fan-out": lambda store, queue: store.publish(["other", "orders"], b"a", create=True),
}


@pytest.mark.parametrize("kind", PUBLISHES)
def test_every_way_to_publish_wakes(store, queue, kind):
    getter = Getter(lambda: queue.get_many(5, timeout=LONG))
    asleep(getter)
    PUBLISHES[kind](store, queue)
    assert getter.result()[0].body[:1] == b"a"


def test_a_batch_wakes_as_many_as_it_has_messages(queue):
    getters = [Getter(lambda: queue.get(timeout=LONG)) for _ in range(6)]
    asleep(*getters)
    queue.publish_many([b"%d" % i for i in range(6)])
    assert sorted(getter.result().req_id for getter in getters) == list(range(6))


@pytest.mark.parametrize("settle", ["nack", "nack_many"])
def test_a_nack_wakes(queue, settle):
    queue.publish(b"a")
    taken = queue.get()
    getter = Getter(lambda: queue.get(timeout=LONG))
    asleep(getter)
    getattr(queue, settle)(taken if settle == "nack" else [taken])
    again = getter.result()
    assert (again.body, again.delivery_count) == (b"a", 2)


def test_several_queues_are_asked_in_order_of_preference(store):
    names = ["urgent", "normal", "slow"]
    for name in reversed(names):
        store.queue(name).publish(name.encode())
    got = [store.get(names, timeout=timeout) for timeout in (0, LONG, None)]
    assert [(m.queue, m.body) for m in got] == [(name, name.encode()) for name in names]
    assert store.get(names) is None
    assert store.get(names, timeout=0.01) is None
    for message in got:
        store.queue(message.queue).ack(message)


@pytest.mark.parametrize("count", [1, 2, 20])
def test_each_of_several_queues_wakes(store, count):
    names = [f"q{i}" for i in range(count)]
    for name in names[:: max(1, count // 3)]:
        getter = Getter(lambda: store.get(names, timeout=LONG, create=True))
        asleep(getter)
        store.queue(name).publish(b"x" * 100_000)
        message = getter.result()
        assert (message.queue, len(message.body)) == (name, 100_000)
    assert store.queue(names[0]).get() is None


def test_what_several_queues_are_is_checked(store):
    with pytest.raises(TypeError):
        store.get("orders")
    with pytest.raises(ValueError, match="queue"):
        store.get([])


@pytest.mark.parametrize("get", ["get", "get_many", "several"])
def test_close_ends_every_wait(open_store, get):
    store = open_store()
    queue, other = store.queue("a"), store.queue("b")
    calls = {
        "get": lambda: queue.get(timeout=None),
        "get_many": lambda: queue.get_many(3, timeout=LONG),
        "several": lambda: store.get(["b", "a"], timeout=LONG, create=True),
    }
    getters = [Getter(calls[get]) for _ in range(3)]
    asleep(*getters)
    other.publish_many([]) if get == "several" else other.publish(b"not for them")
    store.close()
    for getter in getters:
        with pytest.raises(qindex.StoreClosed):
            getter.result()


def test_a_deleted_queue_ends_the_wait(store, queue):
    getter = Getter(lambda: queue.get(timeout=LONG))
    asleep(getter)
    store.delete_queue("orders")
    with pytest.raises(qindex.StoreClosed):
        getter.result()


def test_a_store_that_fails_ends_the_wait():
    disk = SimulatedDisk(seed=1)
    store = qindex.open("/", disk=disk)
    queue = store.queue("a")
    queue.publish(b"a")
    disk.fault(1, "eio", sticky=True)
    with pytest.raises(qindex.OutcomeUnknown):
        queue.sync()
    with pytest.raises(qindex.StoreFailed):
        queue.get(timeout=LONG)
    abandon(store)


def test_a_reader_may_not_take(open_store, tmp_path):
    open_store().queue("a").publish(b"a")
    with qindex.open(tmp_path / "data", read_only=True) as reader:
        with pytest.raises(qindex.ReadOnly):
            reader.queue("a").get(timeout=LONG)
        with pytest.raises(qindex.ReadOnly):
            reader.get(["a"], timeout=LONG)


def test_a_signal_handler_runs_during_a_wait(queue):
    """The handler may end the wait by raising, as that of Ctrl-C does; nothing is taken then."""

    class Stop(Exception):
        pass

    def stop(number, frame):
        raise Stop

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        ident = threading.main_thread().ident
        timer = threading.Timer(0.02, signal.pthread_kill, (ident, signal.SIGUSR1))
        timer.start()
        begin = time.monotonic()
        with pytest.raises(Stop):
            queue.get(timeout=LONG)
        assert time.monotonic() - begin < PATIENCE
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    queue.publish(b"a")
    assert queue.get(timeout=LONG).body == b"a"


def test_a_signal_whose_handler_returns_changes_nothing(queue):
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        timer = threading.Timer(
            0.02, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1)
        )
        timer.start()
        assert queue.get(timeout=0.15) is None
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [signal.SIGUSR1]


def test_a_wait_leaves_an_idle_queue_asleep(open_store):
    """To look for what cannot be there would open its files again, with a sync, at every pause."""
    store = open_store(idle=0.02)
    queue = store.queue("a")
    end = time.monotonic() + PATIENCE
    while queue.stats().loaded:
        assert time.monotonic() < end
        time.sleep(0.005)
    epoch = queue.stats().journal_bytes
    assert queue.get(timeout=0.12) is None  # in the main thread: with pauses
    assert (queue.stats().loaded, queue.stats().journal_bytes) == (False, epoch)
    getter = Getter(lambda: queue.get(timeout=LONG))
    asleep(getter)
    queue.publish(b"a")
    assert getter.result().body == b"a"


def test_who_is_woken_and_takes_something_else_passes_it_on(store):
    """One waits for both queues and takes from the first: the other must hear of the second."""
    second = store.queue("second")
    both = Getter(lambda: store.get(["first", "second"], timeout=LONG, create=True))
    asleep(both)
    one = Getter(lambda: second.get(timeout=LONG))
    asleep(one)
    store.publish(["second", "first"], b"a", create=True)
    assert both.result().queue == "first"
    assert one.result().queue == "second"


def test_on_a_disk_for_one_thread_time_passes_instead():
    """Nobody else could publish: a wait of an hour takes no time, but the clock goes on."""
    disk = SimulatedDisk(seed=1)
    with qindex.open("/", disk=disk) as store:
        queue = store.queue("a")
        queue.publish(b"an hour", ttl=1e6)
        before = lib.qi_store_clock_us(store._handle)
        assert queue.get(timeout=3600).body == b"an hour"
        assert lib.qi_store_clock_us(store._handle) == before
        begin = time.monotonic()
        assert queue.get(timeout=3600) is None
        assert store.get(["a", "b"], timeout=0.5, create=True) is None
        assert time.monotonic() - begin < PATIENCE
        assert lib.qi_store_clock_us(store._handle) - before == pytest.approx(3600.5e6, abs=10)
        with pytest.raises(ValueError, match="one thread"):
            queue.get(timeout=None)


PRODUCERS = CONSUMERS = 8
PER_PRODUCER = 2000


def produce(queue, number):
    for i in range(PER_PRODUCER):
        queue.publish(b"%d:%d" % (number, i))


def consume(queue, taken, number):
    while True:
        if number % 2:
            message = queue.get(timeout=LONG)
            got = [message] if message else []
        else:
            got = queue.get_many(1 + number, timeout=LONG)
        assert got, "a consumer slept while there was something, or nobody sent the end"
        for message in got:
            if message.body == b"end":
                queue.nack(message)  # for the next consumer
                return
            if message.delivery_count == 1 and message.req_id % 97 == 0:
                queue.nack(message)  # the other way to wake
            else:
                taken.append(message)
                queue.ack(message)


def test_eight_producers_and_eight_waiting_consumers_lose_nothing(open_store):
    queue = open_store(max_journal_entries=500, segment_entries=64).queue("a")
    taken = [[] for _ in range(CONSUMERS)]
    consumers = [
        Getter(lambda n=n: consume(queue, taken[n], n) or "done") for n in range(CONSUMERS)
    ]
    producers = [Getter(lambda n=n: produce(queue, n) or "done") for n in range(PRODUCERS)]
    for producer in producers:
        assert producer.result() == "done"
    end = time.monotonic() + PATIENCE
    while sum(map(len, taken)) < PRODUCERS * PER_PRODUCER and time.monotonic() < end:
        time.sleep(0.001)
    queue.publish(b"end")
    for consumer in consumers:
        assert consumer.result() == "done"
    got = Counter(message.body for message in itertools.chain(*taken))
    expected = {b"%d:%d" % (n, i) for n in range(PRODUCERS) for i in range(PER_PRODUCER)}
    assert got.keys() == expected
    assert max(got.values()) == 1
    assert len(queue) == 1  # the end
