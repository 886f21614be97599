"""All errors of qindex, grouped by what they are about: the store, the disk, one message.

::

    QindexError
    ├── StoreError           the store as a whole
    │   ├── StoreMissing     nothing there, and create=False
    │   ├── NotAStore        other files are there: nothing was made among them
    │   ├── StoreNested      a new store, or what is made of one, inside it: nothing was made
    │   ├── StoreLocked      another writer has it
    │   ├── FormatError      another format, or other settings than at creation
    │   │   └── NewerFormat  a file that only a newer version of qindex understands
    │   ├── StoreCorrupt     damaged bytes (file and offset are in the text)
    │   ├── StoreFailed      an earlier write or sync failed: close it, open it again
    │   ├── StoreClosed      used after close(), or a handle of a deleted queue
    │   ├── StoreForked      a handle of the parent process
    │   └── ReadOnly         a change on a store opened with read_only=True
    ├── DiskFull             nothing was changed: ack, or free space, and try again
    ├── StoreFull            nothing was changed: the limit of all queues together is reached
    ├── OutcomeUnknown       a sync failed: what waited for it is durable or not
    ├── DiskError            a read or write failed; nothing was changed
    └── MessageError         about one message or queue
        ├── UnknownMessage   never published, or not delivered
        ├── AlreadyAcked     acked, expired or purged before
        ├── DeliveryEnded    it was given back since, and another consumer has it
        │   └── LeaseExpired its lease ended: it is ready again, or another consumer has it
        ├── MessageDelivered a consumer has it: it can be acked or nacked
        ├── DeadLetter       a dead letter cannot be given a time: redrive it
        ├── QueueFull        its max_messages or max_bytes is reached: nothing was changed
        ├── QueueMissing     no such queue, and create=False
        ├── QueueExists      another one was to get its name
        ├── QueueNotEmpty    it was to be deleted only if it is empty
        └── QueueInUse       it was to be deleted only if nobody uses it

Bad arguments raise TypeError or ValueError, as everywhere in Python.
"""

from __future__ import annotations

from typing import NoReturn

from qindex._core import ffi, lib
from qindex.lines import disk_full


class QindexError(Exception):
    """The base of all errors of qindex. Bad arguments raise TypeError or ValueError instead."""


class StoreError(QindexError):
    """An error about the store as a whole."""


class StoreMissing(StoreError):
    """There is no store at this path, and it was opened with create=False or read_only=True.

    Or the folder in which it was to be made is not there.
    """


class StoreLocked(StoreError):
    """Another process, or another handle, has the store open for writing; the text names it.

    Close it there, or open the store with read_only=True to look at it.
    """


class NotAStore(StoreError):
    """The directory has other files and no store, or it is a file; nothing was made or changed."""


class StoreNested(StoreError):
    """It would lie inside a store, or inside a directory that is only read; nothing was made."""


class FormatError(StoreError):
    """The store has another format than was asked for, or was created with other settings."""


class NewerFormat(FormatError):
    """A file holds what only a newer version of qindex understands; it is not damaged."""


class StoreCorrupt(StoreError):
    """Bytes are damaged; the text says where, and what is lost.

    `req_id` is the message that cannot be read; `queue.browse(error.req_id + 1)` goes on behind it.
    None: the damage is not about a single message.
    """

    def __init__(self, text: str, req_id: int | None = None) -> None:
        super().__init__(text)
        self.req_id = req_id


class StoreFailed(StoreError):
    """An earlier write or sync failed; the text says which. Only close() is allowed now.

    Open the store again: that shows what is really on the disk.
    """


class StoreClosed(StoreError):
    """The store was closed, or the queue was deleted."""


class StoreForked(StoreError):
    """The handle was opened by the parent process: open the store in this process."""


class ReadOnly(StoreError):
    """The store was opened with read_only=True, and this would change it."""


class DiskFull(QindexError):
    """The disk is full, or `min_free` is reached; nothing was changed.

    Ack messages, or free space, and try again.
    """


