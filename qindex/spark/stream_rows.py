"""Reading a batch of a stream, in a worker: ranges of live queues as batches of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

import qindex
from qindex._core import lib
from qindex.spark import columns
from qindex.spark.native import _as_messages, _chosen, _moved, has
from qindex.spark.plan import Unit
from qindex.spark.stream_offsets import Range
from qindex.spark.stream_store import first_live, identity
from qindex.spark.tables import Choice, joined

CHOICE: Final = Choice(states=frozenset(("ready", "delivered")))


def read_ranges(
    ranges: Sequence[Range], names: Sequence[str], lose: Callable[[str], None], whole: bool
) -> Iterator[pa.RecordBatch]:
    """All that is alive in them, but for what has expired.

    `lose` is told what cannot be read, and may raise. `whole`: nobody but the stream acks, so that
    each range ends with a message that is alive; RuntimeError if it is not seen here.
    """
    yield from joined(batch for each in ranges for batch in _read(each, names, lose, whole))


def _read(
    each: Range, names: Sequence[str], lose: Callable[[str], None], whole: bool
) -> Iterator[pa.RecordBatch]:
    unit = Unit(each.store, Path(each.store).name, "qindex", 0, each.queue, each.start, each.stop)
    try:
        with qindex.open(each.store, read_only=True, create=False) as store:
            queue = store.queue(each.queue, create=False)
            if identity(store, each.queue) != each.identity:
                lose(f"the queue {each.queue!r} of {each.store} was deleted and made again")
                return
            if whole and first_live(queue, each.last) != each.last:
                raise RuntimeError(
                    f"message {each.last} of {each.queue!r} of {each.store} was there when the"
                    " batch was planned, and is not seen here. With ack = true the stream is the"
                    " only consumer, and all machines of the cluster have to see the same files"
                )
            moved = _moved(unit) if "file" in names or "offset" in names else {}
            entries = store.stats().segment_entries
            for batch in _batches(each, queue, names, lose):
                yield _as_messages(unit, each.queue, names, batch, entries, moved)
    except (qindex.StoreMissing, qindex.QueueMissing):
        lose(f"the queue {each.queue!r} of {each.store} is gone")


def _batches(
    each: Range, queue: qindex.Queue, names: Sequence[str], lose: Callable[[str], None]
) -> Iterator[pa.RecordBatch]:
    walk = columns.Messages(
        queue._handle,
        start=each.start,
        stop=each.stop,
        with_bodies="body" in names or "headers" in names,
        rows=max(1, min(columns.ROWS, each.stop - each.start, len(queue))),
    )
    for batch in walk:
        for req_id in batch["req_id"].filter(has(batch, lib.QI_NO_BODY)).to_pylist():
            lose(f"message {req_id} of {each.queue!r} of {each.store} has no readable body")
        mask = _chosen(batch, CHOICE)
        yield batch if mask is None else batch.filter(mask)
    for _, text in walk.unreadable:
        lose(f"{each.queue!r} of {each.store}: {text}")
