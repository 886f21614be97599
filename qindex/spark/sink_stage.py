"""The task's half of the sink: rows into a staged file beside the queues, durable, seen by nobody.

A staged file is Arrow IPC, `store/spark/<write>/<batch>-<partition>-<random>.arrow`, with what the
engine wants of a message: body, headers (an encoded table), flags, expiry. Each record batch in it
belongs to one queue. So the driver only moves memory, and nothing is done per row in Python but to
encode headers, once per different text.

Each attempt of a task has a file of its own; the driver is told of the one that counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from qindex._core import lib
from qindex.arguments import encode_headers
from qindex.spark.folders import make_folder, sync_folder

if TYPE_CHECKING:
    import pyarrow as pa

SLICE_BYTES_MAX: Final = 32 * 1024 * 1024
COLUMNS: Final = ("queue", "body", "headers", "expires_at", "persistent", "redelivered")
# Columns of the table messages that say where a message was: they may be there, and are not kept.
PLACES: Final = (
    "source", "broker", "format", "vhost", "req_id", "segment", "slot", "state", "delivery_count",
    "msg_id", "size", "exchange", "routing_keys", "file", "offset",
)  # fmt: skip


@dataclass
class Part:
    """What a staged file has for one queue: the numbers of its record batches, in order."""

    queue: str
    batches: list[int] = field(default_factory=list)
    rows: int = 0


@dataclass
class Staged:
    """A staged file; no name: there was no row."""

    name: str = ""
    size: int = 0
    parts: list[Part] = field(default_factory=list)


def check_columns(names: Iterable[str], queue: str | None) -> None:
    """ValueError if rows with these columns cannot be published."""
    names = list(names)
    if "body" not in names:
        raise ValueError("a column body (binary or string) is needed; there is none")
    if "queue" not in names and not queue:
        raise ValueError('name the queue: a column queue, or .option("queue", "orders") for all')
    if unknown := [name for name in names if name not in (*COLUMNS, *PLACES)]:
        raise ValueError(
            f"unknown columns {', '.join(unknown)}: select some of {', '.join(COLUMNS)}"
        )


def stage(folder: Path, prefix: str, queue: str | None, rows: Iterator[pa.RecordBatch]) -> Staged:
    """Write all rows into a new file; it is durable when this returns.

    Memory: a batch of Spark's, twice. Raises ValueError for a row that cannot be published.
    """
    import pyarrow as pa

    staged = Staged(f"{prefix}-{uuid4().hex[:8]}.arrow")
    parts: dict[str, Part] = {}
    path = folder / staged.name
    count = 0
    make_folder(folder)
    try:
        with path.open("xb") as file:
            with pa.ipc.new_file(file, _schema()) as writer:
                for batch in rows:
                    for name, piece in _by_queue(batch, queue):
                        for piece_of_size in _cut(piece):
                            writer.write_batch(piece_of_size)
                            part = parts.setdefault(name, Part(name))
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


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("body", pa.binary()),
            ("headers", pa.binary()),
            ("flags", pa.uint8()),
            ("expiry_us", pa.uint64()),
        ]
    )


def _by_queue(batch: pa.RecordBatch, queue: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows as the engine wants them, apart by queue; in each the order is kept."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not batch.num_rows:
        return
    made = pa.RecordBatch.from_arrays(
        [_bodies(batch), _headers(batch), _flags(batch), _expiry(batch)], schema=_schema()
    )
    if queue is not None:
        yield queue, made
        return
    names = batch.column("queue")
    if names.null_count:
        raise ValueError(f"{names.null_count} rows have no queue (null)")
    encoded = names.dictionary_encode()
    if len(encoded.dictionary) == 1:
        yield str(encoded.dictionary[0]), made
        return
    order = pc.sort_indices(encoded.indices)  # stable
    made = made.take(order)
    start = 0
    for counted in pc.value_counts(encoded.indices.take(order)).to_pylist():
        yield str(encoded.dictionary[counted["values"]]), made.slice(start, counted["counts"])
        start += counted["counts"]


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halves of halves, until one is small enough to be handled at once."""
    if batch.num_rows > 1 and batch.get_total_buffer_size() > SLICE_BYTES_MAX < batch.nbytes:
        middle = batch.num_rows // 2
        yield from _cut(batch.slice(0, middle))
        yield from _cut(batch.slice(middle))
    else:
        yield batch


# --- columns -------------------------------------------------------------------------------------


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return batch.column(index) if index >= 0 else None


def _bodies(batch: pa.RecordBatch) -> pa.Array:
    import pyarrow as pa

    bodies = batch.column("body")
    if bodies.null_count:
        raise ValueError(f"{bodies.null_count} rows have no body (null); an empty one is b''")
    return bodies.cast(pa.binary())


def _headers(batch: pa.RecordBatch) -> pa.Array:
    import pyarrow as pa

    headers = _column(batch, "headers")
    if headers is None or headers.null_count == len(headers):
        return pa.array([b""] * batch.num_rows, pa.binary())
    if pa.types.is_map(headers.type):
        tables = [encode_headers(dict(pairs or ())) for pairs in headers.to_pylist()]
    else:
        tables = [_encode(text) for text in headers.to_pylist()]
    return pa.array(tables, pa.binary())


@lru_cache(maxsize=1024)
def _encode(text: str | None) -> bytes:
    """A JSON object as a header table."""
    try:
        headers: Any = json.loads(text) if text else {}
    except ValueError:
        headers = None
    if not isinstance(headers, dict):
        raise ValueError(f"headers are a JSON object, or a map column, not {text!r}")
    return encode_headers(headers)


def _flags(batch: pa.RecordBatch) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    zeros = pa.array([0] * batch.num_rows, pa.uint8())
    flags = zeros
    for name, flag, when in (
        ("persistent", lib.QI_TRANSIENT, False),
        ("redelivered", lib.QI_REDELIVERED, True),
    ):
        column = _column(batch, name)
        if column is not None:
            is_set = pc.fill_null(pc.equal(column, when), False)
            flags = pc.bit_wise_or(flags, pc.if_else(is_set, pa.scalar(flag, pa.uint8()), zeros))
    return flags


def _expiry(batch: pa.RecordBatch) -> pa.Array:
    """Microseconds since 1970; 0: never. What has expired already stays so: 1 at least."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _column(batch, "expires_at")
    if column is None:
        return pa.array([0] * batch.num_rows, pa.uint64())
    moments = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return pc.fill_null(pc.max_element_wise(moments, 1, skip_nulls=False), 0).cast(pa.uint64())
