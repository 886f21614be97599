"""Real nodes, killed with -9 while many clients are at work: what is recovered is what they give.

A copy of the directory is recovered into a store as of the moment when the node takes connections
again. The node starts on its own directory meanwhile, and is drained: bodies, properties, headers,
routing, order, whether it was delivered and how often, and where each dead letter went.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import qindex
from qindex.brokers.amqp import decode_properties
from qindex.brokers.rabbitmq.directory import open_at
from qindex.brokers.rabbitmq.node import Node
from qindex.brokers.rabbitmq.streams.stream import Stream
from qindex.brokers.recover import recover_into

from .node_load import (
    AMQP_STREAM,
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    CLIENT_STREAM,
    QUEUES,
    STREAMS,
    TAKEN,
    NodeLoad,
    under_load,
)
from .quorum_load import digest
from .quorum_nodes import quorum_queues
from .rabbitmq_server import Server, wait_for_names
from .stream_client import StreamClient
from .test_quorum_kill import settled

Row = dict[str, Any]
_NAMES = ("message_id", "content_type", "delivery_mode", "expiration", "timestamp", "headers")


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_all_that_a_node_killed_under_load_gives_back_is_recovered(
    stream_server: Server, tmp_path: Path, seed: int
) -> None:
    server, load = stream_server, NodeLoad(stream_server, seed)
    load.declare()
    wait_for_names(server, "quorum", len(QUEUES))
    wait_for_names(server, "coordination", 1)
    under_load(load)
    copy = tmp_path / "copy"
    shutil.copytree(server.mnesia / "qix@localhost", copy)
    server.start()
    now = time.time()
    settled(server, list(QUEUES))
    with open_at(copy) as node:
        assert [str(each) for each in node.findings if each.severity != "note"] == []
        for queue in quorum_queues(node).values():
            assert queue.outcome.exact, queue.outcome.why
            assert queue.account.adds_up
        with qindex.open(tmp_path / "store", expire=False) as store:
            report = recover_into(node, store, now=now)
            assert report.unreadable == report.unstorable == 0
            recovered = {name: rows_of(store.queue(name)) for name in store.queues()}
        nothing_confirmed_is_lost(node, load)
        waiting = [
            (name, row)
            for name in (*AT_LEAST_ONCE, *AT_MOST_ONCE)
            for row in recovered.pop(f"{name} (dead letters)", [])
        ]
        # Dead letters of an exchange that is not there: the node keeps them for itself.
        stay = {
            digest(message.body)
            for message in quorum_queues(node)["/", "alo-nowhere"].messages()
            if 0 < (message.expiry_us or 0) <= now * 1_000_000
        }
        nowhere = next(each for each in report.queues if each.name == "alo-nowhere")
        assert sum(row["body"] in stay for row in recovered["alo-nowhere"]) == nowhere.kept
        recovered["alo-nowhere"] = [
            row for row in recovered["alo-nowhere"] if row["body"] not in stay
        ]
        for name in TAKEN:
            given = drained(server, name)
            assert [without_count(row) for row in given] == [
                without_count(row) for row in recovered[name]
            ], name
            assert [row["count"] for row in given] == [row["count"] for row in recovered[name]]
        settled(server, ["dead"])
        there = quorum_queues(node)["/", "dead"].account.live
        dead = recovered["dead"]
        compare_dead_letters(drained(server, "dead"), dead[:there], dead[there:], waiting)
        streams = {each.name: each for each in node.queues if isinstance(each, Stream)}
        assert set(streams) == set(STREAMS)
        compare_stream_of_amqp(server, streams[AMQP_STREAM])
        compare_stream_of_client(server, streams[CLIENT_STREAM])


def without_count(row: Row) -> Row:
    return {key: value for key, value in row.items() if key != "count"}


def described(properties: Any, headers: dict[str, Any] | None) -> Row:
    told = {name: plain(getattr(properties, name)) for name in _NAMES}
    told["headers"] = plain(headers or None)
    return told


def plain(value: Any) -> Any:
    """Moments as seconds since 1970: libraries differ in their time zones."""
    if isinstance(value, datetime):
        return int(value.replace(tzinfo=value.tzinfo or UTC).timestamp())
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


def rows_of(queue: qindex.Queue) -> list[Row]:
    rows = []
    for message in queue.browse():
        properties = decode_properties(message.headers["properties"])
        rows.append(
            {
                "body": digest(message.body),
                "exchange": message.headers["exchange"],
                "key": message.headers["routing_keys"][0],
                "redelivered": message.redelivered,
                "count": message.headers.get("delivery_count", 0),
                "reason": message.headers.get("dead_letter_reason"),
                **described(properties, properties.headers),
            }
        )
    return rows


def drained(server: Server, name: str) -> list[Row]:
    rows = []
    with server.connect() as connection:
        channel = connection.channel()
        for method, properties, body in channel.consume(name, inactivity_timeout=3):
            if method is None:
                break
            headers = dict(properties.headers or {})
            count = headers.pop("x-delivery-count", 0)
            rows.append(
                {
                    "body": digest(body),
                    "exchange": method.exchange,
                    "key": method.routing_key,
                    "redelivered": method.redelivered,
                    "count": count,
                    "reason": None,
                    **described(properties, headers),
                }
            )
            channel.basic_ack(method.delivery_tag)
    return rows


def nothing_confirmed_is_lost(node: Node, load: NodeLoad) -> None:
    """By what the clients know alone."""
    live = {message.body for message in quorum_queues(node)["/", "plain"].messages()}
    assert len(load.confirmed) > 20
    assert load.confirmed - load.acked <= live
    for stream in (each for each in node.queues if isinstance(each, Stream)):
        assert len(load.confirmed_of[stream.name]) > 20
        assert load.confirmed_of[stream.name] <= {message.body for message in stream.messages()}


def compare_dead_letters(
    given: list[Row], there: list[Row], expired: list[Row], waiting: list[tuple[str, Row]]
) -> None:
    """Behind what was there come those that were on their way, from several queues at once.

    A node drops a dead letter that it publishes at most once while its target has no leader yet, as
    behind a start: here it is given all the same.
    """
    assert given[: len(there)] == there
    told = [*expired, *(dead_in(name, row) for name, row in waiting)]
    came = given[len(there) :]
    assert counted(came, AT_LEAST_ONCE) == counted(told, AT_LEAST_ONCE)
    assert counted(came, AT_MOST_ONCE) <= counted(told, AT_MOST_ONCE)


def counted(rows: list[Row], queues: list[str]) -> Counter[str]:
    """The dead letters that came from these queues."""
    return Counter(
        json.dumps(without_time(row), sort_keys=True)
        for row in rows
        if row["headers"]["x-first-death-queue"] in queues
    )


def without_time(row: Row) -> Row:
    """Without the moments of its deaths: the node's own is not known."""
    headers = dict(row["headers"])
    headers["x-death"] = [
        {key: told for key, told in sorted(death.items()) if key != "time"}
        for death in headers["x-death"]
    ]
    return {**row, "headers": headers}


