"""Queues as tables: how fast, beside the same work done otherwise, in one run.

    python tools/bench/spark.py --messages 2000000 [--folder /tmp]

Makes stores of 100-byte messages, then reads them: in this process through the core's columns, with
Spark, with Spark's binaryFile and a parser in Python, and as an audit in one process and on Spark;
then many small stores beside ten that hold as much. Wall is the best of three; CPU is that of this
process and all below it, Java and workers, in the same repetition: where other work shares the
machine it says more.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Any

import qindex
from qindex.spark import columns, register, start_session
from qindex.spark.audit import run, run_on_spark
from qindex.spark.examine import Limits
from qindex.spark.export import Job, export
from qindex.spark.output import Output
from qindex.spark.plan import find
from qindex.spark.tables import Choice, batches

BODY = b"x" * 100
STORES = 10
SMALL = 800  # messages of a small store
REPEATS = 3
CORES = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--small", type=int, default=1000, help="small stores")
    parser.add_argument("--folder", type=Path, help="where the stores are made, and removed")
    parser.add_argument("--memory", nargs=2, metavar=("TASK", "STORE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        return print_memory(*options.memory)
    keep_orphans()
    folder = Path(tempfile.mkdtemp(prefix="qindex-bench-", dir=options.folder))
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    try:
        measure(folder, options.messages, options.small)
    finally:
        shutil.rmtree(folder)
    return 0


def measure(folder: Path, messages: int, small: int) -> None:
    for number in range(STORES):
        make_store(folder / f"big/{number}", messages // STORES)
    make_small(folder / "small", small)
    for number in range(STORES):
        make_store(folder / f"few/{number}", small * SMALL // STORES)
    big, output = f"{folder}/big", Output(f"{folder}/out", "2026-01-01")
    make_store(folder / "bare", messages, b"")
    show_memory(folder, messages)
    show("in this process", None, None)
    show("records to columns", messages, lambda: decode(folder / "big"))
    show("without bodies", messages, lambda: decode(folder / "bare"))
    show("messages to columns", messages, lambda: browse(folder / "big"))
    plain = show("audit", messages, lambda: run(find([big]), Limits(), output))
    show("export to Parquet", messages, lambda: to_parquet(folder))
    ratios = {}
    for what, work in (("records", scan), ("audit", partial(audit, output))):
        many = show(f"{what}, small stores", small * SMALL, partial(work, folder / "small"))
        few = show(f"{what}, ten stores", small * SMALL, partial(work, folder / "few"))
        ratios[what] = many[1] / few[1]
    spark = register(start_session(f"local[{CORES}]"))

    def read(table: str, names: str) -> Any:
        reader = spark.read.format("qindex").option("table", table).option("columns", names)
        return reader.load(big)

    show(f"Spark, {CORES} cores", None, None)
    count = show("count messages", messages, lambda: read("messages", "size").count())
    show("count records", messages, lambda: read("records", "size").count())
    show(
        "group by broker",
        messages,
        lambda: read("messages", "broker,size").groupBy("broker").sum("size").collect(),
    )
    by_hand = show("binaryFile, Python", messages, lambda: parse_by_hand(spark, big))
    on_spark = show(
        "audit", messages, lambda: run_on_spark(spark, [big], Limits(), output, tasks_min=CORES)
    )
    spark.stop()
    print()
    for name, ratio in (
        # Wall: the CPU of workers that Spark lets go, as after rows from Python, is not seen here.
        ("binaryFile and Python / count messages, wall", by_hand[0] / count[0]),
        ("audit on Spark / in one process, CPU", on_spark[1] / plain[1]),
        *((f"{what}: many small stores / ten, CPU", ratio) for what, ratio in ratios.items()),
    ):
        print(f"{name:46} {ratio:6.1f}")


def make_store(path: Path, messages: int, body: bytes = BODY) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with qindex.open(path, sync="never") as store:
        queue = store.queue("orders")
        for start in range(0, messages, 50_000):
            queue.publish_many([body] * min(50_000, messages - start))
        queue.flush()


def make_small(path: Path, count: int) -> None:
    """One store and its copies, as links: reading them is what is measured."""
    make_store(path / "0", SMALL)
    for number in range(1, count):
        shutil.copytree(path / "0", path / str(number), copy_function=os.link)


MEMORY_TASKS: dict[str, Callable[[Path], object]] = {
    "nothing (imports)": lambda path: None,
    "count messages": lambda path: rows_of(path, "messages", ["size"]),
    "messages with bodies": lambda path: rows_of(path, "messages", ["queue", "body"]),
    "records": lambda path: rows_of(path, "records", ["kind", "size"]),
    "audit": lambda path: run(
        find([str(path)]), Limits(), Output(f"{path.parent}.out", "2026-01-01")
    ),
}


def show_memory(folder: Path, messages: int) -> None:
    """The most that a task's process had in memory at once, a process for each."""
    big = folder / "stored"
    with qindex.open(big, sync="never") as store:
        for _ in range(messages // 100):
            store.queue("orders").publish(b"x" * 10_000)
    print(f"\n{'peak memory, MB':22} {'100 B embedded':>15} {'10 kB stored':>13}")
    for task in MEMORY_TASKS:
        peaks = []
        for store_path in (folder / "big/0", big):
            command = [sys.executable, __file__, "--memory", task, str(store_path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            peaks.append(int(done.stdout))
        print(f"  {task:20} {peaks[0]:15} {peaks[1]:13}", flush=True)


def print_memory(task: str, path: str) -> int:
    MEMORY_TASKS[task](Path(path))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
    return 0


def rows_of(path: Path, table: str, names: list[str]) -> None:
    """What a task of Spark's does, whose rows go on at once."""
    for _ in batches(find([str(path)]), table, names, Choice()):
        pass


def decode(folder: Path) -> None:
    for segment in folder.rglob("*.idx"):
        for _ in columns.records(segment.read_bytes()):
            pass


def scan(folder: Path) -> None:
    """One task that has all of them."""
    rows_of(folder, "records", ["kind", "size"])


def to_parquet(folder: Path) -> None:
    names = ["broker", "queue", "req_id", "size", "body"]
    units, out = find([f"{folder}/big"]), folder / "parquet"
    shutil.rmtree(out, ignore_errors=True)
    export(None, units, str(out), Job([str(folder)], names, {}), Choice())


def browse(folder: Path) -> None:
    for path in folder.iterdir():
        with qindex.open(path, read_only=True) as store:
            for _ in columns.Messages(store.queue("orders")._handle):
                pass


def audit(output: Output, folder: Path) -> None:
    run(find([str(folder)]), Limits(), Output(f"{output.path}/{folder.name}", output.day))


def parse_by_hand(spark: Any, path: str) -> int:
    """What one would write without this source; the same publishes, counted."""
    files = spark.read.format("binaryFile").option("pathGlobFilter", "*.idx")
    frame = files.option("recursiveFileLookup", "true").load(path).select("content")
    return int(frame.rdd.flatMap(lambda row: publishes(row.content)).count())


def publishes(data: bytes) -> Iterator[tuple[int, int]]:
    """Slot and size of each publish of a segment: FORMAT.rst, section 5."""
    word, entry = Struct(">I"), Struct(">H24xII")
    at = 64
    while at + 8 <= len(data):
        (head,) = word.unpack_from(data, at)
        if head == 0:
            return
        at, end = at + 8, at + 8 + (head & 0xFFFFFFF)
        while head >> 28 == 7 and at < end:
            slot, size, embedded = entry.unpack_from(data, at)
            if slot < 0x8000:
                at += 2 if slot >= 0x4000 else 4
                continue
            yield slot & 0x3FFF, size
            at += 34 + embedded
        at = end


def show(name: str, rows: int | None, work: Callable[[], object] | None) -> tuple[float, float]:
    """Measures and prints; wall and CPU seconds of the fastest repetition."""
    if work is None or rows is None:
        print(f"\n{name:22} {'wall s':>8} {'M rows/s':>9} {'CPU s':>7} {'M rows/CPU s':>13}")
        return 0.0, 0.0
    best = (float("inf"), 0.0)
    for _ in range(REPEATS):
        cpu, started = cpu_seconds(), time.perf_counter()
        work()
        best = min(best, (time.perf_counter() - started, cpu_seconds() - cpu))
    wall, cpu = best
    millions = rows / 1e6
    print(
        f"  {name:20} {wall:8.2f} {millions / wall:9.2f} {cpu:7.2f} {millions / cpu:13.2f}",
        flush=True,
    )
    return best


def keep_orphans() -> None:
    """Processes whose parent ends become children of this one, so that cpu_seconds() has them."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def cpu_seconds() -> float:
    """Of this process and of all that it started, living and dead; see keep_orphans()."""
    ticks: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            ticks[int(folder.name)] = sum(map(int, fields[11:15]))
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    total, left = 0.0, [os.getpid()]
    while left:
        process = left.pop()
        total += ticks.get(process, 0)
        left += children.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
