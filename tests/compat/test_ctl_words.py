"""`qindex ctl` and rabbitmqctl say the same of a node and of a server that got the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from broker_process import BrokerProcess

from qindex.cli.main import main

from .rabbitmq_server import Server

pytestmark = [pytest.mark.interop, pytest.mark.slow]
COMMANDS = [
    "list_queues",
    "list_queues name messages_ready messages_unacknowledged consumers durable arguments type",
    "list_queues name auto_delete exclusive state policy",
    "list_queues -q --no-table-headers name",
    "list_queues --formatter csv name",
    "list_exchanges",
    "list_exchanges name type durable auto_delete internal arguments policy",
    "list_bindings",
    "list_connections user peer_host state vhost channels timeout protocol frame_max ssl",
    "list_connections client_properties",
    "list_channels number user vhost consumer_count messages_unacknowledged prefetch_count",
    "list_channels confirm transactional",
    "list_consumers",
    "list_consumers queue_name consumer_tag ack_required prefetch_count active arguments",
    "list_users",
    "list_vhosts",
    "list_vhosts name tracing",
    "list_permissions",
    "list_user_permissions guest",
    "add_vhost work",
    "add_vhost work",
    "set_permissions -p work guest ^a .* b$",
    "list_permissions -p work",
    "set_user_tags guest administrator monitoring",
    "list_users",
    "clear_permissions -p work guest",
    "delete_vhost work",
    "list_policies",
    "list_operator_policies",
    "list_parameters",
]
HEADS = ("list_connections", "list_channels")  # only the columns: the rows have ports and pids


def fill(connection: Any) -> Any:
    """A queue with messages and a consumer."""
    channel = connection.channel()
    channel.queue_declare("orders", durable=True, arguments={"x-message-ttl": 600_000})
    channel.exchange_declare("events", "topic", durable=True)
    channel.queue_bind("orders", "events", "a.*", {"k": "v"})
    for _ in range(5):
        channel.basic_publish("", "orders", b"x", pika.BasicProperties(delivery_mode=2))
    channel.basic_qos(prefetch_count=2)
    channel.basic_consume("orders", lambda *found: None, consumer_tag="tag")
    connection.process_data_events(0.5)
    return connection


def lines(text: str) -> list[str]:
    """Without what differs by kind: how long the script waits, the pids, the order of rows."""
    text = re.sub(r"<[^>]+>", "PID", text.replace('"informational"', ""))
    found = [re.sub(r" (\.\.\.)$", r"\1", line.strip()) for line in text.splitlines()]
    found = [line for line in found if line and not line.startswith("Timeout:")]
    return sorted(line for line in found if "amq.rabbitmq.trace" not in line)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    server = Server(tmp_path_factory.mktemp("node"))
    server.start()
    directory = tmp_path_factory.mktemp("served") / "data"
    try:
        with BrokerProcess(str(directory)) as process:
            parameters = pika.URLParameters(process.url)
            parameters.heartbeat = 0  # as server.connect() does
            connections = [fill(server.connect()), fill(pika.BlockingConnection(parameters))]
            yield server, directory
            for connection in connections:
                connection.close()
    finally:
        server.close()


def test_the_same_words_and_columns(
    both: tuple[Server, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    server, directory = both
    differ = []

    def say(verb: str, *arguments: str) -> tuple[str, str]:
        capsys.readouterr()
        assert main(["ctl", str(directory), verb, *arguments]) == 0
        return server.ctl(verb, *arguments), capsys.readouterr().out

    for command in [*COMMANDS, *HEADS]:
        theirs, ours = map(lines, say(*command.split()))
        if command in HEADS:
            theirs, ours = ([row for row in rows if "guest" not in row] for rows in (theirs, ours))
        if theirs != ours:
            differ.append((command, theirs, ours))
    assert not differ, "\n\n".join(f"{name}\n{one}\n{two}" for name, one, two in differ)
    one, two = map(json.loads, say("list_queues", "--formatter", "json", "name", "arguments"))
    assert one[0]["name"] == two[0]["name"] == "orders"
