"""A store's publish_many(): messages of any kind to any of its queues, in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
from qindex.calls import join_headers, place_bodies
from qindex.errors import DiskError, DiskFull, OutcomeUnknown, QindexError, raise_error
from qindex.options import SyncPolicy

if TYPE_CHECKING:
    from qindex.queue import Queue

# qi_change: kind, queue, to, headers, body, body_size, headers_size, flags, expiry_us, due_us,
# lease_us, req_id, delivery. To pack it takes a tenth of what it takes to set each field.
_CHANGE: Final = Struct("@iPPPPQIIQQQQQ")
if _CHANGE.size != ffi.sizeof("qi_change"):
    raise ImportError("qi_change is not laid out as qindex.mixed packs it")


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
        else they are an error, QueueMissing. They stay, empty, if a full queue, store or disk then
        refuses the messages.

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
        queues: dict[str, tuple[int, Queue]] = {}  # with the addresses of their handles
        kept, places, sizes, steady, tables, table_sizes = _payloads(wanted)
        given = ffi.new("qi_change[]", len(wanted))
        start = int(ffi.cast("uintptr_t", ffi.from_buffer(tables)))
        rows = zip(wanted, places, sizes, table_sizes, strict=True)
        raw = ffi.buffer(given)
        told_of = self._all_told(wanted, steady)
        for place, (message, body, size, table_size) in enumerate(rows):
            known = queues.get(message.queue)
            if known is None:
                try:
                    queue = self._ruled_queue(message.queue, create)
                except QindexError as error:
                    _say_which(error, place, len(wanted))
                    raise
                known = int(ffi.cast("uintptr_t", queue._handle)), queue
                queues[message.queue] = known
            address, told = known[0], told_of[place]
            at = place * _CHANGE.size
            fields = address, 0, start, body, size, table_size, *told, 0, 0
            _CHANGE.pack_into(raw, at, lib.QI_CHANGE_PUBLISH, *fields)
            start += table_size
        failed = ffi.new("uint32_t *")
        code = lib.qi_publish_mixed(self._open_handle(), given, len(wanted), failed)
        if code < 0:
            try:
                raise_error(code)
            except QindexError as error:
                _say_which(error, failed[0], len(wanted))
                raise
        if confirm or self.sync_policy == "always":
            self._confirm_all_of([queue for _, queue in queues.values()])
        del kept  # the core read the bodies up to here
        return [one.req_id for one in given]

    def _confirm_all_of(self, queues: list[Queue]) -> None:
        """In a store of format 2 one sync of the commit log serves many queues."""
        if len(queues) == 1:
            queues[0]._confirm()
            return
        code = lib.qi_store_sync(self._open_handle())
        if code < 0:
            try:
                raise_error(code)
            except (DiskFull, DiskError) as error:
                text = "what was published is not synced, and may be lost in a power cut"
                raise OutcomeUnknown(f"{text}: {error}") from error

    def _all_told(self, wanted: list[Outgoing], steady: int) -> list[tuple[int, int, int, int]]:
        """Flags and times of each, before the first queue is looked for, or created."""
        told = []
        for place, message in enumerate(wanted):
            try:
                told.append(self._told(message, steady))
            except (TypeError, ValueError) as error:
                _say_which(error, place, len(wanted))
                raise
        return told

    def _told(self, message: Outgoing, steady: int) -> tuple[int, int, int, int]:
        """What the core's form of a message has besides queue, headers and body."""
        (name, _, _, persistent, ttl, expires_at, redelivered, priority, delay, due,
         lease) = message  # fmt: skip
        queue_name(name)
        flags = steady | priority_flags(priority) if priority != 0 else steady
        if persistent is not True or redelivered is not False:
            flags |= 0 if boolean("persistent", persistent) else lib.QI_TRANSIENT
            flags |= lib.QI_REDELIVERED if boolean("redelivered", redelivered) else 0
        expiry_us = due_us = lease_us = 0
        if not (ttl is expires_at is delay is due is lease is None):
            expiry_us = to_expiry_us(self._now_us, ttl, expires_at)
            due_us = to_due_us(self._now_us, delay, due)
            lease_us = to_lease_us(lease)
        return flags, expiry_us, due_us, lease_us


def _payloads(
    wanted: list[Any],
) -> tuple[object, memoryview, memoryview, int, bytes, memoryview]:
    """(What keeps the bodies where they lie, addresses, sizes, flags, all headers, their sizes)"""
    for place, message in enumerate(wanted):
        if not isinstance(message, Outgoing):
            error = TypeError(f"a message is an Outgoing, not {type(message).__name__}")
            _say_which(error, place, len(wanted))
            raise error
    try:
        try:
            kept, places, sizes, _, steady = place_bodies([message.body for message in wanted])
        except (TypeError, BufferError):  # what cannot be taken as it lies
            bodies = [as_bytes(message.body) for message in wanted]
            kept, places, sizes, _, steady = place_bodies(bodies)
        tables, table_sizes = join_headers([message.headers for message in wanted], encode_headers)
    except (QindexError, TypeError, ValueError):
        _find_the_wrong_one(wanted)
        raise
    return (
        kept,
        memoryview(places).cast("Q"),
        memoryview(sizes).cast("I"),
        steady,
        tables,
        memoryview(table_sizes).cast("I"),
    )


def _find_the_wrong_one(wanted: list[Outgoing]) -> None:
    for place, message in enumerate(wanted):
        try:
            as_bytes(message.body)
            encode_headers(message.headers)
        except (QindexError, TypeError, ValueError) as error:
            _say_which(error, place, len(wanted))
            raise


def _say_which(error: Exception, place: int, count: int) -> None:
    if place < count and count > 1:
        error.add_note(f"message {place + 1} of the {count} in publish_many()")
