"""The index of a queue without bodies, for brokers that keep the bodies elsewhere."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from qindex._core import ffi, lib
from qindex.arguments import REQ_ID_MAX, array_of, one_each, whole
from qindex.errors import StoreClosed, raise_error
from qindex.handle import Closing, close_with, directory_of, open_handle
from qindex.options import (
    MAX_JOURNAL_BYTES,
    MAX_JOURNAL_ENTRIES,
    SYNC_INTERVAL,
    Options,
    SyncPolicy,
)


class IndexEntry(NamedTuple):
    """What the index knows of one message."""

    req_id: int
    """The message's number in the index; never used again."""
    msg_id: bytes
    """The caller's id, 16 bytes, as it was published."""
    size: int
    """Size of the body in bytes, as it was published."""
    delivered: bool
    """True if a delivery was recorded."""
    persistent: bool
    """False if the entry does not survive an unclean end."""


def _to_array(req_ids: Sequence[int]) -> array[int]:
    if isinstance(req_ids, array) and req_ids.typecode == "Q":
        return req_ids
    return array_of("ReqIds", "Q", req_ids)


class QueueIndex(Closing):
    """The index of one queue in a directory of its own: publish, deliver and ack in bulk.

    Journal, segments, flush and recovery are those of a queue in a store. Any number of threads may
    use it; one process at a time may have it open for writing. Options as qindex.open(). Closed by
    close() or at the end of a `with` block.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sync: SyncPolicy = "group",
        sync_interval: float = SYNC_INTERVAL,
        max_journal_entries: int = MAX_JOURNAL_ENTRIES,
        max_journal_bytes: int = MAX_JOURNAL_BYTES,
        segment_entries: int = 0,
        read_only: bool = False,
    ) -> None:
        options = Options(
            sync=sync,
            sync_interval=sync_interval,
            max_journal_entries=max_journal_entries,
            max_journal_bytes=max_journal_bytes,
            segment_entries=segment_entries,
            read_only=read_only,
            index_only=True,
        )
        self.path, self._store = open_handle(path, options)
        self._finalizer = close_with(self, self._store)
        self._closed = False
        result = ffi.new("qi_queue **")
        code = lib.qi_queue_open(self._store, b"", 0, directory_of(""), True, result)
        if code < 0:
            try:
                raise_error(code)
            finally:
                lib.qi_store_close(self._store)
        self._queue = result[0]

    def __len__(self) -> int:
        """Entries that were published and not acked. O(1)."""
        return int(self._stats().depth)

    def __bool__(self) -> bool:
        return True

    def publish(self, msg_id: bytes = b"", size: int = 0, *, persistent: bool = True) -> int:
        """Add an entry; return its ReqId.

        `msg_id` is the caller's, 16 bytes or none; `size` is that of the body. Errors as
        Queue.publish().
        """
        return self.publish_many([msg_id] if msg_id else 1, [size], persistent=persistent)[0]

    def publish_many(
        self,
        msg_ids: int | bytes | Sequence[bytes],
        sizes: Sequence[int] | None = None,
        *,
        persistent: bool = True,
    ) -> range:
        """Add entries, all or none; return their ReqIds, which follow each other.

        `msg_ids` is a number of entries without ids, or their ids of 16 bytes each, in one bytes
        object or a sequence. Raises ValueError for ids of another size.
        """
        if isinstance(msg_ids, int):
            count, joined = msg_ids, ffi.NULL
        else:
            try:
                joined = msg_ids if isinstance(msg_ids, bytes) else b"".join(msg_ids)
            except TypeError:
                text = f"msg_ids must be a number, or 16 bytes each, not {msg_ids!r}"
                raise TypeError(text) from None
            count, rest = divmod(len(joined), 16)
            if rest or (not isinstance(msg_ids, bytes) and any(len(m) != 16 for m in msg_ids)):
                raise ValueError("each msg_id has exactly 16 bytes")
        whole("the number of entries", count, 0, (1 << 32) - 1)
        lengths = ffi.NULL
        if sizes is not None:
            own = array_of("sizes", "I", one_each("sizes", sizes, count, "messages"))
            lengths = ffi.from_buffer("uint32_t[]", own)
        first = lib.qi_index_publish(
            self._handle(), count, joined, lengths, 0 if persistent else lib.QI_TRANSIENT
        )
        if first < 0:
            raise_error(first)
        return range(first, first + count)

    def deliver(self, req_ids: int | Sequence[int]) -> None:
        """Record a delivery of these entries, all or none.

        Raises UnknownMessage, AlreadyAcked, and ValueError if an id stands in the list twice.
        """
        self._change(lib.qi_index_deliver, req_ids)

    def ack(self, req_ids: int | Sequence[int]) -> None:
        """Settle these entries, all or none. Errors as deliver()."""
        self._change(lib.qi_index_ack, req_ids)

    def _change(self, verb: Any, req_ids: int | Sequence[int]) -> None:
        if isinstance(req_ids, bool):
            raise TypeError(f"ReqIds must be whole numbers, not {req_ids}")
        if isinstance(req_ids, int):
            req_ids = range(req_ids, req_ids + 1)
        if isinstance(req_ids, range) and req_ids.step == 1:
            for end in (req_ids[0], req_ids[-1]) if req_ids else ():
                whole("a ReqId", end, 0, REQ_ID_MAX)
            code = verb(self._handle(), ffi.NULL, len(req_ids), req_ids.start if req_ids else 0)
        else:
            ids = _to_array(req_ids)
            code = verb(self._handle(), ffi.from_buffer("uint64_t[]", ids), len(ids), 0)
        if code < 0:
            raise_error(code)

    def read(self, start: int, stop: int) -> list[IndexEntry]:
        """The entries with start <= req_id < stop that are not acked, in order. O(their number)."""
        whole("start", start, 0, REQ_ID_MAX)
        stop = min(whole("stop", stop, 0, 1 << 64), REQ_ID_MAX)
        found: list[IndexEntry] = []
        messages = ffi.new("qi_message[]", 1024)
        while start < stop:
            got = lib.qi_index_read(self._handle(), start, stop, messages, 1024)
            if got < 0:
                raise_error(got)
            for i in range(got):
                m = messages[i]
                found.append(
                    IndexEntry(
                        m.req_id,
                        ffi.unpack(ffi.cast("char *", m.msg_id), 16),
                        m.body_size,
                        bool(m.flags & lib.QI_DELIVERED),
                        not m.flags & lib.QI_TRANSIENT,
                    )
                )
            if got < 1024:
                break
            start = found[-1].req_id + 1
        return found

    def bounds(self) -> tuple[int, int]:
        """The lowest ReqId that is not acked, and the next one to be given.

        Both are equal if the index is empty.
        """
        stop = int(self._stats().next_req_id)
        message = ffi.new("qi_message *")
        code = lib.qi_browse(self._handle(), 0, False, message, ffi.NULL, 0)
        if code == lib.QI_EMPTY:
            return stop, stop
        if code < 0:
            raise_error(code)
        return int(message.req_id), stop

    @property
    def dirty_count(self) -> int:
        """Publishes, deliveries and acks in the journal since the last flush. O(1)."""
        return int(self._stats().dirty_count)

    def flush(self) -> None:
        """Move the journal's entries into segments now."""
        code = lib.qi_flush(self._handle())
        if code < 0:
            raise_error(code)

    def sync(self) -> None:
        """Return when everything before this call survives a power cut."""
        code = lib.qi_queue_sync(self._handle())
        if code < 0:
            raise_error(code)

    def close(self) -> None:
        """Sync and mark the end as clean. Closing twice is allowed."""
        if self._closed:
            return
        self._closed = True
        code = lib.qi_store_close(self._store)
        if code < 0:
            raise_error(code)

    def _handle(self) -> Any:
        if self._closed:
            raise StoreClosed("the index is closed")
        return self._queue

    def _stats(self) -> Any:
        stats = ffi.new("qi_queue_stats *")
        code = lib.qi_queue_stats_of(self._handle(), stats)
        if code < 0:
            raise_error(code)
        return stats
