"""A virtual host: exchanges, queues and bindings that know each other by name.

What is durable is in the catalog before the client hears of it. The order is: a queue of the store
is made first and named in the catalog then; it is taken out of the catalog first and deleted then.
So a crash in between leaves a queue that nobody knows, without messages that anybody could still
ask for: the next declaration of that name deletes it before it makes a new one.
"""

from __future__ import annotations

import logging
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from qindex.broker import definitions
from qindex.broker.arriving import ArrivingBacklog
from qindex.broker.backlog import Backlog, MemoryBacklog
from qindex.broker.catalog import MemoryCatalog, StoreCatalog
from qindex.broker.dead_letters import dead_letter, is_in_a_circle
from qindex.broker.durable import DurableBacklog, GroupCommit
from qindex.broker.errors import Locked, Precondition, Refused
from qindex.broker.exchanges import QUEUE, Destination, Exchange
from qindex.broker.limits import (
    QUEUE_ARGUMENTS,
    check_delay,
    check_same_arguments,
    delayed,
    in_queue,
    inequivalent_flag,
    limits_of,
)
from qindex.broker.message import AmqpError, Message
from qindex.broker.queues import Queue
from qindex.broker.taken import Entry, places_of
from qindex.broker.timers import Scheduler, now_us
from qindex.broker.topology import Topology
from qindex.broker.totals import Lives, Totals
from qindex.errors import QindexError, StoreFailed

if TYPE_CHECKING:
    import qindex

log: Final = logging.getLogger("qindex.broker")
NAME_BYTES_MAX: Final = 255


class Outcome:
    """What became of a publish."""

    __slots__ = ("durable", "queues", "refused")

    def __init__(self) -> None:
        self.queues: list[str] = []  # that the message was routed to, and that have seen it
        self.refused = False  # one of them is full
        self.durable = False  # one of them has it on the disk: it needs a sync


