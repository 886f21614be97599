"""--at-time: the moment that counts as now, with one meaning in every command.

Queue `ttl` of the node q1 has messages that expire: what has expired depends on the moment alone,
and what has not keeps the time that it had left then.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import qindex
from qindex.broker.rescue.copying import Copied, Copying
from qindex.broker.rescue.plan import make_plan
from qindex.brokers.rabbitmq.directory import open_at, open_node
from qindex.cli.main import main

from .quorum_nodes import quorum_queues, real_node

Capture = pytest.CaptureFixture[str]
VHOST, NAME = "vh/ünï", "ttl"
QUEUE = f"{VHOST}/{NAME}"


class Expiring:
    """A node, the expiries of one of its queues in seconds, and a moment between two of them."""

    def __init__(self, folder: Path) -> None:
        self.path = real_node("q1", folder).path
        with open_at(self.path) as node:
            messages = list(quorum_queues(node)[VHOST, NAME].messages())
        self.expiries = [None if m.expiry_us is None else m.expiry_us / 1e6 for m in messages]
        times = sorted({each for each in self.expiries if each is not None})
        self.moment = times[1] + 1.0
        self.expired = self.expired_by(self.moment)
        assert 0 < self.expired < len(messages)

    def expired_by(self, moment: float) -> int:
        return sum(each is not None and each <= moment for each in self.expiries)


@pytest.fixture
def node(tmp_path: Path) -> Expiring:
    return Expiring(tmp_path / "node")


def as_json(capsys: Capture, *arguments: object) -> Any:
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def lines(capsys: Capture, *arguments: object) -> list[Any]:
    capsys.readouterr()
    assert main([*map(str, arguments)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def row_of(rows: list[Any]) -> Any:
    (found,) = (row for row in rows if row["queue"] in (NAME, QUEUE))
    return found


@pytest.mark.parametrize("command", ["ls", "stats", "recover"])
def test_queues_say_how_many_have_expired_by_then(
    node: Expiring, capsys: Capture, command: str
) -> None:
    for moment in (0, node.moment, 2_000_000_000):
        told = as_json(capsys, command, node.path, "--at-time", moment)
        rows = told if command == "ls" else told["queues"]
        assert row_of(rows)["expired"] == node.expired_by(moment)
    assert main([command, str(node.path), "--at-time", str(node.moment)]) == 0
    assert "expired" in capsys.readouterr().out
    rows = as_json(capsys, command, node.path)
    assert "expired" not in row_of(rows if command == "ls" else rows["queues"])


def test_check_counts_all_of_them(node: Expiring, capsys: Capture) -> None:
    before = as_json(capsys, "check", node.path, "--at-time", 0)
    told = as_json(capsys, "check", node.path, "--at-time", node.moment)
    assert before["expired"] == 0
    assert told["expired"] >= node.expired
    assert told["messages"] == before["messages"]


@pytest.mark.parametrize("command", ["cat", "peek", "export"])
def test_states_are_those_of_the_moment(
    node: Expiring, capsys: Capture, tmp_path: Path, command: str
) -> None:
    given = ["--state", "expired", "--at-time", node.moment]
    if command == "cat":
        told = lines(capsys, "cat", node.path, QUEUE, "--jsonl", *given)
    elif command == "peek":
        told = lines(capsys, "peek", node.path, QUEUE, "-n", "999", "--json", *given)
    else:
        file = tmp_path / "out.jsonl"
        as_json(capsys, "export", node.path, QUEUE, "--out", file, *given)
        told = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(told) == node.expired
    assert {each["state"] for each in told} == {"expired"}


def test_trace_and_replay_say_it_of_one_message(node: Expiring, capsys: Capture) -> None:
    place = next(n for n, at in enumerate(node.expiries) if at is not None and at > node.moment)
    (alive,) = as_json(capsys, "trace", node.path, f"{QUEUE}:{place}", "--at-time", node.moment)
    (dead,) = as_json(capsys, "trace", node.path, f"{QUEUE}:{place}", "--at-time", 2_000_000_000)
    assert not alive["summary"].endswith("expired")
    assert dead["summary"].endswith("; expired")
    given = ["--at", "-1", "--messages", "--at-time", node.moment]
    told = as_json(capsys, "replay", node.path, QUEUE, *given)
    states = [each["state"] for each in told["message_list"]]
    assert states.count("expired") > 0
    assert len(states) > states.count("expired")


def test_a_recovered_message_has_the_time_left_that_it_had(
    node: Expiring, capsys: Capture, tmp_path: Path
) -> None:
    into, began = tmp_path / "store", time.time()
    told = as_json(capsys, "recover", node.path, "--into", into, "--at-time", node.moment)
    row = next(each for each in told["recovered"]["queues"] if each["target_queue"] == QUEUE)
    assert (row["messages"], row["expired"]) == (len(node.expiries) - node.expired, node.expired)
    left = [at - node.moment for at in node.expiries if at is not None and at > node.moment]
    with qindex.open(into, expire=False) as store:
        found = [m.expires_at for m in store.queue(QUEUE).browse() if m.expires_at is not None]
    assert [at - began for at in found] == pytest.approx(left, abs=60)


def test_diff_compares_the_states_of_the_moment(
    node: Expiring, capsys: Capture, tmp_path: Path
) -> None:
    given = [str(node.path), str(node.path), QUEUE, "--at-time", str(node.moment), "--json"]
    assert main(["diff", *given, "--state", "expired"]) == 0
    assert json.loads(capsys.readouterr().out)["queues"][0]["alike"] == node.expired


def test_what_a_rescue_serves_has_the_time_left_that_it_had(node: Expiring, tmp_path: Path) -> None:
    done: list[Copied] = []
    with open_node(node.path) as dead, qindex.open(tmp_path / "s", expire=False) as store:
        plan = make_plan(dead, ())
        copying = Copying(plan, {VHOST: store}, [(VHOST, NAME)], done.append, 5_000_000)
        copying.start()
        copying._thread.join()
        found = [m.headers.get("expires_us") for m in store.queue(NAME).browse()]
    wanted = [None if at is None else round(at * 1e6) + 5_000_000 for at in node.expiries]
    assert found == wanted


def test_a_moment_is_refused_where_it_says_nothing(
    node: Expiring, capsys: Capture, tmp_path: Path
) -> None:
    qindex.open(tmp_path / "store").close()
    for command in ("ls", "stats", "check"):
        assert main([command, str(tmp_path / "store"), "--at-time", "1"]) == 2
        assert "--at-time is for dead brokers' directories" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["ls", str(node.path), "--at-time", "yesterday"])
    assert "2026-11-23T05:00Z" in capsys.readouterr().err
    assert main(["serve", str(tmp_path / "new"), "--at-time", "1"]) == 2
    assert "--rescue" in capsys.readouterr().err
    assert main(["replay", str(node.path), QUEUE, "--at-time", "1"]) == 2
    assert "--at-time is for" in capsys.readouterr().err
