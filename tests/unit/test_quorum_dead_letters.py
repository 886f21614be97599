"""Dead letters that a node publishes when it starts: which of the log's, and what they carry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ra_files import Wal, dets, pid, put, term

from qindex.brokers.rabbitmq.deaths import Deaths
from qindex.brokers.rabbitmq.definitions import Definition
from qindex.brokers.rabbitmq.directory import open_at
from qindex.brokers.rabbitmq.erlang import Atom
from qindex.brokers.rabbitmq.quorum.member import replay
from qindex.brokers.rabbitmq.quorum.message import Message
from qindex.brokers.rabbitmq.quorum.queues import DeadLetterQueue, QuorumQueue
from qindex.brokers.rabbitmq.topology import CLASSIC, QUORUM, Exchange, Topology
from qindex.brokers.tree import Findings

UID = "2F_QUEUE0000"
SYSTEM = "quorum/a@b"
WHO = (b"tag", pid(20))
CONFIG = (
    b"#{id => {'%2F_q','a@b'},uid => <<\"" + UID.encode() + b'">>,machine => {module,rabbit_fifo,'
    b'#{queue_resource => {resource,<<"/">>,queue,<<"q">>}}}}.\n'
)


def user(*command: Any) -> bytes:
    told = (Atom(command[0]), *command[1:])
    return term((Atom("$usr"), {Atom("ts"): 1_790_000_000_000}, told, Atom("noreply")))


def publish(number: int) -> bytes:
    protocol = Atom("rabbit_framing_amqp_0_9_1")
    content = (Atom("content"), 60, Atom("none"), b"\0\0", protocol, [b"m%d" % number])
    exchange = (Atom("resource"), b"/", Atom("exchange"), b"")
    told = (Atom("basic_message"), exchange, [b"q"], content, b"", Atom("true"))
    return user("enqueue", pid(10), number, told)


def node(path: Path, handler: Any, last_applied: int | None, ttl_ms: int | None = None) -> Path:
    """Entries 3 to 6 publish m1 to m4; the consumer rejects m1 in entry 8 and m2 in entry 9."""
    name = (Atom("resource"), b"/", Atom("queue"), b"q")
    settings = {Atom("dead_letter_handler"): handler, Atom("queue_resource"): name}
    if ttl_ms is not None:
        settings[Atom("msg_ttl")] = ttl_ms
    spec = (Atom("auto"), 2, Atom("simple_prefetch"))
    log = [
        term((Atom("noop"), {Atom("ts"): 1_790_000_000_000}, 2)),
        user("update_config", settings),
        *(publish(number) for number in range(1, 5)),
        user("checkout", WHO, spec, {Atom("prefetch"): 2}),
        user("discard", WHO, [0]),
        user("discard", WHO, [1]),
    ]
    wal = Wal()
    for index, data in enumerate(log, 1):
        wal.add(UID, index, data)
    noted = [] if last_applied is None else [(UID.encode(), 1, Atom("undefined"), last_applied)]
    files = {
        f"{SYSTEM}/{UID}/config": CONFIG,
        f"{SYSTEM}/00000001.wal": wal.data,
        f"{SYSTEM}/names.dets": dets([(Atom("%2F_q"), UID.encode())]),
        f"{SYSTEM}/meta.dets": dets(noted),
    }
    return put(path, files)


AT_MOST_ONCE = (Atom("at_most_once"), (Atom("rabbit_dead_letter"), Atom("publish"), [Atom("x")]))


def bodies(path: Path) -> dict[str, list[bytes]]:
    with open_at(path) as opened:
        assert all(queue.account.adds_up for queue in opened.queues)
        return {queue.name: [each.body for each in queue.messages()] for queue in opened.queues}


@pytest.mark.parametrize(("last_applied", "again"), [(7, [b"m1", b"m2"]), (8, [b"m2"]), (9, [])])
def test_at_most_once_those_that_the_node_had_not_noted_are_published_again(
    tmp_path: Path, last_applied: int, again: list[bytes]
) -> None:
    """A node does the work of later entries when it starts: with the files alone nobody knows
    whether it had done so before, and whether the dead letter's target had it in its own log."""
    found = bodies(node(tmp_path, AT_MOST_ONCE, last_applied))
    assert found["q"] == [b"m3", b"m4"]
    assert found.get("q (dead letters)", []) == again


def test_without_notes_all_entries_count_as_done(tmp_path: Path) -> None:
    assert set(bodies(node(tmp_path, AT_MOST_ONCE, None))) == {"q"}


def test_without_a_dead_letter_exchange_nothing_is_published(tmp_path: Path) -> None:
    assert set(bodies(node(tmp_path, Atom("undefined"), 7))) == {"q"}


def test_at_least_once_all_wait_that_no_worker_has_settled(tmp_path: Path) -> None:
    found = bodies(node(tmp_path, Atom("at_least_once"), 9))
    assert found["q (dead letters)"] == [b"m1", b"m2"]


@pytest.mark.parametrize("scans", [True, False])
def test_both_ways_to_read_the_log_tell_the_same_dead_letters(tmp_path: Path, scans: bool) -> None:
    with open_at(node(tmp_path, AT_MOST_ONCE, 8)) as opened:
        (queue,) = (each for each in opened.queues if isinstance(each, QuorumQueue))
        outcome = replay(queue.outcome.server, Findings(), scans=scans)
        assert [(reason, held.index) for reason, held in outcome.dead] == [("rejected", 4)]


def test_a_dead_letter_that_waits_does_not_expire_any_more(tmp_path: Path, run: Any) -> None:
    """The node takes its expiration away when it publishes it."""
    path = node(tmp_path / "node", AT_MOST_ONCE, 7, ttl_ms=1)
    with open_at(path) as opened:
        (queue,) = (each for each in opened.queues if isinstance(each, DeadLetterQueue))
        assert queue.queue.outcome.dead[0][1].expiry_ms == 1_790_000_000_001
        assert [message.expiry_us for message in queue.messages()] == [None, None]
    code, out, _ = run("recover", path, "--out", tmp_path / "store", "--json")
    told = json.loads(out)["recovered"]
    by_name = {each["queue"]: each for each in told["queues"]}
    dead = by_name["q (dead letters)"]
    assert (dead["messages"], dead["kept"]) == (2, 0)
    assert code == 0


@pytest.mark.parametrize(
    ("changed", "kind", "fate"),
    [
        ({}, QUORUM, "keep it as a dead letter"),
        ({"x-dead-letter-strategy": "at-most-once"}, QUORUM, "drop it"),
        ({"x-overflow": "drop-head"}, QUORUM, "drop it"),  # at-least-once needs the other one
        ({}, CLASSIC, "drop it"),
    ],
)
@pytest.mark.parametrize("exchange", ["nowhere", "lonely"])
def test_what_a_node_would_do_with_a_dead_letter_that_reaches_no_queue(
    changed: dict[str, Any], kind: str, fate: str, exchange: str
) -> None:
    arguments = {
        "x-dead-letter-exchange": exchange,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        **changed,
    }
    exchanges = {(b"/", b""): Exchange("direct", {}), (b"/", b"lonely"): Exchange("fanout", {})}
    queues = {(b"/", b"q"): Definition(b"/", b"q", arguments, kind)}
    topology = Topology(exchanges=exchanges, queues=queues, has_policies=True)
    message = Message(3, None, False, "", ["q"], b"\0\0", b"m", 0, None, "file", 0)
    (letter,) = Deaths(topology, b"/", 0, lambda _: True).send(message, b"q", "expired")
    assert letter.queue == b"q"
    assert letter.kept.endswith(f": the node would {fate}")
