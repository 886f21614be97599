"""The audit of a fleet: every directory examined, tables written, one summary for all.

    report = run(units, limits, output)                       in this process
    report = run_on_spark(spark, paths, limits, output)       on a cluster, or on all cores

Both do the same work with the same code: a task examines whole directories, writes their tables
itself, and gives back a summary of some kilobytes each, so that hardly a byte goes through Spark.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from qindex.spark.examine import KINDS, Examination, Limits, examine
from qindex.spark.output import TABLES, Output
from qindex.spark.plan import Unit, pack
from qindex.spark.remote import here
from qindex.spark.spread import collect, in_processes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FINDINGS_MAX: Final = 50  # of one directory in its summary; the tables have all
TOP: Final = 10
TASKS_PER_JOB: Final = 16  # so that none of several processes waits long for the others
SUMS: Final = ("found", "live", "gone", "lost", "live_bytes", "unacked", "recovery_us")
RANKS: Final = {"live": "queues", "recovery_us": "queues", "garbage_bytes": "files"}
_SEVERITIES: Final = ("damage", "warning", "note")


@dataclass(slots=True)
class Summary:
    """What was found in one directory."""

    source: str
    broker: str
    format: str
    bytes: int
    seconds: float
    queues: int = 0
    sums: dict[str, int] = field(default_factory=dict)  # of the queues' columns SUMS
    file_bytes: dict[str, int] = field(default_factory=dict)  # by kind, and garbage_bytes
    kinds: dict[str, int] = field(default_factory=dict)  # kind of finding: how many messages
    findings: list[dict[str, Any]] = field(default_factory=list)  # the worst
    depths: list[int] = field(default_factory=list)  # how many queues have 0, 1-9, 10-99 ... live
    top: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by RANKS

    @property
    def severity(self) -> str | None:
        """Of the worst finding."""
        found = {KINDS[kind][0] for kind in self.kinds}
        return next((severity for severity in _SEVERITIES if severity in found), None)


@dataclass(slots=True)
class Report:
    """What was found in all of them, and how."""

    summaries: list[Summary]
    seconds: float
    how: str  # one process, or Spark and its master
    day: str

    def sum(self, name: str) -> int:
        return sum(summary.sums.get(name, 0) for summary in self.summaries)

    def file_bytes(self, kind: str) -> int:
        return sum(summary.file_bytes.get(kind, 0) for summary in self.summaries)

    @property
    def bytes(self) -> int:
        return sum(summary.bytes for summary in self.summaries)

    @property
    def queues(self) -> int:
        return sum(summary.queues for summary in self.summaries)

    @property
    def kinds(self) -> dict[str, int]:
        """Kind of finding: how many messages or places, the worst kinds first."""
        found: dict[str, int] = {}
        for kind in KINDS:
            count = sum(summary.kinds.get(kind, 0) for summary in self.summaries)
            if count:
                found[kind] = count
        return found

    def has(self, severity: str) -> bool:
        return any(KINDS[kind][0] == severity for kind in self.kinds)

    @property
    def depths(self) -> list[int]:
        """How many queues have 0, 1 to 9, 10 to 99 ... live messages."""
        most = max((len(summary.depths) for summary in self.summaries), default=0)
        padded = [each.depths + [0] * (most - len(each.depths)) for each in self.summaries]
        return [sum(counts) for counts in zip(*padded, strict=True)]

    def findings(self, count_max: int) -> list[tuple[Summary, dict[str, Any]]]:
        """The worst, with where they are."""
        every = [(summary, row) for summary in self.summaries for row in summary.findings]
        every.sort(key=lambda pair: (_badness(pair[1]), pair[0].broker))
        return every[:count_max]

    def top(self, rank: str, count_max: int = TOP) -> list[tuple[Summary, dict[str, Any]]]:
        """The queues or files that have most of it."""
        every = [(each, row) for each in self.summaries for row in each.top.get(rank, ())]
        every.sort(key=lambda pair: -pair[1][rank])
        return every[:count_max]


def _badness(row: dict[str, Any]) -> tuple[int, int]:
    return _SEVERITIES.index(row["severity"]), list(KINDS).index(row["kind"])


def audit_unit(unit: Unit, limits: Limits, output: Output | None) -> Summary:
    """Examines one directory and writes what was found, unless `output` is None."""
    started = time.perf_counter()
    examination = examine(unit, limits)
    if output is not None:
        for table in TABLES:
            output.write(unit, table, getattr(examination, table))
    return summarise(examination, time.perf_counter() - started)


def summarise(examination: Examination, seconds: float) -> Summary:
    unit, queues, files = examination.unit, examination.queues, examination.files
    summary = Summary(unit.source, unit.broker, unit.format, unit.bytes, seconds, len(queues))
    summary.sums = {name: sum(row.get(name) or 0 for row in queues) for name in SUMS}
    for row in files:
        summary.file_bytes[row["kind"]] = summary.file_bytes.get(row["kind"], 0) + row["bytes"]
    garbage = [row["garbage_bytes"] for row in files if row.get("garbage_bytes") is not None]
    if garbage or unit.format == "qindex":
        summary.file_bytes["garbage_bytes"] = sum(garbage)
    for row in examination.findings:
        summary.kinds[row["kind"]] = summary.kinds.get(row["kind"], 0) + row["count"]
    summary.findings = sorted(examination.findings, key=_badness)[:FINDINGS_MAX]
    for row in queues:
        digits = len(str(row["live"])) if row.get("live") else 0
        summary.depths += [0] * (digits + 1 - len(summary.depths))
        summary.depths[digits] += 1
    for rank, table in RANKS.items():
        rows = [row for row in getattr(examination, table) if row.get(rank)]
        summary.top[rank] = sorted(rows, key=lambda row: -row[rank])[:TOP]
    return summary


def run(
    units: Sequence[Unit],
    limits: Limits,
    output: Output,
    progress: Callable[[int, int], object] = lambda done, total: None,
    jobs: int = 1,
) -> Report:
    """On this machine, in so many processes; the largest directories first. `progress` gets bytes.

    WorkerDied: see in_processes().
    """
    started = time.perf_counter()
    total = sum(unit.bytes for unit in units)
    work = partial(_audit_here, limits, output)
    if jobs > 1 and len(units) > 1:
        tasks = pack(units, min(len(units), jobs * TASKS_PER_JOB))
        sizes = [sum(unit.bytes for unit in task) for task in tasks]

        def done(at: Collection[int]) -> None:
            progress(sum(sizes[number] for number in at), total)

        found = in_processes(tasks, work, jobs, done)
        how = f"{min(jobs, len(tasks))} processes"
    else:
        found, at = [], 0
        for unit in units:
            progress(at, total)
            found.append(work([unit]))
            at += unit.bytes
        how = "one process"
    summaries = sorted(chain.from_iterable(found), key=lambda each: each.source)
    return Report(summaries, time.perf_counter() - started, how, output.day)


def _audit_here(limits: Limits, output: Output, units: Sequence[Unit]) -> list[Summary]:
    return [audit_unit(each, limits, output) for unit in units for each in here(unit)]


def run_on_spark(
    spark: SparkSession,
    paths: Iterable[str],
    limits: Limits,
    output: Output,
    *,
    format_name: str | None = None,
    tasks_min: int | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Report:
    """In tasks of whole directories. All machines have to see paths and output under these names.

    The session knows format("qindex"): qindex.spark.register(spark). `progress` gets tasks.
    """
    started = time.perf_counter()
    reader = (
        spark.read.format("qindex")
        .option("table", "audit")
        .option("paths", json.dumps(list(paths)))
        .option("out", os.path.abspath(output.path))  # noqa: PTH100 - may be anything's path
        .option("day", output.day)
        .option("stuckBehind", str(limits.stuck_behind))
        .option("poisonDeliveries", str(limits.poison_deliveries))
        .option("checkBodies", str(limits.check_bodies).lower())
    )
    if format_name is not None:
        reader = reader.option("format", format_name)
    if tasks_min is not None:
        reader = reader.option("minPartitions", str(tasks_min))
    rows = collect(spark, reader.load().select("summary"), progress)["summary"].to_pylist()
    summaries = [Summary(**json.loads(row)) for row in rows]
    summaries.sort(key=lambda summary: summary.source)
    how = f"Spark {spark.version}"
    return Report(summaries, time.perf_counter() - started, how, output.day)
