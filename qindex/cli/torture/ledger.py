"""What a killed worker had reported, and what may therefore be found in its store.

The worker's threads write a line when an operation begins and one when it is over; what it did, it
did between the two. So a line's place in the report proves an order, and where two operations of
one queue overlap there is none:

1. Each message by itself is exact: its publish begins before it is seen, its delivery is reported
   before its nack or ack begins, it may be ready again when its nack begins, and it is gone when
   its ack is over. Counts of deliveries follow from that.
2. A get that nothing overlapped returns the first that were ready; any other returns some.
3. A message that is seen before its publish was reported shows that all of its batch is there.
4. What was not over when the process died was done or not, all of it or nothing.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sortedcontainers import SortedDict

from qindex.cli.torture.worker import body_of


class Broken(AssertionError):
    """The store shows what it must not show, or hides what it must show."""


def require(holds: object, text: str) -> None:
    if not holds:
        raise Broken(text)


@dataclass
class Entry:
    """A message that the worker published."""

    tag: int
    size: int
    persistent: bool
    deliveries: int = 0
    maybe_delivered: int = 0  # times that a get() which was cut off may have taken it

    @property
    def body(self) -> bytes:
        return body_of(self.tag, self.size)


@dataclass
class QueueLedger:
    live: Any = field(default_factory=SortedDict)  # ReqId -> Entry
    out: set[int] = field(default_factory=set)  # delivered in this life
    given: set[int] = field(default_factory=set)  # all ids seen so far
    next_id: int = 0  # they are below

    def ready(self) -> list[int]:
        return [req_id for req_id in self.live if req_id not in self.out]

    def add(self, req_id: int, entry: Entry, least: int) -> None:
        again = req_id < least or req_id in self.given
        require(not again, f"ReqId {req_id} was given before")
        self.live[req_id] = entry
        self.given.add(req_id)
        self.next_id = max(self.next_id, req_id + 1)


@dataclass
class Operation:
    """One that has begun."""

    meant: dict[str, Any]  # its line
    least: dict[str, int]  # queue -> all ids that are seen from now on are no less
    alone: bool = True  # nothing else that changes what is ready in its queues has run beside it
    shown: dict[str, list[int]] = field(default_factory=dict)  # a publish: ids, as far as known

    @property
    def kind(self) -> str:
        return str(self.meant["op"])

    @property
    def queues(self) -> list[str]:
        return self.meant.get("queues") or [self.meant.get("queue", "")]

    def changes_ready(self) -> bool:
        return self.kind in ("publish", "get", "nack", "purge")

    def meets(self, other: Operation) -> bool:
        both = self.changes_ready() and other.changes_ready()
        return both and not set(self.queues).isdisjoint(other.queues)


class Ledger:
    """Follows reports line by line; each thread's last operation may be in doubt."""

    def __init__(self, names: Sequence[str]) -> None:
        self.queues = {name: QueueLedger() for name in names}
        self.doubt: dict[int, Operation] = {}  # thread -> what it has begun
        self.operations = 0

    def follow(self, report: bytes) -> None:
        """Take in the whole output of one worker's life."""
        self.doubt = {}
        lines = report.split(b"\n")[:-1]  # what follows the last newline was cut off
        for line in map(json.loads, lines):
            thread = line.get("thread", 0)
            if "op" in line:
                require(thread not in self.doubt, "two operations of one thread at once")
                self.begin(thread, line)
            else:
                self.settle(self.doubt.pop(thread), line)
                self.operations += 1

    def begin(self, thread: int, line: dict[str, Any]) -> None:
        operation = Operation(line, {name: queue.next_id for name, queue in self.queues.items()})
        for other in self.doubt.values():
            if operation.meets(other):
                operation.alone = other.alone = False
        self.doubt[thread] = operation
        if operation.kind == "nack":
            self.queues[line["queue"]].out.difference_update(line["ids"])

    def settle(self, operation: Operation, answer: dict[str, Any]) -> None:
        match operation.kind:
            case "publish":
                for name, req_ids in zip(operation.queues, answer["ids"], strict=True):
                    self.published(operation, name, req_ids)
            case "get":
                self.got(operation, answer["got"])
            case "ack":
                for req_id in operation.meant["ids"]:
                    del self.queues[operation.meant["queue"]].live[req_id]
            case "purge":
                require(operation.alone, "what a purge took beside others is not known")
                queue = self.queues[operation.meant["queue"]]
                for req_id in queue.ready():
                    del queue.live[req_id]

    def published(self, operation: Operation, name: str, req_ids: list[int]) -> None:
        """All of a batch is in the queue now, in one row of ids."""
        meant = operation.meant
        if name in operation.shown:
            known = operation.shown[name]
            require(known == req_ids, f"queue {name}: ids {req_ids}, shown were {known}")
            return
        in_a_row = req_ids == list(range(req_ids[0], req_ids[0] + len(req_ids)))
        require(in_a_row, f"a batch has ReqIds in a row, not {req_ids}")
        operation.shown[name] = req_ids
        for req_id, (tag, size) in zip(req_ids, meant["bodies"], strict=True):
            entry = Entry(tag, size, meant["persistent"])
            self.queues[name].add(req_id, entry, operation.least[name])

    def show(self, name: str, req_id: int, crc: int) -> None:
        """An id that nobody has reported: whose is it? All of its batch is there, or nothing."""
        for operation in self.doubt.values():
            if operation.kind != "publish" or name not in operation.queues:
                continue
            crcs = [zlib.crc32(body_of(*body)) for body in operation.meant["bodies"]]
            if crc in crcs and name not in operation.shown:
                first = req_id - crcs.index(crc)
                self.published(operation, name, list(range(first, first + len(crcs))))
                return
        raise Broken(f"queue {name}: nobody has published {req_id}")

    def got(self, operation: Operation, messages: list[list[Any]]) -> None:
        name, count = operation.meant["queue"], operation.meant["count"]
        queue = self.queues[name]
        got = [message[0] for message in messages]
        require(len(got) <= count, f"got {got}, wanted {count}")
        if operation.alone:
            expected = queue.ready()[:count]
            require(got == expected, f"got {got}, ready were {expected}")
        for req_id, crc, delivery_count, redelivered in messages:
            if req_id not in queue.given:
                self.show(name, req_id, crc)
            require(req_id in queue.live, f"message {req_id} was acked before")
            require(req_id not in queue.out, f"message {req_id} is with another consumer")
            entry = queue.live[req_id]
            require(crc == zlib.crc32(entry.body), f"message {req_id} was altered")
            least = entry.deliveries + 1
            most = least + entry.maybe_delivered
            counted = f"message {req_id}: delivery {delivery_count}, not {least} to {most}"
            require(least <= delivery_count <= most, counted)
            hides = entry.deliveries and not redelivered
            require(not hides, f"message {req_id} hides that it was delivered before")
            entry.deliveries, entry.maybe_delivered = delivery_count, 0
            queue.out.add(req_id)

    def reconcile(self, name: str, found: list[tuple[int, bytes]]) -> None:
        """The process is gone, and this is what recovery shows: settle what was in doubt."""
        queue, was_ready = self.queues[name], self.queues[name].ready()
        doubt = [operation for operation in self.doubt.values() if name in operation.queues]
        for req_id in [i for i, entry in queue.live.items() if not entry.persistent]:
            del queue.live[req_id]
        for req_id, body in found:
            if req_id not in queue.given:
                self.show(name, req_id, zlib.crc32(body))
                require(queue.live[req_id].persistent, "a transient message came back")
        self.take_away(queue, doubt, was_ready, {req_id for req_id, _ in found})
        if [req_id for req_id, _ in found] != list(queue.live):
            lost = sorted(set(queue.live) - {req_id for req_id, _ in found})
            extra = [req_id for req_id, _ in found if req_id not in queue.live]
            raise Broken(f"queue {name}: lost {lost}, extra {extra}, or the order is wrong")
        for req_id, body in found:
            require(body == queue.live[req_id].body, f"queue {name}: {req_id} was altered")
        self.may_have_got(queue, doubt, was_ready)
        queue.out.clear()

    @staticmethod
    def take_away(
        queue: QueueLedger, doubt: list[Operation], was_ready: list[int], found: set[int]
    ) -> None:
        """An ack or purge in doubt that took one of its messages took all of them."""
        for operation in doubt:
            if operation.kind in ("ack", "purge"):
                meant = operation.meant["ids"] if operation.kind == "ack" else was_ready
                there = [req_id for req_id in meant if req_id in queue.live]
                if found.isdisjoint(there):
                    for req_id in there:
                        del queue.live[req_id]

    @staticmethod
    def may_have_got(queue: QueueLedger, doubt: list[Operation], was_ready: list[int]) -> None:
        """No more than one of the gets in doubt may have taken a message: nobody gave it back."""
        counts = [operation.meant["count"] for operation in doubt if operation.kind == "get"]
        alone = all(operation.alone for operation in doubt)
        if counts:
            for req_id in was_ready[: counts[0]] if alone else queue.ready():
                if req_id in queue.live:
                    queue.live[req_id].maybe_delivered += 1
