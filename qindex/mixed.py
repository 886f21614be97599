"""A store's publish_many(): messages of any kind to any of its queues, in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

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
    to_due_us,
    to_expiry_us,
    to_lease_us,
)
from qindex.errors import DiskError, DiskFull, OutcomeUnknown, QindexError, raise_error
from qindex.options import SyncPolicy

if TYPE_CHECKING:
    from qindex.queue import Queue


class Outgoing(NamedTuple):
    """A message for Store.publish_many(): where it goes, and what Queue.publish() is told of it."""

    queue: str
    body: Buffer
    headers: Mapping[str, Any] | None = None
    persistent: bool = True
    ttl: Seconds | None = None
    expires_at: Moment | None = None
    redelivered: bool = False
    priority: int = 0
    delay: Seconds | None = None
    due: Moment | None = None
    lease: Seconds | None = None


@parts_of("Store")
class Mixed:
    """For the class of a store."""

    sync_policy: SyncPolicy

    if TYPE_CHECKING:

        def _ruled_queue(self, name: str, create: bool) -> Queue: ...
        def _now_us(self) -> int: ...
        def _open_handle(self) -> Any: ...

    def publish_many(
        self, messages: Iterable[Outgoing], *, confirm: bool = False, create: bool = False
    ) -> list[int]:
        """Publish messages of any kind to any queues of the store; return their ReqIds, in order.

        ::

            store.publish_many([
                qindex.Outgoing("orders", b"one dozen", priority=3),
                qindex.Outgoing("mails", b"thanks", delay=60, headers={"to": "you"}),
            ])

        Each message says its queue and its options, as Queue.publish() takes them. In a queue the
        messages stand in the order of the call. `create`: True to create queues that are not there;
        else they are an error, QueueMissing.

        What can be refused is refused before the first record is written: then no queue gets
        anything. No crash leaves a part of what one queue gets, but it may leave it in some of
        the queues; transaction() is for all of them or none. DiskError says how many have theirs if
        a disk fails in between. Errors as publish(); ValueError also for more than 256 MiB of
        records for one queue. A note of the error says which message it is about.

        Cost: one call into the core, and one frame in each queue; a body is copied once.
        """
        boolean("confirm", confirm)
        boolean("create", create)
        wanted = list(messages)
        given = ffi.new("qi_change[]", len(wanted))
        queues: dict[str, Queue] = {}
        alive: list[Any] = []  # what the core reads meanwhile
        for place, message in enumerate(wanted):
            try:
                self._fill(given[place], message, queues, create, alive)
            except (QindexError, TypeError, ValueError) as error:
                _say_which(error, place, len(wanted))
                raise
        failed = ffi.new("uint32_t *")
        code = lib.qi_publish_mixed(self._open_handle(), given, len(wanted), failed)
        if code < 0:
            try:
                raise_error(code)
            except QindexError as error:
                _say_which(error, failed[0], len(wanted))
                raise
        if confirm or self.sync_policy == "always":
            self._confirm_all_of(queues)
        return [one.req_id for one in given]

    def _confirm_all_of(self, queues: Mapping[str, Queue]) -> None:
        """In a store of format 2 one sync of the commit log serves many queues."""
        if len(queues) == 1:
            next(iter(queues.values()))._confirm()
            return
        code = lib.qi_store_sync(self._open_handle())
        if code < 0:
            try:
                raise_error(code)
            except (DiskFull, DiskError) as error:
                text = "what was published is not synced, and may be lost in a power cut"
                raise OutcomeUnknown(f"{text}: {error}") from error

    def _fill(
        self,
        given: Any,
        message: Outgoing,
        queues: dict[str, Queue],
        create: bool,
        alive: list[Any],
    ) -> None:
        """The core's form of a message."""
        if not isinstance(message, Outgoing):
            raise TypeError(f"a message is an Outgoing, not {type(message).__name__}")
        (name, body, headers, persistent, ttl, expires_at, redelivered, priority, delay, due,
         lease) = message  # fmt: skip
        queue = queues.get(name) if isinstance(name, str) else None
        if queue is None:
            if not isinstance(name, str):
                raise TypeError(f"a queue's name is a str, not {type(name).__name__}")
            queue = queues[name] = self._ruled_queue(name, create)
        given.queue = queue._handle
        data = as_bytes(body)
        alive.append(pointer := ffi.from_buffer(data))
        given.body, given.body_size = pointer, len(data)
        if headers is not None:
            table = encode_headers(headers)
            alive.append(pointer := ffi.from_buffer(table))
            given.headers, given.headers_size = pointer, len(table)
        given.flags = (
            (0 if boolean("persistent", persistent) else lib.QI_TRANSIENT)
            | (lib.QI_REDELIVERED if boolean("redelivered", redelivered) else 0)
            | priority_flags(priority)
        )
        if not (ttl is expires_at is delay is due is lease is None):
            given.expiry_us = to_expiry_us(self._now_us, ttl, expires_at)
            given.due_us = to_due_us(self._now_us, delay, due)
            given.lease_us = to_lease_us(lease)


def _say_which(error: Exception, place: int, count: int) -> None:
    if place < count and count > 1:
        error.add_note(f"message {place + 1} of the {count} in publish_many()")