def dead_in(queue: str, row: Row) -> Row:
    """A message that died in the queue as the node publishes it again, by AMQP's documents."""
    death = {
        "count": 1,
        "reason": row["reason"],
        "queue": queue,
        "exchange": row["exchange"],
        "routing-keys": [row["key"]],
    }
    if row["expiration"] is not None:
        death["original-expiration"] = row["expiration"]
    headers = {
        **(row["headers"] or {}),
        "x-death": [death],
        "x-first-death-reason": row["reason"],
        "x-first-death-queue": queue,
        "x-first-death-exchange": row["exchange"],
    }
    return {
        **row,
        "exchange": "",
        "key": "dead",
        "redelivered": False,
        "count": 0,
        "reason": None,
        "expiration": None,
        "headers": headers,
    }


# --- streams --------------------------------------------------------------------------------------


def compare_stream_of_amqp(server: Server, stream: Stream) -> None:
    """All but what the node cuts off: a chunk that it had written, but not into its index."""
    told = []
    for message in stream.messages():
        properties = decode_properties(message.properties)
        found = described(properties, properties.headers)
        told.append((message.stream_offset, message.body, message.routing_keys[0], found))
    given = []
    with server.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=200)
        first = {"x-stream-offset": "first"}
        for method, properties, body in channel.consume(
            stream.name, arguments=first, inactivity_timeout=3
        ):
            if method is None:
                break
            offset = int(properties.headers["x-stream-offset"])
            found = described(properties, properties.headers)
            given.append((offset, body, method.routing_key, found))
            channel.basic_ack(method.delivery_tag)
    assert given == told[: len(told) - stream.unindexed]


def compare_stream_of_client(server: Server, stream: Stream) -> None:
    told = [(message.stream_offset, message.body) for message in stream.messages()]
    client = StreamClient(server.stream_port)
    try:
        written = client.query_publisher("writer", stream.name)
        told_written = stream.tracking.sequences["writer"]
        assert told_written >= written if stream.unindexed else told_written == written
        stored = client.query_offset("reader", stream.name)
        if not stream.unindexed:  # it may have been in what the node cuts off
            assert stream.tracking.offsets["reader"] == stored
        client.declare_publisher(1, "", stream.name)
        client.publish(1, [(1, b"the end")])
        given = client.read_until(stream.name, b"the end")[:-1]
        assert given == told[: len(told) - stream.unindexed]
    finally:
        client.close()
