"""What format("qindex") is: its options, and who reads and writes.

    spark.read.format("qindex").option("table", "queues").load("/brokers/*")

Options of a batch read, in any case; one that is not among them is refused:

path, paths              directories, with wildcards, or URLs (remote.py); `paths`: a JSON list.
                         A name that exists as it is written is no pattern
table                    messages (default), records, bodies, queues, files, findings; or audit,
                         which writes, too: see qindex.spark.audit
format                   only directories of this format: qindex, rabbitmq, nsq, gmq, beanstalkd
columns                  which columns, separated by commas; * is all. A schema does the same.
                         Without either: all but body and headers, which cost a read of the bodies
queues, vhosts           names or patterns (*, ?), separated by commas, or a JSON list of them;
                         as the tables have them, if they are no UTF-8: see schema.py
states                   ready, delayed, unacked, expired, dead, with commas; and lost: messages
                         whose body is gone, which are left out else
minReqId, maxReqId       both included
expiresAfter,            ISO 8601, or seconds since 1970: only messages that have an expiry, from
expiresBefore            the one up to below the other
atTime                   likewise: the moment that counts as now for what has expired
stuckBehind,             from when on something is a finding: see qindex audit
poisonDeliveries
checkBodies              true; false: bodies are not looked at for files and findings
targetBytes              of a task; 512 MiB
minPartitions            so many tasks, or a multiple, if there is enough to read; one per core

Choose here what you can: Spark tells a source in Python neither which columns nor which rows a
query needs (its filter pushdown gave wrong rows in 4.3.0, and is not used).

What cannot be read is left out of messages, records and bodies, and each such place is a warning
of the logger qindex.spark in the worker. The table findings has it as a row, also a path that was
named and leads to no store and no broker. Read it, too, where nothing may be missing.

A DataFrame is a snapshot of the directories that were there when it was first used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from qindex.spark.options import (
    READ,
    choice_of,
    column_names,
    known,
    limits_of,
    paths_of,
    whole,
)
from qindex.spark.output import Output
from qindex.spark.plan import TARGET_BYTES, Unit, find, plan
from qindex.spark.schema import columns_of, ddl
from qindex.spark.tables import batches
from qindex.spark.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa


class QindexSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "qindex"

    def schema(self) -> str:
        table = self.options.get("table", "messages")
        paths_of(
            {key.lower(): value for key, value in self.options.items()}
        )  # raises: CREATE TABLE
        return ddl(table, column_names(self.options))

    def reader(self, schema: StructType) -> Reader:
        table = self.options.get("table", "messages")
        check_schema(table, schema)
        return Reader(dict(self.options), table, schema.names)

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
        return import_module("qindex.spark.stream").StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return import_module("qindex.spark.sink").BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        return import_module("qindex.spark.sink").StreamWriter(self.options, schema, overwrite)


@dataclass
class Task(InputPartition):
    units: list[Unit]

    def __init__(self, units: list[Unit]) -> None:
        super().__init__(None)
        self.units = units


class Reader(DataSourceReader):
    """Spark makes it in one process, asks it for tasks in another, and reads in a third."""

    def __init__(self, options: Mapping[str, str], table: str, names: list[str]) -> None:
        lower = known(options, READ)
        self._table = table
        self._names = names
        self._paths = paths_of(lower)
        self._format = lower.get("format")
        self._choice = choice_of(lower)
        self._limits = limits_of(lower)
        self._output = Output(lower["out"], lower["day"]) if "out" in lower else None
        self._target_bytes = whole(lower, "targetBytes", TARGET_BYTES, 1)
        self._tasks_min = whole(lower, "minPartitions", os.cpu_count() or 1, 1)

    def partitions(self) -> list[InputPartition]:
        units = find(self._paths, self._format)
        tasks = plan(units, self._table, target_bytes=self._target_bytes, tasks_min=self._tasks_min)
        return [Task(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settle()
        units = getattr(partition, "units", [])  # Spark makes an empty one if there are none
        yield from batches(
            units, self._table, self._names, self._choice, self._limits, self._output
        )


def check_schema(table: str, schema: StructType) -> None:
    """ValueError if a column is not one of the table's, or has another type."""
    ddl(table, schema.names)  # raises if there is no such column
    types = {column.name: column.type for column in columns_of(table)}
    for its in schema.fields:
        told = its.dataType.simpleString()
        if told.replace("bigint", "long") != types[its.name]:
            raise ValueError(f"the column {its.name} of {table} is {types[its.name]}, not {told}")
