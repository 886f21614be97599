"""Everything at once, from many threads: each message comes out exactly once, nobody hangs.

With the GIL the threads take turns, and only what goes through cffi runs at the same time. Under a
Python without it (docs/guide/), publish, get and ack run at the same time too, on one queue object,
and so do the pools, caches and checks of qindex/*.py: then these tests are about those. No loop
goes on for ever.
"""

import contextlib
import itertools
import os
import subprocess
import sys
import sysconfig
import threading
import time
from random import Random

import pytest
from helpers import SMALL, bodies

import qindex

KNOBS = {**SMALL, "max_journal_entries": 500, "segment_entries": 64}
PRODUCERS = CONSUMERS = 8
PER_PRODUCER = 300
PATIENCE = 120  # seconds, until which a test has failed


@pytest.fixture(autouse=True)
def _short_turns():
    """With the GIL, threads give it up so often that they meet in the middle of things."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def turns():
    """Numbers from 0 on, for a loop that another thread ends; it does not go on for ever."""
    end = time.monotonic() + PATIENCE
    return itertools.takewhile(lambda _: time.monotonic() < end, itertools.count())


def at_once(*works):
    """Start all at the same moment; raise what one of them raises."""
    failures, gate = [], threading.Barrier(len(works))

    def guarded(work):
        try:
            gate.wait()
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


# --- one queue --------------------------------------------------------------------------------


def producer(queue, number, ended):
    """Publishes b"number:0", b"number:1" ... in each of the ways."""
    mine = [b"%d:%d" % (number, i) for i in range(PER_PRODUCER)]
    ways = [{}, {"priority": number % 3}, {"delay": 1e-4}, {"headers": {"n": 1}}, {"ttl": 3600}]

    def produce():
        for i in range(0, PER_PRODUCER, 10):
            queue.publish_many(mine[i : i + 5])
            for body, options in zip(mine[i + 5 : i + 10], ways, strict=True):
                queue.publish(body + b"+" * (i % 90), **options)
        ended.append(number)

    return produce


def take(queue, way):
    ways = [
        lambda: [queue.get()],
        lambda: queue.get_many(7),
        lambda: [queue.get(lease=60)],
        lambda: [queue.get_newest()],
        lambda: [queue.get(timeout=0.01)],
        lambda: queue.get_many(3, timeout=0.01, lease=60),
    ]
    return [message for message in ways[way]() if message is not None]


def consumer(queue, number, ended, acked):
    def consume():
        dice = Random(number)
        for _ in turns():
            if len(ended) == PRODUCERS and len(queue) == 0:
                return
            messages = take(queue, dice.randrange(6))
            if dice.randrange(10) == 0:
                queue.nack_many(messages, delay=dice.choice([None, 1e-4]))
            elif len(messages) == 1:
                queue.ack(messages[0])
                acked.extend(bodies(messages))
            else:
                queue.ack_many(messages)
                acked.extend(bodies(messages))
        raise AssertionError("what was published did not come out")

    return consume


def onlooker(store, queue):
    """Looks, syncs and flushes; every message that it sees is whole."""

    def look():
        for _ in range(20):
            for message in queue.browse():
                assert message.body.count(b":") == 1
            queue.peek()
            assert queue.stats().name == "a"
            queue.flush()
            store.sync()
            store.compact()
            assert store.queues() == ["a"]

    return look


def test_sixteen_threads_on_one_queue_get_each_message_once(open_store):
    store = open_store(**KNOBS)
    queue = store.queue("a")
    ended, acked = [], [[] for _ in range(CONSUMERS)]
    at_once(
        *[producer(queue, number, ended) for number in range(PRODUCERS)],
        *[consumer(queue, number, ended, acked[number]) for number in range(CONSUMERS)],
        onlooker(store, queue),
    )
    came = sorted(body.rstrip(b"+") for one in acked for body in one)
    expected = [b"%d:%d" % (n, i) for n in range(PRODUCERS) for i in range(PER_PRODUCER)]
    assert came == sorted(expected)
    assert len(queue) == 0


# --- several queues ---------------------------------------------------------------------------


class Clerk:
    """Does whatever the dice say, to any of the queues, and keeps its own account."""

    def __init__(self, store, names, seed):
        self.store = store
        self.names = names
        self.dice = Random(seed)
        self.published = self.gone = 0
        self.acked = []

    def __call__(self):
        verbs = [self.publish, self.publish, self.publish_many, self.fan_out, self.ack, self.ack]
        verbs += [self.nack, self.delete, self.purge, self.purge_some, self.flush]
        for _ in range(300):
            verb = self.dice.choice(verbs)
            verb(self.store.queue(self.dice.choice(self.names)))

    def body(self):
        return b"x" * self.dice.choice([10, 100])  # 64 bytes and more are stored in a message file

    def publish(self, queue):
        queue.publish(self.body(), priority=self.dice.randrange(3))
        self.published += 1

    def publish_many(self, queue):
        self.published += len(queue.publish_many([self.body()] * self.dice.randrange(5)))

    def fan_out(self, _queue):
        self.published += len(self.store.publish(self.names, self.body()))

    def ack(self, queue):
        if (message := queue.get()) is not None:
            queue.ack(message)
            self.acked.append((queue.name, message.req_id))
            self.gone += 1

    def nack(self, queue):
        if (message := queue.get()) is not None:
            queue.nack(message)

    def delete(self, queue):
        if (message := queue.peek()) is not None:
            # Another thread may have been faster.
            with contextlib.suppress(qindex.MessageDelivered, qindex.AlreadyAcked):
                queue.delete(message)
                self.gone += 1

    def purge(self, queue):
        if self.dice.randrange(5) == 0:
            self.gone += queue.purge()

    def purge_some(self, queue):
        self.gone += queue.purge(lambda message: message.req_id % 7 == 0)

    def flush(self, queue):
        queue.flush()


def test_what_eight_threads_do_to_three_queues_adds_up(open_store):
    store = open_store(**KNOBS)
    names = ["a", "b", "c"]
    store.create_queues(names)  # publish() to several creates none of them
    clerks = [Clerk(store, names, seed) for seed in range(8)]
    at_once(*clerks)
    left = sum(len(store.queue(name)) for name in names)
    assert sum(clerk.published for clerk in clerks) == sum(clerk.gone for clerk in clerks) + left
    acked = [place for clerk in clerks for place in clerk.acked]
    assert len(set(acked)) == len(acked)


# --- the first use, and the end ---------------------------------------------------------------


def test_threads_that_ask_first_get_one_queue_with_the_rules_that_one_named(open_store):
    store = open_store(**KNOBS)
    for name in map(str, range(50)):
        found = []
        at_once(
            *[lambda name=name, found=found: found.append(store.queue(name))] * 7,
            lambda name=name, found=found: found.append(store.queue(name, max_messages=1)),
        )
        assert len(set(found)) == 1
        found[0].publish(b"1")
        with pytest.raises(qindex.QueueFull):
            found[0].publish(b"2")


def test_threads_that_look_into_an_empty_queue_wait_for_nobody(open_store):
    """They took a buffer out of a pool that another had just emptied."""
    store = open_store(**KNOBS)
    for name in map(str, range(5)):
        queue = store.queue(name)
        at_once(
            *[lambda queue=queue: [queue.get_newest() for _ in range(2000)]] * 8,
        )
        assert len(queue) == 0


def test_threads_that_get_first_share_no_buffer(open_store):
    store = open_store(**KNOBS)
    for name in map(str, range(50)):
        queue, got = store.queue(name), []
        queue.publish_many([b"%d" % number for number in range(16)], priority=3)
        at_once(
            *[lambda queue=queue, got=got: got.append(queue.get())] * 4,
            *[lambda queue=queue, got=got: got.append(queue.get_newest())] * 4,
            *[lambda queue=queue, got=got: got.extend(queue.get_many(2))] * 4,
        )
        assert sorted(bodies(got), key=int) == [b"%d" % number for number in range(16)]
        assert {message.priority for message in got} == {3}


def test_a_queue_that_was_deleted_while_threads_asked_for_it_can_be_made_anew(open_store):
    store = open_store(**KNOBS)

    def use(name):
        for _ in range(20):
            with contextlib.suppress(qindex.StoreClosed):  # deleted since it was asked for
                store.queue(name).publish(b"x")

    for name in map(str, range(30)):
        store.queue(name)
        at_once(
            *[lambda name=name: use(name)] * 3,
            lambda name=name: store.delete_queue(name),
        )
        assert store.queue(name).publish(b"last") >= 0


def until_closed(work, *arguments):
    def run():
        with pytest.raises(qindex.StoreClosed):
            work(*arguments)

    return run


def test_what_returned_before_the_store_was_closed_is_there_at_the_next_open(open_store):
    store = open_store(**KNOBS)
    queue = store.queue("a")
    published, acked = [[] for _ in range(4)], [[] for _ in range(6)]
    enough = threading.Barrier(6)  # the publishers, and two that close

    def publish(number):
        for i in turns():
            body = b"%d:%d" % (number, i)
            queue.publish(body)
            published[number].append(body)
            if i == 200:
                enough.wait()

    def settle(number):
        for i in turns():
            if (message := queue.get(timeout=None if number % 2 else 0)) is None:
                continue
            if i % 5 == 0:
                queue.nack(message)
            else:
                queue.ack(message)
                acked[number].append(message.body)

    def look():
        for _ in turns():
            list(queue.browse())
            queue.flush()
            queue.sync()

    def close():
        enough.wait()
        store.close()

    at_once(
        *[until_closed(publish, number) for number in range(4)],
        *[until_closed(settle, number) for number in range(6)],
        until_closed(look),
        close,
        close,
    )
    done = {body for one in acked for body in one}
    left = [body for one in published for body in one if body not in done]
    found = bodies(open_store(**KNOBS).queue("a").browse())
    assert sorted(found) == sorted(left)


DAEMONS = """
import contextlib, sys, threading
import qindex
queue = qindex.open(sys.argv[1]).queue("a")
started = threading.Semaphore(0)
def use(verb):
    for turn in range(1 << 60):
        with contextlib.suppress(qindex.StoreClosed):
            verb()
        if turn == 1000:
            started.release()
