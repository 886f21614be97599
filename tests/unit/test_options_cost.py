"""What most brokers use in each call (headers, a lease, a ttl) stays in C: in CPU time, as ratios.

It was ten times the call without them, and a hundred times on an event loop.
"""

from __future__ import annotations

import asyncio
import functools
import time
from pathlib import Path
from typing import Any

import pytest
from costs import Costs, hold_in_time, lesser

import qindex
import qindex.aio

COUNT = 10_000
HEADERS = {"lang": "py", "task": "add", "id": "0" * 36, "retries": 0}
PLAIN: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # of a publish, of a get
    "headers": ({"headers": HEADERS}, {}),
    "lease": ({}, {"lease": 30}),
    "ttl": ({"ttl": 3600}, {}),
}


def of_threads(path: Path, name: str, how: dict[str, Any], asked: dict[str, Any]) -> Costs:
    """CPU seconds of the publishes, and of the gets with their acks."""
    with qindex.open(path, format=2) as store:
        queue = store.queue("q")
        begin = time.process_time()
        for _ in range(COUNT):
            queue.publish(b"x" * 100, **how)
        middle = time.process_time()
        for _ in range(COUNT):
            queue.ack(queue.get(**asked))  # type: ignore[arg-type]
        end = time.process_time()
    return {f"publish {name}": middle - begin, f"get {name}": end - middle}


def of_tasks(path: Path, name: str, how: dict[str, Any], asked: dict[str, Any]) -> Costs:
    async def play() -> Costs:
        async with qindex.aio.open(path, format=2) as store:
            queue = await store.queue("q")
            begin = time.process_time()
            for _ in range(COUNT):
                await queue.publish(b"x" * 100, **how)
            middle = time.process_time()
            for _ in range(COUNT):
                await queue.ack(await queue.get(**asked))  # type: ignore[arg-type]
            end = time.process_time()
        return {f"publish {name}": middle - begin, f"get {name}": end - middle}

    return asyncio.run(play())


@pytest.mark.slow
@pytest.mark.parametrize("work", [of_threads, of_tasks])
def test_headers_a_lease_and_a_ttl_cost_little_more_than_a_call_without_them(
    tmp_path: Path, work: Any
) -> None:
    def measure() -> Costs:
        plain = (work(tmp_path / "plain", "plain", *PLAIN) for _ in range(3))
        costs = functools.reduce(lesser, plain)
        for name, options in OPTIONS.items():
            costs |= work(tmp_path / name, name, *options)
        return costs

    def excess(least: Costs) -> Costs | None:
        publish, get = least["publish plain"], least["get plain"]
        holds = (
            least["publish headers"] < 4 * publish,
            least["get headers"] < 3 * get,
            least["get lease"] < 3 * get,
            least["publish ttl"] < 4 * publish,
        )
        return None if all(holds) else least

    hold_in_time(measure, excess)
