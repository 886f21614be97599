"""What tests of the streaming source share: a stream as Spark plays it, without Spark.

Import it behind the skips: it needs pyspark and pyarrow.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

import qindex
from qindex.spark.stream import StreamReader

SCHEMA = StructType().add("queue", StringType()).add("req_id", LongType()).add("body", BinaryType())
ALL = ReadAllAvailable()


def reader(store: str | qindex.Store, **options: Any) -> StreamReader:
    path = store if isinstance(store, str) else store.path
    given = {"path": path, "pollInterval": 0, **options}
    return StreamReader({key: str(value) for key, value in given.items()}, SCHEMA)


def rows(stream: StreamReader, start: Any, end: Any) -> list[tuple[str, int, bytes]]:
    """Of one batch: as Spark does it, by pickled copies that read pickled tasks."""
    found = []
    for task in stream.partitions(as_json(start), as_json(end)):
        worker, its_task = pickle.loads(pickle.dumps((stream, task)))  # noqa: S301 - our own
        for batch in worker.read(its_task):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def as_json(offset: Any) -> Any:
    return json.loads(json.dumps(offset))


def bodies(stream: StreamReader, start: Any, end: Any) -> list[bytes]:
    return [body for _, _, body in rows(stream, start, end)]


def filled(tmp_path: Path, count: int = 4) -> str:
    path = str(tmp_path / "store")
    with qindex.open(path) as store:
        store.queue("q").publish_many([b"%d" % i for i in range(count)])
    return path


def left(path: str) -> list[bytes]:
    with qindex.open(path, read_only=True) as store:
        return [message.body for message in store.queue("q").browse()]
