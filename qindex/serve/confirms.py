"""Publisher confirms of one channel: which numbers are confirmed now, which wait for a sync."""

from __future__ import annotations

from collections import deque


class Confirms:
    """Numbers 1, 2, 3 ... in the order of the publishes.

    `now` are confirmed in this turn; `waiting` wait for a sync. What `take()` returns is what the
    channel sends.
    """

    def __init__(self) -> None:
        self.next = 1
        self.waiting: deque[int] = deque()
        self._now: list[int] = []
        self._refused: list[int] = []

    def published(self, *, refused: bool, waits: bool) -> None:
        number = self.next
        self.next += 1
        if refused:
            self._refused.append(number)
        elif waits:
            self.waiting.append(number)
        else:
            self._now.append(number)

    def synced(self, last: int) -> None:
        """A sync covers the numbers up to `last`."""
        while self.waiting and self.waiting[0] <= last:
            self._now.append(self.waiting.popleft())

    def take(self) -> tuple[list[int], list[tuple[int, bool]]]:
        """The numbers that are refused; and those that are confirmed, with `multiple` for each."""
        refused, self._refused = self._refused, []
        if not self._now:
            return refused, []
        now, self._now = sorted(self._now), []
        # Every number below the first one that waits is confirmed or refused: one ack names all.
        first = self.waiting[0] if self.waiting else self.next
        below = [number for number in now if number < first]
        acks = [(number, False) for number in now if number > first]
        if below:
            acks.insert(0, (below[-1], len(below) > 1))
        return refused, acks

    @property
    def has_news(self) -> bool:
        return bool(self._now or self._refused)
