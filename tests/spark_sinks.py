"""What tests of the sink share: staged files for two queues, their commit, what is in the store.

Import it behind the skip: it needs pyarrow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import qindex
from qindex.begun import FOLDER
from qindex.spark.sink_commit import Write
from qindex.spark.sink_stage import stage

WRITE = "a-query"


def rows(partition: int, batch: int = 7) -> Any:
    """For two queues, in turn; bodies say where they come from. One is too big to be embedded."""
    bodies = [f"{batch}/{partition}/{i}".encode() for i in range(20)]
    bodies[5] += b"." * 5000
    queues = ["even" if i % 2 == 0 else "odd" for i in range(20)]
    return pa.record_batch([pa.array(bodies), pa.array(queues)], names=["body", "queue"])


def staged(store: str, batch: int = 7) -> list[Any]:
    folder = Path(store, FOLDER, WRITE)
    return [stage(folder, f"{batch}-{p}", None, iter([rows(p, batch)])) for p in range(2)]


def write(store: str) -> Write:
    return Write(store, WRITE)


def make_store(path: Path) -> str:
    qindex.open(path / "store").close()
    return str(path / "store")


def expected(queue: str, batch: int = 7) -> list[bytes]:
    """In the order of partitions."""
    both = [rows(partition, batch).to_pylist() for partition in range(2)]
    return [row["body"] for part in both for row in part if row["queue"] == queue]


def bodies_in(store: str) -> dict[str, list[bytes]]:
    with qindex.open(store, read_only=True) as opened:
        return {
            name: [message.body for message in opened.queue(name).browse()]
            for name in opened.queues()
        }


def both_queues(*batches: int) -> dict[str, list[bytes]]:
    return {
        queue: [body for batch in batches for body in expected(queue, batch)]
        for queue in ("even", "odd")
    }


def drain(store: str) -> dict[str, list[bytes]]:
    """What a consumer does that gets the store's lock before the query is started again."""
    with qindex.open(store) as opened:
        had: dict[str, list[bytes]] = {}
        for name in opened.queues():
            queue = opened.queue(name)
            messages = queue.get_many(1000)
            queue.ack_many(messages)
            had[name] = [message.body for message in messages]
        return had
