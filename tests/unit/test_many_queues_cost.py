"""What many queues cost: CPU time of the process, mappings, descriptors, memory; no wall-clock.

Each program runs in a process of its own, at `ulimit -n 256`.
"""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from costs import Costs, hold_in_time, lesser
from helpers import run_with_limit

BEGIN = """
import json, os, sys, time, qindex
path, count = sys.argv[1], int(sys.argv[2])
names = [f"queue {i}" for i in range(count)]
told = {}

def cpu(name, work):
    begin = time.process_time()
    result = work()
    told[name] = time.process_time() - begin
    return result

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def mappings():
    return len(open("/proc/self/maps").readlines())

def each(work):
    for name in names:
        work(store.queue(name))
"""
FILL = """
store = qindex.open(path, sync="never")
store.create_queues(names)
for name in names:
    store.queue(name)
told["mappings before"] = mappings()
cpu("publish", lambda: [each(lambda queue: queue.publish(b"x" * 100)) for _ in range(3)])
told["mappings"] = mappings() - told["mappings before"]
told["descriptors"] = len(os.listdir("/proc/self/fd"))
cpu("close", store.close)
"""
REOPEN = """
store = cpu("open", lambda: qindex.open(path, sync="never"))
told["queues"] = len(cpu("queues()", store.queues))
cpu("in", lambda: [name in store for name in names])
cpu("missing", lambda: [f"{name}!" in store for name in names])
each(lambda queue: None)
before = resident()
cpu("read", lambda: each(lambda queue: queue.peek()))
told["memory"] = (resident() - before) / count
cpu("get", lambda: each(lambda queue: queue.ack(queue.get())))
cpu("close again", store.close)
"""


def run(program: str, path: Path, count: int) -> dict[str, Any]:
    ending = "print(json.dumps(told))"
    told: dict[str, Any] = json.loads(
        run_with_limit(256, BEGIN + program + ending, str(path), str(count))
    )
    return told


def filled_and_read(path: Path, count: int) -> dict[str, Any]:
    return run(FILL, path, count) | run(REOPEN, path, count)


@pytest.mark.slow
def test_queues_in_use_hold_a_bounded_number_of_mappings_and_descriptors(tmp_path: Path) -> None:
    few, more = (run(FILL, tmp_path / f"{count}", count) for count in (300, 1200))
    for told in (few, more):
        assert told["descriptors"] <= 128
        assert told["mappings"] <= 256
    assert more["mappings"] - few["mappings"] <= 16


@pytest.mark.slow
def test_a_queue_that_was_read_keeps_little_memory(tmp_path: Path) -> None:
    """It was 62 kB, for a buffer that the next one could have used. Handles in Python are older."""
    told = filled_and_read(tmp_path / "store", 1500)
    assert told["queues"] == 1500
    assert told["memory"] < 10_000


@pytest.mark.slow
def test_what_many_queues_cost_grows_as_their_number(tmp_path: Path) -> None:
    """close() compared each queue with all others: 25 times the work for five times the queues."""
    few, many = 2_000, 10_000
    compared = ("close", "close again", "queues()", "in", "missing", "read", "get", "publish")

    def costs(count: int) -> Costs:
        told = filled_and_read(tmp_path / "store", count)
        shutil.rmtree(tmp_path / "store")
        assert told["descriptors"] <= 128
        return {f"{count} {what}": told[what] for what in (*compared, "memory")}

    def measure() -> Costs:
        return functools.reduce(lesser, (costs(few) for _ in range(3))) | costs(many)

    def excess(least: Costs) -> list[tuple[str, float, float]]:
        pairs = [(what, least[f"{few} {what}"], least[f"{many} {what}"]) for what in compared]
        return [pair for pair in pairs if pair[2] >= pair[1] * (many / few) * 1.8 + 0.02]

    least = hold_in_time(measure, excess)
    assert least[f"{many} memory"] < least[f"{few} memory"] + 2_000
