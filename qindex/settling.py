"""What becomes of a message that was taken, or that waits: ack, nack, touch, and their like."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from qindex._core import ffi, lib
from qindex.arguments import to_due_us, to_lease_us
from qindex.errors import AlreadyAcked, MessageDelivered, raise_error
from qindex.message import Message
from qindex.native import MessageFields, to_req_ids

if TYPE_CHECKING:
    from qindex.store import Store


def _which(message: Message | int) -> tuple[int, int]:
    """ReqId and delivery count (0: not known), as the core tells the holders of a lease apart."""
    if isinstance(message, MessageFields):
        return message.req_id, message._details.delivery_count
    return message if type(message) is int else message.req_id, 0  # type: ignore[attr-defined]


def _which_of(messages: Iterable[Message | int], leased: bool) -> tuple[Any, Any, int]:
    """The same for several: ReqIds, delivery counts if there are leases, and how many."""
    counts: Any = ffi.NULL
    if leased:
        messages = list(messages)  # looked at twice: another thread may change the caller's list
        counts = ffi.from_buffer("uint32_t[]", array("I", [_which(one)[1] for one in messages]))
    req_ids = ffi.from_buffer("uint64_t[]", to_req_ids(messages))
    return req_ids, counts, len(req_ids)


class Settling:
    """The verbs that end a delivery, or change what waits, for the class of a queue."""

    _store: Store
    _handle: Any
    _confirm_all: bool
    _leased: bool

    def _settled(self, result: int) -> int:
        """The core's answer; an error is raised, and sync="always" waits for the disk."""
        if result < 0:
            raise_error(result)
        if self._confirm_all:
            self.sync()
        return result

    def _ack(self, message: Message | int) -> None:
        self._settled(lib.qi_ack(self._handle, *_which(message)))

    def ack_many(self, messages: Iterable[Message | int]) -> None:
        """Settle several messages at once, all or none.

        Errors as ack(), and ValueError for one that stands in the list twice.
        """
        self._settled(lib.qi_ack_many(self._handle, *_which_of(messages, self._leased)))

    def nack(
        self,
        message: Message | int,
        requeue: bool = True,
        *,
        delay: float | None = None,
        due: float | None = None,
    ) -> None:
        """Give a delivered message back: to its own place in the order, or drop it. O(1).

        Dropped, it becomes a dead letter if the queue keeps those (see Store.queue). With `delay`
        (seconds) or `due` (seconds since 1970) it is ready again at that time.
        """
        self.nack_many([message], requeue, delay=delay, due=due)

    def nack_many(
        self,
        messages: Iterable[Message | int],
        requeue: bool = True,
        *,
        delay: float | None = None,
        due: float | None = None,
    ) -> None:
        """nack() for several, all or none. ValueError for one that stands in the list twice."""
        due_us = to_due_us(self._store._now_us, delay, due)
        if not requeue and due_us:
            raise ValueError("requeue=False drops the message: it cannot have a delay, too")
        which = _which_of(messages, self._leased)
        if requeue:
            code = lib.qi_nack_many(self._handle, *which, due_us)
        else:
            code = lib.qi_reject_many(self._handle, *which)
        if code < 0:
            raise_error(code)
        if self._confirm_all and (due_us or not requeue):
            self.sync()

    def touch(self, message: Message | int, lease: float) -> None:
        """Extend the lease of a delivered message: it ends `lease` seconds from now. O(log n).

        Raises LeaseExpired if it has ended: then the message is ready, or somebody else has it.
        """
        self._leased = True
        code = lib.qi_touch(self._handle, *_which(message), to_lease_us(lease))
        if code < 0:
            raise_error(code)

    def reschedule(
        self, message: Message | int, *, delay: float | None = None, due: float | None = None
    ) -> None:
        """Change when a message is ready that is not delivered; with neither, it is ready now.

        Durable like a publish. Raises MessageDelivered if a consumer has it, UnknownMessage and
        AlreadyAcked as ack(). Cost: O(log n), and the reading of a segment that is not in memory.
        """
        self._settled(
            lib.qi_reschedule(
                self._handle, _which(message)[0], to_due_us(self._store._now_us, delay, due)
            )
        )

    def delete(self, message: Message | int) -> None:
        """Drop a message that is not delivered, by its ReqId: ready, or delayed (it is cancelled).

        Errors and cost as reschedule().
        """
        self._settled(lib.qi_delete(self._handle, _which(message)[0]))

    def redrive(self, count: int | None = None) -> int:
        """Make dead letters ready again, all or the first `count` by ReqId; return how many.

        Each keeps its delivery count and is delivered at once, whatever made it a dead letter; if
        the queue has max_deliveries, the next multiple of it ends its tries. One record each: after
        any crash a message is a dead letter or ready, never both. O(number of messages in segments
        with dead letters).
        """
        return self._settled(
            lib.qi_redrive(self._handle, (1 << 64) - 1 if count is None else count)
        )

    def expire(self) -> int:
        """Drop every message that has expired, wherever it stands; return how many this call did.

        They become dead letters if the queue keeps those. What is unacked stays. The store does the
        same by itself, within about a second; this is for who wants it done now. Reads the segments
        in which something may have expired. Raises DiskError if one cannot be read, or DiskFull.
        """
        return self._settled(lib.qi_expire(self._handle))

    def purge(self, where: Callable[[Message], bool] | None = None) -> int:
        """Drop all messages but the unacked, also delayed ones and dead letters; return how many.

        With `where`, those of which it says True, one by one: a crash may leave the rest. Without,
        all at once. O(their number). Raises DiskError if a segment cannot be read: then nothing was
        dropped.
        """
        if where is not None:
            return self._purge_some(where)
        return self._settled(lib.qi_purge(self._handle))

    def _purge_some(self, where: Callable[[Message], bool]) -> int:
        count = 0
        for message in self.browse():
            if where(message):
                # A consumer may have it, or have had it, since it was looked at.
                with contextlib.suppress(MessageDelivered, AlreadyAcked):
                    self.delete(message)
                    count += 1
        return count

    if TYPE_CHECKING:

        def browse(self) -> Iterator[Message]: ...

    def sync(self) -> None:
        """Return when everything before this call survives a power cut.

        Raises OutcomeUnknown if the disk failed. Cost: one or two fdatasync, shared by all waiters.
        """
        code = lib.qi_queue_sync(self._handle)
        if code < 0:
            raise_error(code)

    def flush(self) -> None:
        """Move the journal's entries into segments now; dirty_count is 0 afterwards."""
        code = lib.qi_flush(self._handle)
        if code < 0:
            raise_error(code)
