"""`qindex serve DIR --rescue NODE` of a node with streams: each is served as a queue."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import connect
from helpers import unpack
from pika.exceptions import ChannelClosedByBroker

from qindex.broker.rescue.plan import make_plan
from qindex.brokers.amqp import Properties, decode_properties, encode_properties
from qindex.brokers.rabbitmq.streams.message import with_timestamp
from qindex.brokers.rabbitmq.streams.stream import Stream
from qindex.brokers.reader import open_node

from .quorum_nodes import DATA
from .test_serve_rescue import drain, on_vhost, refusal, served, wait_until_done

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("no_socket_is_left_to_other_tests"),
]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return unpack(DATA / "quorum_s1.tar.xz", tmp_path / "node")


@contextlib.contextmanager
def streams_of(path: Path) -> Iterator[list[Stream]]:
    with open_node(path) as node:
        yield [each for each in node.queues if isinstance(each, Stream)]


def test_a_stream_is_served_in_the_order_of_its_offsets(node: Path, tmp_path: Path) -> None:
    with streams_of(node) as streams, served(tmp_path / "d", node) as process:
        assert {(each.group, each.name) for each in streams} == {
            ("/", "st"),
            ("/", "поток"),
            ("sv", "st"),
        }
        for stream in streams:
            with on_vhost(process, stream.group) as connection:
                got = drain(connection.channel(), stream.name)
            told = list(stream.messages())
            assert [body for _, _, body in got] == [message.body for message in told]
            for (method, properties, _), message in zip(got, told, strict=True):
                assert properties.headers == {
                    **(decode_properties(message.properties).headers or {}),
                    "x-stream-offset": message.stream_offset,
                    "x-stream-timestamp-ms": message.timestamp_ms,
                }
                assert (method.exchange, method.routing_key, method.redelivered) == (
                    message.exchange,
                    message.routing_keys[0],
                    False,
                )


@pytest.mark.slow
def test_it_is_said_that_a_stream_is_a_queue_now(node: Path, tmp_path: Path) -> None:
    with served(tmp_path / "d", node) as process:
        told = wait_until_done(process)
    assert "stream st is served as a queue: its 780 messages come once each" in told
    assert "offsets that its consumers had stored: reader-1 321, reader-2 456" in told
    assert "stream sv/st is served as a queue: its 35 messages" in told


@pytest.mark.slow
def test_a_stream_s_retention_is_no_limit_of_the_queue(node: Path, tmp_path: Path) -> None:
    """It would drop messages. A client that declares a stream is refused."""
    with open_node(node) as opened:
        arguments = make_plan(opened, []).topology.queues[b"/", b"st"].arguments
    assert arguments["x-queue-type"] == "stream"
    assert "x-stream-max-segment-size-bytes" in arguments
    with served(tmp_path / "d", node) as process, connect(process.url) as connection:
        channel = connection.channel()
        channel.queue_declare("st", durable=True)  # as a queue without arguments
        assert len(drain(channel, "st")) == 780
        with pytest.raises(ChannelClosedByBroker, match="inequivalent arg 'x-queue-type'"):
            channel.queue_declare("st", durable=True, arguments=arguments)


def test_a_stream_can_be_left_out_by_name(node: Path, tmp_path: Path) -> None:
    with served(tmp_path / "d", node, "st") as process, connect(process.url) as connection:
        channel = connection.channel()
        assert len(drain(channel, "поток")) == 113
        with pytest.raises(ChannelClosedByBroker, match="no queue 'st'"):
            channel.queue_declare("st", passive=True)


@pytest.mark.slow
def test_a_damaged_stream_stops_the_rescue_unless_that_is_said(node: Path, tmp_path: Path) -> None:
    with streams_of(node) as streams:
        where = next(each.where for each in streams if (each.group, each.name) == ("/", "st"))
    (folder,) = node.glob(f"**/{where}")
    file = sorted(folder.glob("*.segment"))[1]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    code, text = refusal(tmp_path / "d", "--rescue", str(node))
    assert code == 1
    assert "--without damage: what can be read would be served" in text
    with served(tmp_path / "d", node, "damage") as process, connect(process.url) as connection:
        assert len(drain(connection.channel(), "st")) >= 770


def test_a_header_of_the_publisher_stays() -> None:
    own = encode_properties(Properties(headers={"x-stream-timestamp-ms": "mine", "a": 1}))
    assert decode_properties(with_timestamp(own, 5)).headers == {
        "x-stream-timestamp-ms": "mine",
        "a": 1,
    }
    bare = encode_properties(Properties(message_id="m"))
    found = decode_properties(with_timestamp(bare, 5))
    assert (found.message_id, found.headers) == ("m", {"x-stream-timestamp-ms": 5})
