"""A consumer of a queue: how much it takes now, and whose it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qindex._wire import Taken
from qindex.amqp import methods as m
from qindex.broker.errors import Precondition
from qindex.broker.limits import type_name
from qindex.broker.queues import Queue

if TYPE_CHECKING:
    from qindex.serve.channel import Channel

_MANY: Final = 1 << 30


class Consumer:
    """A consumer of a queue; qindex.broker.consumers.Consumer says what it does."""

    def __init__(self, channel: Channel, tag: str, queue: Queue, method: m.BasicConsume) -> None:
        self.channel = channel
        self.tag = tag
        self.tag_bytes = tag.encode("utf-8", "surrogateescape")
        self.queue = queue
        self.owner = (queue, self)  # of what it has not settled
        self.no_ack = method.no_ack
        self.exclusive = method.exclusive
        self.priority = _priority(channel, queue, method)
        self.prefetch = 0 if method.no_ack else channel.prefetch  # 0: no limit
        self.waiting = False
        self.unacked = 0

    @property
    def shares_credit(self) -> bool:
        return bool(self.channel.shared.limit) and not self.no_ack

    @property
    def is_active(self) -> bool:
        """False for one that waits until it is the single active consumer."""
        return self.queue.is_active(self)

    @property
    def arguments(self) -> dict[str, int]:
        return {"x-priority": self.priority} if self.priority else {}

    def credit(self) -> int:
        channel = self.channel
        if not channel.session.deliveries.takes(self):
            return 0
        if self.no_ack:
            return _MANY
        credit = self.prefetch - self.unacked if self.prefetch else _MANY
        if channel.shared.limit and credit > 0:
            credit = min(credit, channel.shared.left(self))
        return credit

    def deliver(self, queue: Queue, taken: Taken, share: range) -> None:
        self.channel.session.server.counts.consumed[self.no_ack] += len(share)
        self.channel.deliver(self, taken, share)

    def cancelled(self, queue: Queue) -> None:
        self.channel.cancelled(self)


def _priority(channel: Channel, queue: Queue, method: m.BasicConsume) -> int:
    """What x-priority says; Precondition: an argument that RabbitMQ refuses, too."""
    what = channel.vhost.describe("queue", queue.name)
    arguments = method.arguments
    found = arguments.get("x-priority", 0)
    if not isinstance(found, int) or isinstance(found, bool):
        wrong = f'"expected integer, got {type_name(found)}"'
        raise Precondition(f"invalid arg 'x-priority' for {what}: {wrong}")
    cancels = arguments.get("x-cancel-on-ha-failover", False)
    if not isinstance(cancels, bool):
        wrong = f"{{unacceptable_type,{type_name(cancels)}}}"
        raise Precondition(f"invalid arg 'x-cancel-on-ha-failover' for {what}: {wrong}")
    if "x-stream-offset" in arguments:
        kind = "quorum" if queue.limits.is_quorum else "classic"
        of_kind = f"of queue type rabbit_{kind}_queue"
        raise Precondition(f"invalid arg 'x-stream-offset' for {what} {of_kind}")
    return found
