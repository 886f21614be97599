"""queuelib's queues (https://github.com/scrapy/queuelib).

Its README promises queues that are "persisted to disk" and shows close() before the next open. It
says nothing of crashes, and it syncs nothing: so only what a close() that returned has left is
asked of the disk queues after kill -9, and nothing after a power cut. FifoSQLiteQueue commits
each push and pop in SQLite's default mode, of which SQLite says that a killed process loses
nothing, and that a power cut may take back a commit that it follows closely.
"""

from __future__ import annotations

from typing import Any

from queuelib.queue import FifoDiskQueue, FifoSQLiteQueue, LifoDiskQueue

from qindex.testing.adapter import Adapter
from qindex.testing.promise import Promise


class FifoDisk(Adapter):
    """FifoDiskQueue, with small chunks so that short tests cross them."""

    promise = Promise(kill="closed", power="nothing", prefix=False)
    queue: Any

    def open(self, directory: str) -> None:
        self.queue = FifoDiskQueue(f"{directory}/queue", chunksize=3)

    def publish(self, body: bytes) -> None:
        self.queue.push(body)

    def get(self) -> bytes | None:
        body: bytes | None = self.queue.pop()
        return body

    def count(self) -> int:
        return len(self.queue)

    def close(self) -> None:
        self.queue.close()


class LifoDisk(FifoDisk):
    """LifoDiskQueue: a stack in one file."""

    promise = Promise(kill="closed", power="nothing", prefix=False, order="lifo")

    def open(self, directory: str) -> None:
        self.queue = LifoDiskQueue(f"{directory}/queue")


class FifoSQLite(FifoDisk):
    """FifoSQLiteQueue: a transaction per push and pop."""

    promise = Promise(kill="returned", power="nothing")

    def open(self, directory: str) -> None:
        self.queue = FifoSQLiteQueue(f"{directory}/queue.sqlite")
