"""A virtual host without a server, in memory and in a store, for tests of the broker."""

from __future__ import annotations

import pytest

import qindex
from qindex.broker.message import Message
from qindex.broker.vhost import VHost
from qindex.brokers.amqp import Properties, encode_properties


class Turns:
    """An event loop that runs when it is told to."""

    def __init__(self):
        self.soon = []
        self.later = []

    def call_soon(self, call, *args):
        self.soon.append((call, args))

    def call_later(self, delay, call, *args):
        timer = Timer(delay, call, args)
        self.later.append(timer)
        return timer

    def run(self):
        while self.soon:
            self.step()

    def step(self):
        call, args = self.soon.pop(0)
        call(*args)

    def fire(self):
        """All timers that are set now, whatever the time is."""
        timers, self.later = self.later, []
        for timer in timers:
            if not timer.cancelled:
                timer.call(*timer.args)
        self.run()


class Timer:
    def __init__(self, delay, call, args):
        self.delay, self.call, self.args = delay, call, args
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


class Consumer:
    shares_credit = False

    def __init__(self, most=1 << 20, *, no_ack=False, exclusive=False, priority=0):
        self.most, self.no_ack, self.exclusive, self.priority = most, no_ack, exclusive, priority
        self.waiting = self.gone = False
        self.entries = []

    def credit(self):
        return self.most - len(self.entries)

    def deliver(self, queue, taken, share):
        self.entries += [queue.entry(taken, at) for at in share]

    def cancelled(self, queue):
        self.gone = True

    @property
    def bodies(self):
        return [entry.message.body for entry in self.entries]


class NoSyncs:
    """Syncs of a store whose confirms nobody waits for."""

    def __init__(self, store):
        pass

    def sync(self, ended):
        pass

    def close(self):
        pass


@pytest.fixture
def turns():
    return Turns()


@pytest.fixture(params=["memory", "store"])
def vhost(request, turns, tmp_path):
    if request.param == "memory":
        yield VHost("/", turns)
        return
    with qindex.open(tmp_path / "s", format=2, expire=False) as store:
        yield VHost("/", turns, store)


def declare(vhost, name="q", **arguments):
    named = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    return vhost.declare_queue(
        name, durable=True, auto_delete=False, owner=None, user=None, arguments=named
    )


def publish(vhost, *bodies, key="q", exchange="", priority=0, **properties):
    raw = encode_properties(Properties(delivery_mode=2, **properties))
    outcomes = []
    for body in bodies:
        message = Message(exchange, [key], raw, body, persistent=True, priority=priority)
        outcomes.append(vhost.publish(message, vhost.exchange(exchange)))
    return outcomes


def drain(queue):
    bodies = []
    while (entry := queue.get()) is not None:
        bodies.append(entry.message.body)
        queue.ack([entry])
    return bodies
