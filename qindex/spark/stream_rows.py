"""Reading a batch of a stream, in a worker: ranges of live queues as batches of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

import qindex
from qindex.spark.native import moved_files, queue_messages
from qindex.spark.plan import Unit
from qindex.spark.stream_offsets import Range
from qindex.spark.stream_store import first_live, identity
from qindex.spark.tables import Choice, joined

CHOICE: Final = Choice(states=frozenset(("ready", "delivered")))


def read_ranges(
    ranges: Sequence[Range], names: Sequence[str], lose: Callable[[str], None], whole: bool
) -> Iterator[pa.RecordBatch]:
    """All that is alive in them, but for what has expired, dead letters, and what is delayed.

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
            yield from queue_messages(
                unit,
                queue,
                names,
                CHOICE,
                store.stats().segment_entries,
                moved_files(unit, names),
                lambda text: lose(f"{each.queue!r} of {each.store}: {text}"),
            )
    except (qindex.StoreMissing, qindex.QueueMissing):
        lose(f"the queue {each.queue!r} of {each.store} is gone")
