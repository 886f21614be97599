"""What Spark itself costs for each row from a source in Python: a source that only yields batches.

It reads nothing. One batch is made, and given again and again: what is left is Arrow's stream to
the JVM, its rows there, and the query. No source in Python can be faster with the same columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from qindex.spark.schema import arrow_schema, ddl
from qindex.spark.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 65536  # of a batch, as qindex's own have


class Floor(DataSource):
    """Options: table, columns, rows (of each task) and tasks."""

    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> str:
        return ddl(self.options["table"], self.options["columns"].split(","))

    def reader(self, schema: StructType) -> FloorReader:
        return FloorReader(dict(self.options), schema.names)


class FloorReader(DataSourceReader):
    def __init__(self, options: dict[str, str], names: list[str]) -> None:
        self._table, self._names = options["table"], names
        self._rows, self._tasks = int(options["rows"]), int(options["tasks"])

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        settle()
        schema = arrow_schema(self._table, self._names)
        values: dict[Any, Any] = {pa.string(): "broker", pa.int64(): 100}
        arrays = [pa.repeat(pa.scalar(values[each.type], each.type), ROWS) for each in schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        for start in range(0, self._rows, ROWS):
            yield batch.slice(0, self._rows - start)
