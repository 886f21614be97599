"""Streams and sinks on Spark: how long a micro-batch takes, and how many rows a second go through.

    python tools/bench/spark_stream.py [--seconds 20] [--rate 1000] [--backlog 2000000]
                                       [--rst tools/bench/SPARK_STREAM.rst]

Prints a table. "live": a process that keeps the source open publishes `rate`
messages a second of 100 bytes, and the query runs as fast as it can: median and 95th percentile of
its batches, without the first three. "backlog": what is there already, in batches of 500,000. CPU
is of all processes, the JVM and the owner of the source among them, per batch: it depends less on
what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from facts import machine_facts
from spark_figures import as_rst, cpu_seconds, keep_orphans

import qindex

BODY: Final = b"x" * 100
BATCH: Final = 500_000
MEDIAN_MS: Final = 300  # what a micro-batch is meant to take, at most
HEADER: Final = ["what", "batches", "median", "p95", "rows/s", "CPU", f"{MEDIAN_MS} ms"]
WARM: Final = 3
ROOT: Final = Path(__file__).parents[2]


def produce(path: str, rate: int, acks: bool) -> None:
    """The owner of the source: until its standard input ends."""
    from qindex.spark import apply_acks

    with qindex.open(path) as store:
        queue = store.queue("live")
        print("ready", flush=True)
        os.set_blocking(0, False)
        due = time.monotonic()
        while sys.stdin.buffer.read(1) is None:
            queue.publish_many([BODY] * max(1, rate // 100))
            if acks:
                apply_acks(store)
            due += 0.01
            time.sleep(max(0.0, due - time.monotonic()))


def row_of(what: str, batches: list[Any], cpu: float, all_batches: int) -> list[str]:
    times = sorted(each["durationMs"]["triggerExecution"] for each in batches)
    if not times:
        return [what, "0", "-", "-", "-", "-", "-"]
    rows, median = sum(each["numInputRows"] for each in batches), statistics.median(times)
    return [
        what,
        str(len(times)),
        f"{median:.0f} ms",
        f"{times[int(len(times) * 0.95)]:.0f} ms",
        f"{rows / sum(times) * 1000:,.0f}",
        f"{cpu / max(1, all_batches) * 1000:.0f} ms",
        ("met" if median <= MEDIAN_MS else "MISSED") if what.startswith("live") else "-",
    ]


def live(spark: Any, folder: Path, seconds: float, rate: int, ack: str, sink: str) -> list[str]:
    """One row of the table: batches of a stream that never has much to do."""
    source = folder / "live"
    owner = subprocess.Popen(
        [sys.executable, __file__, "--produce", str(source), "--rate", str(rate), "--ack", ack],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if owner.stdin is None or owner.stdout is None:
        raise RuntimeError("no pipes")
    owner.stdout.readline()
    query = start(spark, source, folder, sink, ack=ack, trigger={})
    before = cpu_seconds()
    time.sleep(seconds)
    cpu = cpu_seconds() - before
    batches = [each for each in query.recentProgress if each["numInputRows"]]
    query.stop()
    owner.stdin.close()
    owner.wait()
    return row_of(f"live, ack={ack} -> {sink}", batches[WARM:], cpu, len(batches))


def backlog(spark: Any, folder: Path, count: int, ack: str, sink: str) -> list[str]:
    """One row of the table: as many rows a second as go."""
    source = folder / "backlog"
    with qindex.open(source) as store:
        for _ in range(count // 10_000):
            store.queue("q").publish_many([BODY] * 10_000)
    before = cpu_seconds()
    query = start(spark, source, folder, sink, ack=ack, trigger={"availableNow": True}, limit=BATCH)
    query.awaitTermination()
    cpu = cpu_seconds() - before
    batches = [each for each in query.recentProgress if each["numInputRows"]]
    return row_of(f"backlog, ack={ack} -> {sink}", batches[1:] or batches, cpu, len(batches))


def start(
    spark: Any, source: Path, folder: Path, sink: str, *, ack: str, trigger: Any, limit: int = 0
) -> Any:
    stream = (
        spark.readStream.format("qindex")
        .option("columns", "queue,body")
        .option("ack", ack)
        .option("maxMessagesPerTrigger", limit)
        .load(str(source))
    )
    writer = stream.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.format(sink).start(*([] if sink == "noop" else [str(folder / "into")]))


def show(cells: list[str]) -> None:
    print(f"{cells[0]:32}", *(f"{cell:>9}" for cell in cells[1:]), flush=True)


def run(options: argparse.Namespace) -> None:
    from qindex.spark import register, start_session

    os.environ["PYTHONPATH"] = str(ROOT)
    keep_orphans()
    spark = register(start_session("local[2]"))
    spark.sparkContext.setLogLevel("ERROR")
    rows, facts = [HEADER], machine_facts(Path(tempfile.gettempdir()))
    show(HEADER)
    jobs: list[Callable[[Path], list[str]]] = [
        lambda f: live(spark, f, options.seconds, options.rate, "false", "noop"),
        lambda f: live(spark, f, options.seconds, options.rate, "owner", "noop"),
        lambda f: live(spark, f, options.seconds, options.rate, "false", "qindex"),
        lambda f: backlog(spark, f, options.backlog, "false", "noop"),
        lambda f: backlog(spark, f, options.backlog, "true", "noop"),
        lambda f: backlog(spark, f, options.backlog, "false", "qindex"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        backlog(spark, Path(folder), 20_000, "true", "qindex")  # compilers and workers warm up
    for job in jobs:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(job(Path(folder)))
            show(rows[-1])
    spark.stop()
    if options.rst:
        about = (__doc__ or "").partition("Prints a table. ")[2]
        text = as_rst("Micro-batches", about, facts, {"Batches": rows})
        options.rst.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--backlog", type=int, default=2_000_000)
    parser.add_argument("--rst", type=Path, metavar="FILE", help="write the table for the docs")
    parser.add_argument("--ack", default="false", help=argparse.SUPPRESS)
    parser.add_argument("--produce", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.produce:
        produce(options.produce, options.rate, options.ack == "owner")
    else:
        run(options)


if __name__ == "__main__":
    main()
