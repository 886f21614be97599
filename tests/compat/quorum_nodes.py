"""Directories of quorum queues that real nodes and libraries wrote, with what these gave back."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import unpack

from qindex.brokers.rabbitmq.directory import Node
from qindex.brokers.rabbitmq.quorum.queues import DeadLetterQueue, QuorumQueue

DATA = Path(__file__).parent / "data"
NAMES = ["q1", "q2", "n42", "n43"]


@dataclass(frozen=True)
class RealNode:
    path: Path
    truth: dict[str, Any]

    @property
    def at_ms(self) -> int:
        """When the node was started again that gave the messages back."""
        return int(self.truth["restart_at"]) * 1000

    @property
    def queues(self) -> dict[tuple[str, str], list[list[Any]]]:
        return {(q["vhost"], q["name"]): q["messages"] for q in self.truth["queues"]}


def real_node(name: str, folder: Path) -> RealNode:
    """Unpacked into the folder; the test may damage it."""
    path = unpack(DATA / f"quorum_{name}.tar.xz", folder)
    if name.startswith("q"):
        path = path / "quo@localhost"
    return RealNode(
        path, json.loads(gzip.decompress((DATA / f"quorum_{name}.json.gz").read_bytes()))
    )


def rows(queue: QuorumQueue | DeadLetterQueue, at_ms: int) -> list[list[Any]]:
    """The messages as the truth has them, without those that have expired by then."""
    return [
        [
            hashlib.sha256(message.body).hexdigest()[:16],
            message.exchange,
            message.routing_keys[0],
            message.redelivered,
            message.delivery_count,
        ]
        for message in queue.messages()
        if message.expiry_us is None or message.expiry_us > at_ms * 1000
    ]


def quorum_queues(node: Node) -> dict[tuple[str, str], QuorumQueue]:
    found = [queue for queue in node.queues if isinstance(queue, QuorumQueue)]
    return {(queue.group, queue.name): queue for queue in found}


def dead_letters(node: Node) -> dict[tuple[str, str], DeadLetterQueue]:
    found = [queue for queue in node.queues if isinstance(queue, DeadLetterQueue)]
    return {(queue.group, queue.queue.name): queue for queue in found}
