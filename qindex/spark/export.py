"""Messages of many directories to Parquet: each task reads its part and writes one file itself.

    OUT/_export.json       the plan: which file has what; at the end also the account
    OUT/part-00000.parquet ...

The plan is made once and kept, so that an export that was cut off goes on with the same parts: a
file that has its name is complete. What begins with "_" is passed over by Spark, pyarrow and DuckDB
when they read OUT.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qindex.private import make_folder, open_private, replace_file
from qindex.spark.plan import TARGET_BYTES, Unit, plan
from qindex.spark.spread import Account, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qindex.spark.tables import Choice

PLAN: Final = "_export.json"
TOLD_MAX: Final = 20


class ExportRefused(ValueError):
    """OUT holds something else; nothing was written."""


@dataclass(frozen=True)
class Job:
    """What is asked for: an export goes on only with the same job."""

    paths: list[str]
    columns: list[str]
    choice: dict[str, Any]


def export(
    spark: SparkSession | None,
    units: Sequence[Unit],
    out: str,
    job: Job,
    choice: Choice,
    *,
    target_bytes: int = TARGET_BYTES,
    progress: Callable[[int, int], object] = lambda done, total: None,
    jobs: int = 1,
) -> Account:
    """Write them, or what is missing of them; the account of all. ExportRefused: see there.

    Without `spark`: in this process. Memory: a row group per task, about 64 MB.
    """
    folder = Path(out).absolute()  # workers may be elsewhere
    kept = _load(folder, job)
    if kept is not None and kept["done"]:
        return {**kept["account"], "went_on": True}
    if kept is None:
        tasks = plan(units, "messages", target_bytes=target_bytes, tasks_min=os.cpu_count() or 1)
        make_folder(folder)
        _save(folder, job, tasks, None)
    else:
        tasks = [[_unit(unit) for unit in task] for task in kept["tasks"]]
    numbered = list(enumerate(tasks))
    work = partial(_export_task, str(folder), job.columns, choice)
    accounts = spread(spark, numbered, work, progress, jobs)
    account: Account = {
        name: sum(each[name] for each in accounts) for name in ("messages", "bytes", "damaged")
    }
    account["files"] = len(accounts)
    sizes = [each["bytes"] for each in accounts]
    account["told"] = [text for each in accounts for text in each["told"]][:TOLD_MAX]
    _save(folder, job, tasks, account, sizes)
    for path in folder.glob("_part-*"):
        path.unlink()
    return {**account, "went_on": kept is not None}


def _export_task(
    out: str, columns: list[str], choice: Choice, task: tuple[int, list[Unit]]
) -> Account:
    """One file; what is there already is only counted."""
    import pyarrow.parquet as pq

    from qindex.spark.schema import arrow_schema
    from qindex.spark.tables import batches

    number, units = task
    file = _part(Path(out), number)
    told_in = file.with_name(f"_{file.stem}.json")
    if not file.exists():
        draft = file.with_name(f"_{file.stem}.{os.getpid()}.draft")
        with (
            told() as texts,
            open_private(draft) as file_out,
        ):
            schema = arrow_schema("messages", columns)
            with pq.ParquetWriter(file_out, schema, compression="zstd") as writer:
                for batch in batches(units, "messages", columns, choice):
                    writer.write_batch(batch)  # a row group
            file_out.flush()
            os.fsync(file_out.fileno())
        with open_private(told_in, "w") as told_out:
            told_out.write(json.dumps(texts))
        draft.replace(file)
    texts = json.loads(told_in.read_text()) if told_in.exists() else []
    with file.open("rb") as part:  # pyarrow takes no path that is not UTF-8
        rows = pq.read_metadata(part).num_rows
    return {
        "messages": rows,
        "bytes": file.stat().st_size,
        "damaged": len(texts),
        "told": texts[:TOLD_MAX],
    }


@contextmanager
def told() -> Iterator[list[str]]:
    """What is logged of damage within the block: reading goes on behind it."""
    texts: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    log, handler = logging.getLogger("qindex.spark"), Handler(logging.WARNING)
    log.addHandler(handler)
    before, log.propagate = log.propagate, False
    try:
        yield texts
    finally:
        log.propagate = before
        log.removeHandler(handler)


# --- the plan ------------------------------------------------------------------------------------


def _load(folder: Path, job: Job) -> dict[str, Any] | None:
    """What an earlier run has left; None: nothing is there."""
    try:
        kept: dict[str, Any] = json.loads((folder / PLAN).read_text())
    except FileNotFoundError:
        if folder.is_dir() and any(folder.iterdir()):
            raise ExportRefused(
                f"{str(folder)!r} is not empty, and has no export to go on with: choose another"
                " folder"
            ) from None
        return None
    if kept["job"] != asdict(job):
        raise ExportRefused(
            f"{str(folder)!r} has another export (other paths, columns or choices): choose another"
            " folder, or delete it"
        )
    if kept["done"]:
        _refuse_changed(folder, kept)
    return kept


def _refuse_changed(folder: Path, kept: dict[str, Any]) -> None:
    """What was complete must still be there, each file as long as it was."""
    for number in range(kept["account"]["files"]):
        file = _part(folder, number)
        length = kept["sizes"][number] if "sizes" in kept else None
        if not file.exists() or (length is not None and file.stat().st_size != length):
            raise ExportRefused(
                f"{str(file)!r} is gone, or was changed, since the export was complete: delete"
                f" {str(folder)!r} to export again"
            )


def _part(folder: Path, number: int) -> Path:
    return folder / f"part-{number:05}.parquet"


def _save(
    folder: Path,
    job: Job,
    tasks: Sequence[Sequence[Unit]],
    account: Account | None,
    sizes: Sequence[int] = (),
) -> None:
    """`sizes`: bytes of each file of an export that is complete."""
    kept = {
        "job": asdict(job),
        "done": account is not None,
        "account": account,
        "sizes": sizes,
        "tasks": [[unit._asdict() for unit in task] for task in tasks],
    }
    replace_file(folder / PLAN, json.dumps(kept).encode())


def _unit(kept: dict[str, Any]) -> Unit:
    return Unit(**{**kept, "files": tuple(kept["files"])})
