"""How messages come into the queues of a virtual host: publishes, moves, dead letters.

A queue whose files are damaged takes none. Its publisher hears that (a nack), and a dead letter for
it stays in the store of the queue that it died in, until the next start: by then the damaged queue
may have been repaired.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from qindex.broker.catalog import Catalog
from qindex.broker.dead_letters import dead_letter, is_in_a_circle
from qindex.broker.durable import GroupCommit
from qindex.broker.errors import Refused
from qindex.broker.exchanges import Exchange
from qindex.broker.limits import check_delay, delayed, in_queue
from qindex.broker.message import AmqpError, Message
from qindex.broker.queues import Queue
from qindex.broker.taken import Entry, places_of
from qindex.broker.timers import now_us
from qindex.broker.topology import Topology

log: Final = logging.getLogger("qindex.broker")


class Outcome:
    """What became of a publish."""

    __slots__ = ("durable", "queues", "refused")

    def __init__(self) -> None:
        self.queues: list[str] = []  # that the message was routed to, and that have seen it
        self.refused = False  # one of them is full, or damaged
        self.durable = False  # one of them has it on the disk: it needs a sync


class Posting(Topology):
    """The part of a virtual host that puts messages into queues. VHost makes the queues."""

    def __init__(self, name: str, catalog: Catalog, commit: GroupCommit | None) -> None:
        super().__init__(name, catalog)
        self.commit = commit
        self.dead: dict[str, int] = {}  # dead letters, by why they died
        self.dead_dropped = 0  # dead letters that no queue took, or that went in a circle
        self.refused_by_damaged = 0  # messages for queues that are damaged, once for each queue
        self._told_damaged: set[str] = set()  # of which the log says that they refuse messages
        self._dead_waiting: list[tuple[Queue, list[Entry], str]] = []  # for a queue to be in

    # --- messages ------------------------------------------------------------------------------

    def publish(
        self, message: Message, exchange: Exchange, outcome: Outcome | None = None
    ) -> Outcome:
        """Put a message into all queues that the exchange leads to. NotIn: one is not there yet.

        The disk was full in the middle: with the same `outcome` the queues that are left get it.
        """
        if exchange.delays:
            check_delay(message)
        names = self._router.queues_of(exchange, message)
        if self.arriving:
            for name in names:
                if name in self.arriving:
                    self.check_arrived(name)
        return self._put(message, names, outcome or Outcome(), exchange)

    def route(self, exchange: Exchange, key: str) -> tuple[str, ...] | None:
        """The names of the queues that messages with this key go to; None: headers have a say."""
        return self._router.route(exchange, key)

    def _put(
        self, message: Message, names: Iterable[str], outcome: Outcome, exchange: Exchange
    ) -> Outcome:
        now = now_us()
        due_us, message = delayed(message, now) if exchange.delays else (0, message)
        for name in names:
            queue = self.queues.get(name)
            if queue is None or name in outcome.queues:
                continue
            if queue.backlog.damage:
                self._refuse(queue)
                outcome.refused = True
                continue
            own = in_queue(message, queue.limits, due_us or now)
            if queue.publish(own, now, due_us) is None:
                outcome.refused = True
            elif message.persistent and queue.backlog.is_durable:
                outcome.durable = True
            outcome.queues.append(name)
        return outcome

    def _refuse(self, queue: Queue) -> None:
        """A damaged queue takes no message: that is counted, and the log says it once."""
        self.refused_by_damaged += 1
        if queue.name not in self._told_damaged:
            self._told_damaged.add(queue.name)
            log.error("messages for queue %r are refused: %s", queue.name, queue.backlog.damage)

    def _dead(self, queue: Queue, entries: list[Entry], why: str) -> None:
        """Move messages to the dead-letter exchange. A store keeps each until that of its new
        queues has it for good, so a crash may leave it in both, and never in none.
        """
        if self.arriving and self._waits_for_arrival(queue, entries, why):
            queue.paused = True  # so that what dies meanwhile does not fill the memory
            self._dead_waiting.append((queue, entries, why))
            return
        durable, done = False, 0
        moved: list[Entry] = []
        try:
            for entry in entries:
                names, dead = self._dead_way(queue, entry.message, why)
                if not self._stays(queue, entry, names):
                    durable = self._put_dead(queue, dead, names) or durable
                    moved.append(entry)
                done += 1
        finally:  # without room, those before are there, and the others stay
            self.dead[why] = self.dead.get(why, 0) + len(moved)
            self._settle_moved(queue, moved, durable)
            queue.put_back([entry for entry in entries[done:] if entry.place is not None])

    def move(self, queue: Queue, entries: list[Entry], target: Queue) -> None:
        """Move deliveries of a queue to another one, as they are; dead letters move the same way.

        A crash may leave a message in both queues, and never in none.
        """
        now = now_us()
        durable = False
        for entry in entries:
            message = in_queue(entry.message, target.limits, now)
            if target.publish(message, now) is None:
                self.dead_dropped += 1
            durable = durable or (message.persistent and target.backlog.is_durable)
        self._settle_moved(queue, entries, durable)

    def _settle_moved(self, queue: Queue, entries: list[Entry], durable: bool) -> None:
        """These messages are in their new queues, some of them in need of a sync."""
        moved = places_of(entries)

        def settle() -> None:
            if not queue.deleted:
                queue.backlog.ack(moved)

        if durable and moved.size and queue.backlog.is_durable and self.commit is not None:
            self.commit.join(settle)
        else:
            settle()

    def _waits_for_arrival(self, queue: Queue, entries: list[Entry], why: str) -> bool:
        """True if a dead letter may go to a queue that is not in: then all of these wait."""
        exchange = self.exchanges.get(queue.limits.dead_exchange or "")
        if exchange is None:
            return False
        key = queue.limits.dead_key
        for entry in entries:
            dead = entry.message if key is None else entry.message.copy(expires_us=0)
            if key is not None:
                dead.routing_keys = [key]
            for name in self._router.queues_of(exchange, dead):
                if name in self.arriving:
                    self.on_wanted(name)
                    return True
        return False

    def _dead_way(
        self, queue: Queue, message: Message, why: str
    ) -> tuple[list[str], Message | None]:
        """What becomes of a dead message, and the queues that it goes to. None: nothing."""
        limits = queue.limits
        exchange = self.exchanges.get(limits.dead_exchange or "")
        if exchange is None:
            return [], None
        try:
            dead = dead_letter(message, queue.name, why, exchange.name, limits.dead_key)
        except (AmqpError, ValueError, TypeError) as error:
            log.error("a message of %r became no dead letter: %s", queue.name, error)
            return [], None
        names = list(self._router.queues_of(exchange, dead))
        if why != "rejected":
            circle = [name for name in names if is_in_a_circle(dead, name)]
            if circle:
                log.warning("a dead letter of %r went in a circle: dropped", queue.name)
                names = [name for name in names if name not in circle]
        return names, dead

    def _stays(self, queue: Queue, entry: Entry, names: list[str]) -> bool:
        """True for a dead letter that a damaged queue should get: it stays delivered in its own
        queue, and is ready there after the next start. Of a queue in memory nothing can stay.
        """
        targets = (self.queues.get(name) for name in names)
        damaged = next((each for each in targets if each is not None and each.backlog.damage), None)
        if damaged is None or entry.place is None or not queue.backlog.is_durable:
            return False
        queue.unacked += 1  # so that it is counted where people look
        queue.stuck += 1
        if queue.name not in self._told_damaged:
            self._told_damaged.add(queue.name)
            log.error(
                "dead letters of queue %r stay in it, unacknowledged, until the next start: %s",
                queue.name,
                damaged.backlog.damage,
            )
        return True

    def _put_dead(self, queue: Queue, dead: Message | None, names: list[str]) -> bool:
        """Publish a dead letter; True if a sync has to cover it."""
        outcome = Outcome()
        if dead is not None:
            try:
                self._put(dead, names, outcome, self.exchanges[dead.exchange])
            except Refused as error:  # it would come again and again
                log.error("a dead letter of %r was refused: %s", queue.name, error)
        self.dead_dropped += not outcome.queues or outcome.refused
        return outcome.durable
