"""Where an audit's tables go: OUT/TABLE/broker=NAME/day=YYYY-MM-DD/HASH.parquet.

Each directory that is examined has one file in each table, named by a hash of its path: whoever
writes it again, a task that is tried twice or the next audit of that day, replaces it as a whole.

NAME is the broker's, in its written form (qindex.names) and with % where a path needs it; of one
that is too long for a file system the beginning, "~" and a hash.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from qindex.names import written
from qindex.private import make_folder, open_private
from qindex.spark.plan import Unit
from qindex.spark.schema import columns_of

if TYPE_CHECKING:
    import pyarrow as pa

TABLES: Final = ("queues", "files", "findings")
_NAME_MAX: Final = 200  # of the 255 bytes that a name may have
_SMALL_ROWS: Final = 100  # below it compression and dictionaries cost more than they save


@dataclass(frozen=True, slots=True)
class Output:
    path: str
    day: str  # YYYY-MM-DD, UTC

    def write(self, unit: Unit, table: str, rows: Sequence[dict[str, Any]]) -> None:
        """The column `broker` is in the path, where Spark and others find it."""
        folder = f"{self.path}/{table}/broker={_folder_name(unit.broker)}/day={self.day}"
        name = blake2b(unit.source.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        file = f"{folder}/{name}.parquet"
        if not rows:
            with suppress(FileNotFoundError):
                os.unlink(file)  # noqa: PTH108 - of thousands of stores each path made costs
            return
        data = _as_parquet(unit, table, rows)
        draft = f"{folder}/.{name}.{os.getpid()}.draft"
        try:
            out = open_private(draft)
        except FileNotFoundError:
            make_folder(folder)
            out = open_private(draft)
        with out:
            out.write(data)
        os.replace(draft, file)  # noqa: PTH105


def _folder_name(broker: str) -> str:
    name = quote(written(broker), safe="")
    if len(name) <= _NAME_MAX:
        return name
    digest = blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{name[:_NAME_MAX].rpartition('%')[0] or name[:_NAME_MAX]}~{digest}"


def _as_parquet(unit: Unit, table: str, rows: Sequence[dict[str, Any]]) -> pa.Buffer:
    """In memory first: of a small file Arrow's own way to the disk takes half of the time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from qindex.spark.tables import rows_as_batch

    names = [column.name for column in columns_of(table) if column.name != "broker"]
    data = pa.Table.from_batches([rows_as_batch(unit, table, names, rows)])
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
