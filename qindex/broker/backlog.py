"""The messages of a queue that live in memory only, and what every backlog can do.

A backlog knows order, priorities and what is delivered. It knows nothing of consumers and limits:
`queues.py` does. `durable.py` has the backlog that is a queue of a store.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, merge
from typing import Final, NamedTuple, Protocol

from qindex._wire import Taken
from qindex.broker.message import Message
from qindex.broker.taken import Entry, Places, taken_of
from qindex.broker.timers import now_us
from qindex.message import State

DELIVERIES_MAX: Final = 65_535
TAKEN_BYTES_MAX: Final = 4 * 1024 * 1024  # of bodies; one message may have more


class Looked(NamedTuple):
    """A message that is looked at where it is; `number` is its place in the backlog."""

    number: int
    message: Message
    state: State
    deliveries: int
    due_us: int  # 0: it has no such time


class Share(NamedTuple):
    """What a queue takes of a group of publishes, which have this in common."""

    exchange: str
    routing_key: str
    persistent: bool
    priority: int
    expires_us: int  # 0: never

    def message(self, properties: bytes, body: bytes) -> Message:
        """A message of the group."""
        return Message(
            self.exchange,
            [self.routing_key],
            properties,
            body,
            persistent=self.persistent,
            priority=self.priority,
            expires_us=self.expires_us,
        )


class Publishes(Protocol):
    """Publishes in groups, as they came: those of the protocol's scanner."""

    def contents(self) -> list[tuple[int, bytes, bytes]]:
        """The number of its group, the properties and the body of each message."""

    def gather(
        self, wanted: list[tuple[int, bytes, int]], /
    ) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """A batch for a store of the groups for which `wanted` has the number, the beginning of the
        headers and the flags: bodies, their sizes, headers, their sizes, flags.
        """


class Backlog(Protocol):
    """The messages of one queue. All calls are made by the thread of the event loop."""

    is_durable: bool
    """True if a persistent message survives the process."""

    damage: str
    """Why its messages cannot be read, and it is not served; empty: they can."""

    redelivered: int
    """Deliveries of messages that were delivered before; of a store it is 0: the store counts."""

    def __len__(self) -> int:
        """How many messages are ready."""

    def publish(self, message: Message, due_us: int = 0) -> int:
        """Append a message, behind all others of its priority; return its number.

        With `due_us`, in microseconds since 1970, it is not ready before that moment; when it is,
        it may come before those that are ready already.
        """

    def take_in_due(self) -> int:
        """Count messages that are due by now as ready; when the next one is due, or 0."""

    def delayed(self) -> int:
        """How many messages are delayed."""

    def find(self, number: int) -> tuple[Message, int] | None:
        """The message of this number, and how often it was delivered; None: it is settled.

        In memory, a message that is delivered now is not found either, and it takes O(messages).
        """

    def browse(self) -> Iterator[tuple[int, Message]]:
        """All messages with their numbers, whatever their state, but those that are settled."""

    def look(self, start: int, state: State | None) -> Iterator[Looked | int]:
        """Messages from the number `start` on, by their numbers; delayed ones of a store may begin
        with large numbers. Of a message in another state, or a damaged one, the number alone, so
        that the caller can stop. In memory, delivered messages are not found. Of a store, another
        thread may do it.
        """

    def oldest_seconds(self) -> float | None:
        """Seconds that the oldest message has waited, at least. None: nobody knows, or none waits.
        O(its segment).
        """

    def drop(self, numbers: list[int]) -> int:
        """Remove messages that are ready or delayed; how many: others are not there, or delivered.
        In memory O(messages), however many numbers there are.
        """

    def put_off(self, numbers: list[int], due_us: int) -> int:
        """Change when ready or delayed messages are ready, 0: now; how many, as in drop()."""

    def publish_many(self, publishes: Publishes, shares: dict[int, Share], awaited: bool) -> int:
        """Append the messages of the groups that have a share, by the group's number, in order: all
        of them or none.

        The priority of all shares is the same. `awaited` as of a Message. Returns the bytes of
        their bodies.
        """

    @property
    def straight(self) -> int:
        """Messages that have come into its store otherwise than by its verbs."""

    def watch(self, is_watched: bool) -> None:
        """Its queue wants to hear of each of those, or does not."""

    def take(self, count: int) -> Taken:
        """Take up to `count` ready messages, in order: the highest priority first.

        Fewer if their bodies have more than about TAKEN_BYTES_MAX bytes together.
        """

    def done_with(self, taken: Taken) -> None:
        """Nobody reads any more what take() has returned: its buffers may be used again."""

    def entry(self, taken: Taken, at: int) -> Entry:
        """One of what take() has returned, as an Entry."""

    def entries(self, places: Places) -> list[Entry]:
        """Deliveries that are not settled, with their messages; without those that are damaged."""

    def peek(self) -> Message | None:
        """The message that take() would return first."""

    def ack(self, places: Places) -> None:
        """These are done and do not come back."""

    def requeue(self, places: Places) -> None:
        """These go back to their places, and are marked as redelivered."""

    def purge(self) -> int:
        """Drop all ready messages; return how many. Delayed ones stay."""

    def ready_bytes(self) -> int:
        """The bytes of all ready bodies. O(their number): asked once, when a queue is opened."""

    def close(self) -> None:
        """Nothing is asked of it any more."""

    def delete(self) -> None:
        """Drop everything."""


