"""Publisher confirms of one channel: which numbers are confirmed now, which wait for a sync."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qindex.serve.channel import Channel
    from qindex.serve.session import Session


class Confirms:
    """Numbers 1, 2, 3 ... in the order of the publishes, kept as ranges (first, last).

    Some are confirmed in this turn, some wait for a sync. What `take()` returns is what the
    channel sends.
    """

    def __init__(self, on_confirmed: Callable[[int], None]) -> None:
        self.next = 1
        self._on_confirmed = on_confirmed  # hears how many
        self._waiting: deque[tuple[int, int]] = deque()
        self._now: list[tuple[int, int]] = []
        self._refused: list[int] = []

    def published(self, count: int = 1, *, refused: bool, waits: bool) -> None:
        """The next `count` publishes. O(1) for all of them, unless they are refused."""
        first, last = self.next, self.next + count - 1
        self.next += count
        if refused:
            self._refused += range(first, last + 1)
        elif waits:
            self._waiting.append((first, last))
        else:
            self._now.append((first, last))

    @property
    def last_waiting(self) -> int:
        """The highest number that waits for a sync; 0: none does."""
        return self._waiting[-1][1] if self._waiting else 0

    def synced(self, last: int) -> None:
        """A sync covers the numbers up to `last`, which was last_waiting once."""
        while self._waiting and self._waiting[0][1] <= last:
            self._now.append(self._waiting.popleft())

    def take(self) -> tuple[list[int], list[tuple[int, bool]]]:
        """The numbers that are refused; and those that are confirmed, with `multiple` for each."""
        refused, self._refused = self._refused, []
        if not self._now:
            return refused, []
        now, self._now = sorted(self._now), []
        self._on_confirmed(sum(last - first + 1 for first, last in now))
        # Every number below the first one that waits is confirmed or refused: one ack names all.
        wall = self._waiting[0][0] if self._waiting else self.next
        below = [each for each in now if each[1] < wall]
        acks: list[tuple[int, bool]] = []
        if below:
            acks.append((below[-1][1], below[0][0] < below[-1][1]))
        for first, last in now[len(below) :]:
            acks += ((number, False) for number in range(first, last + 1))
        return refused, acks

    @property
    def has_news(self) -> bool:
        return bool(self._now or self._refused)


def send_confirms(session: Session, channels: list[Channel]) -> None:
    """Send what is confirmed in these channels, and wait for one sync for all that is not. Called
    in a flush, which writes what there is behind this.
    """
    connection = session.connection
    waiting: list[tuple[Channel, Confirms, int]] = []
    for channel in channels:
        confirms = channel.confirms
        if confirms is not None and connection.is_open(channel.number):
            if confirms.has_news:
                channel.send_confirms()
            if confirms.last_waiting:
                waiting.append((channel, confirms, confirms.last_waiting))
    if not waiting or session.commit is None:
        return
    is_later = False

    def synced() -> None:
        for channel, confirms, last in waiting:
            confirms.synced(last)
            if confirms.has_news and connection.is_open(channel.number):
                channel.send_confirms()
        if is_later:
            session.flush_later()

    session.commit.join(synced)
    is_later = True
