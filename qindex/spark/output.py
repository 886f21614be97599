"""Where an audit's tables go: OUT/TABLE/broker=NAME/day=YYYY-MM-DD/HASH.parquet.

Each directory that is examined has one file in each table, named by a hash of its path: whoever
writes it again, a task that is tried twice or the next audit of that day, replaces it as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from qindex.spark.plan import Unit
from qindex.spark.schema import arrow_schema, columns_of

if TYPE_CHECKING:
    import pyarrow as pa

TABLES: Final = ("queues", "files", "findings")
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_SMALL_ROWS: Final = 100  # below it compression and dictionaries cost more than they save


@dataclass(frozen=True, slots=True)
class Output:
    path: str
    day: str  # YYYY-MM-DD, UTC

    def write(self, unit: Unit, table: str, rows: Sequence[dict[str, Any]]) -> None:
        """The column `broker` is in the path, where Spark and others find it."""
        folder = f"{self.path}/{table}/broker={quote(unit.broker, safe='')}/day={self.day}"
        name = blake2b(unit.source.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        file = f"{folder}/{name}.parquet"
        if not rows:
            with suppress(FileNotFoundError):
                os.unlink(file)  # noqa: PTH108 - of thousands of stores each path made costs
            return
        data = _as_parquet(unit, table, rows)
        draft = f"{folder}/.{name}.{os.getpid()}.draft"
        try:
            fd = os.open(draft, _NEW, 0o666)
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103
            fd = os.open(draft, _NEW, 0o666)
        with open(fd, "wb") as out:  # noqa: PTH123
            out.write(data)
        os.replace(draft, file)  # noqa: PTH105


def _as_parquet(unit: Unit, table: str, rows: Sequence[dict[str, Any]]) -> pa.Buffer:
    """In memory first: of a small file Arrow's own way to the disk takes half of the time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [column.name for column in columns_of(table) if column.name != "broker"]
    place = {"source": unit.source, "format": unit.format}
    data = pa.Table.from_pylist(
        [{**place, **row} for row in rows], schema=arrow_schema(table, names)
    )
    is_small = len(rows) < _SMALL_ROWS
    out = pa.BufferOutputStream()
    pq.write_table(
        data,
        out,
        compression="none" if is_small else "zstd",
        use_dictionary=not is_small,
        write_statistics=not is_small,
    )
    return out.getvalue()
