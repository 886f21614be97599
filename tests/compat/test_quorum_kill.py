"""Real nodes, killed in the middle of random use of their quorum queues: recovered is drained."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from qindex.brokers.rabbitmq.directory import open_at
from qindex.brokers.rabbitmq.quorum.erlang_order import map_order
from qindex.brokers.rabbitmq.quorum.message import Message
from qindex.brokers.rabbitmq.quorum.queues import QuorumQueue

from .quorum_load import QUEUES, Load, digest, drained
from .quorum_nodes import dead_letters, quorum_queues
from .rabbitmq_server import Server, wait_for_names


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 5))]
)
def test_what_is_recovered_is_what_the_node_gives_back(
    rabbitmq_server: Server, tmp_path: Path, seed: int
) -> None:
    copy, at_ms = killed(rabbitmq_server, Load(rabbitmq_server, seed), 400, tmp_path)
    compare(rabbitmq_server, copy, at_ms)


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", [10, 11])
def test_large_messages_over_several_shared_logs_and_segments(
    rolling_server: Server, tmp_path: Path, seed: int
) -> None:
    load = Load(rolling_server, seed, lengths=(1, 10, 100, 3000))
    copy, at_ms = killed(rolling_server, load, 700, tmp_path)
    assert len(list(copy.glob("quorum/*/*/*.segment"))) > 10
    (wal,) = list(copy.glob("quorum/*/*.wal"))[-1:]
    assert wal.name > "00000003"
    compare(rolling_server, copy, at_ms)


def killed(server: Server, load: Load, steps: int, tmp_path: Path) -> tuple[Path, int]:
    """A copy of what a node left that was killed in the middle, and when it was started again."""
    wait_for_names(server, "quorum", len(QUEUES))
    load.steps(steps)
    server.kill()
    load.close()
    copy = tmp_path / "copy"
    shutil.copytree(server.mnesia / "qix@localhost", copy)
    server.start()
    at_ms = int(time.time() * 1000)
    settled(server)
    return copy, at_ms


def compare(rabbitmq_server: Server, copy: Path, at_ms: int) -> None:
    """What is recovered of the copy with what the node gives back."""
    with open_at(copy) as node:
        queues = {name: queue for (_, name), queue in quorum_queues(node).items()}
        assert set(queues) == set(QUEUES)
        assert not [each for each in node.findings if each.kind == "no notes"]
        told = {name: recovered(queue, at_ms) for name, queue in queues.items()}
        dead = {name: list(queue.messages()) for (_, name), queue in dead_letters(node).items()}
        for queue in queues.values():
            assert queue.outcome.exact or queue.outcome.unordered, queue.outcome.why
            assert queue.account.adds_up
            assert queue.unreadable == 0
    assumed = erlang_walks(range(1000)) == map_order(range(1000))
    for name in sorted(QUEUES, key=lambda name: name == "dead"):
        given = drained(rabbitmq_server, name)
        assert_is_within(queues[name], told[name], given, at_ms)
        if queues[name].outcome.unordered and not assumed:
            continue  # what is known all the same was compared just now
        if name != "dead":
            assert told[name] == given, name
        else:  # behind them dead letters arrive that waited, or are new since the start
            assert told[name] == given[: len(told[name])]
            arrived = [row[0] for row in given[len(told[name]) :]]
            waited = [digest(message.body) for message in dead.get("alo-target", [])]
            assert set(waited) <= set(arrived)


def erlang_walks(keys: range) -> list[int]:
    """The order in which this machine's Erlang walks a map with these keys."""
    numbers = f"lists:seq({keys[0]}, {keys[-1]})"
    program = f'io:format("~w", [maps:keys(maps:from_list([{{N, 0}} || N <- {numbers}]))]), halt().'
    done = subprocess.run(
        ["erl", "-noshell", "-eval", program], capture_output=True, text=True, check=True
    )
    found: list[int] = json.loads(done.stdout)
    return found


def assert_is_within(
    queue: QuorumQueue,
    told: list[tuple[str, bool, int]],
    given: list[tuple[str, bool, int]],
    at_ms: int,
) -> None:
    """What is said to be sure although messages came back in an order that Erlang alone knows.

    Behind what is told, dead letters may have arrived. Of a queue where a limit may have dropped
    other messages nothing is said to be sure.
    """
    outcome = queue.outcome
    if any("a limit" in why for why in outcome.why):
        return
    counts = {body: count for body, _, count in given}
    assert len(told) <= len(given)
    assert len({body for body, _, _ in told} - set(counts)) <= outcome.others
    for message in queue.messages():
        body = digest(message.body)
        least, most = message.counts or (message.delivery_count, message.delivery_count)
        if body in counts and not is_expired(message, at_ms):
            assert least <= counts[body] <= most


def is_expired(message: Message, at_ms: int) -> bool:
    return 0 < (message.expiry_us or 0) <= at_ms * 1000


def recovered(queue: QuorumQueue, at_ms: int) -> list[tuple[str, bool, int]]:
    return [
        (digest(message.body), message.redelivered, message.delivery_count)
        for message in queue.messages()
        if not is_expired(message, at_ms)
    ]


def settled(server: Server, queues: Iterable[str] = QUEUES) -> None:
    """Returns when the new leaders have found out that no client of before lives."""
    connection = server.connect()
    channel = connection.channel()
    before: list[int] = []
    until = time.monotonic() + 60
    while time.monotonic() < until:
        time.sleep(4)
        now = [channel.queue_declare(n, passive=True).method.message_count for n in queues]
        if now == before:
            break
        before = now
    connection.close()