verbs = [lambda: queue.publish(b"x" * 50), lambda: queue.get(), lambda: queue.get(timeout=1e-5)]
for verb in verbs * 2:
    threading.Thread(target=use, args=[verb], daemon=True).start()
for _ in verbs * 2:
    started.acquire()
"""


@pytest.mark.slow
def test_daemon_threads_may_be_in_the_core_when_the_interpreter_ends(tmp_path):
    """It closed the stores that were open, and freed them under these threads."""
    for number in range(3):
        command = [sys.executable, "-c", DAEMONS, str(tmp_path / str(number))]
        done = subprocess.run(command, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr


def test_an_import_does_not_turn_the_gil_on():
    program = """
import sys
is_on = getattr(sys, "_is_gil_enabled", lambda: True)
before = is_on()
import qindex, qindex.aio, qindex.compat, qindex.compat.queuelib, qindex.compat.diskqueue
assert is_on() == before
"""
    own = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, env=own)


def test_this_run_is_without_the_gil_if_its_python_can_be():
    """Else what was imported has turned it on, and the tests above showed nothing: PYTHON_GIL=0."""
    is_on = getattr(sys, "_is_gil_enabled", lambda: True)()
    assert is_on == (not sysconfig.get_config_var("Py_GIL_DISABLED"))


@pytest.mark.parametrize("other", ["create", "in"])
def test_a_queue_that_another_thread_is_creating_is_there_when_a_call_says_so(tmp_path, other):
    """Its folder has its name then; a folder of a draft is nothing yet."""
    with qindex.open(tmp_path) as store:
        for number in range(40):
            name = f"q{number}"
            folder = tmp_path / store.queue_directory(name)

            def create(name=name, folder=folder):
                store.create_queues([name])
                assert folder.is_dir()

            def look(name=name, folder=folder):
                assert any(name in store for _ in turns())
                assert folder.is_dir()

            at_once(create, create if other == "create" else look)
