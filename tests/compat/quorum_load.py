"""Random use of quorum queues on a real node, from a seed: many clients, cut off by a kill."""

from __future__ import annotations

import contextlib
import hashlib
import random
from typing import Any

QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "limit": {"x-delivery-limit": 3},
    "limit-dlx": {
        "x-delivery-limit": 2,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    },
    "alo": {
        "x-dead-letter-exchange": "nowhere",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    },
    "alo-target": {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-delivery-limit": 1,
    },
    "short": {"x-max-length": 20},
    "bytes": {"x-max-length-bytes": 4000},
    "ttl": {"x-message-ttl": 3_600_000},
    "sac": {"x-single-active-consumer": True},
    "dead": {},
}
PUBLISHED_TO = [name for name in QUEUES if name != "dead"]


class Load:
    """One run: `steps()` of it, then the node is killed."""

    def __init__(self, server: Any, seed: int, lengths: tuple[int, ...] = (1, 10, 100)) -> None:
        self.lengths = lengths
        self.server = server
        self.random = random.Random(seed)
        self.pika = server.pika
        self.connections = [server.connect() for _ in range(3)]
        self.channels = [c.channel() for c in self.connections for _ in range(3)]
        self.unacked: list[tuple[Any, int]] = []
        self.consumers: list[tuple[Any, str]] = []
        self.number = 0
        for name, arguments in QUEUES.items():
            self.channels[0].queue_declare(
                name, durable=True, arguments={"x-queue-type": "quorum", **arguments}
            )

    def steps(self, count: int) -> None:
        verbs = [self.publish] * 8 + [self.get] * 3 + [self.settle] * 4 + [self.consume]
        verbs += [self.listen] * 3 + [self.cancel, self.close_channel]
        for step in range(count):
            verb = self.purge if step % 97 == 96 else self.random.choice(verbs)
            with contextlib.suppress(self.pika.exceptions.AMQPError):
                verb()

    def close(self) -> None:
        """After the kill: nothing can be closed in order any more."""
        for connection in self.connections:
            with contextlib.suppress(self.pika.exceptions.AMQPError, OSError):
                connection.close()

    def channel(self) -> Any:
        at = self.random.randrange(len(self.channels))
        if not self.channels[at].is_open:
            self.channels[at] = self.random.choice(self.connections).channel()
            self.channels[at].basic_qos(prefetch_count=self.random.choice([1, 3, 10, 50]))
        return self.channels[at]

    def publish(self) -> None:
        channel, queue = self.channel(), self.random.choice(PUBLISHED_TO)
        for _ in range(self.random.choice([1, 1, 5, 40])):
            self.number += 1
            body = b"%d " % self.number * self.random.choice(self.lengths)
            expiration = self.random.choice([None] * 8 + ["1", "7200000"])
            properties = self.pika.BasicProperties(
                delivery_mode=2,
                message_id=str(self.number),
                expiration=expiration,
                headers={"n": self.number} if self.number % 3 else None,
            )
            channel.basic_publish("", queue, body, properties)

    def get(self) -> None:
        channel = self.channel()
        acks = self.random.random() < 0.2
        method, _, _ = channel.basic_get(self.random.choice(list(QUEUES)), auto_ack=acks)
        if method is not None and not acks:
            self.unacked.append((channel, method.delivery_tag))

    def consume(self) -> None:
        channel = self.channel()

        def taken(_: Any, method: Any, properties: Any, body: bytes) -> None:
            self.unacked.append((channel, method.delivery_tag))

        priority = self.random.choice([None, None, 5, -1])
        arguments = None if priority is None else {"x-priority": priority}
        tag = channel.basic_consume(self.random.choice(PUBLISHED_TO), taken, arguments=arguments)
        self.consumers.append((channel, tag))

    def listen(self) -> None:
        self.random.choice(self.connections).process_data_events(time_limit=0.02)

    def settle(self) -> None:
        for _ in range(self.random.choice([1, 5, 20])):
            if not self.unacked:
                return
            at = self.random.randrange(len(self.unacked))
            channel, tag = self.unacked.pop(at)
            if not channel.is_open:
                continue
            how = self.random.random()
            if how < 0.5:
                channel.basic_ack(tag)
            elif how < 0.85:
                channel.basic_nack(tag, requeue=True)
            else:
                channel.basic_reject(tag, requeue=False)

    def cancel(self) -> None:
        if self.consumers:
            channel, tag = self.consumers.pop(self.random.randrange(len(self.consumers)))
            if channel.is_open:
                channel.basic_cancel(tag)

    def close_channel(self) -> None:
        if self.random.random() < 0.3:
            self.channel().close()

    def purge(self) -> None:
        self.channel().queue_purge(self.random.choice(PUBLISHED_TO))


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]


def drained(server: Any, queue: str) -> list[tuple[str, bool, int]]:
    """What a node gives of a queue, in order, some seconds after it was started again."""
    connection = server.connect()
    channel = connection.channel()
    found: list[tuple[str, bool, int]] = []
    # basic.get is not for queues with a single active consumer.
    for method, properties, body in channel.consume(queue, inactivity_timeout=2):
        if method is None:
            break
        count = int((properties.headers or {}).get("x-delivery-count", 0))
        found.append((digest(body), bool(method.redelivered), count))
    connection.close()
    return found
