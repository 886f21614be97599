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

from qindex.broker.backlog import Backlog, Entry, Publishes, Share
from qindex.broker.consumers import Consumer
from qindex.broker.errors import AccessRefused
from qindex.broker.limits import Limits
from qindex.broker.message import Message
from qindex.broker.timers import (
    TIMER_SECONDS_MAX,
    DueTimer,
    Scheduler,
    Timer,
    UnusedTimer,
    now_us,
)
from qindex.errors import QindexError

TURN_MAX: Final = 512  # messages that a queue delivers before others have their turn
RETRY_SECONDS: Final = 1.0  # after the disk has failed to read
log: Final = logging.getLogger("qindex.broker")


class Queue:
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
        self.published = self.delivered = self.acked = 0  # since this process began
        self.consumers: dict[Consumer, None] = {}
        self.deleted = False
        self.paused = False  # nothing is delivered, and nothing expires
        self.on_hold = False  # the same, by an operator's wish; limits hold
        # Set by the vhost: what to do with messages that leave without an ack, and with the queue.
        self.on_dead: Callable[[Queue, list[Entry], str], None] = lambda queue, entries, why: None
        self.on_unused: Callable[[Queue], None] = lambda queue: None
        self.on_error: Callable[[QindexError], None] = lambda error: None
        self._scheduler = scheduler
        self._chosen: Consumer | None = None  # of a queue with a single active consumer
        self._active: dict[int, deque[Consumer]] = {}  # by priority: those that may have credit
        self._woken = False
        self._expiring = limits.ttl_ms is not None or len(backlog) > 0
        self._expiry_timer: Timer | None = None
        self._unused = UnusedTimer(limits.expires_ms, scheduler, self._came_unused)
        self.due_timer = DueTimer(backlog, scheduler, self.count_again)
        self._bytes = backlog.ready_bytes() if limits.max_bytes is not None else 0
        self.used = self._unused.used  # somebody uses it: x-expires begins anew
        self.used()
        if self._expiring:
            self.wake()

    def __len__(self) -> int:
        """Ready messages."""
        return len(self.backlog)

    def __bool__(self) -> bool:
        return True

    def arrived(self, backlog: Backlog) -> None:
        """All messages of a queue that was paused are in: this is where they are."""
        self.backlog, self.paused, self._expiring = backlog, False, True
        self.due_timer = DueTimer(backlog, self._scheduler, self.count_again)
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
        self.published += 1
        if due_us:
            self.due_timer.published(due_us)
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
            self._pump(now)
            self._drop_over_length()
        except QindexError as error:
            self._failed(error)

    @property
    def takes_batches(self) -> bool:
        """True if no message that comes has to be looked at on its own: publish_many() may be
        called."""
        limits = self.limits
        return not (self.paused or limits.has_length or limits.ttl_ms == 0)

    def publish_many(self, publishes: Publishes, shares: list[Share | None]) -> None:
        """Append the messages of the groups that have a share: all of them or none. Their priority
        is the same. Only if the queue takes_batches.
        """
        before = len(self.backlog)
        self.backlog.publish_many(publishes, shares)
        self.published += len(self.backlog) - before
        self._expiring = self._expiring or self.limits.ttl_ms is not None
        self.wake()

    def _is_full(self, message: Message) -> bool:
        return self.limits.is_over(len(self) + 1, self._bytes + message.size)

    def _drop_over_length(self) -> None:
        limits = self.limits
        while limits.overflow == "drop-head" and limits.is_over(len(self), self._bytes):
            dropped = self._take(1, for_limit=True) if len(self) else []
            if not dropped:
                return
            self._leave(dropped, "maxlen")

    # --- messages out --------------------------------------------------------------------------

    def get(self) -> Entry | None:
        """The next message, for one that asks instead of waiting; None: there is none."""
        self.used()
        while entries := self._take(1):
            if not self._has_expired(entries[0], now_us()):
                self.unacked += 1
                self.delivered += 1
                self.wake()
                return entries[0]
            self._leave(entries, "expired")
        return None

    def ack(self, entries: list[Entry]) -> None:
        """These deliveries are settled."""
        self.unacked -= len(entries)
        self.acked += len(entries)
        if not self.deleted:
            self.backlog.ack(entries)

    def requeue(self, entries: list[Entry]) -> None:
        """These deliveries go back to their places, or leave if they were delivered too often."""
        self.unacked -= len(entries)
        if self.deleted:
            return
        limit = self.limits.delivery_limit
        over = [] if limit is None else [entry for entry in entries if entry.deliveries > limit]
        self.put_back([entry for entry in entries if entry not in over] if over else entries)
        self.wake()
        if over:
            self._leave(over, "delivery_limit")
        self._drop_over_length()

    def reject(self, entries: list[Entry]) -> None:
        """These deliveries end, and the messages are dead letters."""
        self.unacked -= len(entries)
        if not self.deleted:
            self._leave(entries, "rejected")

    def purge(self) -> int:
        self._bytes = 0
        return self.backlog.purge()

    def _take(self, count: int, *, for_limit: bool = False) -> list[Entry]:
        entries = [] if self.on_hold and not for_limit else self.backlog.take(count)
        if self.limits.max_bytes is not None:
            self._bytes -= sum(entry.message.size for entry in entries)
        return entries

    def _has_expired(self, entry: Entry, now: int) -> bool:
        return 0 < entry.message.expires_us < now

    def _leave(self, entries: list[Entry], why: str) -> None:
        """Messages leave without an ack: to the dead-letter exchange, or for good.

        An error says that some are in the queue again: they did not get there.
        """
        if self.limits.dead_exchange is None:
            self.backlog.ack(entries)
        else:
            self.on_dead(self, entries, why)

    # --- consumers -----------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer, what: str) -> None:
        """Let it take messages. AccessRefused if it, or the one that is there, is exclusive."""
        if self.consumers and (consumer.exclusive or next(iter(self.consumers)).exclusive):
            raise AccessRefused(f"{what} in exclusive use")
        self.consumers[consumer] = None
        self._single_active()
        self.may_take(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        """It takes no more. The last one takes an auto-delete queue with it."""
        if consumer not in self.consumers:
            return
        del self.consumers[consumer]
        if consumer.waiting:
            consumer.waiting = False
            self._active[consumer.priority].remove(consumer)
        self.used()
        if not self.consumers and self.auto_delete:
            self.on_unused(self)
        else:
            self.wake()

    def may_take(self, consumer: Consumer) -> None:
        """It has credit again. O(1)."""
        if not consumer.waiting:
            if consumer.priority not in self._active:
                self._active[consumer.priority] = deque()
                self._active = dict(sorted(self._active.items(), reverse=True))
            consumer.waiting = True
            self._active[consumer.priority].append(consumer)
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
            if self._pump(now_us()):
                self.wake()
            elif self._expiring:
                self._arm_expiry()
        except QindexError as error:
            self._failed(error)

    def _failed(self, error: QindexError) -> None:
        """The disk is full, or worse: what could not be done is tried again."""
        log.error("queue %r cannot deliver: %s", self.name, error)
        self.on_error(error)
        self._scheduler.call_later(RETRY_SECONDS, self.wake)

    def _pump(self, now: int) -> bool:
        """Deliver up to TURN_MAX messages; True if there is more to deliver at once."""
        left = TURN_MAX
        while left > 0 and len(self.backlog):
            consumers, wanted = self._next_consumers(min(left, len(self.backlog)))
            if not wanted:
                return False
            entries = self._take(wanted)
            if not entries:
                return False
            left -= len(entries)
            self._hand_out(entries, consumers, now)
            if len(entries) < wanted:  # they are large: others have their turn first
                return True
        return left <= 0

    def _next_consumers(self, most: int) -> tuple[deque[Consumer] | None, int]:
        """The highest priority that has a consumer with credit, and the credit of all of it."""
        if self.limits.single_active:
            first = self._single_active()
            if first is None:
                return None, 0
            most = 1 if first.shares_credit else most
            return deque([first]), min(max(0, first.credit()), most)
        for waiting in self._active.values():
            while waiting and waiting[0].credit() <= 0:
                waiting.popleft().waiting = False
            wanted = 0
            for consumer in waiting:
                if consumer.shares_credit:
                    return waiting, 1
                wanted += max(0, consumer.credit())
                if wanted >= most:
                    return waiting, most
            if wanted:
                return waiting, wanted
        return None, 0

    def _single_active(self) -> Consumer | None:
        """The one that is chosen stays it as long as it is there, whoever comes later."""
        if self._chosen not in self.consumers:
            by_priority = sorted(self.consumers, key=lambda consumer: -consumer.priority)
            self._chosen = by_priority[0] if by_priority else None
        return self._chosen

    def _hand_out(self, entries: list[Entry], consumers: deque[Consumer] | None, now: int) -> None:
        """One message to each consumer in turn, as long as it has credit."""
        settled, left, expired = [], [], []
        for entry in entries:
            if self._has_expired(entry, now):
                expired.append(entry)
                continue
            while consumers and consumers[0].credit() <= 0:
                consumers.popleft().waiting = False
            if not consumers:
                left.append(entry)  # two consumers share the credit of one channel
                continue
            consumer = consumers[0]
            consumers.rotate(-1)
            if consumer.no_ack:
                settled.append(entry)
            else:
                self.unacked += 1
            self.delivered += 1
            consumer.deliver(self, entry)
        if settled:
            self.backlog.ack(settled)
        if left:
            self.put_back(left)
        if expired:
            self._leave(expired, "expired")

    def put_back(self, entries: list[Entry]) -> None:
        """What was taken and could not leave is ready again, in its place."""
        if entries:
            self.backlog.requeue(entries)
        self._bytes += sum(entry.message.size for entry in entries)

    # --- times ---------------------------------------------------------------------------------

    def count_again(self) -> None:
        """Messages have become ready, or have left, otherwise than by this queue's verbs."""
        self._expiring = True
        if self.limits.max_bytes is not None:
            self._bytes = self.backlog.ready_bytes()
        self._drop_over_length()
        self.wake()

    def _arm_expiry(self) -> None:
        """Drop what has expired at the head, and look again when the next one expires."""
        now = now_us()
        while (head := self.backlog.peek()) is not None and 0 < head.expires_us < now:
            if not (entries := self._take(1)):
                break
            self._leave(entries, "expired")
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
        self._active.clear()
