"""What a queue asks of a consumer, and whose turn it is among those of one queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from qindex._wire import Taken

if TYPE_CHECKING:
    from qindex.broker.queues import Queue


class Consumer(Protocol):
    """Somebody who takes messages from a queue as they come."""

    no_ack: bool
    exclusive: bool
    priority: int
    waiting: bool  # the queue's own: it is among those that may have credit

    @property
    def shares_credit(self) -> bool:
        """True if a delivery to another consumer may take its credit."""

    def credit(self) -> int:
        """How many messages it takes now."""

    def deliver(self, queue: Queue, taken: Taken, share: range) -> None:
        """These of the messages that were taken are its own. With no_ack they are settled already.

        They are read before it returns; `queue.entry(taken, at)` is one of them.
        """

    def cancelled(self, queue: Queue) -> None:
        """The queue is gone."""


class Turns:
    """The consumers of a queue that may have credit, by priority; each has its turn."""

    def __init__(self, consumers: dict[Consumer, None], *, single_active: bool) -> None:
        self._consumers = consumers  # all of the queue's
        self._single_active = single_active
        self._chosen: Consumer | None = None  # the single active one
        self._waiting: dict[int, deque[Consumer]] = {}  # by priority, the highest first

    def may_take(self, consumer: Consumer) -> None:
        """It has credit again. O(1). A single active consumer is asked for its credit each time."""
        if not consumer.waiting and not self._single_active:
            if consumer.priority not in self._waiting:
                self._waiting[consumer.priority] = deque()
                self._waiting = dict(sorted(self._waiting.items(), reverse=True))
            consumer.waiting = True
            self._waiting[consumer.priority].append(consumer)

    def leave(self, consumer: Consumer) -> None:
        if consumer.waiting:
            consumer.waiting = False
            self._waiting[consumer.priority].remove(consumer)

    def clear(self) -> None:
        self._waiting.clear()

    def next(self, most: int) -> tuple[deque[Consumer] | None, int]:
        """The highest priority that has a consumer with credit, and the credit of all of it."""
        if self._single_active:
            first = self.choose()
            if first is None:
                return None, 0
            most = 1 if first.shares_credit else most
            return deque([first]), min(max(0, first.credit()), most)
        for waiting in self._waiting.values():
            while waiting and waiting[0].credit() <= 0:
                waiting.popleft().waiting = False
            wanted = 0
            for consumer in waiting:
                if consumer.shares_credit:
                    return waiting, 1
                wanted += max(0, consumer.credit())
                if wanted >= most:
                    return waiting, most
            if wanted:
                return waiting, wanted
        return None, 0

    def choose(self) -> Consumer | None:
        """The one that is chosen stays it as long as it is there, whoever comes later."""
        if self._chosen not in self._consumers:
            by_priority = sorted(self._consumers, key=lambda consumer: -consumer.priority)
            self._chosen = by_priority[0] if by_priority else None
        return self._chosen


def shares(waiting: deque[Consumer], start: int, stop: int) -> Iterator[tuple[Consumer, range]]:
    """Who gets which of the messages from `start` to `stop`: one each in turn while it has credit.

    Each gets its share before the next one is asked for. Fewer, if the credit ends. As many rounds
    as all can take are given out together, so two consumers of one channel may hear their messages
    of these rounds one after the other; each hears its own in order.
    """
    while start < stop:
        while waiting and waiting[0].credit() <= 0:
            waiting.popleft().waiting = False
        count = len(waiting)
        if count == 0:
            return
        if count == 1:
            most = min(waiting[0].credit(), stop - start)
            yield waiting[0], range(start, start + most)
            start += most
            continue
        rounds = (stop - start) // count
        if rounds > 1:
            rounds = min(rounds, min(consumer.credit() for consumer in waiting))
        if rounds > 1 and not any(consumer.shares_credit for consumer in waiting):
            end = start + rounds * count
            for at, consumer in enumerate(tuple(waiting)):
                yield consumer, range(start + at, end, count)
            start = end
        else:
            consumer = waiting[0]
            waiting.rotate(-1)
            yield consumer, range(start, start + 1)
            start += 1
