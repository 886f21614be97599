"""Whose turn it is among the queues of one connection, each of which could fill it alone."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest

from qindex.serve.deliveries import TURN_BYTES, Deliveries


class Loop(deque):
    """Calls what is to be called soon, in order."""

    def run(self, most=1000):
        while self:
            self.popleft()()
            most -= 1
            assert most, "it never comes to rest"


class Connection:
    """Deliveries with a flush as a session has it, to a client that reads as quickly as it gets."""

    def __init__(self, loop):
        self.outlet = SimpleNamespace(is_slow=False)
        self.deliveries = Deliveries(self.outlet, self.flush_later)
        self._loop = loop
        self._is_flushing = False

    def flush_later(self):
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.append(self._flush)

    def _flush(self):
        self._is_flushing = False
        self.deliveries.written()


class Consumer:
    def __init__(self, queue):
        self.queue = queue


class Queue:
    """A queue with one consumer; each of its turns delivers one batch."""

    def __init__(self, name, batches, size, connection, loop, seen):
        self.name, self.batches, self.size, self.has_credit = name, batches, size, True
        self.consumer = Consumer(self)
        self._connection, self._loop, self._seen = connection, loop, seen
        self._is_woken = False

    def may_take(self, consumer):
        if not self._is_woken:
            self._is_woken = True
            self._loop.append(self._turn)

    def _turn(self):
        self._is_woken = False
        takes = self.batches and self._connection.deliveries.takes(self.consumer)
        if takes and self.has_credit:
            self.batches -= 1
            self._seen.append(self.name)
            self._connection.deliveries.add(self.consumer, self.size)
            self._connection.flush_later()
            self.may_take(self.consumer)


def play(queues, *, size=TURN_BYTES + 1, batches=5, without_credit=()):
    loop, seen = Loop(), []
    connection = Connection(loop)
    made = [Queue(name, batches, size, connection, loop, seen) for name in range(queues)]
    for queue in made:
        queue.has_credit = queue.name not in without_credit
        queue.may_take(queue.consumer)
    loop.run()
    return seen


@pytest.mark.parametrize("queues", [1, 2, 3, 10])
def test_queues_that_fill_a_turn_each_have_theirs_one_after_the_other(queues):
    assert play(queues) == list(range(queues)) * 5


def test_queues_that_do_not_fill_a_turn_share_it():
    assert play(3, size=1, batches=3) == [0, 1, 2] * 3


def test_a_queue_goes_on_if_those_that_have_waited_take_nothing():
    assert play(3, without_credit=[1, 2]) == [0] * 5
    assert play(4, without_credit=[1]) == [0, 2, 3] * 5
