"""Where an audit's tables go: OUT/TABLE/broker=NAME/day=YYYY-MM-DD/HASH.parquet.

Each directory that is examined has one file in each table, named by a hash of its path: whoever
writes it again, a task that is tried twice or the next audit of that day, replaces it as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from qindex.spark.plan import Unit
from qindex.spark.schema import arrow_schema, columns_of

TABLES: Final = ("queues", "files", "findings")
_SMALL_ROWS: Final = 100  # below it compression and dictionaries cost more than they save


@dataclass(frozen=True, slots=True)
class Output:
    path: str
    day: str  # YYYY-MM-DD, UTC

    def write(self, unit: Unit, table: str, rows: Sequence[dict[str, Any]]) -> None:
        """The column `broker` is in the path, where Spark and others find it."""
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyarrow.fs import LocalFileSystem

        folder = Path(self.path, table, f"broker={quote(unit.broker, safe='')}", f"day={self.day}")
        name = blake2b(unit.source.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        file = folder / f"{name}.parquet"
        if not rows:
            file.unlink(missing_ok=True)
            return
        folder.mkdir(parents=True, exist_ok=True)
        names = [column.name for column in columns_of(table) if column.name != "broker"]
        place = {"source": unit.source, "format": unit.format}
        data = pa.Table.from_pylist(
            [{**place, **row} for row in rows], schema=arrow_schema(table, names)
        )
        draft = folder / f".{name}.{os.getpid()}.draft"
        is_small = len(rows) < _SMALL_ROWS
        codec = "none" if is_small else "zstd"
        # Named, the file system need not be found out: a third of what a small file costs.
        local = LocalFileSystem()
        pq.write_table(
            data,
            str(draft),
            compression=codec,
            use_dictionary=not is_small,
            write_statistics=not is_small,
            filesystem=local,
        )
        draft.replace(file)
