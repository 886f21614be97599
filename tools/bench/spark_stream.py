"""Streams and sinks on Spark: how long a micro-batch takes, and how many rows a second go through.

    python tools/bench/spark_stream.py [--seconds 20] [--rate 1000] [--backlog 2000000]

Prints a table; nothing is stored. "live": a process that keeps the source open publishes `rate`
messages a second of 100 bytes, and the query runs as fast as it can: median and 95th percentile of
its batches, without the first three. "backlog": what is there already, in batches of 500,000.
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

import qindex

BODY: Final = b"x" * 100
BATCH: Final = 500_000
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
    time.sleep(seconds)
    batches = [each for each in query.recentProgress if each["numInputRows"]][WARM:]
    query.stop()
    owner.stdin.close()
    owner.wait()
    times = sorted(each["durationMs"]["triggerExecution"] for each in batches)
    rows = sum(each["numInputRows"] for each in batches)
    if len(times) < 2:
        return [f"live, ack={ack} -> {sink}", str(len(times)), "-", "-", "-"]
    return [
        f"live, ack={ack} -> {sink}",
        str(len(times)),
        f"{statistics.median(times):.0f} ms",
        f"{times[int(len(times) * 0.95)]:.0f} ms",
        f"{rows / sum(times) * 1000:,.0f}",
    ]


def backlog(spark: Any, folder: Path, count: int, ack: str, sink: str) -> list[str]:
    """One row of the table: as many rows a second as go."""
    source = folder / "backlog"
    with qindex.open(source) as store:
        for _ in range(count // 10_000):
            store.queue("q").publish_many([BODY] * 10_000)
    query = start(spark, source, folder, sink, ack=ack, trigger={"availableNow": True}, limit=BATCH)
    query.awaitTermination()
    batches = [each for each in query.recentProgress if each["numInputRows"]]
    later = batches[1:] or batches
    times = [each["durationMs"]["triggerExecution"] for each in later]
    rows = sum(each["numInputRows"] for each in later)
    return [
        f"backlog, ack={ack} -> {sink}",
        str(len(times)),
        f"{statistics.median(times):.0f} ms",
        f"{max(times):.0f} ms",
        f"{rows / sum(times) * 1000:,.0f}",
    ]


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


def run(options: argparse.Namespace) -> None:
    from qindex.spark import register, start_session

    os.environ["PYTHONPATH"] = str(ROOT)
    spark = register(start_session("local[2]"))
    spark.sparkContext.setLogLevel("ERROR")
    print(f"{'what':40} {'batches':>7} {'median':>8} {'p95/max':>8} {'rows/s':>10}")
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
            what, *cells = job(Path(folder))
        print(f"{what:40} {cells[0]:>7} {cells[1]:>8} {cells[2]:>8} {cells[3]:>10}", flush=True)
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--backlog", type=int, default=2_000_000)
    parser.add_argument("--ack", default="false", help=argparse.SUPPRESS)
    parser.add_argument("--produce", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.produce:
        produce(options.produce, options.rate, options.ack == "owner")
    else:
        run(options)


if __name__ == "__main__":
    main()
