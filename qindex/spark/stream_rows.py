"""Reading a batch of a stream, in a worker: ranges of live queues as batches of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Final

import pyarrow as pa

import qindex
from qindex.begun import first_live
from qindex.spark import columns
from qindex.spark.plan import Unit
from qindex.spark.store_rows import Rows, batches_of, moved_files, range_of
from qindex.spark.stream_offsets import Range
from qindex.spark.stream_store import identity
from qindex.spark.tables import Choice

# What waits for its time was left out when the batch was planned, by this or by another clock.
CHOICE: Final = Choice(states=frozenset(("ready", "unacked", "delayed")))


def read_ranges(
    ranges: Sequence[Range], names: Sequence[str], lose: Callable[[str], None], whole: bool
) -> Iterator[pa.RecordBatch]:
    """All that is alive in them, but for what had expired when they were planned, and dead letters.

    `lose` is told what cannot be read, and may raise. `whole`: nobody but the stream acks, so that
    each range ends with a message that is alive; RuntimeError if it is not seen here.
    """
    groups = groupby(ranges, lambda each: (each.store, each.queue, each.identity))
    found = (each for key, group in groups for each in _read(*key, list(group), names, lose, whole))
    planned = max((each.at for each in ranges), default=0)
    yield from batches_of(found, names, replace(CHOICE, now_us=planned or None))


def _read(
    path: str,
    name: str,
    its_identity: str,
    ranges: Sequence[Range],
    names: Sequence[str],
    lose: Callable[[str], None],
    whole: bool,
) -> Iterator[columns.Range[Rows]]:
    """Ranges of one queue, which is opened once."""
    unit = Unit(path, Path(path).name, "qindex", 0, name)

    def tell(text: str) -> None:
        lose(f"{name!r} of {path}: {text}")

    try:
        with qindex.open(path, read_only=True, create=False) as store:
            queue = store.queue(name, create=False)
            if identity(store, name) != its_identity:
                lose(f"the queue {name!r} of {path} was deleted and made again")
                return
            entries, moved = store.stats().segment_entries, moved_files(unit, names)
            for each in ranges:
                if whole and each.last >= 0:
                    _expect(queue, each)
                part = unit._replace(first=each.start, stop=each.stop)
                rows = Rows(
                    part, name, entries, moved, lambda text: lose(f"{name!r} of {path}: {text}")
                )
                yield from range_of(queue, rows, CHOICE)
    except (qindex.StoreMissing, qindex.QueueMissing):
        lose(f"the queue {name!r} of {path} is gone")


def _expect(queue: qindex.Queue, each: Range) -> None:
    if first_live(queue, each.last) != each.last:
        raise RuntimeError(
            f"message {each.last} of {each.queue!r} of {each.store} was there when the"
            " batch was planned, and is not seen here. With ack = true the stream is the"
            " only consumer, and all machines of the cluster have to see the same files"
        )
