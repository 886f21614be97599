"""What a killed worker had reported, and what may therefore be found in its store."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sortedcontainers import SortedDict

from qindex.cli.torture_worker import body_of


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
    next_id: int = 0  # all ids seen so far are below

    def ready(self) -> list[int]:
        return [req_id for req_id in self.live if req_id not in self.out]

    def add(self, req_id: int, entry: Entry) -> None:
        require(req_id >= self.next_id, f"ReqId {req_id} was given before")
        self.live[req_id] = entry
        self.next_id = req_id + 1


class Ledger:
    """Follows reports line by line; the last operation may be in doubt."""

    def __init__(self, names: Sequence[str]) -> None:
        self.queues = {name: QueueLedger() for name in names}
        self.doubt: dict[str, Any] | None = None
        self.ready_before: list[int] = []
        self.operations = 0

    def follow(self, report: bytes) -> None:
        """Take in the whole output of one worker's life."""
        self.doubt = None
        lines = report.split(b"\n")[:-1]  # what follows the last newline was cut off
        for line in map(json.loads, lines):
            if "op" in line:
                require(self.doubt is None, "two operations at once")
                self.doubt = line
            else:
                meant: dict[str, Any] = self.doubt or {}
                self.doubt = None
                self.operations += 1
                self.settle(meant, line)

    def settle(self, meant: dict[str, Any], answer: dict[str, Any]) -> None:
        match meant["op"]:
            case "publish":
                for name, req_ids in zip(meant["queues"], answer["ids"], strict=True):
                    self.published(name, req_ids, meant)
            case "get":
                self.got(meant, answer["got"])
            case "ack":
                for req_id in meant["ids"]:
                    del self.queues[meant["queue"]].live[req_id]
            case "nack":
                self.queues[meant["queue"]].out.difference_update(meant["ids"])
            case "purge":
                queue = self.queues[meant["queue"]]
                for req_id in queue.ready():
                    del queue.live[req_id]

    def published(self, name: str, req_ids: list[int], meant: dict[str, Any]) -> None:
        for req_id, (tag, size) in zip(req_ids, meant["bodies"], strict=True):
            self.queues[name].add(req_id, Entry(tag, size, meant["persistent"]))

    def got(self, meant: dict[str, Any], messages: list[list[Any]]) -> None:
        queue = self.queues[meant["queue"]]
        expected = queue.ready()[: meant["count"]]
        got = [message[0] for message in messages]
        require(got == expected, f"got {got}, ready were {expected}")
        for req_id, crc, delivery_count, redelivered in messages:
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

    def killed(self) -> None:
        """The process is gone: nothing is out any more, transients are dead."""
        for queue in self.queues.values():
            queue.out.clear()
            for req_id in [i for i, entry in queue.live.items() if not entry.persistent]:
                del queue.live[req_id]

    def outcomes(self, name: str) -> Iterator[tuple[str, Any]]:
        """What the queue may hold now: as if the operation in doubt had not been, or had been."""
        queue, doubt = self.queues[name], self.doubt or {"op": None}
        yield "undone", queue.live
        after = queue.live.copy()
        if doubt["op"] == "ack" and doubt["queue"] == name:
            for req_id in doubt["ids"]:
                after.pop(req_id, None)
            yield "done", after
        elif doubt["op"] == "purge" and doubt["queue"] == name:
            for req_id in self.ready_before:
                after.pop(req_id, None)
            yield "done", after

    def reconcile(self, name: str, found: list[tuple[int, bytes]]) -> None:
        """Check what recovery shows against the ledger; settle what was in doubt."""
        queue, doubt = self.queues[name], self.doubt
        if doubt and doubt["op"] == "publish" and name in doubt["queues"]:
            found = self.reconcile_publish(queue, doubt, found)
        shown = [(req_id, body) for req_id, body in found]
        for _what, live in self.outcomes(name):
            if [req_id for req_id, _ in shown] == list(live):
                queue.live = live
                break
        else:
            lost = sorted(set(queue.live) - {req_id for req_id, _ in shown})
            extra = [req_id for req_id, _ in shown if req_id not in queue.live]
            raise Broken(f"queue {name}: lost {lost}, extra {extra}, in doubt {doubt}")
        for req_id, body in shown:
            require(body == queue.live[req_id].body, f"queue {name}: {req_id} was altered")
        if doubt and doubt["op"] == "get" and doubt["queue"] == name:
            for req_id in self.ready_before[: doubt["count"]]:
                if req_id in queue.live:
                    queue.live[req_id].maybe_delivered += 1

    def reconcile_publish(
        self, queue: QueueLedger, doubt: dict[str, Any], found: list[tuple[int, bytes]]
    ) -> list[tuple[int, bytes]]:
        """All of the batch in doubt is there, or nothing of it; then it is as good as reported."""
        new = [(req_id, body) for req_id, body in found if req_id >= queue.next_id]
        if new:
            require(doubt["persistent"], "a transient message came back")
            whole = [body for _, body in new] == [body_of(*b) for b in doubt["bodies"]]
            require(whole, "a batch is all or nothing")
            first = new[0][0]
            in_a_row = [req_id for req_id, _ in new] == list(range(first, first + len(new)))
            require(in_a_row, "a batch has ReqIds in a row")
            for (req_id, _), (tag, size) in zip(new, doubt["bodies"], strict=True):
                queue.add(req_id, Entry(tag, size, persistent=True))
        return found

    def remember_ready(self) -> None:
        """Who was ready when the worker died: what a purge or get in doubt would have met."""
        doubt = self.doubt or {}
        name = doubt.get("queue")
        self.ready_before = self.queues[name].ready() if name else []
