"""The columns that the sink takes, their types, and a batch of rows as the engine wants it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from qindex._core import lib
from qindex.arguments import DELAY_MAX, encode_headers
from qindex.names import unwritten
from qindex.spark.headers import headers_of_json

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT: Final = ("string", "varchar", "char")
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_NUMBER: Final = (*_WHOLE, "float", "double", "decimal")
_TIME: Final = ("timestamp", "timestamp_ntz")
TYPES: Final[dict[str, tuple[str, ...]]] = {
    "queue": _TEXT,
    "body": ("binary", *_TEXT),
    "headers": (*_TEXT, "map"),
    "exchange": _TEXT,
    "routing_keys": ("array",),
    "priority": _WHOLE,
    "due": _TIME,
    "delay": _NUMBER,
    "expires_at": _TIME,
    "ttl": _NUMBER,
    "persistent": ("boolean",),
    "redelivered": ("boolean",),
}
# Columns of the table messages that say where a message was: they may be there, and are not kept.
PLACES: Final = (
    "source", "broker", "format", "vhost", "req_id", "segment", "slot", "state", "delivery_count",
    "published_at", "msg_id", "size", "file", "offset",
)  # fmt: skip
_NEEDED: Final = ("queue", "body")


class Place(NamedTuple):
    """Where rows go, which is where one frame of the engine can go."""

    queue: str
    priority: int = 0
    due_us: int = 0  # until when they are delayed; 0: they are not


def check_columns(columns: Iterable[tuple[str, str]], queue: str | None) -> None:
    """ValueError if rows with these columns (name, type in Spark's words) cannot be published."""
    types = dict(columns)
    if "body" not in types:
        raise ValueError("a column body (binary or string) is needed; there is none")
    if "queue" not in types and not queue:
        raise ValueError('name the queue: a column queue, or .option("queue", "orders") for all')
    if unknown := [name for name in types if name not in TYPES and name not in PLACES]:
        raise ValueError(f"unknown columns {', '.join(unknown)}: select some of {', '.join(TYPES)}")
    for name, wanted in TYPES.items():
        kind = types.get(name, "void").partition("(")[0].partition("<")[0]
        if kind not in wanted and (kind != "void" or (name in types and name in _NEEDED)):
            raise ValueError(f"the column {name} is {' or '.join(wanted)}, not {types[name]}")


def as_schema() -> pa.Schema:
    """Of a staged file."""
    import pyarrow as pa

    return pa.schema(
        [
            ("body", pa.binary()),
            ("headers", pa.binary()),
            ("flags", pa.uint8()),
            ("expiry_us", pa.uint64()),
        ]
    )


def by_place(batch: pa.RecordBatch, queue: str | None) -> Iterator[tuple[Place, pa.RecordBatch]]:
    """The rows as the engine wants them, apart by place; in each the order is kept."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not batch.num_rows:
        return
    now_us = int(time.time() * 1e6)
    arrays = [_bodies(batch), _headers(batch), _flags(batch), _expiry(batch, now_us)]
    made = pa.RecordBatch.from_arrays(arrays, schema=as_schema())
    names = _queues(batch, queue).dictionary_encode()
    keys = pa.RecordBatch.from_arrays(
        [names.indices, _priorities(batch), _due(batch, now_us)],
        names=["queue", "priority", "due_us"],
    )
    places = (
        pa.Table.from_batches([keys]).group_by(keys.schema.names).aggregate([([], "count_all")])
    )
    if places.num_rows > 1:
        order = pc.sort_indices(keys, [(name, "ascending") for name in keys.schema.names])  # stable
        made = made.take(order)
        places = places.sort_by([(name, "ascending") for name in keys.schema.names])
    start = 0
    for row in places.to_pylist():
        name = unwritten(names.dictionary[row["queue"]].as_py())
        yield Place(name, row["priority"], row["due_us"]), made.slice(start, row["count_all"])
        start += row["count_all"]


# --- columns -------------------------------------------------------------------------------------


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """None: it is not there, or says nothing."""
    index = batch.schema.get_field_index(name)
    if index < 0 or batch.column(index).null_count == batch.num_rows:
        return None
    return batch.column(index)


def _queues(batch: pa.RecordBatch, queue: str | None) -> pa.Array:
    import pyarrow as pa

    if queue is not None:
        return pa.repeat(queue, batch.num_rows)
    names = batch.column("queue")
    if names.null_count:
        raise ValueError(f"{names.null_count} rows have no queue (null)")
    return names.cast(pa.string())


def _bodies(batch: pa.RecordBatch) -> pa.Array:
    import pyarrow as pa

    bodies = batch.column("body")
    if bodies.null_count:
        raise ValueError(f"{bodies.null_count} rows have no body (null); an empty one is b''")
    return bodies.cast(pa.binary())


def _headers(batch: pa.RecordBatch) -> pa.Array:
    """Exchange and routing keys of a RabbitMQ message stand in them, as recover --out does it."""
    import pyarrow as pa

    columns = {name: _column(batch, name) for name in ("headers", "exchange", "routing_keys")}
    if not any(column is not None for column in columns.values()):
        return pa.array([b""] * batch.num_rows, pa.binary())
    values = [
        [None] * batch.num_rows if column is None else column.to_pylist()
        for column in columns.values()
    ]
    tables = [_encode(told, exchange, keys) for told, exchange, keys in zip(*values, strict=True)]
    return pa.array(tables, pa.binary())


def _encode(told: Any, exchange: str | None, keys: Sequence[str | None] | None) -> bytes:
    if exchange is None and keys is None and isinstance(told, str):
        return _encode_text(told)
    headers = headers_of_json(told) if isinstance(told, str) and told else dict(told or ())
    if exchange is not None:
        headers.setdefault("exchange", unwritten(exchange))
    if keys is not None:
        headers.setdefault("routing_keys", [unwritten(key) for key in keys if key is not None])
    return encode_headers(headers)


@lru_cache(maxsize=1024)
def _encode_text(text: str) -> bytes:
    return encode_headers(headers_of_json(text)) if text else b""


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


def _priorities(batch: pa.RecordBatch) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _column(batch, "priority")
    if column is None:
        return pa.array([0] * batch.num_rows, pa.int64())
    found = pc.fill_null(column.cast(pa.int64()), 0)
    least, most = pc.min_max(found).as_py().values()
    if least < 0 or most > 255:
        raise ValueError(f"priority is 0 to 255, not {least if least < 0 else most}")
    return found


def _expiry(batch: pa.RecordBatch, now_us: int) -> pa.Array:
    """Microseconds since 1970; 0: never. What has expired already stays so: 1 at least."""
    return _moments(batch, "expires_at", "ttl", now_us)


def _due(batch: pa.RecordBatch, now_us: int) -> pa.Array:
    """The same for the end of a delay; 0: there is none."""
    return _moments(batch, "due", "delay", now_us)


def _moments(batch: pa.RecordBatch, at: str, after: str, now_us: int) -> pa.Array:
    """Of a column of times, or of one of seconds from now on; 0 where neither says anything."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times, waits = _column(batch, at), _column(batch, after)
    found = pa.nulls(batch.num_rows, pa.int64())
    if times is not None:
        moments = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
        found = pc.max_element_wise(moments, 1, skip_nulls=False)
    if waits is not None:
        seconds = waits.cast(pa.float64())
        fits = pc.and_(pc.greater_equal(seconds, 0.0), pc.less(seconds, DELAY_MAX))  # no nan does
        if wrong := seconds.filter(pc.invert(fits)).to_pylist():
            raise ValueError(f"{after} is 0 or more seconds, not {wrong[0]}")
        if pc.any(pc.and_(pc.is_valid(found), pc.is_valid(seconds))).as_py():
            raise ValueError(f"rows have both {at} and {after}: give one of them")
        later = pc.cast(pc.multiply(seconds, 1e6), pa.int64(), safe=False)
        later = pc.add(later, pa.scalar(now_us, pa.int64()))
        if after == "delay":  # no delay is none, as for publish()
            later = pc.if_else(pc.greater(seconds, 0), later, pa.scalar(None, pa.int64()))
        found = pc.coalesce(found, later)
    return pc.fill_null(found, 0).cast(pa.uint64())
