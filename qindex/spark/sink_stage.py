"""The task's half of the sink: rows into a staged file beside the queues, durable, seen by nobody.

A staged file is Arrow IPC, `store/spark/<write>/<batch>-<partition>-<random>.arrow`, with what the
engine wants of a message: body, headers (an encoded table), flags, expiry. Each record batch in it
belongs to one queue, one priority and one time until which it is delayed. So the driver only moves
memory, and nothing is done per row in Python but to encode headers, once per different text.

Each attempt of a task has a file of its own; the driver is told of the one that counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from qindex.begun import make_folder
from qindex.private import open_private, sync_folder
from qindex.spark.sink_columns import Place, as_schema, by_place

if TYPE_CHECKING:
    import pyarrow as pa

SLICE_BYTES_MAX: Final = 32 * 1024 * 1024


@dataclass
class Part:
    """What a staged file has for one place: the numbers of its record batches, in order."""

    place: Place
    batches: list[int] = field(default_factory=list)
    rows: int = 0


@dataclass
class Staged:
    """A staged file; no name: there was no row."""

    name: str = ""
    size: int = 0
    parts: list[Part] = field(default_factory=list)


def stage(folder: Path, prefix: str, queue: str | None, rows: Iterator[pa.RecordBatch]) -> Staged:
    """Write all rows into a new file; it is durable when this returns.

    Memory: a batch of Spark's, twice. Raises ValueError for a row that cannot be published.
    """
    import pyarrow as pa

    staged = Staged(f"{prefix}-{uuid4().hex[:8]}.arrow")
    parts: dict[Place, Part] = {}
    path = folder / staged.name
    count = 0
    make_folder(folder)
    try:
        with open_private(path, "xb") as file:
            with pa.ipc.new_file(file, as_schema()) as writer:
                for batch in rows:
                    for place, piece in by_place(batch, queue):
                        for piece_of_size in _cut(piece):
                            writer.write_batch(piece_of_size)
                            part = parts.setdefault(place, Part(place))
                            part.batches.append(count)
                            part.rows += piece_of_size.num_rows
                            count += 1
            file.flush()
            os.fsync(file.fileno())
            staged.size = file.tell()
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if not parts:
        path.unlink()
        return Staged()
    sync_folder(folder)
    staged.parts = list(parts.values())
    return staged


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halves of halves, until one is small enough to be handled at once."""
    if batch.num_rows > 1 and batch.get_total_buffer_size() > SLICE_BYTES_MAX < batch.nbytes:
        middle = batch.num_rows // 2
        yield from _cut(batch.slice(0, middle))
        yield from _cut(batch.slice(middle))
    else:
        yield batch
