"""The broker is killed again and again under publishers and consumers that use confirms and acks.

What holds: nothing that was confirmed is lost; messages come in order; what comes twice says that
it is redelivered; what was acked before something that was confirmed does not come again; and what
was rejected is a dead letter that says so. QINDEX_KILLS sets how often.
"""

from __future__ import annotations

import os
import signal
import threading

import pika
import pytest
from broker_process import BrokerProcess, connect
from pika.exceptions import AMQPError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("no_socket_is_left_to_other_tests"),
]
KILLS = int(os.environ.get("QINDEX_KILLS", "4"))
QUEUES = 3
REJECTED_EACH = 7
DEAD, MARKS = "dead", "marks"
PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Publisher(threading.Thread):
    """Publishes numbers to one queue, each confirmed before the next, until the server dies."""

    def __init__(self, url, queue, first):
        super().__init__()
        self.url, self.queue = url, queue
        self.next = first  # the number that is not confirmed
        self.confirmed = threading.Event()

    def run(self):
        try:
            channel = connect(self.url).channel()
            channel.confirm_delivery()
            while True:
                channel.basic_publish("", self.queue, b"%d" % self.next, PERSISTENT)
                self.next += 1
                if self.next % 20 == 0:
                    self.confirmed.set()
        except (AMQPError, OSError):
            self.confirmed.set()


class Taker(threading.Thread):
    """Takes, and acks or rejects: what was taken, and whether it was said to be redelivered.

    It publishes a mark now and then. What it has settled before a mark that was confirmed is in
    `settled`: the server has read that, so it must not come again.
    """

    def __init__(self, url, queue):
        super().__init__()
        self.url, self.queue = url, queue
        self.taken = []
        self.settled = set()

    def run(self):
        try:
            channel = connect(self.url).channel()
            channel.confirm_delivery()
            channel.basic_qos(prefetch_count=5)
            since = []
            for method, _, body in channel.consume(self.queue):
                number = int(body)
                self.taken.append((number, method.redelivered))
                if number % REJECTED_EACH == 0:
                    channel.basic_reject(method.delivery_tag, requeue=False)
                else:
                    channel.basic_ack(method.delivery_tag)
                since.append(number)
                if len(since) == 5:
                    channel.basic_publish("", MARKS, b"", PERSISTENT)
                    self.settled.update(since)
                    since = []
        except (AMQPError, OSError):
            pass


def test_nothing_confirmed_is_lost_in_many_kills(tmp_path):
    directory = str(tmp_path / "data")
    names = [f"q{number}" for number in range(QUEUES)]
    with BrokerProcess(directory) as broker:
        connection = connect(broker.url)
        channel = connection.channel()
        channel.exchange_declare("dlx", "fanout", durable=True)
        for name in names:
            arguments = {"x-dead-letter-exchange": "dlx"}
            channel.queue_declare(name, durable=True, arguments=arguments)
        channel.queue_declare(DEAD, durable=True)
        channel.queue_bind(DEAD, "dlx")
        channel.queue_declare(MARKS, durable=True, arguments={"x-max-length": 10})
        connection.close()
    next_numbers = dict.fromkeys(names, 0)
    taken = {name: [] for name in names}
    settled = {name: set() for name in names}
    for _ in range(KILLS):
        with BrokerProcess(directory) as broker:
            publishers = [Publisher(broker.url, name, next_numbers[name]) for name in names]
            takers = [Taker(broker.url, name) for name in names]
            for thread in [*publishers, *takers]:
                thread.start()
            for publisher in publishers:
                publisher.confirmed.wait()
            broker.end(signal.SIGKILL)
            for thread in [*publishers, *takers]:
                thread.join()
        for publisher, taker in zip(publishers, takers, strict=True):
            again = settled[taker.queue] & {number for number, _ in taker.taken}
            assert not again, f"settled, and delivered again: {again}"
            settled[taker.queue] |= taker.settled
            taken[taker.queue] += taker.taken
            # The one that was not confirmed may be in the queue: the next publisher sends another.
            next_numbers[publisher.queue] = publisher.next + 1
            taken[taker.queue].append(("may be missing", publisher.next))
    with BrokerProcess(directory) as broker:
        connection = connect(broker.url)
        channel = connection.channel()
        for name in names:
            for method, _, body in left_in(channel, name):
                assert int(body) not in settled[name]
                taken[name].append((int(body), method.redelivered))
        check_dead(list(left_in(channel, DEAD)), settled)
        connection.close()
    for name in names:
        missing = {number for mark, number in taken[name] if mark == "may be missing"}
        found = [each for each in taken[name] if each[0] != "may be missing"]
        check(found, missing, next_numbers[name])


def left_in(channel, name):
    """All that a queue has."""
    while (answer := channel.basic_get(name, auto_ack=True))[0] is not None:
        yield answer


def check_dead(found, settled):
    """What was rejected is a dead letter of its queue, perhaps twice, and says how it died."""
    dead = {name: set() for name in settled}
    for _, properties, body in found:
        (death,) = properties.headers["x-death"]
        assert (death["reason"], death["count"]) == ("rejected", 1)
        assert (death["exchange"], death["routing-keys"]) == ("", [death["queue"]])
        assert properties.headers["x-first-death-queue"] == death["queue"]
        dead[death["queue"]].add(int(body))
    for name, numbers in settled.items():
        rejected = {number for number in numbers if number % REJECTED_EACH == 0}
        assert rejected <= dead[name], f"rejected and lost: {sorted(rejected - dead[name])}"
        assert all(number % REJECTED_EACH == 0 for number in dead[name])


def check(found, missing, end):
    """All numbers below `end` came, but those that no confirm came for; first times in order."""
    seen = -1
    for number, redelivered in found:
        if number <= seen:
            assert redelivered, f"{number} came again and did not say so"
            continue
        skipped = set(range(seen + 1, number))
        assert skipped <= missing, f"confirmed and lost: {sorted(skipped - missing)}"
        seen = number
    left = set(range(seen + 1, end))
    assert left <= missing, f"confirmed and lost: {sorted(left - missing)}"
