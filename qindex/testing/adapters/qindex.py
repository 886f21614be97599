"""qindex itself, as a foreign queue: real files, real system calls, recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import qindex
from qindex.testing.adapter import Adapter, Delivery
from qindex.testing.promise import Promise


class Qindex(Adapter):
    """One queue of a store with small knobs; written with pwrite, for stores cannot be recorded."""

    promise = Promise(redelivered=True, barrier=True, refuses=True)
    store: qindex.Store
    queue: qindex.Queue

    def open(self, directory: str) -> None:
        self.store = qindex.open(
            f"{directory}/store",
            io="pwrite",
            sync="never",  # no sync behind the harness's back: it is asked for
            idle=3600,
            segment_entries=16,
            max_journal_entries=24,
            embed_below=64,
            message_file_size=4096,
        )
        self.queue = self.store.queue("tested")

    def publish(self, body: bytes) -> int:
        return self.queue.publish(body)

    def publish_many(self, bodies: Sequence[bytes]) -> Sequence[int]:
        return self.queue.publish_many(bodies)

    def get(self) -> Delivery | None:
        message = self.queue.get()
        if message is None:
            return None
        return Delivery(message.body, message.req_id, message.req_id, message.redelivered)

    def ack(self, token: Any) -> None:
        self.queue.ack(token)

    def nack(self, token: Any) -> None:
        self.queue.nack(token)

    def sync(self) -> None:
        self.queue.sync()

    def count(self) -> int:
        return len(self.queue)

    def close(self) -> None:
        self.store.close()
