"""republish into a real RabbitMQ node, and reading back what the node wrote of it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from qindex.cli.main import main
from qindex.formats.rabbitmq import open_node

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SERVERS = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
START_SECONDS_MAX = 90


class Node(NamedTuple):
    url: str
    mnesia: Path
    process: subprocess.Popen[bytes]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node of its own on the loopback; killed at the end, with its epmd."""
    pika = pytest.importorskip("pika", reason="qindex[amqp] is not installed")
    if not SERVERS:
        pytest.skip("no rabbitmq-server here (Debian: apt-get install rabbitmq-server)")
    port = free_port()
    (tmp_path / "plugins").write_text("[].")
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "ERL_EPMD_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "qix@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(tmp_path / "mnesia"),
        "RABBITMQ_LOG_BASE": str(tmp_path / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(tmp_path / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(tmp_path / "none"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1",
    }
    # A node that finds no epmd leaves one behind.
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    epmd = subprocess.Popen(["epmd"], env=environment, **quiet)
    process = subprocess.Popen([SERVERS[-1]], env=environment, start_new_session=True, **quiet)
    url = f"amqp://guest:guest@127.0.0.1:{port}/%2F"
    try:
        wait_for(pika, url, process)
        yield Node(url, tmp_path / "mnesia", process)
    finally:
        kill(process)
        epmd.kill()
        epmd.wait()


def kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_for(pika: Any, url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(pika.exceptions.AMQPError, OSError):
            pika.BlockingConnection(pika.URLParameters(url)).close()
            return
        time.sleep(0.2)
    pytest.fail("the node did not start")


def test_a_node_serves_what_was_republished_and_is_read_again(
    node: Node, demo_node: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pika

    dead = demo_node.path
    queues = ["q.small", "q.mixed", "q.prio", "q.large", "заказы/queue ☃"]
    command = ["republish", str(dead), *queues, "--amqp", node.url, "--checkpoint"]
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
    connection = pika.BlockingConnection(pika.URLParameters(node.url))
    channel = connection.channel()
    for name, messages in wanted.items():
        for body, raw in messages:
            _, properties, got = channel.basic_get(name)
            sent = pika.BasicProperties()
            sent.decode(raw)
            assert (got, properties) == (body, sent)
        assert channel.basic_get(name)[0] is None
    connection.close()
    kill(node.process)
    with open_node(node.mnesia) as written:  # unacked, so all of it is still there
        found = {
            queue.name: [(m.body, m.properties) for m in queue.messages()]
            for queue in written.vhosts[0].queues
        }
    assert found == {name: keep_durable(messages) for name, messages in wanted.items()}


def keep_durable(messages: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """A killed node forgets what was not published as persistent."""
    from qindex.formats.amqp import decode_properties

    return [message for message in messages if decode_properties(message[1]).delivery_mode == 2]


def test_an_unroutable_message_comes_back_from_a_real_node(
    node: Node, demo_node: Any, tmp_path: Path
) -> None:
    dead = demo_node.path
    command = [sys.executable, "-m", "qindex", "republish", str(dead), "q.small", "-n", "3"]
    options = ["--amqp", node.url, "--checkpoint", str(tmp_path / "c"), "--as-published"]
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("unroutable: message q.small") == 3
    assert "0 messages confirmed" in done.stdout
