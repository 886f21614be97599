"""Transactions over any queues of a store, and moves: all of it or nothing, after any crash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from qindex._core import ffi, lib
from qindex.arguments import (
    Buffer,
    Moment,
    Seconds,
    as_bytes,
    boolean,
    encode_headers,
    parts_of,
    priority_flags,
    queue_name,
    to_due_us,
    to_expiry_us,
    to_lease_us,
)
from qindex.data import as_entries
from qindex.errors import OutcomeUnknown, QindexError, raise_error
from qindex.message import Message

if TYPE_CHECKING:
    from qindex.queue import Queue
    from qindex.store import Store


_PUBLISHING = (lib.QI_CHANGE_PUBLISH, lib.QI_CHANGE_MOVE)


class _Change(NamedTuple):
    kind: int
    queue: Queue | str | None  # a name is looked up when the transaction is committed
    create: bool = False
    to: str | None = None
    headers: bytes | None = None
    body: bytes = b""
    flags: int = 0
    expiry_us: int = 0
    due_us: int = 0
    lease_us: int = 0
    which: tuple[int, int] = (0, 0)


class Transaction:
    """Changes that are committed at the end of a `with` block: all of them, or none.

    An exception in the block drops them, and so does what the commit raises, but for
    OutcomeUnknown. Made by Store.transaction(). Its methods only collect: nothing is looked up,
    written or locked before the end of the block. One thread uses it at a time.
    """

    def __init__(self, store: Store, *, confirm: bool) -> None:
        self._store = store
        self._confirm = boolean("confirm", confirm)
        self._changes: list[_Change] = []
        self._req_ids: list[int] | None = None
        self._over = False
        self._entered = False

    @property
    def req_ids(self) -> list[int]:
        """The ReqIds that the publishes and moves got, in their order. After the commit only."""
        if self._req_ids is None:
            raise ValueError("the transaction is not committed")
        return self._req_ids

    def publish(
        self,
        queue: str,
        body: Buffer,
        *,
        headers: Mapping[str, Any] | None = None,
        persistent: bool = True,
        ttl: Seconds | None = None,
        expires_at: Moment | None = None,
        redelivered: bool = False,
        priority: int = 0,
        delay: Seconds | None = None,
        due: Moment | None = None,
        lease: Seconds | None = None,
        create: bool = False,
    ) -> None:
        """Publish to a queue of the store; options as Queue.publish().

        A queue that is not there when the transaction is committed is an error, QueueMissing; with
        `create` it is created. If the commit fails it goes again, unless somebody has asked for it
        meanwhile; a crash just before the commit may leave it, empty. The body stands in the index,
        whatever its size is.
        """
        queue_name(queue)
        now_us = self._store._now_us
        flags = (0 if boolean("persistent", persistent) else lib.QI_TRANSIENT) | (
            lib.QI_REDELIVERED if boolean("redelivered", redelivered) else 0
        )
        self._add(
            _Change(
                lib.QI_CHANGE_PUBLISH,
                queue,
                create=boolean("create", create),
                headers=encode_headers(headers),
                body=as_bytes(body),
                flags=flags | priority_flags(priority),
                expiry_us=to_expiry_us(now_us, ttl, expires_at),
                due_us=to_due_us(now_us, delay, due),
                lease_us=to_lease_us(lease),
            )
        )

    def ack(self, message: Message | str) -> None:
        """Settle a delivered message of any queue of the store (or its token).

        If its delivery has ended when the transaction is committed, nothing of that happens.
        """
        queue = self._store._queue_of(message)
        self._add(_Change(lib.QI_CHANGE_ACK, queue, which=queue._which(message)))

    def move(
        self,
        message: Message | int | str,
        to: str,
        *,
        headers: Mapping[str, Any] | None = None,
        queue: str | None = None,
    ) -> None:
        """Move a message to another queue of the store; see Store.move()."""
        queue_name(to)
        source = (
            self._store._queue_of(message)  # type: ignore[arg-type]  # it refuses ReqIds
            if queue is None
            else self._store._find_queue(queue, create=False)
        )
        table = None if headers is None else encode_headers(headers)
        which = source._which(message)
        self._add(_Change(lib.QI_CHANGE_MOVE, source, to=to, headers=table, which=which))

    def change(self, changes: Mapping[bytes, bytes | None], *, queue: str | None = None) -> None:
        """Change keys of `store.data`, or of the `data` of a queue of the store; see Data.change().

        They change with the rest of the transaction, or not at all. A queue that is not there when
        the transaction is committed is an error, QueueMissing; a publish with `create` in front of
        this creates it.
        """
        if queue is not None:
            queue_name(queue)
        self._add(_Change(lib.QI_CHANGE_DATA, queue, body=as_entries(changes)))

    def _add(self, change: _Change) -> None:
        if self._over:
            raise ValueError("the transaction is over: begin another one")
        self._changes.append(change)

    def _commit(self) -> None:
        self._over = True
        made: dict[str, Queue] = {}
        try:
            self._req_ids = self._try_commit(made)
        except OutcomeUnknown:
            raise
        except BaseException:
            _unmake(self._store, made)
            raise
        for queue in made.values():
            queue._is_fresh = False

    def _try_commit(self, made: dict[str, Queue]) -> list[int]:
        store = self._store
        changes = self._changes
        handle = store._open_handle()
        given = ffi.new("qi_change[]", len(changes))
        alive: list[Any] = []  # what the core reads meanwhile
        for change, to in zip(given, changes, strict=True):
            _fill(store, change, to, alive, made)
        failed = ffi.new("uint32_t *")
        confirm = self._confirm or store.sync_policy == "always"
        code = lib.qi_transaction(handle, given, len(changes), confirm, failed)
        if code < 0:
            _raise(code, failed[0], len(changes))
        return [one.req_id for one in given if one.kind in _PUBLISHING]

    def _enter(self) -> None:
        if self._entered or self._over:
            raise ValueError("a transaction has one block: begin another one")
        self._entered = True

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._commit()
        self._over = True


def _find(store: Store, name: str, create: bool, made: dict[str, Queue]) -> Queue:
    """The queue; one that did not exist is noted in `made`."""
    if name in made:
        return made[name]
    with store._lock:
        is_new = create and name not in store
        queue = store._ruled_queue(name, create)
        if is_new:
            queue._is_fresh = True
            made[name] = queue
    return queue


def _unmake(store: Store, made: dict[str, Queue]) -> None:
    """Nothing of the commit happened: what was made for it goes, if nobody has asked for it."""
    for name, queue in made.items():
        with suppress(QindexError), store._lock:
            if queue._is_fresh and store._queues.get(name) is queue:
                store.delete_queue(name, if_empty=True, if_unused=True)


def _fill(
    store: Store, change: Any, wanted: _Change, alive: list[Any], made: dict[str, Queue]
) -> None:
    """The core's form of a change."""
    queue = wanted.queue
    if isinstance(queue, str):
        queue = _find(store, queue, wanted.create, made)
    change.kind = wanted.kind
    change.queue = ffi.NULL if queue is None else queue._handle  # NULL: the store's mapping
    if wanted.to is not None:
        change.to = _find(store, wanted.to, False, made)._handle
    if wanted.headers is not None:
        alive.append(table := ffi.from_buffer(wanted.headers))
        change.headers = table
        change.headers_size = len(wanted.headers)
    alive.append(body := ffi.from_buffer(wanted.body))
    change.body = body
    change.body_size = len(wanted.body)
    change.flags = wanted.flags
    change.expiry_us = wanted.expiry_us
    change.due_us = wanted.due_us
    change.lease_us = wanted.lease_us
    change.req_id, change.delivery = wanted.which


