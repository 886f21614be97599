"""What a store and its queues have counted: in this session, and in all sessions so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qindex._core import ffi, lib
from qindex.errors import raise_error


@dataclass(frozen=True, slots=True)
class Counts:
    """Messages, unless it says something else.

    What came is in the queue, or was acked, dropped, purged or moved:
    ``published == len(queue) + acked + dropped + purged + moved``, but for what a crash or damage
    has taken.
    """

    published: int
    """Messages that came, those that moved here too."""
    published_bytes: int
    """Bytes of their headers and bodies."""
    delivered: int
    """Deliveries: each get() of a message counts."""
    delivered_bytes: int
    """Bytes of headers and bodies that were delivered."""
    redelivered: int
    """Of the deliveries, those of messages that had been delivered before."""
    acked: int
    """Messages that their consumers have acked."""
    returned: int
    """Deliveries that ended with a nack."""
    leases_ended: int
    """Deliveries that ended with their lease."""
    expired: int
    """Messages that expired: they were dropped, or became dead letters."""
    dead: int
    """Messages that became dead letters, whatever the reason. A second time counts again."""
    dropped: int
    """Messages that left without an ack because they had expired, were rejected, were delivered too
    often or were too many, in a queue that keeps no dead letters of that kind."""
    purged: int
    """Messages that purge() or delete() took away."""
    moved: int
    """Messages that were moved to another queue."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts since the open, and for the life of the queue or store."""

    since_open: Counts
    """What was counted since the store was opened."""
    lifetime: Counts | None
    """The same of all sessions so far, this one included. None: the store has format 1, which keeps
    no counts."""
    exact: bool
    """True: `lifetime` is exact. False: it is a lower bound, because a session did not end with
    close(), or because the queue had messages before its store had format 2."""


@dataclass(frozen=True, slots=True)
class Syncs:
    """Syncs of journals, commit logs and message files, as whoever waits for them sees them.

    In the life of a store, the syncs that end a session are not counted.
    """

    count: int
    """How many there were."""
    seconds: float
    """How long they took together."""
    longest: float
    """Seconds that the longest one took."""
    histogram: dict[float, int]
    """How many took at most so many seconds, and more than the bound before. The bounds are powers
    of two of a microsecond; bounds without syncs are left out. `inf`: more than about 4 s."""


def _counts(struct: Any) -> list[int]:
    return ffi.unpack(ffi.cast("uint64_t *", struct), lib.QI_COUNTS)  # type: ignore[no-any-return]


def _counters(since: Any, before: Any, kept: int) -> Counters:
    if kept < 0:
        raise_error(kept)
    now = _counts(since)
    life = None
    if kept != lib.QI_COUNTS_NONE:
        life = Counts(*map(int.__add__, now, _counts(before)))
    return Counters(Counts(*now), life, kept == lib.QI_COUNTS_EXACT)


def counters_of_queue(handle: Any) -> Counters:
    both = ffi.new("qi_counts[2]")
    kept = lib.qi_queue_counts_of(handle, both, both + 1)
    return _counters(both, both + 1, kept)


def _syncs(since: Any, before: Any | None) -> Syncs:
    of = [since] if before is None else [since, before]
    last = lib.QI_SYNC_TIMES - 1
    histogram = {}
    for i in range(last + 1):
        if number := sum(syncs.times[i] for syncs in of):
            histogram[2**i / 1e6 if i < last else float("inf")] = number
    return Syncs(
        sum(syncs.count for syncs in of),
        sum(syncs.total_us for syncs in of) / 1e6,
        max(syncs.longest_us for syncs in of) / 1e6,
        histogram,
    )


def counters_of_store(handle: Any) -> tuple[Counters, Syncs, Syncs | None]:
    """The counters of all its queues together; its syncs since the open; and in its life."""
    both, syncs = ffi.new("qi_counts[2]"), ffi.new("qi_syncs[2]")
    kept = lib.qi_store_counts_of(handle, both, both + 1, syncs, syncs + 1)
    counters = _counters(both, both + 1, kept)
    life = None if counters.lifetime is None else _syncs(syncs[0], syncs[1])
    return counters, _syncs(syncs[0], None), life
