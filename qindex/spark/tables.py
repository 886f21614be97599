"""One unit of a plan as batches of a table: for qindex's own stores and for what others left.

A batch has exactly the columns that were asked for. What cannot be read is left out of messages
and records, and told: in the table findings, and as a warning of the logger qindex.spark.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from itertools import chain, groupby
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from qindex.look.messages import REQ_ID_MAX, STATES
from qindex.names import written
from qindex.spark.examine import Limits
from qindex.spark.output import Output
from qindex.spark.plan import Unit
from qindex.spark.remote import here
from qindex.spark.schema import JSON_COLUMNS, TABLES, arrow_schema
from qindex.spark.search import NATIVE, UNKNOWN

P = TypeVar("P")
log: Final = logging.getLogger("qindex.spark")
ROWS: Final = 65536
HELD_BYTES_MAX: Final = 64 << 20
LOST: Final = "lost"  # one more state, of messages that are left out unless it is asked for


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rows of messages and records; empty: all. Names may have wildcards."""

    queues: tuple[str, ...] = ()
    vhosts: tuple[str, ...] = ()
    states: frozenset[str] = field(default=frozenset(STATES))
    first: int = 0  # ReqIds, both included
    last: int = REQ_ID_MAX
    expires_after_us: int | None = None  # microseconds since 1970
    expires_before_us: int | None = None
    now_us: int | None = None  # by which it is told what has expired; None: when it is read

    @property
    def cuts_req_ids(self) -> bool:
        return (self.first, self.last) != (0, REQ_ID_MAX)

    def wants(self, queue: str | None, vhost: str | None = None) -> bool:
        return _is_among(queue, self.queues) and _is_among(vhost, self.vhosts)


def _is_among(name: str | None, patterns: Sequence[str]) -> bool:
    """A name is compared as the tables have it, and is its own pattern, whatever is in it."""
    if not patterns:
        return True
    text = written(name or "")
    return any(text == pattern or fnmatchcase(text, pattern) for pattern in patterns)


def batches(
    units: Iterable[Unit],
    table: str,
    names: Sequence[str],
    choice: Choice,
    limits: Limits | None = None,
    output: Output | None = None,
) -> Iterator[pa.RecordBatch]:
    """All rows of this table in these units: of small ones many together in a batch.

    Damage never raises. `output`: of an audit.
    """
    found: Iterator[Unit] = (each for unit in units for each in here(unit))
    if table in ("messages", "records", "bodies"):
        found = _known(found)
    if table == "records":  # qindex's own stores only: the other readers give messages
        from qindex.spark.records import records

        yield from records((unit for unit in found if unit.format == NATIVE), names, choice)
    elif table == "messages":
        yield from joined(_messages(found, names, choice))
    else:
        each = (_batches(unit, table, names, choice, limits, output) for unit in found)
        yield from joined(chain.from_iterable(each))


def _known(units: Iterable[Unit]) -> Iterator[Unit]:
    """Without those that nobody can read, each of which is told."""
    for unit in units:
        if unit.format == UNKNOWN:
            log.warning("%s: %s", unit.source, unit.problem)
        else:
            yield unit


def _messages(
    units: Iterable[Unit], names: Sequence[str], choice: Choice
) -> Iterator[pa.RecordBatch]:
    for is_native, group in groupby(units, lambda unit: unit.format == NATIVE):
        if is_native:
            from qindex.spark import store_rows

            yield from store_rows.messages(group, names, choice)
        else:
            from qindex.spark import broker_rows

            for unit in group:
                yield from broker_rows.messages(unit, names, choice)


def _batches(
    unit: Unit,
    table: str,
    names: Sequence[str],
    choice: Choice,
    limits: Limits | None,
    output: Output | None,
) -> Iterator[pa.RecordBatch]:
    if table == "bodies":  # the other readers have them with the messages
        if unit.format == NATIVE:
            from qindex.spark.store_rows import bodies

            yield from bodies(unit, names)
    elif table == "audit":
        from qindex.spark.audit import audit_unit

        summary = audit_unit(unit, limits or Limits(), output)
        yield from from_rows(unit, table, names, [{"summary": json.dumps(asdict(summary))}])
    else:
        from qindex.spark.examine import examine

        rows = getattr(examine(unit, limits or Limits()), table)
        chosen = [row for row in rows if choice.wants(row.get("queue"), row.get("vhost"))]
        yield from from_rows(unit, table, names, chosen)


