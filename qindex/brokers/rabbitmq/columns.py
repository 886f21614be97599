"""The messages of a classic queue in columns: see qindex.brokers.columns.

For each batch of the index there is a plan of what to read, then the reading, then the rows
(c_ext/foreign/rabbitmq_rows.c). What the rows do not take, node.Queue reads once more, as it reads
any message, and says what is the matter with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final

from qindex._core import ffi, lib
from qindex.brokers.columns import Columns, Wish
from qindex.brokers.rabbitmq.index import SEQ_MAX
from qindex.brokers.rabbitmq.queue import Batch, Counts
from qindex.brokers.storable import EXPIRY_US_MAX

if TYPE_CHECKING:
    from qindex.brokers.rabbitmq.node import Message, Queue
    from qindex.brokers.rabbitmq.vhost import Part

BLOCK_BYTES: Final = 4 << 20
_ROOM_FIRST: Final = 1 << 18  # of a block: who wants few messages waits for few reads
_TABLE_MORE: Final = 128  # bytes of a message's field table that are not in its term
_TABLES_BYTES: Final = BLOCK_BYTES + _TABLE_MORE * lib.QI_RABBIT_ROWS_MAX
_EXTENT: Final = Struct("=QIII4x")
_EXPIRED: Final = {
    "drop": lib.QI_RABBIT_DROP_EXPIRED,
    "keep": lib.QI_RABBIT_KEEP_EXPIRED,
    "tell": lib.QI_RABBIT_TELL_EXPIRED,
}
_EXPIRY: Final = {
    "expires": lib.QI_RABBIT_EXPIRES,
    "dies": lib.QI_RABBIT_DIES,
    "told": lib.QI_RABBIT_IS_TOLD,
}
if _EXTENT.size != ffi.sizeof("qi_rabbit_extent"):
    raise ImportError("qi_rabbit_extent is not laid out as columns.py unpacks it")
# Memory that nobody writes to is never taken: most queues are small.
_new_bytes: Final = ffi.new_allocator(should_clear_after_alloc=False)


class Reader:
    """Reads one queue. Its memory, some 8 MiB of a big queue, is used again for each block."""

    def __init__(self, queue: Queue, wish: Wish) -> None:
        self._queue = queue
        self._plan = ffi.new("qi_rabbit_plan *")
        self._rows = ffi.new("qi_rabbit_rows *")
        self._room = min(_ROOM_FIRST, BLOCK_BYTES)
        self._block = _new_bytes("uint8_t[]", BLOCK_BYTES)
        self._view = memoryview(ffi.buffer(self._block))
        self._tables = _new_bytes("uint8_t[]", _TABLES_BYTES)
        self._columns = Columns(self._rows, self._tables)
        self._wish = ffi.new("qi_rabbit_wish *")
        self._wish.now_us = wish.now_us
        self._wish.later_us = wish.later_us
        self._wish.expiry_max_us = EXPIRY_US_MAX
        self._wish.expired = _EXPIRED[wish.expired]
        self._wish.expiry = _EXPIRY[wish.expiry]
        self._wish.priority_max = wish.priority_max

    def read(self) -> Iterator[Columns | Message]:
        """The queue's messages(), in columns where that can be."""
        self._queue.unreadable = 0
        for part in self._queue.parts:
            yield from self.read_part(part)

    def read_part(
        self, part: Part, first: int = 0, last: int = SEQ_MAX
    ) -> Iterator[Columns | Message]:
        """Of one directory, from seq `first` to `last`; other bodies are not read."""
        for batch in self._queue.vhost.batches(part, Counts()):
            yield from self._read_batch(part, batch, first, last)

    def _read_batch(
        self, part: Part, batch: Batch, first: int, last: int
    ) -> Iterator[Columns | Message]:
        wish, terms = self._wish, part.terms
        wish.has_heads = has_heads = batch.beside.endswith(".qs")
        wish.has_no_ttl = part.has_ttl is False
        wish.redelivered_below = SEQ_MAX + 1 if terms is None else 0
        wish.redelivered_if_delivered = terms is not None and terms.next_deliver_seq is None
        if terms is not None and terms.next_deliver_seq is not None:
            wish.redelivered_below = min(max(0, terms.next_deliver_seq), SEQ_MAX + 1)
        places, at = self._queue.vhost.store.places, 0
        while at < batch.count:
            at = lib.qi_rabbit_make_plan(
                batch.entries,
                batch.count,
                at,
                first,
                last,
                places,
                has_heads,
                self._room,
                self._plan,
            )
            self._room = min(2 * self._room, BLOCK_BYTES)
            yield from self._read_planned(part, batch)

    def _read_planned(self, part: Part, batch: Batch) -> Iterator[Columns | Message]:
        plan, rows, row = self._plan, self._rows, 0
        size = BLOCK_BYTES if self._read_extents(batch) else 0
        while row < plan.count:
            row = lib.qi_rabbit_read_rows(
                plan,
                row,
                batch.entries,
                self._block,
                size,
                self._wish,
                self._tables,
                _TABLES_BYTES,
                rows,
            )
            if rows.count or rows.expired:
                yield self._columns
            if rows.is_strange:
                message = self._queue.message_of(part, batch.row(plan.wanted[row].entry))
                if message is not None:
                    yield message
                row += 1

    def _read_extents(self, batch: Batch) -> bool:
        """Fills the block; False if anything of it cannot be read: then message by message."""
        tree, files = self._queue.vhost.node.tree, self._queue.vhost.store.files
        extents = ffi.buffer(self._plan.extents, self._plan.extent_count * _EXTENT.size)
        for offset, size, file, at in _EXTENT.iter_unpack(extents):
            if file < lib.QI_RABBIT_FILE_INDEX:
                name = files[file]
            else:
                name = batch.file if file == lib.QI_RABBIT_FILE_INDEX else batch.beside
            source = tree.kept_open(name)
            if source is None or not source.fill(offset, self._view[at : at + size]):
                return False
        return True
