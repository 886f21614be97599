"""Dead letters that the broker is to publish at least once: they stay until it has done so.

They are in no count of the queue, and no consumer gets them. A worker of the broker takes them out,
publishes them to the dead letter exchange, and settles them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from qindex.brokers.rabbitmq.quorum.held import Held


@dataclass(slots=True)
class DeadLetters:
    discards: deque[tuple[str, Held]] = field(default_factory=deque)  # with their reasons
    checked: dict[int, tuple[str, Held]] = field(default_factory=dict)
    has_worker: bool = False
    prefetch: int = 0
    next_id: int = 0
    bytes: int = 0

    def __len__(self) -> int:
        return len(self.discards) + len(self.checked)

    def __iter__(self) -> Iterator[tuple[str, Held]]:
        """In the order in which a new worker would publish them."""
        for number in sorted(self.checked):
            yield self.checked[number]
        yield from self.discards

    def put(self, reason: str, messages: Iterable[Held], *, keeps_counts: bool) -> None:
        for message in messages:
            kept = message if keeps_counts else Held(message.index, message.size)
            self.discards.append((reason, kept))
            self.bytes += message.size

    def checkout(self) -> None:
        """The worker takes what it has room for."""
        while self.has_worker and self.discards and len(self.checked) < self.prefetch:
            self.checked[self.next_id] = self.discards.popleft()
            self.next_id += 1

    def new_worker(self, prefetch: int) -> None:
        """What the old one had goes back to the front."""
        for number in sorted(self.checked, reverse=True):
            self.discards.appendleft(self.checked[number])
        self.checked.clear()
        self.has_worker, self.prefetch, self.next_id = True, prefetch, 0

    def of(self, numbers: Iterable[Any]) -> list[tuple[str, Held]]:
        """What the worker has under these numbers."""
        own = [number for number in numbers if isinstance(number, int)]
        return [self.checked[number] for number in own if number in self.checked]

    def settle(self, numbers: Iterable[Any]) -> int:
        """How many were published."""
        count = 0
        for number in numbers:
            found = self.checked.pop(number, None) if isinstance(number, int) else None
            if found is not None:
                self.bytes -= found[1].size
                count += 1
        return count

    def clear(self) -> int:
        """How many are forgotten. The worker stays."""
        count = len(self)
        self.discards.clear()
        self.checked.clear()
        self.bytes = 0
        return count
