"""The queue index alone, for brokers that keep bodies elsewhere."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from qindex._core import ffi, lib
from qindex.arguments import one_each
from qindex.errors import StoreClosed, raise_error
from qindex.handle import Closing, SyncPolicy, close_with, directory_of, make_options, open_handle
from qindex.opening import (
    EMBED_BELOW,
    MAX_JOURNAL_BYTES,
    MAX_JOURNAL_ENTRIES,
    MESSAGE_FILE_SIZE,
)


class IndexEntry(NamedTuple):
    """What the index knows of one message."""

    req_id: int
    msg_id: bytes  # 16 bytes, as published
    size: int
    delivered: bool
    persistent: bool


class QueueIndex(Closing):
    """One queue index in a directory of its own: publish, deliver, ack, in bulk.

    The same journal, segments, flush and recovery as a queue of a store; ids are per index and are
    never used twice. A context manager; safe to use from threads.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sync: SyncPolicy = "group",
        sync_interval: float = 0.005,
        max_journal_entries: int = MAX_JOURNAL_ENTRIES,
        max_journal_bytes: int = MAX_JOURNAL_BYTES,
        segment_entries: int = 0,
        read_only: bool = False,
    ) -> None:
        options = make_options(
            sync,
            sync_interval,
            EMBED_BELOW,
            MESSAGE_FILE_SIZE,
            max_journal_entries,
            max_journal_bytes,
            segment_entries,
            1.0,
            read_only,
            True,
            "auto",
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
        """Entries published and not acked."""
        return int(self._stats().depth)

    def __bool__(self) -> bool:
        return True

    def publish(self, msg_id: bytes = b"", size: int = 0, *, persistent: bool = True) -> int:
        """Add an entry; return its ReqId. `msg_id` is the caller's, 16 bytes or none."""
        return self.publish_many([msg_id] if msg_id else 1, [size], persistent=persistent)[0]

    def publish_many(
        self,
        msg_ids: int | bytes | Sequence[bytes],
        sizes: Sequence[int] | None = None,
        *,
        persistent: bool = True,
    ) -> range:
        """Add entries, all or none; return their ReqIds, which follow each other.

        `msg_ids`: how many (without ids), or 16 bytes each, in one bytes object or a sequence.
        """
        if isinstance(msg_ids, int):
            count, joined = msg_ids, ffi.NULL
        else:
            joined = msg_ids if isinstance(msg_ids, bytes) else b"".join(msg_ids)
            count, rest = divmod(len(joined), 16)
            if rest or (not isinstance(msg_ids, bytes) and any(len(m) != 16 for m in msg_ids)):
                raise ValueError("each msg_id has exactly 16 bytes")
        if count < 0:
            raise ValueError(f"the number of entries must be 0 or more, not {count}")
        lengths = ffi.NULL
        if sizes is not None:
            own = array("I", one_each("sizes", sizes, count, "messages"))
            lengths = ffi.from_buffer("uint32_t[]", own)
        first = lib.qi_index_publish(
            self._handle(), count, joined, lengths, 0 if persistent else lib.QI_TRANSIENT
        )
        if first < 0:
            raise_error(first)
        return range(first, first + count)

    def deliver(self, req_ids: int | Sequence[int]) -> None:
        """Record a delivery of these entries, all or none.

        Raises UnknownMessage, AlreadyAcked, ValueError (an id stands in the list twice).
        """
        self._change(lib.qi_index_deliver, req_ids)

    def ack(self, req_ids: int | Sequence[int]) -> None:
        """Settle these entries, all or none. Errors as deliver()."""
        self._change(lib.qi_index_ack, req_ids)

    def _change(self, verb: Any, req_ids: int | Sequence[int]) -> None:
        if isinstance(req_ids, int):
            req_ids = range(req_ids, req_ids + 1)
        if isinstance(req_ids, range) and req_ids.step == 1:
            code = verb(self._handle(), ffi.NULL, len(req_ids), req_ids.start if req_ids else 0)
        else:
            ids = req_ids if isinstance(req_ids, array) else array("Q", req_ids)
            code = verb(self._handle(), ffi.from_buffer("uint64_t[]", ids), len(ids), 0)
        if code < 0:
            raise_error(code)

    def read(self, start: int, stop: int) -> list[IndexEntry]:
        """The entries with start <= req_id < stop that are not acked, in order."""
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
        """(lowest ReqId not acked, next ReqId to be given); equal if the index is empty."""
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
        """Changes in the journal since the last flush."""
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
