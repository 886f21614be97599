"""Quorum queues that were deleted, as far as the shared log still has their entries.

RabbitMQ removes a queue's directory when it is deleted. What the queue had in the shared log stays
there until that file is flushed. Nobody wants these messages back as a rule, so they are given only
where orphans are asked for, as queues NAME.deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from qindex.brokers.rabbitmq.message import text
from qindex.brokers.rabbitmq.quorum.member import replay
from qindex.brokers.rabbitmq.quorum.message import Message
from qindex.brokers.rabbitmq.quorum.names import name_of
from qindex.brokers.rabbitmq.quorum.presence import Member
from qindex.brokers.rabbitmq.quorum.queues import QuorumQueue
from qindex.brokers.reader import Account
from qindex.brokers.tree import Findings

_MARK: Final = "its queue was deleted"


@dataclass(slots=True)
class DeletedQueue:
    """As reader.DeadQueue. Its own `findings`: damage in it is no damage of the node."""

    queue: QuorumQueue
    findings: Findings
    vanishes: bool = False

    @property
    def name(self) -> str:
        return self.queue.name

    @property
    def group(self) -> str:
        return self.queue.group

    @property
    def where(self) -> str:
        return self.queue.where

    @property
    def unreadable(self) -> int:
        return self.queue.unreadable

    @property
    def account(self) -> Account:
        account = self.queue.account
        account.marks["orphans"] = account.live
        if not self.queue.outcome.exact:
            account.marks["uncertain"] = account.live
        return account

    def messages(self) -> Iterator[Message]:
        for each in self.queue.messages():
            each.orphan = _MARK
            yield each


def deleted_queues(members: Iterable[Member]) -> Iterator[DeletedQueue]:
    """Those of which messages are left. Cost: each one's part of the shared log is read once."""
    seen: dict[tuple[bytes, bytes], int] = {}
    for member in members:
        server = member.server
        name = name_of(server, ()) or (b"", server.uid.encode())
        findings = Findings()
        outcome = replay(server, findings, salvages=True)
        if not len(outcome.indexes):
            continue
        seen[name] = seen.get(name, 0) + 1
        number = "" if seen[name] == 1 else f".{seen[name]}"
        called = f"{text(name[1])}.deleted{number}"
        queue = QuorumQueue(called, text(name[0]), outcome, findings, member.node)
        yield DeletedQueue(queue, findings)