class VHost(Topology):
    """One virtual host, in a store or in memory. For the thread of one event loop."""

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        store: qindex.Store | None = None,
        commit: GroupCommit | None = None,
    ) -> None:
        super().__init__(name, MemoryCatalog() if store is None else StoreCatalog(store))
        self.commit = commit
        self.gone = Totals(0, 0, 0)  # of queues that are deleted
        self.lives = Lives()
        self.dead: dict[str, int] = {}  # dead letters, by why they died
        self.dead_dropped = 0  # dead letters that no queue took, or that went in a circle
        self._dead_waiting: list[tuple[Queue, list[Entry], str]] = []  # for a queue to be in
        self._scheduler = scheduler
        self._store = store
        definitions.restore(self, self._catalog)
        if store is not None:
            definitions.adopt(self, self._catalog, store)

    # --- queues --------------------------------------------------------------------------------

    def declare_queue(
        self,
        name: str,
        *,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        user: object,
        arguments: dict[str, Any],
    ) -> Queue:
        """Make a queue, or check that the one that is there is the same; "" names a new one.

        `owner` is the connection whose own the queue is to be, or None; `user` is the connection
        that asks. A queue of a connection ends with it, so it lives in memory, durable or not.
        """
        durable = durable and owner is None
        what = self.describe("queue", name)
        self.lives.declared += 1
        found = self.queues.get(name)
        if found is not None:
            self._check_same_queue(found, what, durable, auto_delete, owner, user, arguments)
            found.used()
            return found
        if not name:
            name = "amq.gen-" + urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        else:
            self._check_name("queue", name)
        limits = limits_of(arguments, self.describe("queue", name))
        if limits.is_quorum:
            for is_wrong, word in (
                (owner is not None, "exclusive-owner"),
                (not durable, "non-durable"),
                (auto_delete, "auto-delete"),
            ):
                if is_wrong:
                    queue_text = self.describe("queue", name)
                    raise Precondition(f"invalid property '{word}' for {queue_text}")
        backlog: Backlog = MemoryBacklog(counts=limits.is_quorum)
        if durable and self._store is not None:  # what a crash has left of it is empty
            backlog = DurableBacklog(self._store, name)
        queue = Queue(
            name,
            backlog,
            limits,
            self._scheduler,
            durable=durable,
            auto_delete=auto_delete,
            owner=owner,
            arguments=arguments,
        )
        if durable:
            self._catalog.apply(definitions.of_queue(queue))
        self.add_queue(queue)
        self.lives.created += 1
        return queue

    def restore_queue(self, name: str, *, auto_delete: bool, arguments: dict[str, Any]) -> None:
        """A queue that the catalog has, with the messages that it had."""
        limits = limits_of(arguments, self.describe("queue", name))
        arrival = self.arriving.get(name)
        backlog: Backlog
        if arrival is not None:
            backlog = ArrivingBacklog(arrival.count)
        elif self._store is None:
            backlog = MemoryBacklog(counts=limits.is_quorum)
        else:
            if name not in self._store:
                log.warning("queue %r has no folder any more: what was in it is lost", name)
            backlog = DurableBacklog(self._store, name)
        options: dict[str, Any] = {"durable": True, "auto_delete": auto_delete, "owner": None}
        queue = Queue(name, backlog, limits, self._scheduler, arguments=arguments, **options)
        queue.paused = arrival is not None
        self.add_queue(queue)

    def arrived(self, name: str) -> None:
        """All messages of a queue that was arriving are in the store, and synced: it is served."""
        if self._store is None:
            raise RuntimeError("nothing arrives in memory")
        self._catalog.apply(definitions.gone_arriving(name))
        self._no_longer_arriving(name)
        self.queues[name].arrived(DurableBacklog(self._store, name))
        waiting, self._dead_waiting = self._dead_waiting, []
        for queue, _, _ in waiting:
            queue.paused = False
            queue.wake()
        for queue, entries, why in waiting:
            self._dead(queue, entries, why)  # which may pause it again

    def leave_out(self, name: str) -> None:
        """A queue that was arriving does not come: it goes."""
        self._catalog.apply(definitions.gone_arriving(name))
        self._no_longer_arriving(name)
        self._delete(self.queues[name])

    def add_queue(self, queue: Queue) -> None:
        queue.on_dead = self._dead
        queue.on_unused = self.delete_unused
        queue.on_error = self.failed
        self._know(queue)

    def _check_same_queue(
        self,
        found: Queue,
        what: str,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        user: object,
        arguments: dict[str, Any],
    ) -> None:
        if found.owner is not owner or (found.owner is not None and found.owner is not user):
            raise Locked(
                f"cannot obtain exclusive access to locked {what}. It could be originally "
                "declared on another connection or the exclusive property value does not match "
                "that of the original declaration."
            )
        for flag, received, current in (
            ("durable", durable, found.durable),
            ("auto_delete", auto_delete, found.auto_delete),
        ):
            if received != current:
                raise inequivalent_flag(flag, what, received, current)
        check_same_arguments(arguments, found.arguments, what, QUEUE_ARGUMENTS)

    def delete_queue(
        self, name: str, user: object, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """Delete a queue; return how many messages were ready. None of that name is no error."""
        if name not in self.queues:
            return 0
        queue = self.queue(name, user)
        what = self.describe("queue", name)
        if if_unused and queue.consumers:
            raise Precondition(f"{what} in use")
        if if_empty and len(queue):
            raise Precondition(f"{what} not empty")
        return self._delete(queue)

    def _delete(self, queue: Queue) -> int:
        count = len(queue)
        gone = list(self._bound_to.get(Destination(QUEUE, queue.name), ()))
        changes: dict[str, bytes | None] = {}
        self._unbind_all(gone, changes)
        if queue.durable:  # else nothing of it is in the catalog
            changes.update(definitions.gone_queue(queue))
            self._catalog.apply(changes)
        self._forget(queue)
        self.lives.deleted += 1
        self.gone = self.gone.plus([queue])
        queue.stop()
        queue.backlog.delete()
        self._delete_unused_sources(gone)
        return count

    def delete_unused(self, queue: Queue) -> None:
        """Nobody needs this queue any more. It may be gone already."""
        if self.queues.get(queue.name) is queue:
            self._delete(queue)

    def queues_of(self, owner: object) -> list[Queue]:
        """A connection's own queues. O(number of queues)."""
        return [queue for queue in self.queues.values() if queue.owner is owner]

    def totals(self) -> Totals:
        """Of all queues, also of those that are gone. O(number of queues)."""
        return self.gone.plus(self.queues.values())

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
            own = in_queue(message, queue.limits, due_us or now)
            if queue.publish(own, now, due_us) is None:
                outcome.refused = True
            elif message.persistent and queue.backlog.is_durable:
                outcome.durable = True
            outcome.queues.append(name)
        return outcome

    def _dead(self, queue: Queue, entries: list[Entry], why: str) -> None:
        """Move messages to the dead-letter exchange. A store keeps each until that of its new
        queues has it for good, so a crash may leave it in both, and never in none.
        """
        if self.arriving and self._waits_for_arrival(queue, entries, why):
            queue.paused = True  # so that what dies meanwhile does not fill the memory
            self._dead_waiting.append((queue, entries, why))
            return
        durable, done = False, 0
        try:
            for entry in entries:
                durable = self._dead_one(queue, entry.message, why) or durable
                done += 1
        finally:  # without room, those before are there, and the others stay
            self.dead[why] = self.dead.get(why, 0) + done
            self._settle_moved(queue, entries[:done], durable)
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

    def _dead_one(self, queue: Queue, message: Message, why: str) -> bool:
        """Publish a dead letter; True if a sync has to cover it."""
        limits = queue.limits
        exchange = self.exchanges.get(limits.dead_exchange or "")
        if exchange is None:
            self.dead_dropped += 1
            return False
        try:
            dead = dead_letter(message, queue.name, why, exchange.name, limits.dead_key)
        except (AmqpError, ValueError, TypeError) as error:
            log.error("a message of %r became no dead letter: %s", queue.name, error)
            self.dead_dropped += 1
            return False
        names = list(self._router.queues_of(exchange, dead))
        if why != "rejected":
            circle = [name for name in names if is_in_a_circle(dead, name)]
            if circle:
                log.warning("a dead letter of %r went in a circle: dropped", queue.name)
                names = [name for name in names if name not in circle]
        outcome = Outcome()
        try:
            self._put(dead, names, outcome, exchange)
        except Refused as error:  # it would come again and again
            log.error("a dead letter of %r was refused: %s", queue.name, error)
        self.dead_dropped += not outcome.queues or outcome.refused
        return outcome.durable

    def failed(self, error: QindexError) -> None:
        """An error of the store: if it refuses everything from now on, the node hears of it."""
        if isinstance(error, StoreFailed) and self.commit is not None:
            self.commit.fail(error)

    def close(self) -> None:
        """Stop all queues; the store is the owner's to close."""
        for queue in self.queues.values():
            queue.stop()
            queue.backlog.close()
