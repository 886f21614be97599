"""What a queue counts: all of it is known without looking at messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from qindex._core import ffi, lib
from qindex.errors import raise_error

_UNKNOWN: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Figures of one queue; O(number of its segments) to collect."""

    name: str
    ready: int
    unacked: int
    delayed: int
    dead: int
    bytes: int | None  # that wait: headers and bodies, dead letters not counted; None: not counted
    oldest_age_min: float | None = field(compare=False)  # seconds; see Queue.oldest_age_min
    next_due: float | None  # seconds since 1970; None: nothing is delayed
    dirty_count: int
    next_req_id: int
    epoch: int  # of the journal; grows by one with each flush
    journal_bytes: int
    unsynced_bytes: int  # of these, what a power cut could take now
    segments: int
    hot_segments: int  # of these, with maps in memory
    segment_bytes: int
    loaded: bool  # False: idle, no file and no mapping open


class Figures:
    """The counts of a queue, for its class."""

    name: str
    _handle: Any

    def _stats(self) -> Any:
        stats = ffi.new("qi_queue_stats *")
        code = lib.qi_queue_stats_of(self._handle, stats)
        if code < 0:
            raise_error(code)
        return stats

    def stats(self) -> QueueStats:
        """All figures at one moment."""
        s = self._stats()
        return QueueStats(
            self.name,
            s.ready,
            s.unacked,
            s.delayed,
            s.dead,
            None if s.bytes == _UNKNOWN else s.bytes,
            self.oldest_age_min,
            s.next_due_us / 1e6 if s.next_due_us else None,
            s.dirty_count,
            s.next_req_id,
            s.epoch,
            s.journal_bytes,
            s.unsynced_bytes,
            s.segments,
            s.hot_segments,
            s.segment_bytes,
            s.loaded,
        )

    def __len__(self) -> int:
        """Ready, unacked and delayed messages and dead letters together."""
        return int(self._stats().depth)

    def __bool__(self) -> bool:
        """A queue is always true, also an empty one: `if queue:` would be a trap."""
        return True

    @property
    def ready(self) -> int:
        """Messages that get() would deliver (expired ones count until they are met)."""
        return int(self._stats().ready)

    @property
    def unacked(self) -> int:
        """Messages delivered by this process and not acked."""
        return int(self._stats().unacked)

    @property
    def delayed(self) -> int:
        """Messages whose time has not come."""
        return int(self._stats().delayed)

    @property
    def dead(self) -> int:
        """Dead letters: browse(state="dead") shows them, redrive() takes them back."""
        return int(self._stats().dead)

    @property
    def next_due(self) -> float | None:
        """When the next delayed message is due, in seconds since 1970; None: none is delayed."""
        due_us = self._stats().next_due_us
        return due_us / 1e6 if due_us else None

    @property
    def oldest_age_min(self) -> float | None:
        """How many seconds the oldest message has been in the queue, at least; None: there is none.

        Ready, unacked and given back ones count; not dead letters, nor what was published with a
        delay. The moment of a publish is not recorded, that of a sync is: so the message is older
        by up to the time between two syncs (with sync="never": two calls of this), and by up to a
        thirtieth of the age of the oldest. Of what was flushed before the open it is known that it
        is older than that flush. Cost: O(its segment); of what a journal had at the open, O(that
        journal).
        """
        age_us = lib.qi_oldest_us(self._handle)
        if age_us < 0 and age_us != lib.QI_EMPTY:
            raise_error(age_us)
        return age_us / 1e6 if age_us >= 0 else None

    @property
    def dirty_count(self) -> int:
        """Publishes, deliveries and acks in the journal since the last flush."""
        return int(self._stats().dirty_count)
