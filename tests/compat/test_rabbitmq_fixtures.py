"""Directories of real nodes, compared with what the nodes themselves gave back from a copy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qindex.brokers.amqp import decode_properties
from qindex.brokers.rabbitmq.directory import Message, Node, Queue, open_node
from qindex.brokers.rabbitmq.message import read_message

if TYPE_CHECKING:
    from .conftest import DeadNode

SHARED = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "rabbitmq"
SharedNode = Callable[[str], "DeadNode"]

READABLE = [
    "a_v1_clean",
    "b_v1_kill9",
    "c_v1_seg2048_kill9",
    "d_store_gc_kill9",
    "d_store_gc_in_compaction_kill9",
    "e_v2_clean",
]


@pytest.fixture(params=READABLE)
def dead(request: pytest.FixtureRequest, shared_node: SharedNode) -> DeadNode:
    return shared_node(request.param)


def queues_of(node: Node) -> dict[tuple[str, str], Queue]:
    """The durable ones; the node forgets the others when it boots, and they may hold nothing."""
    queues = {(vhost.name, queue.name): queue for vhost in node.vhosts for queue in vhost.queues}
    assert not any(queue.counts.live for queue in queues.values() if not queue.durable)
    return {key: queue for key, queue in queues.items() if queue.durable}


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32]


def number(message: Message) -> int:
    return int(decode_properties(message.properties).message_id or -1)


def header_value(value: Any) -> Any:
    """The truth file's notation for what JSON has no word for."""
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    match kind:
        case "bytes_hex":
            return bytes.fromhex(inner)
        case "decimal":
            return Decimal(inner)
        case "timestamp":
            return datetime.fromtimestamp(inner, UTC)
        case "table":
            return {key: header_value(each) for key, each in inner.items()}
        case "array":
            return [header_value(each) for each in inner]
    raise AssertionError(kind)


def test_the_queues_and_their_counts_are_what_the_node_reported(dead: DeadNode) -> None:
    with open_node(dead.path) as node:
        found = {key: queue.counts.live for key, queue in queues_of(node).items()}
    told = {key: queue["count_reported"] for key, queue in dead.recovered.items()}
    assert found == told


def test_order_and_redelivered_are_what_the_node_gave_back(dead: DeadNode) -> None:
    boot_us = dead.truth["rabbitmq_recovers"]["at_ms"] * 1000
    with open_node(dead.path) as node:
        for key, queue in queues_of(node).items():
            waiting = [m for m in queue.messages() if m.expiry_us is None or m.expiry_us > boot_us]
            found = [
                [number(m), int(m.redelivered), m.exchange, m.routing_keys[0]] for m in waiting
            ]
            told = [[n, r, ex, rk] for n, r, _, ex, rk, *_ in dead.recovered[key]["messages"]]
            assert found == told, key
            assert queue.unreadable == 0


def test_bodies_and_properties_are_what_was_published(dead: DeadNode) -> None:
    published = dead.messages
    with open_node(dead.path) as node:
        for queue in queues_of(node).values():
            for message in queue.messages():
                truth = published[number(message)]
                properties = decode_properties(message.properties)
                headers = properties.headers or {}
                assert len(message.body) == truth["size"]
                assert digest(message.body) == truth["sha256_32"]
                assert properties.delivery_mode == 2
                if "x-death" in headers:
                    check_dead_lettered(truth, headers)
                    continue
                assert message.exchange == truth["exchange"]
                assert message.routing_keys[0] == truth["routing_key"]
                assert properties.priority == truth["priority"]
                told = dead.truth["hsets"][truth["hset"]]
                assert properties.headers == (told and header_value({"table": told}))
                copies = headers.get("CC", [])
                assert message.routing_keys[1:] == copies
                ttl_ms = truth["expiration_ms"]
                assert properties.expiration == (None if ttl_ms is None else str(ttl_ms))


def check_dead_lettered(truth: dict[str, Any], headers: dict[str, Any]) -> None:
    death = headers["x-death"][0]
    assert death["routing-keys"] == [truth["routing_key"]]
    assert death["exchange"] == truth["exchange"]
    assert headers["x-first-death-queue"] == truth["routing_key"]


def test_expiry_is_the_time_of_publishing_plus_the_ttl(dead: DeadNode) -> None:
    published = dead.messages
    arguments = {(q["vhost"], q["name"]): q["arguments"] for q in dead.truth["queues"]}
    with open_node(dead.path) as node:
        for key, queue in queues_of(node).items():
            queue_ttl_ms = arguments[key].get("x-message-ttl")
            for message in queue.messages():
                truth = published[number(message)]
                ttl_ms = min(filter(None, [truth["expiration_ms"], queue_ttl_ms]), default=None)
                if ttl_ms is None or "x-death" in (
                    decode_properties(message.properties).headers or ()
                ):
                    assert message.expiry_us is None
                else:
                    assert message.expiry_us is not None
                    told_us = (truth["t_pub_ms"] + ttl_ms) * 1000
                    assert abs(message.expiry_us - told_us) < 2_000_000


def test_arguments_come_from_the_nodes_definitions(dead: DeadNode) -> None:
    told = {(q["vhost"], q["name"]): q for q in dead.truth["queues"]}
    with open_node(dead.path) as node:
        for key, queue in queues_of(node).items():
            assert queue.arguments == told[key]["arguments"]
            assert queue.durable == told[key]["durable"]
            folders = [part.folder for part in queue.parts]
            assert told[key].get("dir") in [*folders, None] or len(folders) != 1


def test_the_account_adds_up(dead: DeadNode) -> None:
    with open_node(dead.path) as node:
        for queue in queues_of(node).values():
            counts = queue.counts
            told = counts.acked + counts.transient + counts.body_missing + counts.live
            assert counts.published == told
            assert counts.live == sum(1 for _ in queue.messages())
        assert node.counts.body_missing == 0
        assert node.counts.orphan_marks == 0


def test_nothing_is_reported_about_a_directory_without_damage(dead: DeadNode) -> None:
    with open_node(dead.path) as node:
        kinds = {finding.kind for finding in node.findings}
    assert kinds <= {"compaction"}


def test_message_containers_of_later_versions_are_read() -> None:
    samples = SHARED / "mc_samples.tsv"
    if not samples.exists():
        pytest.skip("the directory of real nodes, ../shared/fixtures, is not here")
    found = {}
    for line in samples.read_text(encoding="utf-8").splitlines():
        _, name, raw, _ = line.split("\t")
        found[name] = read_message(bytes.fromhex(raw))
    full = found["amqpl_full"]
    assert (full.exchange, full.routing_keys, full.body) == (
        "ex.a",
        ["rk.1", "cc1"],
        b"part1-part2",
    )
    assert decode_properties(full.properties).headers == {"k": "v", "n": 7, "CC": ["cc1"]}
    assert full.persistent
    assert not found["amqpl_min_transient"].persistent
    assert found["amqpl_empty_body"].body == b""
