"""Load for a real node from many connections at once, until the node is killed below them.

Threads publish to quorum queues and to streams, with confirms and without, and consume: they ack,
give back, reject, and keep the rest unacked. Nothing waits for the kill, so that publishes,
settlements, dead letters and what expires are on their way when it comes.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from .rabbitmq_server import Server
from .stream_client import COMPRESSIONS, StreamClient

SHORT_MS = 1500  # of queues where all has expired when the node takes connections again
LONG_MS = 3_600_000  # does not expire here
_DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
_SURELY = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "limit": {"x-delivery-limit": 2},
    "limit-dlx": {"x-delivery-limit": 1, **_DEAD},
    "alo": {"x-delivery-limit": 1, **_DEAD, **_SURELY},
    "alo-ttl": {"x-message-ttl": SHORT_MS, **_DEAD, **_SURELY},
    "alo-nowhere": {**_DEAD, "x-dead-letter-exchange": "nowhere", **_SURELY},
    "ttl": {"x-message-ttl": LONG_MS},
    "ttl-dlx": {"x-message-ttl": SHORT_MS, **_DEAD},
    "dead": {},
}
TAKEN = [name for name in QUEUES if name != "dead"]
# Their dead letters arrive in `dead`.
AT_LEAST_ONCE, AT_MOST_ONCE = ["alo", "alo-ttl"], ["limit-dlx", "ttl-dlx"]
AMQP_STREAM, CLIENT_STREAM = "by-amqp", "by-client/ü"
STREAMS = (AMQP_STREAM, CLIENT_STREAM)


class NodeLoad:
    """`begin()`, then `kill()` after some seconds. What clients know of it is kept.

    Of queue `plain`: `confirmed` and `acked` are bodies; an ack that the node may not have got is
    among `acked`. `confirmed_of` are the bodies that a stream's publisher got confirms for.
    """

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.pika = server.pika
        self.seed = seed
        self.confirmed: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.unacked = 0
        self.confirmed_of: dict[str, set[bytes]] = {name: set() for name in STREAMS}
        self.published = 0
        self._began = 0.0
        self._is_over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    def declare(self) -> None:
        with self.server.connect() as connection:
            channel = connection.channel()
            for name, arguments in QUEUES.items():
                channel.queue_declare(
                    name, durable=True, arguments={"x-queue-type": "quorum", **arguments}
                )
            kind = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 50_000}
            channel.queue_declare(AMQP_STREAM, durable=True, arguments=kind)
        client = StreamClient(self.server.stream_port)
        client.create(CLIENT_STREAM)
        client.close()

    def begin(self) -> None:
        self._began = time.monotonic()
        works = [self._publish, self._publish_with_confirms, self._consume, self._consume]
        works += [self._publish_to_stream, self._stream_client]
        for number, work in enumerate(works):
            dice = random.Random(f"{self.seed} {number}")
            thread = threading.Thread(target=self._run, args=(work, number, dice), daemon=True)
            self._threads.append(thread)
            thread.start()

    def kill(self) -> None:
        """Ends the node while all clients are at work, and then these."""
        assert all(thread.is_alive() for thread in self._threads), self.errors
        self._is_over.set()
        self.server.kill()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _run(self, work: Callable[[int, random.Random], None], number: int, dice: Any) -> None:
        try:
            work(number, dice)
        except (self.pika.exceptions.AMQPError, OSError) as error:
            if not self._is_over.is_set():  # it was not the kill that ended this one
                self.errors.append(error)

    @contextlib.contextmanager
    def _channel(self) -> Iterator[Any]:
        connection = self.server.connect()
        try:
            yield connection.channel()
        finally:
            with contextlib.suppress(self.pika.exceptions.AMQPError, OSError):
                connection.close()

    def _message(self, number: int, count: int, dice: random.Random) -> tuple[bytes, Any]:
        body = b"%d-%d " % (number, count) * dice.choice([1, 10, 200])
        told = dice.choice([None, {"n": count, "deep": {"list": [1, "two", True]}}])
        # Nothing may expire between the kill and the start: processes are found dead one by one
        # then, and what the first one had is delivered to the next one if it has not expired.
        early = [] if time.monotonic() > self._began + 1 else ["1"] * 3
        expiration = dice.choice([None] * 6 + [str(LONG_MS)] + early)
        properties = self.pika.BasicProperties(
            delivery_mode=2,
            message_id=f"{number}-{count}",
            content_type="text/plain",
            expiration=expiration,
            headers=told,
            timestamp=1_700_000_000 + count,
        )
        return body, properties

    def _publish(self, number: int, dice: random.Random) -> None:
        with self._channel() as channel:
            for count in range(1 << 30):
                body, properties = self._message(number, count, dice)
                channel.basic_publish("", dice.choice(TAKEN), body, properties)
                if count % 20 == 0:  # lets the node's flow control in, too
                    channel.connection.process_data_events(time_limit=0.01)

    def _publish_with_confirms(self, number: int, dice: random.Random) -> None:
        with self._channel() as channel:
            channel.confirm_delivery()
            for count in range(1 << 30):
                body, properties = self._message(number, count, dice)
                properties.expiration = None
                queue = dice.choice(["plain", *TAKEN])
                with contextlib.suppress(self.pika.exceptions.NackError):
                    channel.basic_publish("", queue, body, properties)
                    if queue == "plain":
                        self.confirmed.add(body)
                self.published += 1

    def _consume(self, number: int, dice: random.Random) -> None:
        with self._channel() as channel:
            channel.basic_qos(prefetch_count=15)  # of each consumer
            for queue in TAKEN:
                channel.basic_consume(queue, self._settle(queue, dice))
            while True:
                channel.connection.process_data_events(time_limit=0.2)

    def _settle(self, queue: str, dice: random.Random) -> Callable[..., None]:
        kept = 0

        def taken(channel: Any, method: Any, _: Any, body: bytes) -> None:
            nonlocal kept
            how = dice.random()
            if how < 0.5:
                if queue == "plain":
                    self.acked.add(body)
                channel.basic_ack(method.delivery_tag)
            elif how < 0.75:
                channel.basic_nack(method.delivery_tag, requeue=True)
            elif how < 0.85 and queue != "plain":
                channel.basic_reject(method.delivery_tag, requeue=False)
            elif kept < 10:
                kept += 1
                self.unacked += 1
            else:
                channel.basic_nack(method.delivery_tag, requeue=True)

        return taken

    def _publish_to_stream(self, number: int, dice: random.Random) -> None:
        with self._channel() as channel:
            channel.confirm_delivery()
            for count in range(1 << 30):
                body, properties = self._message(number, count, dice)
                channel.basic_publish("", AMQP_STREAM, body, properties)
                self.confirmed_of[AMQP_STREAM].add(body)

    def _stream_client(self, number: int, dice: random.Random) -> None:
        client = StreamClient(self.server.stream_port)
        try:
            client.declare_publisher(1, "writer", CLIENT_STREAM)
            for count in range(1, 1 << 30):
                bodies = [b"%d.%d " % (count, n) * 9 for n in range(dice.choice([1, 8]))]
                if dice.random() < 0.5:
                    client.publish_batch(1, count, bodies, dice.choice(COMPRESSIONS))
                else:
                    bodies = bodies[:1]
                    client.publish(1, [(count, bodies[0])])
                if dice.random() < 0.5:
                    client.wait_for_confirms(1, {count})
                    self.confirmed_of[CLIENT_STREAM].update(bodies)
                if dice.random() < 0.1 or count == 1:
                    client.store_offset("reader", CLIENT_STREAM, count)
        finally:
            client.close()


def under_load(load: NodeLoad) -> None:
    """Some seconds, which the seed chooses, until enough has happened; then the kill."""
    load.begin()
    time.sleep(3 + random.Random(load.seed).random() * 3)
    until = time.monotonic() + 60
    while time.monotonic() < until and (load.published < 100 or load.unacked < 20):
        time.sleep(0.01)
    load.kill()
