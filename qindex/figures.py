"""The figures of queues and stores: all are known without looking at messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from qindex._core import ffi, lib
from qindex.arguments import parts_of
from qindex.counters import Counters, Syncs, counters_of_queue
from qindex.errors import raise_error

_UNKNOWN: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The figures of one queue at one moment; O(number of its segments) to collect."""

    name: str
    """The queue's name."""
    ready: int
    """Messages that get() would deliver. One that has expired counts until it leaves."""
    unacked: int
    """Messages that were delivered by this process and not settled."""
    delayed: int
    """Messages whose time has not come."""
    dead: int
    """Dead letters."""
    bytes: int | None
    """Bytes of headers and bodies that wait, without dead letters. None: the queue and the store
    have no `max_bytes`, so nobody counts them."""
    oldest_age_min: float | None = field(compare=False)
    """Seconds that the oldest message has waited, at least; see Queue.oldest_age_min."""
    next_due: float | None
    """When the next delayed message is due, in seconds since 1970. None: nothing is delayed."""
    dirty_count: int
    """Publishes, deliveries and acks in the journal since the last flush."""
    next_req_id: int
    """The ReqId that the next message without priority and delay gets."""
    epoch: int
    """Number of the journal; each flush adds one."""
    journal_bytes: int
    """Bytes in the journal."""
    unsynced_bytes: int
    """Of these, the bytes that a power cut could take now."""
    segments: int
    """Segments of the queue."""
    hot_segments: int
    """Of these, the segments whose maps are in memory."""
    segment_bytes: int
    """Bytes of the segment files."""
    loaded: bool
    """False: the queue is idle, and none of its files is open."""
    counters: Counters
    """What was published, delivered, acked ... since the open, and in the queue's life."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The figures of a store at one moment; O(number of message files) to collect."""

    queues: int
    """Queues in the store."""
    message_files: int
    """Message files: they hold the bodies of `embed_below` bytes and more."""
    message_bytes: int
    """Bytes of the message files."""
    live_bytes: int
    """Of these, bytes that belong to messages that are not acked. A message in several queues
    counts by shares: one for each queue that has not acked it."""
    live_references: int
    """References from queues to messages in message files."""
    messages: int
    """Messages that wait in the queues that were read so far, without dead letters."""
    bytes: int | None
    """Bytes of their headers and bodies. None: the store has no `max_bytes`."""
    memory: int
    """Bytes of memory that all stores of this process use, for what `max_memory` limits."""
    session: int
    """Number of this session. Each open for writing begins one."""
    unclean_session: int
    """The last session that did not end with close(); 0: there was none."""
    findings: int
    """Number of findings since the open; Store.findings has them."""
    compactions: int
    """How often message files were compacted since the open."""
    compacted_bytes: int
    """By how many bytes the files got shorter by that."""
    segment_entries: int
    """Messages in a segment, fixed when the store was created."""
    embed_below: int
    """Headers and body of fewer bytes than this stand in the index itself."""
    mapped: bool
    """True: files are mapped. False: appends go through pwrite."""
    counted: bool
    """True: `live_bytes` is complete. After an open it takes a moment until it is."""
    format: int
    """The format of the store's files: 1 or 2."""
    counters: Counters
    """The sums of all its queues, those that were deleted too."""
    syncs: Syncs
    """How long syncs took since the open."""
    lifetime_syncs: Syncs | None
    """The same in the store's life. None: it has format 1. As exact as `counters`."""


@parts_of("Queue")
class Figures:
    """The properties of a queue that are figures, for its class."""

    name: str
    _handle: Any

    def _stats(self) -> Any:
        stats = ffi.new("qi_queue_stats *")
        code = lib.qi_queue_stats_of(self._handle, stats)
        if code < 0:
            raise_error(code)
        return stats

    def stats(self) -> QueueStats:
        """All figures at one moment. O(number of its segments)."""
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
            counters_of_queue(self._handle),
        )

    def __len__(self) -> int:
        """Ready, unacked and delayed messages, and dead letters, together. O(1)."""
        return int(self._stats().depth)

    def __bool__(self) -> bool:
        """True, also for an empty queue, so that `if queue:` does not mean `if len(queue):`."""
        return True

    @property
    def ready(self) -> int:
        """Messages that get() would deliver. One that has expired counts until it leaves. O(1)."""
        return int(self._stats().ready)

    @property
    def unacked(self) -> int:
        """Messages that were delivered by this process and not settled. O(1)."""
        return int(self._stats().unacked)

    @property
    def delayed(self) -> int:
        """Messages whose time has not come. O(1)."""
        return int(self._stats().delayed)

    @property
    def dead(self) -> int:
        """Dead letters: browse(state="dead") shows them, redrive() takes them back. O(1)."""
        return int(self._stats().dead)

    @property
    def next_due(self) -> float | None:
        """When the next delayed message is due, in seconds since 1970; None: nothing is delayed.

        O(1); after an open, the segment with the next message is read once.
        """
        due_us = self._stats().next_due_us
        return due_us / 1e6 if due_us else None

    @property
    def oldest_age_min(self) -> float | None:
        """Seconds that the oldest message has been in the queue, at least; None: there is none.

        Ready and unacked messages count, also those that were given back. Dead letters do not, nor
        do messages that were published with a delay.

        The moment of a publish is not recorded; that of a sync is. So the message may be older: by
        up to the time between two syncs (with sync="never": between two reads of this property),
        and by up to a thirtieth of the age of the oldest. Of what was flushed before the open it is
        known only that it is older than that flush.

        Cost: O(its segment); for what a journal had at the open, O(that journal).
        """
        age_us = lib.qi_oldest_us(self._handle)
        if age_us < 0 and age_us != lib.QI_EMPTY:
            raise_error(age_us)
        return age_us / 1e6 if age_us >= 0 else None

    @property
    def dirty_count(self) -> int:
        """Publishes, deliveries and acks in the journal since the last flush. O(1)."""
        return int(self._stats().dirty_count)
