"""The broker is killed again and again under publishers and consumers that use confirms and acks.

What holds: nothing that was confirmed is lost; messages come in order; and what comes twice says
that it is redelivered. QINDEX_KILLS sets how often.
"""

from __future__ import annotations

import gc
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
]
KILLS = int(os.environ.get("QINDEX_KILLS", "4"))
QUEUES = 3
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(autouse=True)
def no_socket_is_left_to_other_tests():
    yield
    gc.collect()


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
    """Takes and acks; what was taken, and whether it was said to be redelivered."""

    def __init__(self, url, queue):
        super().__init__()
        self.url, self.queue = url, queue
        self.taken = []

    def run(self):
        try:
            channel = connect(self.url).channel()
            channel.basic_qos(prefetch_count=5)
            for method, _, body in channel.consume(self.queue):
                self.taken.append((int(body), method.redelivered))
                channel.basic_ack(method.delivery_tag)
        except (AMQPError, OSError):
            pass


def test_nothing_confirmed_is_lost_in_many_kills(tmp_path):
    directory = str(tmp_path / "data")
    names = [f"q{number}" for number in range(QUEUES)]
    with BrokerProcess(directory) as broker:
        connection = connect(broker.url)
        for name in names:
            connection.channel().queue_declare(name, durable=True)
        connection.close()
    next_numbers = dict.fromkeys(names, 0)
    taken = {name: [] for name in names}
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
            taken[taker.queue] += taker.taken
            # The one that was not confirmed may be in the queue: the next publisher sends another.
            next_numbers[publisher.queue] = publisher.next + 1
            taken[taker.queue].append(("may be missing", publisher.next))
    with BrokerProcess(directory) as broker:
        connection = connect(broker.url)
        channel = connection.channel()
        for name in names:
            while (answer := channel.basic_get(name, auto_ack=True))[0] is not None:
                taken[name].append((int(answer[2]), answer[0].redelivered))
        connection.close()
    for name in names:
        missing = {number for mark, number in taken[name] if mark == "may be missing"}
        found = [each for each in taken[name] if each[0] != "may be missing"]
        check(found, missing, next_numbers[name])


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
