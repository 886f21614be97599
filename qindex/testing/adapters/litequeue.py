"""litequeue (https://github.com/litements/litequeue): a queue in SQLite with done().

It opens its database with journal_mode=WAL and synchronous=NORMAL. Of these SQLite says: a crash of
the process loses nothing; a power cut may lose the last transactions, up to the last checkpoint,
and leaves what is left consistent and in order. Closing makes a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from litequeue import LiteQueue as Queue

from qindex.testing.adapter import Adapter, Delivery
from qindex.testing.promise import Promise


class LiteQueue(Adapter):
    """put, pop, done, retry. Bodies go as hex: it takes text only."""

    promise = Promise(kill="returned", power="synced")
    queue: Any

    def open(self, directory: str) -> None:
        self.queue = Queue(f"{directory}/queue.sqlite")
        locked: Iterable[Any] = list(self.queue.list_locked(threshold_seconds=-1))
        for message in locked:  # what a consumer had that is dead
            self.queue.retry(message.message_id)

    def publish(self, body: bytes) -> str:
        id_: str = self.queue.put(body.hex()).message_id
        return id_

    def get(self) -> Delivery | None:
        message = self.queue.pop()
        if message is None:
            return None
        id_ = message.message_id
        return Delivery(bytes.fromhex(message.data), token=id_, id=id_)

    def ack(self, token: Any) -> None:
        self.queue.done(token)

    def nack(self, token: Any) -> None:
        self.queue.retry(token)

    def count(self) -> int:
        count: int = self.queue.qsize()
        return count

    def sync(self) -> None:
        self.queue.conn.execute("PRAGMA wal_checkpoint(FULL)")

    def close(self) -> None:
        self.queue.close()
