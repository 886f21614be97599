"""A real node, killed while clients publish to its streams: what is read is what it serves."""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from qindex.brokers.rabbitmq.directory import open_at
from qindex.brokers.rabbitmq.streams.stream import Stream

from .rabbitmq_server import Server, wait_for_names
from .stream_client import COMPRESSIONS, StreamClient

STREAMS = ("first", "second/ü")


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3))])
def test_a_killed_node_serves_what_was_read(
    rabbitmq_server: Server, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    server = rabbitmq_server
    connections = [server.connect(), server.connect()]
    confirmed = publish(server, connections, dice)
    server.kill()
    for connection in connections:
        with contextlib.suppress(server.pika.exceptions.AMQPError, OSError):
            connection.close()
    copy = tmp_path / "copy"
    shutil.copytree(server.mnesia / "qix@localhost", copy)
    with open_at(copy) as node:
        streams = {each.name: each for each in node.queues if isinstance(each, Stream)}
        assert set(streams) == set(STREAMS)
        read = {
            name: [(each.stream_offset, each.body) for each in stream.messages()]
            for name, stream in streams.items()
        }
    server.start()
    for name in STREAMS:
        served = consumed(server, name, len(read[name]))
        assert served == read[name]
        assert confirmed[name] <= {body for _, body in served}
        assert len(served) > 200


def publish(server: Server, connections: list[Any], dice: random.Random) -> dict[str, set[bytes]]:
    """Confirmed messages by stream; the last ones are sent without waiting for anything."""
    confirmed: dict[str, set[bytes]] = {name: set() for name in STREAMS}
    channel, fast = (connection.channel() for connection in connections)
    for name in STREAMS:
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    wait_for_names(server, "coordination", 1)  # the coordinator knows where streams are
    channel.confirm_delivery()
    number = 0
    for _ in range(150):
        name = dice.choice(STREAMS)
        for _ in range(dice.choice([1, 30])):
            number += 1
            fast.basic_publish("", name, b"fast %d " % number * dice.choice([1, 40]))
        number += 1
        body = b"sure %d " % number * dice.choice([1, 100])
        channel.basic_publish("", name, body)
        confirmed[name].add(body)
    return confirmed


def consumed(server: Server, name: str, wanted: int) -> list[tuple[int, bytes]]:
    """What a consumer gets from the first offset on, until nothing comes any more."""
    until = time.monotonic() + 60
    while True:  # a stream has no leader for a moment behind a start
        connection = server.connect()
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)
        found: list[tuple[int, bytes]] = []
        with contextlib.suppress(server.pika.exceptions.AMQPError):
            for method, properties, body in channel.consume(
                name, arguments={"x-stream-offset": "first"}, inactivity_timeout=3
            ):
                if method is None:
                    break
                found.append((int(properties.headers["x-stream-offset"]), body))
                channel.basic_ack(method.delivery_tag)
        with contextlib.suppress(server.pika.exceptions.AMQPError):
            connection.close()
        time.sleep(0.5)
        if len(found) >= wanted or time.monotonic() > until:
            return found


# --- clients of the stream protocol ---------------------------------------------------------------


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 5))]
)
def test_what_stream_clients_sent_before_the_kill(
    stream_server: Server, tmp_path: Path, seed: int
) -> None:
    """Batches of every compression, resent publishing ids, stored offsets; then kill -9."""
    server = stream_server
    load = StreamLoad(server.stream_port, random.Random(seed))
    load.begin()
    wait_for_names(server, "coordination", 1)
    load.run(120)
    server.kill()
    load.client.close()
    copy = tmp_path / "copy"
    shutil.copytree(server.mnesia / "qix@localhost", copy)
    with open_at(copy) as node:
        streams = {each.name: each for each in node.queues if isinstance(each, Stream)}
        assert set(streams) == set(STREAMS)
        assert [str(finding) for finding in node.findings if finding.severity == "damage"] == []
        read = {
            name: [(each.stream_offset, each.body) for each in stream.messages()]
            for name, stream in streams.items()
        }
        tracking = {name: stream.tracking for name, stream in streams.items()}
    server.start()
    client = client_of(server, 9)
    for name in STREAMS:
        writers, offsets = tracking[name].sequences, tracking[name].offsets
        assert writers["writer"] == client.query_publisher("writer", name)
        assert offsets["reader"] == client.query_offset("reader", name)
        client.declare_publisher(9, "", name)
        client.publish(9, [(1, b"the end")])
        served = client.read_until(name, b"the end")
        client.close()
        client = client_of(server, 9)
        assert served[:-1] == read[name]
        assert load.confirmed[name] <= {body for _, body in read[name]}
        bodies = [body for _, body in read[name] if body in load.sent_twice]
        assert len(bodies) == len(set(bodies))
        assert len(read[name]) > 300
    client.close()


def client_of(server: Server, number: int) -> StreamClient:
    """A connection to the node, which takes some once it has started, and a leader for each."""
    until = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError):
            client = StreamClient(server.stream_port)
            try:
                for name in STREAMS:
                    client.declare_publisher(number, "", name)
                    client.delete_publisher(number)
                return client
            except AssertionError:  # the stream has no leader yet
                client.close()
        if time.monotonic() > until:
            pytest.fail("the streams have no leader")
        time.sleep(0.2)


class StreamLoad:
    """Publishes to all streams, one publisher for each, which counts its ids."""

    def __init__(self, port: int, dice: random.Random) -> None:
        self.client = StreamClient(port)
        self.dice = dice
        self.confirmed: dict[str, set[bytes]] = {name: set() for name in STREAMS}
        self.sent_twice: set[bytes] = set()
        self.next_id = dict.fromkeys(STREAMS, 1)
        self.number = 0

    def begin(self) -> None:
        for at, name in enumerate(STREAMS):
            self.client.create(name)
            self.client.declare_publisher(at, "writer", name)

    def body(self) -> bytes:
        self.number += 1
        return b"%d " % self.number * self.dice.choice([1, 10, 200])

    def run(self, count: int) -> None:
        for _ in range(count):
            at = self.dice.randrange(len(STREAMS))
            name, first = STREAMS[at], self.next_id[STREAMS[at]]
            bodies = [self.body() for _ in range(self.dice.choice([1, 5, 20]))]
            if self.dice.random() < 0.4:
                how = self.dice.choice(COMPRESSIONS)
                self.client.publish_batch(at, first, bodies, how)
                ids = {first}
            else:
                rows = list(enumerate(bodies, first))
                self.client.publish(at, rows)
                if self.dice.random() < 0.2:
                    self.client.publish(at, rows)
                    self.sent_twice.update(bodies)
                ids = {each for each, _ in rows}
            self.next_id[name] = max(ids) + 1
            if self.dice.random() < 0.7:
                self.client.wait_for_confirms(at, ids)
                self.confirmed[name].update(bodies)
            if self.dice.random() < 0.2 or self.next_id[name] < 60:
                self.client.store_offset("reader", name, self.next_id[name])
