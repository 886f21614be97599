"""The same work for many things: in this process, in several, or in tasks of Spark.

    results = spread(None, tasks, work)           here, one after the other
    results = spread(None, tasks, work, jobs=4)   in four processes of this machine
    results = spread(spark, tasks, work)          wherever Spark runs

`work` takes a task and returns plain values that fit into JSON: an account of kilobytes, while the
data goes from disk to disk within the task.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from qindex.spark.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R")
Account = dict[str, Any]
PARTITIONS_MAX = 1000  # tasks of Spark: each costs some 10 ms


def spread(
    spark: SparkSession | None,
    tasks: Sequence[T],
    work: Callable[[T], Account],
    progress: Callable[[int, int], object] = lambda done, total: None,
    jobs: int = 1,
) -> list[Account]:
    """The accounts of all tasks, in their order. `progress` gets (tasks done, all).

    WorkerDied: one of `jobs` processes was killed.
    """
    if spark is None and jobs > 1 and len(tasks) > 1:
        return in_processes(tasks, work, jobs, lambda at: progress(len(at), len(tasks)))
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
    table = collect(spark, frame, progress)
    rows = sorted(table.to_pylist(), key=lambda row: row["number"])
    return [json.loads(row["account"]) for row in rows]


def in_processes(
    tasks: Sequence[T],
    work: Callable[[T], R],
    jobs: int,
    done: Callable[[Collection[int]], object] = lambda at: None,
) -> list[R]:
    """The results of all tasks, in their order; `done` gets the numbers of those that are done.

    New processes, not forks: there are threads here. An error of one, or an interrupt, ends all.
    """
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), get_context("spawn"))
    try:
        with _ignored_interrupts():
            futures = {pool.submit(work, task): number for number, task in enumerate(tasks)}
        finished: set[int] = set()
        left = set(futures)
        while left:
            ended, left = wait(left, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in ended:
                future.result()  # raises what it raised
            finished.update(futures[future] for future in ended)
            done(finished)
        return [future.result() for future in futures]
    except BrokenProcessPool:
        raise WorkerDied(
            "a process that was at work here was killed; was there enough memory? Use fewer --jobs"
        ) from None
    finally:
        workers = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers if sys.exc_info()[0] else ():
            worker.terminate()
        pool.shutdown(wait=True)


class WorkerDied(RuntimeError):
    """One of several processes was killed: what it had to do is not done."""


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Also in the processes that begin meanwhile: a terminal's Ctrl-C goes to all of them, is
    handled in the first one, and that ends the others."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # another thread than the first has nothing to say here
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def collect(
    spark: SparkSession, frame: DataFrame, progress: Callable[[int, int], object]
) -> pa.Table:
    """All rows; `progress` gets (tasks done, all) now and then.

    What it raises, or what else interrupts this, ends the tasks; then it is raised here.
    """
    tag = f"qindex-{uuid4().hex}"

    def run() -> pa.Table:
        _context_of(spark, "addJobTag", tag)
        return frame.toArrow()

    with ThreadPoolExecutor(1) as pool:
        table = pool.submit(run)
        try:
            while not wait([table], timeout=0.2).done:
                progress(*tasks_of(spark))
        except BaseException:
            _context_of(spark, "cancelJobsWithTag", tag)
            table.exception()  # it only says that it was cancelled
            raise
    return table.result()


def _context_of(spark: SparkSession, call: str, tag: str) -> None:
    """Nothing over Spark Connect, which has no context: there the tasks go on to their end."""
    try:
        context = spark.sparkContext
    except Exception:  # its own error class, which differs with how it is connected
        return
    getattr(context, call)(tag)


def tasks_of(spark: SparkSession) -> tuple[int, int]:
    """(done, all) of what runs now; zeros where Spark does not tell: over Spark Connect."""
    try:
        tracker = spark.sparkContext.statusTracker()
    except Exception:  # its own error class, which differs with how it is connected
        return 0, 0
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return (
        sum(stage.numCompletedTasks for stage in stages if stage),
        sum(stage.numTasks for stage in stages if stage),
    )


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
