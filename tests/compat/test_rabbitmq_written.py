"""A real node serves what write-rabbitmq wrote: same messages, order and properties."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import qindex
from qindex.brokers.amqp import Properties, decode_properties, encode_properties
from qindex.cli.main import main

from .rabbitmq_server import Server

pytestmark = [pytest.mark.interop, pytest.mark.slow]

EXPIRES_AT = 4_000_000_000.0  # in 2096
Row = tuple[bytes, str, str, bytes]  # body, exchange, routing key, properties


def fill(path: Path, demo: Path) -> None:
    """A dead node's messages, and others that no broker ever saw."""
    assert main(["recover", str(demo), "--out", str(path), "--keep-expired"]) == 0
    with qindex.open(path) as store:
        plain = store.queue("plain")
        for size in (0, 1, 4000, 4095, 4096, 131064, 131065, 300_000):
            plain.publish(bytes(range(251)) * (size // 251) + b"x" * (size % 251))
        plain.publish(b"told", headers={"a": [1, None, {"b": True}]}, persistent=False)
        plain.publish(b"late", expires_at=EXPIRES_AT)
        plain.publish(b"gone", expires_at=1.0)
        long = store.queue("long")  # three segments
        long.publish_many([b"%d" % n for n in range(5000)])
        long.ack_many(long.get_many(100))
        levels = store.queue("levels")
        for n in range(30):
            raw = encode_properties(Properties(priority=n % 7, delivery_mode=2))
            levels.publish(b"%d" % n, headers={"properties": raw})


def wanted(path: Path) -> dict[str, list[Row]]:
    """What each queue should give, in order."""
    queues = {}
    with qindex.open(path, read_only=True) as store:
        for name in store.queues():
            rows = []
            for message in store.queue(name).browse():
                headers = message.headers
                raw = headers.get("properties")
                if raw is None:
                    mode = 2 if message.persistent else 1
                    raw = encode_properties(Properties(headers=headers or None, delivery_mode=mode))
                key = headers.get("routing_keys", [name])[0]
                if message.body != b"gone":
                    rows.append((message.body, headers.get("exchange", ""), key, raw))
            queues[name] = rows
    queues["levels"].sort(key=lambda row: -min(decode_properties(row[3]).priority or 0, 5))
    return queues


def served(server: Server, names: list[str]) -> dict[str, list[Row]]:
    queues = {}
    connection = server.connect()
    channel = connection.channel()
    for name in names:
        rows = []
        while True:
            got, properties, body = channel.basic_get(name)
            if got is None:
                break
            assert got.redelivered
            raw = b"".join(properties.encode())
            rows.append((body, got.exchange, got.routing_key, raw))
        queues[name] = rows
    connection.close()
    return queues


def test_a_node_serves_what_was_written(
    rabbitmq_server: Server, demo_node: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, store, new = rabbitmq_server, tmp_path / "store", tmp_path / "new"
    fill(store, demo_node.path)
    assert (
        main(["write-rabbitmq", str(store), "--out", str(new), "--max-priority", "levels=5"]) == 0
    )
    server.ctl("import_definitions", new / "definitions.json")
    server.stop()
    vhosts = server.mnesia / "qix@localhost" / "msg_stores" / "vhosts"
    (written,) = (new / "msg_stores" / "vhosts").iterdir()
    shutil.move(vhosts / written.name, tmp_path / "aside")
    shutil.copytree(written, vhosts / written.name)
    server.start()
    messages = wanted(store)
    assert sum(map(len, messages.values())) > 5000
    found = served(server, list(messages))
    for name, rows in messages.items():
        assert [row[:3] for row in found[name]] == [row[:3] for row in rows], name
        pairs = zip(found[name], rows, strict=True)
        assert all(decoded(row[3], server) == decoded(want[3], server) for row, want in pairs), name


def decoded(raw: bytes, server: Server) -> Any:
    properties = server.pika.BasicProperties()
    properties.decode(raw)
    return properties
