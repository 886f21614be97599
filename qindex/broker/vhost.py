"""A virtual host: exchanges, queues and bindings that know each other by name.

What is durable is in the catalog before the client hears of it. The order is: a queue of the store
is made first and named in the catalog then; it is taken out of the catalog first and deleted then.
So a crash in between leaves a queue that nobody knows, without messages that anybody could still
ask for: the next declaration of that name deletes it before it makes a new one.
"""

from __future__ import annotations

import logging
import os
import secrets
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qindex.broker import definitions
from qindex.broker.arriving import ArrivingBacklog
from qindex.broker.backlog import Backlog, MemoryBacklog
from qindex.broker.catalog import MemoryCatalog, StoreCatalog
from qindex.broker.damaged import DAMAGE, DamagedBacklog
from qindex.broker.durable import DurableBacklog, GroupCommit
from qindex.broker.errors import Locked, Precondition
from qindex.broker.exchanges import QUEUE, Destination
from qindex.broker.limits import (
    QUEUE_ARGUMENTS,
    check_same_arguments,
    inequivalent_flag,
    limits_of,
)
from qindex.broker.posting import Posting
from qindex.broker.queues import Queue
from qindex.broker.timers import Scheduler
from qindex.broker.totals import Lives, Totals
from qindex.errors import QindexError, StoreCorrupt, StoreFailed
from qindex.words import many

if TYPE_CHECKING:
    import qindex

log: Final = logging.getLogger("qindex.broker")
NAME_BYTES_MAX: Final = 255


class VHost(Posting):
    """One virtual host, in a store or in memory. For the thread of one event loop."""

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        store: qindex.Store | None = None,
        commit: GroupCommit | None = None,
    ) -> None:
        catalog = MemoryCatalog() if store is None else StoreCatalog(store)
        super().__init__(name, catalog, commit)
        self.gone = Totals(0, 0, 0)  # of queues that are deleted
        self.lives = Lives()
        self._scheduler = scheduler
        self._store = store
        try:
            definitions.restore(self, self._catalog)
            if store is not None:
                definitions.adopt(self, self._catalog, store)
        except BaseException:  # those that are made have timers
            self.close()
            raise

    @property
    def damaged(self) -> dict[str, str]:
        """What is damaged of the queues that are not served, by their names. O(queues)."""
        found = self.queues.items()
        return {name: queue.backlog.damage for name, queue in found if queue.backlog.damage}

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
            self._check_readable(found)
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
        options: dict[str, Any] = {"durable": True, "auto_delete": auto_delete, "owner": None}

        def made(backlog: Backlog) -> Queue:
            return Queue(name, backlog, limits, self._scheduler, arguments=arguments, **options)

        arrival = self.arriving.get(name)
        if arrival is not None:
            queue = made(ArrivingBacklog(arrival.count))
        elif self._store is None:
            queue = made(MemoryBacklog(counts=limits.is_quorum))
        else:
            try:
                is_there = name in self._store
                _check_no_file(self._store, name)
                queue = made(DurableBacklog(self._store, name))
            except DAMAGE as error:
                queue = made(DamagedBacklog(self._damage_of(self._store, name, error)))
            else:
                if not is_there:
                    log.warning("queue %r has no folder any more: what was in it is lost", name)
        queue.paused = arrival is not None or bool(queue.backlog.damage)
        self.add_queue(queue)

    def _damage_of(self, store: qindex.Store, name: str, error: QindexError) -> str:
        """What clients and the log are told of a queue that is damaged."""
        what = self.describe("queue", name)
        log.error(
            "%s is damaged, and is not served; %s stays as it is. End the server and copy what can "
            "be read with `qindex salvage`: %s",
            what,
            Path(store.path, store.queue_directory(name)),
            error,
        )
        return f"{what} is damaged, and is not served before a `qindex salvage`: {error}"

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
        if if_empty and (len(queue) or queue.stuck):
            raise Precondition(f"{what} not empty")
        if queue.stuck:
            log.warning(
                "%s is deleted, and %s with it that waited there for a damaged queue",
                what,
                many(queue.stuck, "dead letter"),
            )
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
        """Nobody needs this queue any more. It may be gone already. One with dead letters for a
        damaged queue stays.
        """
        is_needed = queue.backlog.damage or queue.stuck
        if self.queues.get(queue.name) is queue and not is_needed:
            self._delete(queue)

    def queues_of(self, owner: object) -> list[Queue]:
        """A connection's own queues. O(number of queues)."""
        return [queue for queue in self.queues.values() if queue.owner is owner]

    def totals(self) -> Totals:
        """Of all queues, also of those that are gone. O(number of queues)."""
        return self.gone.plus(self.queues.values())

    def failed(self, error: QindexError) -> None:
        """An error of the store: if it refuses everything from now on, the node hears of it."""
        if isinstance(error, StoreFailed) and self.commit is not None:
            self.commit.fail(error)

    def close(self) -> None:
        """Stop all queues; the store is the owner's to close."""
        for queue in self.queues.values():
            queue.stop()
            queue.backlog.close()


def _check_no_file(store: qindex.Store, name: str) -> None:
    """Raise StoreCorrupt if a file is where the folder of this queue should be: to make one there
    would fail, and the store with it.
    """
    place = Path(store.path, store.queue_directory(name))
    if os.path.lexists(place) and not place.is_dir():
        raise StoreCorrupt(f"queue {name}: a file is in the place of its folder")
