"""What format("qindex") is: its name, its options, and who reads and writes.

Options of a read: table (messages), format (detected) ...; see `options` below as they come.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from qindex.spark.schema import ddl


class QindexSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "qindex"

    def schema(self) -> str:
        return ddl(self.options.get("table", "messages"))

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
        return import_module("qindex.spark.stream").StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return import_module("qindex.spark.sink").BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        return import_module("qindex.spark.sink").StreamWriter(self.options, schema, overwrite)
