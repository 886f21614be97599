"""What most brokers use in each call (headers, a lease, a ttl) stays in C: in CPU time, as ratios.

It was ten times the call without them, and a hundred times on an event loop.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import qindex
import qindex.aio

COUNT = 10_000
ROUNDS = 5
HEADERS = {"lang": "py", "task": "add", "id": "0" * 36, "retries": 0}
Costs = tuple[float, float]


def of_threads(path: Path, how: dict[str, Any], asked: dict[str, Any]) -> Costs:
    """CPU seconds of the publishes, and of the gets with their acks; the best of some rounds."""
    found = []
    with qindex.open(path, format=2) as store:
        queue = store.queue("q")
        for _ in range(ROUNDS):
            begin = time.process_time()
            for _ in range(COUNT):
                queue.publish(b"x" * 100, **how)
            middle = time.process_time()
            for _ in range(COUNT):
                queue.ack(queue.get(**asked))  # type: ignore[arg-type]
            found.append((middle - begin, time.process_time() - middle))
    return min(each[0] for each in found), min(each[1] for each in found)


def of_tasks(path: Path, how: dict[str, Any], asked: dict[str, Any]) -> Costs:
    async def play() -> Costs:
        found = []
        async with qindex.aio.open(path, format=2) as store:
            queue = await store.queue("q")
            for _ in range(ROUNDS):
                begin = time.process_time()
                for _ in range(COUNT):
                    await queue.publish(b"x" * 100, **how)
                middle = time.process_time()
                for _ in range(COUNT):
                    await queue.ack(await queue.get(**asked))  # type: ignore[arg-type]
                found.append((middle - begin, time.process_time() - middle))
        return min(each[0] for each in found), min(each[1] for each in found)

    return asyncio.run(play())


@pytest.mark.slow
@pytest.mark.parametrize("measure", [of_threads, of_tasks])
def test_headers_a_lease_and_a_ttl_cost_little_more_than_a_call_without_them(
    tmp_path: Path, measure: Any
) -> None:
    publish, get = measure(tmp_path / "plain", {}, {})
    with_headers = measure(tmp_path / "headers", {"headers": HEADERS}, {})
    with_lease = measure(tmp_path / "lease", {}, {"lease": 30})
    with_ttl = measure(tmp_path / "ttl", {"ttl": 3600}, {})
    for found, most in (
        (with_headers[0], 4 * publish),
        (with_headers[1], 3 * get),
        (with_lease[1], 3 * get),
        (with_ttl[0], 4 * publish),
    ):
        assert found < most, (publish, get, with_headers, with_lease, with_ttl)
