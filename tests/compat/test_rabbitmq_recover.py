"""Recovering a dead RabbitMQ node into a store: all of it, in order, once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qindex.brokers import recover
from qindex.brokers.amqp import decode_properties, decode_table, encode_table
from qindex.brokers.rabbitmq.directory import Message, Node, open_node
from qindex.brokers.reader import Account
from qindex.brokers.recover import QueueExists, RecoverReport, recover_into

if TYPE_CHECKING:
    from .conftest import DeadNode

Row = tuple[bytes, dict[str, Any], bool, float | None]


class FakeQueue:
    def __init__(self) -> None:
        self.batches: list[list[Row]] = []

    def publish_many(
        self,
        bodies: Sequence[bytes],
        *,
        headers: Sequence[dict[str, Any]],
        redelivered: Sequence[bool],
        expires_at: Sequence[float | None],
    ) -> None:
        self.batches.append(list(zip(bodies, headers, redelivered, expires_at, strict=True)))

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]


class FakeStore:
    """As much of a store as a recovery needs."""

    def __init__(self) -> None:
        self.made: dict[str, FakeQueue] = {}
        self.syncs = 0

    def queues(self) -> list[str]:
        return list(self.made)

    def queue(self, name: str) -> FakeQueue:
        return self.made.setdefault(name, FakeQueue())

    def sync(self) -> None:
        self.syncs += 1


@pytest.fixture
def node(demo_node: DeadNode) -> Any:
    with open_node(demo_node.path) as node:
        yield node


def into(vhost: str, name: str) -> str:
    return name if vhost == "/" else f"{vhost}/{name}"


def test_every_message_arrives_in_order_with_all_it_carried(
    node: Node, demo_node: DeadNode
) -> None:
    store = FakeStore()
    report = recover_into(node, store, keep_expired=True)
    told = {into(q["vhost"], q["name"]): q["messages"] for q in demo_node.truth["queues"]}
    assert store.made.keys() == told.keys()
    for name, queue in store.made.items():
        found = []
        for body, headers, redelivered, _ in queue.rows:
            headers = decode_table(encode_table(headers))
            number = int(decode_properties(headers["properties"]).message_id or -1)
            digest = hashlib.sha256(body).hexdigest()[:32]
            exchange, key = headers["exchange"], headers["routing_keys"][0]
            found.append([number, int(redelivered), exchange, key, len(body), digest])
        assert found == told[name]
    assert (report.live, report.messages, report.expired, report.unreadable) == (339, 339, 0, 0)
    assert report.redelivered == 14
    assert report.body_bytes == node.counts.live_body_bytes
    assert store.syncs == 1


def test_the_account_of_each_queue_adds_up(node: Node) -> None:
    report = recover_into(node, FakeStore())
    for done in report.queues:
        assert done.live == done.messages + done.expired + done.unreadable
    assert report.messages == sum(done.messages for done in report.queues)
    assert report.live == report.messages + report.expired


def test_what_has_expired_is_left_out_as_rabbitmq_would(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recover.time, "time", lambda: 1795235861.72)  # when the node was booted
    store = FakeStore()
    report = recover_into(node, store)
    assert (report.expired, report.messages) == (10, 329)
    assert len(store.made["q.ttl"].rows) == 20
    kept = [expires_at for _, _, _, expires_at in store.made["q.ttl"].rows]
    assert sum(expires_at is not None for expires_at in kept) == 10
    assert all(e > 1795235861.72 for e in kept if e is not None)


def test_the_expiry_is_exact_to_the_microsecond(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recover.time, "time", lambda: 0.0)
    store = FakeStore()
    recover_into(node, store)
    (queue,) = (q for q in node.vhosts[0].queues if q.name == "q.ttlq")
    told = [message.expiry_us for message in queue.messages()]
    rows = store.made["q.ttlq"].rows
    assert [round((expires_at or 0) * 1_000_000) for *_, expires_at in rows] == told


def test_a_second_recovery_into_the_same_store_is_refused(node: Node) -> None:
    store = FakeStore()
    recover_into(node, store)
    before = {name: len(queue.batches) for name, queue in store.made.items()}
    with pytest.raises(QueueExists, match="already has 19 of the 19 queues"):
        recover_into(node, store)
    assert {name: len(queue.batches) for name, queue in store.made.items()} == before


def test_one_queue_of_that_name_is_enough_to_refuse(node: Node) -> None:
    store = FakeStore()
    store.queue("q.small")
    with pytest.raises(QueueExists, match=r"1 of the 19 queues, the first is 'q\.small'"):
        recover_into(node, store)
    assert list(store.made) == ["q.small"]
    assert not store.made["q.small"].batches


def test_other_queues_in_the_store_do_not_matter(node: Node) -> None:
    store = FakeStore()
    store.queue("mine")
    recover_into(node, store)
    assert not store.made["mine"].batches


def test_batches_have_a_limit_of_messages_and_of_bytes(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recover, "BATCH_MESSAGES_MAX", 7)
    monkeypatch.setattr(recover, "BATCH_BODY_BYTES_MAX", 20_000)
    store = FakeStore()
    recover_into(node, store, keep_expired=True)
    batches = [batch for queue in store.made.values() for batch in queue.batches]
    assert max(map(len, batches)) == 7
    assert all(len(b) == 1 or sum(len(row[0]) for row in b) <= 20_000 for b in batches)
    assert sum(map(len, batches)) == 339


def test_progress_is_told_behind_each_batch(node: Node) -> None:
    seen: list[tuple[int, int]] = []

    def progress(report: RecoverReport) -> None:
        seen.append((report.messages, report.live))

    report = recover_into(node, FakeStore(), keep_expired=True, progress=progress)
    assert seen == sorted(seen)
    assert seen[-1] == (339, 339)
    assert 0 < report.seconds < 60


class FakeNode:
    """Queues by (vhost, name), each with a number of messages."""

    def __init__(self, *names: tuple[str, str], vanishes: bool = False) -> None:
        self.queues = [FakeSource(vhost, name, vanishes) for vhost, name in sorted(names)]

    def deaths(self, *_: object) -> None:
        return None


class FakeSource:
    unreadable = 0

    def __init__(self, group: str, name: str, vanishes: bool) -> None:
        self.group = group
        self.name = name
        self.vanishes = vanishes
        self.sent: list[Message] = []

    @property
    def account(self) -> Account:
        return Account(found=len(self.sent), live=len(self.sent))

    def messages(self) -> list[Message]:
        return self.sent


def test_names_that_would_clash_get_one_more_slash() -> None:
    store = FakeStore()
    node: Any = FakeNode(("/", "a/b"), ("a", "b"), ("a", "/b"), ("a/", "b"), ("/", "x"))
    report = recover_into(node, store)
    assert {(done.group, done.name): done.into for done in report.queues} == {
        ("/", "a/b"): "a/b",
        ("/", "x"): "x",
        ("a", "/b"): "a//b",
        ("a", "b"): "a///b",
        ("a/", "b"): "a////b",
    }


def test_a_queue_that_the_node_would_forget_is_not_made() -> None:
    store = FakeStore()
    node: Any = FakeNode(("/", "gone"), vanishes=True)
    assert recover_into(node, store).queues == []
    assert store.made == {}


def test_text_that_is_not_utf8_is_kept() -> None:
    store = FakeStore()
    node: Any = FakeNode(("/", "q\udcff"))
    message = Message(
        0, bytes(16), True, int(time.time() + 60) * 1_000_000, False, "ex\udcff", ["k", "\udcfe"],
        b"\0\0", b"body", None, False, "0.idx", 34,
    )  # fmt: skip
    node.queues[0].sent = [message]
    recover_into(node, store)
    ((_, headers, _, _),) = store.made["q\\x{ff}"].rows
    assert headers == {"exchange": b"ex\xff", "routing_keys": ["k", b"\xfe"], "properties": b"\0\0"}
    assert decode_table(encode_table(headers)) == headers


def test_a_message_that_cannot_be_read_is_in_the_account(demo_copy: DeadNode) -> None:
    (file,) = Path(demo_copy.path).glob("**/628WB79CIFDYO9LJI6DKMI09L/msg_store_persistent/0.rdq")
    data = bytearray(file.read_bytes())
    data[24 + 2] = 5
    file.write_bytes(data)
    with open_node(demo_copy.path) as node:
        report = recover_into(node, FakeStore(), keep_expired=True)
        assert (report.live, report.messages, report.unreadable) == (339, 338, 1)
        assert [finding.kind for finding in node.findings] == ["message lost"]