def _number(looked: Looked) -> int:
    return looked.number


def _from(start: int, lane: deque[tuple[int, Message]]) -> Iterator[Looked]:
    return (Looked(number, each, "ready", 0, 0) for number, each in lane if number >= start)


class MemoryBacklog:
    """A backlog in memory. Each priority has a deque of new messages and a heap of returned ones.

    A returned message was published before each one that is still in the deque, since messages
    leave the deque in order. So the next message is the least of the heap, if there is one.
    With `counts`, a message says in its headers how often it was delivered before.
    """

    is_durable = False
    damage = ""
    straight = 0

    def __init__(self, *, counts: bool = False) -> None:
        self._counts = counts
        self._new: dict[int, deque[tuple[int, Message]]] = {}
        self._back: dict[int, list[tuple[int, int, Message]]] = {}
        self._priorities: list[int] = []  # those that were seen, the highest first
        self._next = 0
        self._ready = 0
        self._delayed: list[tuple[int, int, Message]] = []  # a heap, by the time
        self.redelivered = 0
        self._out: dict[int, tuple[int, Message]] = {}  # those that are delivered, by number

    def __len__(self) -> int:
        return self._ready

    def publish(self, message: Message, due_us: int = 0) -> int:
        number = self._next
        self._next += 1
        if due_us:
            heappush(self._delayed, (due_us, number, message))
        else:
            self._append(number, message)
        return number

    def _append(self, number: int, message: Message) -> None:
        lane = self._new.get(message.priority)
        if lane is None:
            lane = self._new[message.priority] = deque()
            self._back[message.priority] = []
            self._priorities = sorted(self._new, reverse=True)
        lane.append((number, message))
        self._ready += 1

    def take_in_due(self) -> int:
        """A due message comes before the new ones: it goes where returned messages are."""
        now = now_us()
        while self._delayed and self._delayed[0][0] <= now:
            _, number, message = heappop(self._delayed)
            self._append(number, message)
            self._new[message.priority].pop()
            heappush(self._back[message.priority], (number, 0, message))
        return self._delayed[0][0] if self._delayed else 0

    def delayed(self) -> int:
        return len(self._delayed)

    def find(self, number: int) -> tuple[Message, int] | None:
        return next(((each, times) for at, times, each in self._all() if at == number), None)

    def browse(self) -> Iterator[tuple[int, Message]]:
        return ((number, message) for number, _, message in self._all())

    def _waiting(self) -> Iterator[tuple[int, int, Message]]:
        for priority in self._priorities:
            yield from sorted(self._back[priority], key=lambda each: each[0])
            yield from ((number, 0, message) for number, message in self._new[priority])

    def _all(self) -> Iterator[tuple[int, int, Message]]:
        yield from self._waiting()
        yield from ((number, 0, message) for _, number, message in self._delayed)

    def look(self, start: int, state: State | None) -> Iterator[Looked | int]:
        back = [
            Looked(number, each, "ready", times, 0)
            for lane in self._back.values()
            for number, times, each in lane
            if number >= start
        ]
        back += [
            Looked(number, each, "delayed", 0, due)
            for due, number, each in self._delayed
            if number >= start
        ]
        lanes = [_from(start, lane) for lane in self._new.values()]  # each is in order
        for looked in merge(sorted(back, key=_number), *lanes, key=_number):
            yield looked if state in (None, looked.state) else looked.number

    def oldest_seconds(self) -> float | None:
        return None

    def drop(self, numbers: list[int]) -> int:
        return len(self._pull(set(numbers)))

    def put_off(self, numbers: list[int], due_us: int) -> int:
        pulled = self._pull(set(numbers))
        self._delayed += [(due_us or now_us(), number, message) for number, message in pulled]
        heapify(self._delayed)
        return len(pulled)

    def _pull(self, wanted: set[int]) -> list[tuple[int, Message]]:
        """Take messages out, wherever they wait. O(messages)."""
        found: list[tuple[int, Message]] = []
        for priority in self._priorities:
            new, back = self._new[priority], self._back[priority]
            ready = [entry for entry in new if entry[0] in wanted]
            ready += [(number, each) for number, _, each in back if number in wanted]
            if ready:
                self._new[priority] = deque(entry for entry in new if entry[0] not in wanted)
                self._back[priority] = [entry for entry in back if entry[0] not in wanted]
                heapify(self._back[priority])
                self._ready -= len(ready)
                found += ready
        found += [(number, each) for _, number, each in self._delayed if number in wanted]
        self._delayed = [entry for entry in self._delayed if entry[1] not in wanted]
        heapify(self._delayed)
        return found

    def publish_many(self, publishes: Publishes, shares: dict[int, Share], awaited: bool) -> int:
        size = 0
        for number, properties, body in publishes.contents():
            share = shares.get(number)
            if share is not None:
                self.publish(share.message(properties, body))
                size += len(body)
        return size

    def watch(self, is_watched: bool) -> None:
        """It has no store."""

    def take(self, count: int) -> Taken:
        taken: list[Entry] = []
        size = 0
        for priority in self._priorities:
            back, new = self._back[priority], self._new[priority]
            while (back or new) and len(taken) < count and size < TAKEN_BYTES_MAX:
                if back:
                    number, deliveries, message = heappop(back)
                else:
                    number, message = new.popleft()
                    deliveries = 0
                self.redelivered += deliveries > 0
                again = min(deliveries + 1, DELIVERIES_MAX)
                self._out[number] = again, message
                taken.append(Entry(message, (number, 0), deliveries > 0, again))
                size += message.size
        self._ready -= len(taken)
        return taken_of(taken, counts=self._counts)

    def done_with(self, taken: Taken) -> None:
        """Its messages are their own."""

    def entry(self, taken: Taken, at: int) -> Entry:
        found: Entry = taken.source[at]
        return found

    def entries(self, places: Places) -> list[Entry]:
        found = [(number, *self._out[number]) for number in array("Q", places.numbers)]
        return [Entry(message, (number, 0), times > 1, times) for number, times, message in found]

    def peek(self) -> Message | None:
        for priority in self._priorities:
            if self._back[priority]:
                return self._back[priority][0][2]
            if self._new[priority]:
                return self._new[priority][0][1]
        return None

    def ack(self, places: Places) -> None:
        for number in array("Q", places.numbers):
            self._out.pop(number, None)

    def requeue(self, places: Places) -> None:
        for number in array("Q", places.numbers):
            times, message = self._out.pop(number)
            heappush(self._back[message.priority], (number, times, message))
            self._ready += 1

    def purge(self) -> int:
        count = self._ready
        for priority in self._priorities:
            self._new[priority].clear()
            self._back[priority].clear()
        self._ready = 0
        return count

    def ready_bytes(self) -> int:
        new = sum(message.size for lane in self._new.values() for _, message in lane)
        return new + sum(entry[2].size for lane in self._back.values() for entry in lane)

    def close(self) -> None:
        self.purge()

    def delete(self) -> None:
        self.purge()