def _raise(code: int, failed: int, count: int) -> None:
    try:
        raise_error(code)
    except QindexError as error:
        if failed < count and count > 1:
            error.add_note(f"change {failed + 1} of the {count} in the transaction")
        raise


@parts_of("Store")
class Transactions:
    """For the class of a store."""

    def transaction(self, *, confirm: bool = False) -> Transaction:
        """Publish, ack, move, and change `data`, in any queues of the store: all of it or nothing.

        ::

            with store.transaction() as t:
                t.publish("invoices", body)
                t.ack(order)
                t.change({b"last": b"4711"})

        It is committed at the end of the block, and dropped by an exception in it. After kill -9
        and after a power cut all of it is there or none of it, for every reader. With `confirm`, or
        if the store has sync="always", it survives a power cut when the block ends; otherwise it
        does some milliseconds later, as a publish.

        The commit raises what its changes raise: DeliveryEnded, LeaseExpired or AlreadyAcked if a
        message that it acks or moves is not the caller's any more, QueueFull, StoreFull,
        QueueMissing, DiskFull. ValueError: more than 4 MiB of records, more than 256 queues, or a
        message that is settled twice, or that would leave a full queue for what is published there.
        FormatError: the store has format 1. Nothing was changed then. (Of a full queue with
        overflow="drop-head" messages may have left for it; the error says so.) OutcomeUnknown: the
        disk failed; all of it may be there, and nobody knows whether it is durable.

        Cost: a record for each change in its queue, and all of them once more in the commit log.
        The first in a queue after its journal has changed waits for a sync.
        """
        return Transaction(cast("Store", self), confirm=confirm)

    def move(
        self,
        messages: Message | int | str | Iterable[Message | int | str],
        *,
        to: str,
        headers: Mapping[str, Any] | None = None,
        queue: str | None = None,
        confirm: bool = False,
    ) -> list[int]:
        """Move messages to another queue of the store: all of them or none; return their ReqIds.

        - `messages`: delivered ones (or their tokens), which the move settles, of any queues; with
          `queue`, the name of their queue, also ReqIds of messages that nobody has.
        - `to`: a queue that is there. QueueMissing, QueueFull: all messages stay where they are.
        - `headers`: in place of the messages' own.

        After any crash each message is in exactly one queue. Body, headers, priority, expiry, its
        own lease, how often it was delivered and its `deaths` go along; it stands behind the others
        of its priority. A delay is over, and that it was a dead letter: one that had expired
        expires no more, and one that was delivered as often as it may be where it goes is delivered
        once more. A body in a message file is not copied, unless it gets other headers. `confirm`
        and errors as transaction(); also MessageDelivered if a ReqId is with a consumer.

        Cost: two records for each message and the same in the commit log.
        """
        if isinstance(messages, (Message, str, int)):
            messages = [messages]
        with self.transaction(confirm=confirm) as transaction:
            for message in messages:
                transaction.move(message, to, headers=headers, queue=queue)
        return transaction.req_ids
