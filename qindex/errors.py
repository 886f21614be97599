"""What can go wrong, grouped by whose business it is.

::

    QindexError
    ├── StoreError           the store as a whole
    │   ├── StoreMissing     nothing there, and create=False
    │   ├── StoreLocked      another writer has it
    │   ├── FormatError      another version, or other settings than at creation
    │   ├── StoreCorrupt     damaged bytes (file and offset are in the text)
    │   ├── StoreFailed      an earlier write or sync failed: close and reopen
    │   ├── StoreClosed      used after close(), or a handle of a deleted queue
    │   ├── StoreForked      a handle of the parent process
    │   └── ReadOnly         a change on a store opened with read_only=True
    ├── DiskFull             nothing was changed: ack, or free space, and try again
    ├── StoreFull            nothing was changed: all queues have what the store may have
    ├── OutcomeUnknown       the sync failed: durable or not, nobody knows (H13)
    ├── DiskError            a read or write failed; nothing was changed
    └── MessageError         about one message or queue
        ├── UnknownMessage   never published, or not delivered
        ├── AlreadyAcked     acked, expired or purged before
        ├── LeaseExpired     it is ready again, or somebody else has it
        ├── MessageDelivered a consumer has it: it can be acked or nacked
        ├── QueueFull        its max_messages or max_bytes is reached: nothing was changed
        └── QueueMissing     no such queue, and create=False

Bad arguments raise TypeError or ValueError, as everywhere in Python.
"""

from __future__ import annotations

from typing import NoReturn

from qindex._core import ffi, lib


class QindexError(Exception):
    """The base of all errors that qindex raises on its own."""


class StoreError(QindexError):
    """About the store as a whole."""


class StoreMissing(StoreError):
    """There is no store at this path."""


class StoreLocked(StoreError):
    """Another writer has the store open; the text names it."""


class FormatError(StoreError):
    """The store has another format version, or was created with other settings."""


class StoreCorrupt(StoreError):
    """Bytes are damaged; the text says where and what it cost.

    `req_id` is the message that cannot be read, if it is one and what is behind it can be read:
    `queue.browse(error.req_id + 1)` goes on there. None: not about a single message.
    """

    def __init__(self, text: str, req_id: int | None = None) -> None:
        super().__init__(text)
        self.req_id = req_id


class StoreFailed(StoreError):
    """An earlier write or sync failed, the text says which; only close() is allowed now."""


class StoreClosed(StoreError):
    """The store (or the queue) was closed or deleted."""


class StoreForked(StoreError):
    """The handle belongs to the parent process."""


class ReadOnly(StoreError):
    """The store was opened with read_only=True."""


class DiskFull(QindexError):
    """The disk is full; nothing was changed."""


class StoreFull(QindexError):
    """The queues together have as much as the store may have; nothing was published."""


class DiskError(QindexError):
    """The disk failed a call."""


class OutcomeUnknown(QindexError):
    """A sync failed; what waited for it may be durable or not."""


class MessageError(QindexError):
    """About one message or one queue."""


class UnknownMessage(MessageError):
    """The message was never published, or is not with a consumer."""


class LeaseExpired(MessageError):
    """The lease has ended: the message is ready again, or another consumer has it."""


class MessageDelivered(MessageError):
    """A consumer has the message: it can be acked or nacked, not deleted or rescheduled."""


class QueueFull(MessageError):
    """The queue has as much as its max_messages or max_bytes allows; nothing was published."""


class AlreadyAcked(MessageError):
    """The message is not in the queue any more."""


class QueueMissing(MessageError):
    """The store has no queue of this name."""


_BY_CODE: dict[int, type[Exception]] = {
    lib.QI_E_IO: DiskError,
    lib.QI_E_CORRUPT: StoreCorrupt,
    lib.QI_E_LOCKED: StoreLocked,
    lib.QI_E_FORMAT: FormatError,
    lib.QI_E_FULL: DiskFull,
    lib.QI_E_FAILED: StoreFailed,
    lib.QI_E_CLOSED: StoreClosed,
    lib.QI_E_READ_ONLY: ReadOnly,
    lib.QI_E_UNKNOWN: UnknownMessage,
    lib.QI_E_ACKED: AlreadyAcked,
    lib.QI_E_LEASE: LeaseExpired,
    lib.QI_E_QUEUE_FULL: QueueFull,
    lib.QI_E_STORE_FULL: StoreFull,
    lib.QI_E_DELIVERED: MessageDelivered,
    lib.QI_E_ARGUMENT: ValueError,
    lib.QI_E_MEMORY: MemoryError,
    lib.QI_E_FORKED: StoreForked,
    lib.QI_E_OUTCOME: OutcomeUnknown,
    lib.QI_E_MISSING: StoreMissing,
}


def raise_error(code: int) -> NoReturn:
    """Raise what this thread's last call into the core reported."""
    text = ffi.string(lib.qi_error_text()).decode("utf-8", "replace")
    if code == lib.QI_E_CORRUPT:
        req_id = lib.qi_error_req_id()
        raise StoreCorrupt(text, req_id if req_id >= 0 else None)
    raise _BY_CODE.get(code, QindexError)(text)
