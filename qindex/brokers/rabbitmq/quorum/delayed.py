"""Version 8: messages that came back and wait apart until some moment."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

from qindex.brokers.rabbitmq.quorum.held import Held


class Delayed:
    """By the moment in ms, then by index; some have a token by which a consumer asks for them."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._messages: dict[tuple[int, int], Held] = {}
        self._tokens: dict[Any, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[tuple[int, Held]]:
        """(moment in ms, message), the next one first."""
        for key in sorted(self._messages):
            yield key[0], self._messages[key]

    def put(self, ready_ms: int, message: Held, token: Any = None) -> None:
        key = (ready_ms, message.index)
        heapq.heappush(self._heap, key)
        self._messages[key] = message
        if isinstance(token, bytes):
            self._tokens[token] = key

    def _take_first(self) -> Held | None:
        while self._heap:
            found = self._messages.pop(heapq.heappop(self._heap), None)
            if found is not None:
                return found
        return None

    def take_ready(self, now_ms: int) -> Iterator[Held]:
        while self._heap and self._heap[0][0] <= now_ms:
            found = self._take_first()
            if found is not None:
                yield found

    def take(self, count: int | None = None) -> Iterator[Held]:
        """The next ones; None: all."""
        for _ in range(len(self) if count is None else min(count, len(self))):
            found = self._take_first()
            if found is not None:
                yield found

    def find(self, tokens: Iterable[Any]) -> list[tuple[Any, tuple[int, int]]]:
        """Those of these tokens that are here, with their places."""
        found = [(token, self._tokens.get(token)) for token in tokens if isinstance(token, bytes)]
        return [(token, key) for token, key in found if key is not None and key in self._messages]

    def pop(self, token: Any, key: tuple[int, int]) -> Held:
        self._tokens.pop(token, None)
        return self._messages.pop(key)

    def clear(self) -> int:
        count = len(self)
        self.__init__()  # type: ignore[misc]
        return count