def fill(
    table: str, names: Sequence[str], parts: Sequence[tuple[Unit, int]], values: Mapping[str, Any]
) -> pa.RecordBatch:
    """A batch of these parts, whose rows and how many; of what is not in `values`, nulls.

    A value may be a function that makes it, which is called only if a name asks for it.
    """
    values = {
        "source": lambda: spread_names(parts, lambda unit: unit.source),
        "broker": lambda: spread_names(parts, lambda unit: unit.broker),
        "format": lambda: spread_names(parts, lambda unit: unit.format),
        **values,
    }
    schema = arrow_schema(table, names)
    arrays = []
    for name in names:
        value, wanted = values.get(name), schema.field(name).type
        array = value() if callable(value) else value
        if array is None:
            array = pa.nulls(sum(rows for _, rows in parts), wanted)
        arrays.append(array if array.type == wanted else pc.cast(array, wanted))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def spread(
    parts: Sequence[tuple[P, int]], value: Callable[[P], Any], kind: pa.DataType
) -> pa.Array:
    """What each part has, once for each of its rows."""
    runs: list[tuple[Any, int]] = []
    for part, rows in parts:
        its = value(part)
        if runs and runs[-1][0] == its:
            runs[-1] = (its, runs[-1][1] + rows)
        else:
            runs.append((its, rows))
    arrays = [pa.repeat(pa.scalar(its, kind), rows) for its, rows in runs]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def spread_names(parts: Sequence[tuple[P, int]], value: Callable[[P], str | None]) -> pa.Array:
    """The same for names, which may be no UTF-8 (qindex.names)."""

    def name_of(part: P) -> str | None:
        name = value(part)
        return None if name is None else written(name)

    return spread(parts, name_of, pa.string())


def segment_of(req_id: pa.Array, entries: pa.Array | pa.Scalar) -> pa.Array:
    return pc.divide(req_id, entries)


def slot_of(req_id: pa.Array, entries: pa.Array) -> pa.Array:
    return pc.subtract(req_id, pc.multiply(segment_of(req_id, entries), entries))


def from_rows(
    unit: Unit, table: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> Iterator[pa.RecordBatch]:
    """Rows that are few, as dicts; missing keys are null."""
    for start in range(0, len(rows), ROWS):
        yield rows_as_batch(unit, table, names, rows[start : start + ROWS])


def rows_as_batch(
    unit: Unit, table: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> pa.RecordBatch:
    """The same, of all rows at once. Text that is no UTF-8 is written as qindex.names says."""
    schema = arrow_schema(table, names)
    place = {"source": unit.source, "broker": unit.broker, "format": unit.format}
    arrays = []
    for name in names:
        values = [row.get(name, place.get(name)) for row in rows]
        column = schema.field(name)
        if name not in JSON_COLUMNS and not pa.types.is_primitive(column.type):
            values = [_in_utf8(value) for value in values]
        arrays.append(pa.array(values, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _in_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return written(value)
    return [written(each) for each in value] if isinstance(value, (list, tuple)) else value


def joined(parts: Iterable[pa.RecordBatch], rows: int = ROWS) -> Iterator[pa.RecordBatch]:
    """Small batches put together: of ten thousand small queues each has a few rows.

    Memory: HELD_BYTES_MAX and a batch; what a batch keeps counts, not what it uses of it.
    """
    held: list[pa.RecordBatch] = []
    count = size = 0
    for part in parts:
        if part.num_rows * 2 > rows and not held:
            yield part
            continue
        if part.num_rows:
            held.append(part)
            count += part.num_rows
            size += part.get_total_buffer_size()
        if count >= rows or size >= HELD_BYTES_MAX:
            yield pa.concat_batches(held)
            held, count, size = [], 0, 0
    if held:
        yield pa.concat_batches(held) if len(held) > 1 else held[0]


def default_names(table: str) -> list[str]:
    """All columns but those whose reading costs as much as the bodies."""
    return [
        column.name
        for column in TABLES[table]
        if table != "messages" or column.name not in ("body", "headers")
    ]
