"""One queue of the broker: its limits, its consumers, whose turn it is.

A queue never calls a consumer while it is called itself, with one exception: where a message would
leave at once otherwise (a limit, a time to live of 0), it is offered to the consumers first.
`wake()` runs the rest in the next turn of the event loop, so that a burst of publishes is one turn.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from qindex._wire import Taken
from qindex.broker.backlog import Backlog
from qindex.broker.bulk import InBulk
from qindex.broker.consumers import Consumer, Turns, shares
from qindex.broker.errors import AccessRefused
from qindex.broker.limits import Limits
from qindex.broker.message import Message
from qindex.broker.settling import Settling
from qindex.broker.taken import Entry, Given, Places, left_of, places_of, taken_of
from qindex.broker.timers import (
    TIMER_SECONDS_MAX,
    DueTimer,
    RetryTimer,
    Scheduler,
    Timer,
    UnusedTimer,
    now_us,
)
from qindex.errors import QindexError

TURN_MAX: Final = 512  # messages that a queue delivers before others have their turn
log: Final = logging.getLogger("qindex.broker")


class Queue(Settling, InBulk):
    """A queue: made by VHost.declare_queue()."""

    def __init__(
        self,
        name: str,
        backlog: Backlog,
        limits: Limits,
        scheduler: Scheduler,
        *,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        arguments: dict[str, Any],
    ) -> None:
        self.name = name
        self.backlog = backlog
        self.limits = limits
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner  # the connection of an exclusive queue
        self.arguments = arguments
        self.unacked = 0
        self._published = self.delivered = self.acked = 0  # since this process began
        self.consumers: dict[Consumer, None] = {}
        self.deleted = self.paused = False  # paused: nothing is delivered, and nothing expires
        self.on_hold = False  # the same, by an operator's wish; limits hold
        # Set by the vhost: what to do with messages that leave without an ack, and with the queue.
        self.on_dead: Callable[[Queue, list[Entry], str], None] = lambda queue, entries, why: None
        self.on_unused: Callable[[Queue], None] = lambda queue: None
        self.on_error: Callable[[QindexError], None] = lambda error: None
        self._scheduler = scheduler
        self._turns = Turns(self.consumers, single_active=limits.single_active)
        self._woken = False
        self._expiring = limits.ttl_ms is not None or len(backlog) > 0
        self._expiry_timer: Timer | None = None
        self._retry = RetryTimer(scheduler, self.wake)
        self._unused = UnusedTimer(limits.expires_ms, scheduler, self._came_unused)
        self._bytes = backlog.ready_bytes() if limits.max_bytes is not None else 0
        self.due_timer = DueTimer(backlog, scheduler, self._came_due, limits.max_bytes)
        self.used = self._unused.used  # somebody uses it: x-expires begins anew
        self.used()
        if self._expiring:
            self.wake()

    def __len__(self) -> int:
        """Ready messages."""
        return len(self.backlog)

    def __bool__(self) -> bool:
        return True

    @property
    def published(self) -> int:
        """Messages that have come since this process began."""
        return self._published + self.backlog.straight

    def is_active(self, consumer: Consumer) -> bool:
        """False for a consumer that waits behind the single active one."""
        return not self.limits.single_active or self._turns.choose() is consumer

    def arrived(self, backlog: Backlog) -> None:
        """All messages of a queue that was paused are in: this is where they are."""
        self.backlog, self.paused, self._expiring = backlog, False, True
        backlog.watch(bool(self.consumers))
        self.due_timer = DueTimer(backlog, self._scheduler, self._came_due, self.limits.max_bytes)
        self._bytes = backlog.ready_bytes() if self.limits.max_bytes is not None else 0
        self.wake()

    # --- messages in ---------------------------------------------------------------------------

    def publish(self, message: Message, now: int, due_us: int = 0) -> int | None:
        """Append a message; return its number in the backlog, or None: the queue is full.

        `now` is the moment of the publish in microseconds: a message whose time to live is 0 may be
        delivered at that moment. A message is not ready before `due_us`, if that is given, and
        counts for no limit until then.
        """
        limits = self.limits
        if limits.has_length and limits.overflow != "drop-head" and self._is_full(message):
            self._pump(now)
            if self._is_full(message):
                if limits.overflow == "reject-publish-dlx":
                    self.on_dead(self, [Entry(message, None, False, 0)], "maxlen")
                return None
        number = self.backlog.publish(message, due_us)
        self._published += 1
        if due_us:
            self.due_timer.published(due_us, message.size)
            return number
        self._bytes += message.size
        if message.expires_us:
            self._expiring = True
        if limits.has_length or (message.expires_us and message.expires_us <= now):
            self._make_way(now)
        self.wake()
        return number

    def _make_way(self, now: int) -> None:
        """The message is in: if others cannot leave now, that is no error of its publish."""
        try:
            while self._pump(now) and self.limits.is_over(len(self), self._bytes):
                pass  # what would leave at once goes to consumers that have credit for it
            self._drop_over_length()
        except QindexError as error:
            self._failed(error)

    def _is_full(self, message: Message) -> bool:
        return self.limits.is_over(len(self) + 1, self._bytes + message.size)

    def _drop_over_length(self) -> None:
        limits, drops = self.limits, self.limits.overflow == "drop-head"
        while drops and len(self) and limits.is_over(len(self), self._bytes):
            most = len(self) - (len(self) if limits.max_length is None else limits.max_length)
            taken = self._take(min(max(most, 1), TURN_MAX), for_limit=True)
            entries = [self.entry(taken, at) for at in range(len(taken))]
            self.backlog.done_with(taken)
            if not entries:
                return
            self._leave(entries, "maxlen")

    # --- messages out --------------------------------------------------------------------------

    def get(self) -> Entry | None:
        """The next message, for one that asks instead of waiting; None: there is none."""
        self.used()
        while (entry := self._take_one()) is not None:
            if not self._has_expired(entry, now_us()):
                self.unacked += 1
                self.delivered += 1
                self.wake()
                return entry
            self._leave([entry], "expired")
        return None

    def entry(self, taken: Taken, at: int) -> Entry:
        """One of the messages that a consumer is given."""
        source = taken.source
        found: Entry = source[at] if type(source) is list else self.backlog.entry(taken, at)
        return found

    def purge(self) -> int:
        self._bytes = 0
        return self.backlog.purge()

    def _take(self, count: int, *, for_limit: bool = False) -> Taken:
        taken = taken_of([]) if self.on_hold and not for_limit else self.backlog.take(count)
        self._bytes -= taken.body_bytes
        return taken

    def _take_one(self, *, for_limit: bool = False) -> Entry | None:
        taken = self._take(1, for_limit=for_limit)
        entry = self.entry(taken, 0) if len(taken) else None
        self.backlog.done_with(taken)
        return entry

    def _has_expired(self, entry: Entry, now: int) -> bool:
        return 0 < entry.message.expires_us < now

    def _leave(self, entries: list[Entry], why: str) -> None:
        """Messages leave without an ack: to the dead-letter exchange, or for good.

        An error says that some are in the queue again: they did not get there.
        """
        if self.limits.dead_exchange is None:
            self.backlog.ack(places_of(entries))
        else:
            self.on_dead(self, entries, why)

    # --- consumers -----------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer, what: str) -> None:
        """Let it take messages. AccessRefused if it, or the one that is there, is exclusive."""
        if self.consumers and (consumer.exclusive or next(iter(self.consumers)).exclusive):
            raise AccessRefused(f"{what} in exclusive use")
        self.consumers[consumer] = None
        self.backlog.watch(True)
        self._turns.choose()
        self.may_take(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        """It takes no more. The last one takes an auto-delete queue with it."""
        if consumer not in self.consumers:
            return
        del self.consumers[consumer]
        self.backlog.watch(bool(self.consumers))
        self._turns.leave(consumer)
        self.used()
        if not self.consumers and self.auto_delete:
            self.on_unused(self)
        else:
            self.wake()

    def may_take(self, consumer: Consumer) -> None:
        """It has credit again. No error if it has left. O(1)."""
        if consumer in self.consumers:
            self._turns.may_take(consumer)
            self.wake()

    def wake(self) -> None:
        """Look at messages and consumers in the next turn of the event loop."""
        if not self._woken:
            self._woken = True
            self._scheduler.call_soon(self._turn)

    def _turn(self) -> None:
        self._woken = False
        if self.deleted or self.paused or self.on_hold:
            return
        try:
            self._drop_over_length()
        except QindexError as error:  # what is ready is delivered
            self._failed(error)
        try:
            if self._pump(now_us()):
                self.wake()
            elif self._expiring:
                self._arm_expiry()
        except QindexError as error:
            self._failed(error)
        except BaseException:  # a defect of ours: the loop logs it
            self._retry.again()
            raise

    def _failed(self, error: QindexError) -> None:
        """The disk is full, or worse: what could not be done is tried again."""
        log.error("queue %r cannot deliver: %s", self.name, error)
        self.on_error(error)
        self._retry.again()

    def _pump(self, now: int) -> bool:
        """Deliver up to TURN_MAX messages; True if there is more to deliver at once."""
        left = TURN_MAX
        while left > 0 and len(self.backlog):
            waiting, wanted = self._turns.next(min(left, len(self.backlog)))
            if waiting is None or not wanted:
                return False
            taken = self._take(wanted)
            count = len(taken)
            if not count:
                return False
            left -= count
            self._hand_out(taken, waiting, now)
            if count < wanted:  # they are large: others have their turn first
                return True
        return left <= 0

    def _hand_out(self, taken: Taken, waiting: deque[Consumer], now: int) -> None:
        """One message to each consumer in turn, as long as it has credit.

        What is usual goes out together; the others are looked at one by one.
        """
        at, end, counts = 0, len(taken), self.limits.is_quorum
        expired: list[Entry] = []
        given: Given = []
        try:
            while at < end:
                if (stop := taken.usual(at, now, counts)) > at:
                    at += self._deliver(taken, at, stop, waiting, given)
                    if at < stop:
                        break
                    continue
                entry = self.entry(taken, at)
                if self._has_expired(entry, now):
                    expired.append(entry)
                elif not self._deliver(taken_of([entry], counts=counts), 0, 1, waiting, given):
                    break
                at += 1
            if at < end:  # two consumers share the credit of one channel
                self.put_back([self.entry(taken, left) for left in range(at, end)])
        except BaseException:
            self._take_back(taken, given)
            raise
        finally:
            self.backlog.done_with(taken)
        if expired:
            self._leave(expired, "expired")

    def _deliver(
        self, taken: Taken, start: int, stop: int, waiting: deque[Consumer], given: Given
    ) -> int:
        """Deliver these messages; return how many somebody had credit for. All is in `given`."""
        count = 0
        for consumer, share in shares(waiting, start, stop):
            if consumer.no_ack:  # settled first: an error leaves them to be delivered again
                self.backlog.ack(Places(*taken.places(share.start, share.stop, share.step)))
            else:
                self.unacked += len(share)
            count += len(share)
            self.delivered += len(share)
            given.append((taken, share))
            consumer.deliver(self, taken, share)
        return count

    def _take_back(self, taken: Taken, given: Given) -> None:
        """After an error: what no consumer has is ready again."""
        left = left_of(taken, given)
        try:
            if left.size:
                self.backlog.requeue(left)
            if self.limits.max_bytes is not None:
                self._bytes = self.backlog.ready_bytes()
        except QindexError as error:
            log.error("queue %r: messages stay out until a restart: %s", self.name, error)

    def put_back(self, entries: list[Entry]) -> None:
        """What was taken and could not leave is ready again, in its place."""
        if entries:
            self.backlog.requeue(places_of(entries))
        self._bytes += sum(entry.message.size for entry in entries)

    # --- times ---------------------------------------------------------------------------------

    def count_again(self) -> None:
        """Messages have become ready, or have left, otherwise than by this queue's verbs."""
        self.due_timer.forget_sizes()
        self._came_due(None)

    def _came_due(self, size: int | None) -> None:
        """`size`: the bytes of what is ready now; None: they are counted anew, which reads all."""
        self._expiring = True
        try:
            if size is not None:
                self._bytes += size
            elif self.limits.max_bytes is not None:
                self._bytes = self.backlog.ready_bytes()
            self._drop_over_length()
        except QindexError as error:  # what is ready goes to consumers all the same
            self._failed(error)
        self.wake()

    def _arm_expiry(self) -> None:
        """Drop what has expired at the head, and look again when the next one expires."""
        now = now_us()
        while (head := self.backlog.peek()) is not None and 0 < head.expires_us < now:
            if (entry := self._take_one()) is None:
                break
            self._leave([entry], "expired")
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        if head is None and self.limits.ttl_ms is None:
            self._expiring = False
        elif head is not None and head.expires_us:
            seconds = min((head.expires_us - now) / 1e6 + 0.001, TIMER_SECONDS_MAX)
            self._expiry_timer = self._scheduler.call_later(seconds, self.wake)

    def _came_unused(self) -> None:
        if not self.consumers:
            self.on_unused(self)

    def stop(self) -> None:
        """No more turns and timers."""
        self.deleted = True
        self.due_timer.stop()
        self._unused.stop()
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        for consumer in list(self.consumers):
            consumer.cancelled(self)
        self.consumers.clear()
        self._turns.clear()
