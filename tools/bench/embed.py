"""Where should embed_below lie? Bodies embedded in the index record against bodies in the store.

Two lives of a message, for each body size: short (acked within one journal, 1000 others waiting)
and long (all published, then read back and acked, with the flushes on the way). Costs are
nanoseconds per message, medians of interleaved rounds, each in a fresh process.
"""

import argparse
import importlib
import itertools
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

from table import align
from warm import WarmMemory
from works import CYCLE_DEPTH, disk_bytes

SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
WAYS = ("embedded", "stored")
# Below the journal's limits on entries and bytes, so that the flush is the one that is measured.
FLUSH_BYTES_MAX, FLUSH_COUNT_MAX = 24 << 20, 60_000
TOTAL_BYTES_MAX, COUNT_MAX = 192 << 20, 300_000
Costs = dict[str, float]


def nanoseconds_each(count: int, work: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - start) / count


def measure(directory: str, body_bytes: int, way: str, quick: bool) -> Costs:
    """The costs of one body size, kept in one way; in a process of its own."""
    qindex = importlib.import_module("qindex")
    embed_below = body_bytes + 1 if way == "embedded" else 0
    body = random.Random(body_bytes).randbytes(body_bytes)
    divisor = 20 if quick else 1
    count = min(COUNT_MAX, TOTAL_BYTES_MAX // body_bytes) // divisor
    flush_count = min(FLUSH_COUNT_MAX, FLUSH_BYTES_MAX // (body_bytes + 128)) // divisor
    with qindex.open(Path(directory) / "store", embed_below=embed_below) as store:
        costs = {"short": short_life(store.queue("short"), body, count)}
        costs["flush"] = flush_cost(store.queue("flush"), body, flush_count)
        costs |= long_life(store.queue("long"), body, count)
    costs["long"] = costs["publish"] + costs["get_ack"]
    return costs | disk_cost(directory, body, embed_below, count)


def short_life(queue: object, body: bytes, count: int) -> float:
    publish, get, ack = queue.publish, queue.get, queue.ack  # type: ignore[attr-defined]

    def cycle() -> None:
        for _ in itertools.repeat(None, count):
            publish(body)
            ack(get())

    for _ in range(CYCLE_DEPTH):
        publish(body)
    return nanoseconds_each(count, cycle)


def flush_cost(queue: object, body: bytes, count: int) -> float:
    queue.publish_many([body] * count)  # type: ignore[attr-defined]
    return nanoseconds_each(count, queue.flush)  # type: ignore[attr-defined]


def long_life(queue: object, body: bytes, count: int) -> Costs:
    """Flushes that happen on the way are part of the cost."""
    publish, get, ack = queue.publish, queue.get, queue.ack  # type: ignore[attr-defined]

    def publish_all() -> None:
        for _ in itertools.repeat(None, count):
            publish(body)

    def get_and_ack_all() -> None:
        for _ in itertools.repeat(None, count):
            ack(get())

    return {
        "publish": nanoseconds_each(count, publish_all),
        "get_ack": nanoseconds_each(count, get_and_ack_all),
    }


def disk_cost(directory: str, body: bytes, embed_below: int, count: int) -> Costs:
    """Bytes on disk per waiting message, after a clean close."""
    qindex = importlib.import_module("qindex")
    path = Path(directory) / "waiting"
    with qindex.open(path, embed_below=embed_below) as store:
        queue = store.queue("waiting")
        for _ in range(count // 100):
            queue.publish_many([body] * 100)
        queue.flush()
    return {"disk": disk_bytes(str(path)) / max(count // 100 * 100, 1)}


def run_rounds(
    rounds: int, parent: Path | None, quick: bool
) -> dict[tuple[int, str], dict[str, list[float]]]:
    samples: dict[tuple[int, str], dict[str, list[float]]] = {}
    fresh = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(1, mp_context=fresh, max_tasks_per_child=1) as processes,
        WarmMemory(1024) as memory,
    ):
        for number, size, way in itertools.product(range(rounds), SIZES, WAYS):
            print(f"round {number + 1}/{rounds}: {size} B {way}", file=sys.stderr)
            with tempfile.TemporaryDirectory(prefix="qindex-embed-", dir=parent) as directory:
                os.sync()
                memory.release()
                costs = processes.submit(measure, directory, size, way, quick).result()
                memory.hold()
            for name, value in costs.items():
                samples.setdefault((size, way), {}).setdefault(name, []).append(value)
    return samples


def lines(samples: dict[tuple[int, str], dict[str, list[float]]]) -> list[list[str]]:
    columns = {
        "short": "short life",
        "publish": "publish",
        "get_ack": "get+ack",
        "long": "long life",
        "flush": "flush",
        "disk": "disk B/msg",
    }
    found = [["body", "kept", *columns.values(), "cheaper (short, long)"]]
    for size in SIZES:
        medians = {
            way: {name: median(values) for name, values in samples[size, way].items()}
            for way in WAYS
        }
        cheaper = [min(WAYS, key=lambda way: medians[way][life]) for life in ("short", "long")]
        for way in WAYS:
            costs = [f"{medians[way][name]:,.0f}" for name in columns]
            last = ", ".join(cheaper) if way == "stored" else ""
            found.append([f"{size} B", way, *costs, last])
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of a twentieth")
    parser.add_argument("--dir", type=Path, help="where the data go, on a real disk (temp folder)")
    options = parser.parse_args(arguments)
    samples = run_rounds(1 if options.quick else options.rounds, options.dir, options.quick)
    print("nanoseconds per message; disk in bytes per waiting message")
    print("\n".join(align(lines(samples))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
