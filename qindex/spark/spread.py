"""The same work for many things: in this process, one after the other, or in tasks of Spark.

    results = spread(None, tasks, work)       here
    results = spread(spark, tasks, work)      wherever Spark runs

`work` takes a task and returns plain values that fit into JSON: an account of kilobytes, while the
data goes from disk to disk within the task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

from qindex.spark.audit import tasks_of
from qindex.spark.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")
Account = dict[str, Any]
PARTITIONS_MAX = 1000  # tasks of Spark: each costs some 10 ms


def spread(
    spark: SparkSession | None,
    tasks: Sequence[T],
    work: Callable[[T], Account],
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> list[Account]:
    """The accounts of all tasks, in their order. `progress` gets (tasks done, all)."""
    if spark is None:
        accounts = []
        for done, task in enumerate(tasks):
            progress(done, len(tasks))
            accounts.append(work(task))
        return accounts
    if not tasks:
        return []
    frame = spark.range(0, len(tasks), 1, min(len(tasks), PARTITIONS_MAX)).mapInArrow(
        _in_worker(tasks, work), "number long, account string"
    )
    with ThreadPoolExecutor(1) as pool:
        table = pool.submit(frame.toArrow)
        while not wait([table], timeout=0.2).done:
            progress(*tasks_of(spark))
    rows = sorted(table.result().to_pylist(), key=lambda row: row["number"])
    return [json.loads(row["account"]) for row in rows]


def _in_worker(
    tasks: Sequence[T], work: Callable[[T], Account]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        settle()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                account = json.dumps(work(tasks[number]))
                yield pa.RecordBatch.from_pydict({"number": [number], "account": [account]})

    return run