class StoreFull(QindexError):
    """All queues together have reached the store's `max_messages` or `max_bytes`.

    Nothing was published.
    """


class DiskError(QindexError):
    """The disk failed to read or to write; nothing was changed."""


class OutcomeUnknown(QindexError):
    """A sync failed: what waited for it may be durable or not.

    The store refuses everything but close() from then on. Open it again to see what is there.
    """


class MessageError(QindexError):
    """An error about one message or one queue."""


class UnknownMessage(MessageError):
    """The message was never published, or no consumer has it."""


class DeliveryEnded(MessageError):
    """The delivery is over: the message was given back, and another consumer may have it now."""


class LeaseExpired(DeliveryEnded):
    """The lease has ended: the message is ready again, or another consumer has it."""


class MessageDelivered(MessageError):
    """A consumer has the message: it can be acked or nacked, not deleted or rescheduled."""


class DeadLetter(MessageError):
    """A dead letter cannot be given a time, nor can one that was not delivered since a redrive.

    Call redrive(), or reschedule() without a time; then get it, and nack it with a delay.
    """


class QueueFull(MessageError):
    """The queue has reached its `max_messages` or `max_bytes`; nothing was published."""


class AlreadyAcked(MessageError):
    """The message is not in the queue any more: it was acked, has expired, or was purged."""


class QueueMissing(MessageError):
    """The store has no queue of this name, and create=False."""


class QueueExists(MessageError):
    """There is a queue of this name, and another one was to get it; nothing was changed."""


class QueueNotEmpty(MessageError):
    """The queue has messages, and was to be deleted only without any; nothing was changed."""


class QueueInUse(MessageError):
    """Consumers have messages of the queue or wait for one, and it was to be deleted only unused.

    Nothing was changed.
    """


_BY_CODE: dict[int, type[Exception]] = {
    lib.QI_E_IO: DiskError,
    lib.QI_E_CORRUPT: StoreCorrupt,
    lib.QI_E_LOCKED: StoreLocked,
    lib.QI_E_FORMAT: FormatError,
    lib.QI_E_NEWER: NewerFormat,
    lib.QI_E_FULL: DiskFull,
    lib.QI_E_FAILED: StoreFailed,
    lib.QI_E_CLOSED: StoreClosed,
    lib.QI_E_READ_ONLY: ReadOnly,
    lib.QI_E_UNKNOWN: UnknownMessage,
    lib.QI_E_ACKED: AlreadyAcked,
    lib.QI_E_LEASE: LeaseExpired,
    lib.QI_E_ENDED: DeliveryEnded,
    lib.QI_E_QUEUE_FULL: QueueFull,
    lib.QI_E_STORE_FULL: StoreFull,
    lib.QI_E_NOT_EMPTY: QueueNotEmpty,
    lib.QI_E_IN_USE: QueueInUse,
    lib.QI_E_EXISTS: QueueExists,
    lib.QI_E_DELIVERED: MessageDelivered,
    lib.QI_E_DEAD: DeadLetter,
    lib.QI_E_ARGUMENT: ValueError,
    lib.QI_E_MEMORY: MemoryError,
    lib.QI_E_FORKED: StoreForked,
    lib.QI_E_OUTCOME: OutcomeUnknown,
    lib.QI_E_MISSING: QueueMissing,  # of a store: open_handle()
}


def in_doubt(error: BaseException) -> OutcomeUnknown:
    """The same of a sync behind a verb: that nothing was changed would be wrong then."""
    return OutcomeUnknown(f"what was done is not synced, and may be lost in a power cut: {error}")


def raise_error(code: int) -> NoReturn:
    """Raise the error that this thread's last call into the core has reported."""
    text = ffi.string(lib.qi_error_text()).decode("utf-8", "replace")
    if code == lib.QI_E_CORRUPT:
        req_id = lib.qi_error_req_id()
        raise StoreCorrupt(text, req_id if req_id >= 0 else None)
    if code == lib.QI_E_FULL:
        disk_full(text)
    raise _BY_CODE.get(code, QindexError)(text)
