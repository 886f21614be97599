"""republish into a real RabbitMQ node, and reading back what the node wrote of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import unpack

from qindex.brokers.rabbitmq.directory import open_node
from qindex.cli.main import main

from .quorum_nodes import DATA, real_node
from .rabbitmq_server import Server

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def test_a_node_serves_what_was_republished_and_is_read_again(
    rabbitmq_server: Server, demo_node: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pika

    server = rabbitmq_server

    dead = demo_node.path
    queues = ["q.small", "q.mixed", "q.prio", "q.large", "заказы/queue ☃"]
    command = ["republish", str(dead), *queues, "--amqp", server.url, "--checkpoint"]
    assert main([*command, str(tmp_path / "c")]) == 2
    assert "5 queues too few" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "c"), "--declare"]) == 0, capsys.readouterr().err
    with open_node(dead) as source:
        wanted = {
            queue.name: [(m.body, m.properties) for m in queue.messages()]
            for vhost in source.vhosts
            for queue in vhost.queues
            if vhost.name == "/" and queue.name in queues
        }
    connection = server.connect()
    channel = connection.channel()
    for name, messages in wanted.items():
        for body, raw in messages:
            _, properties, got = channel.basic_get(name)
            sent = pika.BasicProperties()
            sent.decode(raw)
            assert (got, properties) == (body, sent)
        assert channel.basic_get(name)[0] is None
    connection.close()
    server.kill()
    with open_node(server.mnesia) as written:  # unacked, so all of it is still there
        found = {
            queue.name: [(m.body, m.properties) for m in queue.messages()]
            for queue in written.vhosts[0].queues
        }
    assert found == {name: keep_durable(messages) for name, messages in wanted.items()}


def keep_durable(messages: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """A killed node forgets what was not published as persistent."""
    from qindex.brokers.amqp import decode_properties

    return [message for message in messages if decode_properties(message[1]).delivery_mode == 2]


def test_an_unroutable_message_comes_back_from_a_real_node(
    rabbitmq_server: Server, demo_node: Any, tmp_path: Path
) -> None:
    dead = demo_node.path
    command = [sys.executable, "-m", "qindex", "republish", str(dead), "q.small", "-n", "3"]
    options = ["--amqp", rabbitmq_server.url, "--checkpoint", str(tmp_path / "c"), "--as-published"]
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("unroutable: message q.small") == 3
    assert "0 messages confirmed" in done.stdout


def test_quorum_queues_and_streams_are_republished(
    rabbitmq_server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a dead node with quorum queues, and from one with streams, into new classic queues."""
    quorum = real_node("q1", tmp_path / "q1")
    folder = unpack(DATA / "stream_osiris_1_10.tar.xz", tmp_path / "stream")
    connection = rabbitmq_server.connect()
    channel = connection.channel()
    for number, dead in enumerate((quorum.path, folder)):
        with open_node(dead) as source:
            wanted = {
                queue.name: [
                    (m.body, getattr(m, "properties", b"")) for m in queue.messages()
                    if not 0 < (m.expiry_us or 0) <= time.time() * 1e6
                ]
                for queue in source.queues
                if queue.group in ("/", "") and "dead letters" not in queue.name
            }  # fmt: skip
        assert sum(map(len, wanted.values())) > 100
        command = ["republish", str(dead), *wanted, "--amqp", rabbitmq_server.url, "--declare"]
        code = main([*command, "--checkpoint", str(tmp_path / f"c{number}"), "--json"])
        assert code == number  # nothing in the stream's directory says which stream it is
        told = json.loads(capsys.readouterr().out)
        assert told["published"] == sum(map(len, wanted.values()))
        for name, messages in wanted.items():
            got = [channel.basic_get(name) for _ in messages]
            assert [body for _, _, body in got] == [body for body, _ in messages], name
            assert channel.basic_get(name)[0] is None
    connection.close()
