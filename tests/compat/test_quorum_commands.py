"""Commands on quorum queues: trace and replay of the log, diff, and the members of a cluster."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import qindex
from qindex.brokers.rabbitmq.directory import open_at
from qindex.brokers.rabbitmq.quorum.history import History
from qindex.brokers.rabbitmq.quorum.queues import QuorumQueue
from qindex.cli.main import main

from .quorum_nodes import NAMES, quorum_queues, real_node

Capture = pytest.CaptureFixture[str]


def as_json(capsys: Capture, *arguments: object, code: int = 0) -> Any:
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def in_store(queue: QuorumQueue) -> str:
    return queue.name if queue.group == "/" else f"{queue.group}/{queue.name}"


def members(folder: Path) -> tuple[Path, Path, Path]:
    path = real_node("c3", folder).path
    one, two, three = (next((path / name).glob("quo*@localhost")) for name in ("n1", "n2", "n3"))
    return one, two, three


# --- history --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_what_became_of_each_message_adds_up_to_the_account(tmp_path: Path, name: str) -> None:
    """Each message that was published ends once, or is live."""
    with open_at(real_node(name, tmp_path).path) as node:
        for queue in quorum_queues(node).values():
            history = History(queue.outcome.server)
            verbs: Counter[str] = Counter()
            here: set[int] = set()
            for step in history.steps():
                if step.entry is None and not step.is_restart:
                    machine = step.machine
                    here.update(message.index for message in machine.returns)
                    here.update(machine.ready.indexes())
                    here.update(m.index for _, m in machine.dead)
                    for consumer in machine.consumers.values():
                        here.update(message.index for message in consumer.checked.values())
                for event in step.events:
                    verbs[event.verb] += 1
                    if event.verb == "publish":
                        here.add(event.message)
                    elif event.verb not in ("deliver", "return", "dead-letter"):
                        here.remove(event.message)
                    elif event.verb == "dead-letter" and event.message in here:
                        here.remove(event.message)  # and once more when it is published
            dead = {held.index for _, held in history.outcome.dead}
            assert here - dead == set(history.outcome.indexes)
            assert verbs["ack"] == history.outcome.gone["acked"]
            assert verbs["purge"] == history.outcome.gone["purged"]
            assert list(history.outcome.indexes) == list(queue.outcome.indexes)


# --- trace ----------------------------------------------------------------------------------------


def test_a_live_message_s_entries_by_place_and_by_index(tmp_path: Path, capsys: Capture) -> None:
    path = real_node("q1", tmp_path).path
    with open_at(path) as node:
        queue = quorum_queues(node)["/", "orders"]
        counts = [(m.index, m.delivery_count) for m in queue.messages()]
    place = next(n for n, (_, count) in enumerate(counts) if count == 1)
    index = counts[place][0]
    (by_place,) = as_json(capsys, "trace", path, f"orders:{place}")
    (by_index,) = as_json(capsys, "trace", path, f"orders@{index}")
    assert by_place == by_index
    assert int(by_place["req_id"]) == index
    verbs = [record["verb"] for record in by_place["records"]]
    assert verbs[0] == "publish"
    assert verbs.count("deliver") >= verbs.count("return") == 1
    assert by_place["summary"] == "live, delivered 1 times"
    assert f"entry {index}, term " in by_place["records"][0]["text"]


@pytest.mark.slow
def test_what_was_acked_and_what_is_no_message(tmp_path: Path, capsys: Capture) -> None:
    path = real_node("q1", tmp_path).path
    states: Counter[str] = Counter()
    for index in range(1, 60):
        for found in as_json(capsys, "trace", path, f"orders@{index}"):
            states[found["summary"]] += 1
            if found["summary"] == "acked":
                last = found["records"][-1]
                assert last["verb"] == "ack"
                assert "by consumer " in last["text"]
    assert states["acked"] > 3
    assert states["no message: the entry is another command"] >= 3
    assert main(["trace", str(path), "orders@99999999"]) == 2


def test_behind_a_snapshot_the_state_says_where_it_was(tmp_path: Path, capsys: Capture) -> None:
    path = real_node("n43", tmp_path).path
    with open_at(path) as node:
        queue = next(q for q in quorum_queues(node).values() if q.outcome.snapshot)
        assert queue.outcome.snapshot is not None
        first = queue.outcome.snapshot.index
        name, index = in_store(queue), min(queue.outcome.indexes)
    assert index <= first
    (found,) = as_json(capsys, "trace", path, f"{name}@{index}")
    assert found["records"][0]["verb"] == "state"
    assert found["summary"].startswith("live, ")


# --- replay ---------------------------------------------------------------------------------------


def test_steps_have_the_raft_index_and_end_with_what_is_live(
    tmp_path: Path, capsys: Capture
) -> None:
    path = real_node("q1", tmp_path).path
    assert main(["replay", str(path), "orders", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    indexes = [line["entry"] for line in lines]
    assert indexes == sorted(set(indexes))
    with open_at(path) as node:
        outcome = quorum_queues(node)["/", "orders"].outcome
        assert indexes[-1] == outcome.server.last_index
        assert lines[-1]["live"] == len(outcome.indexes)
    assert main(["replay", str(path), "orders", "--from", "10", "--to", "12", "--json"]) == 0
    some = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["entry"] for line in some if line["entry"] >= 10] == [10, 11, 12]


def test_a_state_of_the_past_can_be_seen_and_put_into_a_store(
    tmp_path: Path, capsys: Capture
) -> None:
    path = real_node("q1", tmp_path).path
    with open_at(path) as node:
        outcome = quorum_queues(node)["/", "orders"].outcome
        last, live = outcome.server.last_index, list(outcome.indexes)
    now = as_json(capsys, "replay", path, "orders", "--at", last, "--messages")
    assert [row["entry"] for row in now["message_list"]] == live
    past = as_json(capsys, "replay", path, "orders", "--at", last // 2, "--messages")
    assert past["live"] == len(past["message_list"])
    assert {row["entry"] for row in past["message_list"]} - set(live)  # acked later
    acked = min({row["entry"] for row in past["message_list"]} - set(live))
    at_ack = as_json(capsys, "replay", path, "orders", "--until", acked, "--verb", "ack")
    assert at_ack["entry"] > last // 2
    into = tmp_path / "store"
    done = as_json(capsys, "replay", path, "orders", "--at", last // 2, "--out", into)
    assert done == {"entry": last // 2, "out": str(into), "messages": past["live"], "lost": 0}
    with qindex.open(into, read_only=True) as store:
        assert len(store.queue("orders")) == past["live"]
    assert main(["replay", str(path), "orders", "--at", str(last + 1)]) == 2
    assert main(["replay", str(path), "orders", "--step"]) == 2


def test_before_a_snapshot_no_state_is_known(tmp_path: Path, capsys: Capture) -> None:
    path = real_node("n43", tmp_path).path
    with open_at(path) as node:
        queue = next(q for q in quorum_queues(node).values() if q.outcome.snapshot)
        assert queue.outcome.snapshot is not None
        name, first = in_store(queue), queue.outcome.snapshot.index
    assert main(["replay", str(path), name, "--at", str(first - 1)]) == 2
    assert f"can be played from entry {first + 1}" in capsys.readouterr().err
    assert main(["replay", str(path), name, "--at", str(first)]) == 0


@pytest.mark.parametrize("name", NAMES)
def test_both_ways_to_read_entries_agree(tmp_path: Path, capsys: Capture, name: str) -> None:
    verdicts = as_json(capsys, "replay", real_node(name, tmp_path).path, "--verify")
    assert {v["difference"] for v in verdicts} == {""}
    assert any(v["record_count"] > 10 for v in verdicts)


def test_depth_and_age_over_the_log(tmp_path: Path, capsys: Capture) -> None:
    path = real_node("q1", tmp_path).path
    curve = as_json(capsys, "plot", "depth", path, "orders")
    assert main(["replay", str(path), "orders", "--json"]) == 0
    steps = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    live = {-1: 0, **{step["entry"]: step["live"] for step in steps}}
    assert [live[number] for number in curve["numbers"]] == curve["depth"]
    assert curve["record_count"] == len(steps)
    assert not any(curve["older"])
    ages = [age for age in curve["age_seconds"] if age is not None]
    began, ended = (datetime.fromisoformat(curve[name]) for name in ("began_at", "ended_at"))
    assert max(ages) <= (ended - began).total_seconds()
    assert ages[-1] > 0


# --- members, diff --------------------------------------------------------------------------------


def test_commands_take_the_best_member(tmp_path: Path, capsys: Capture) -> None:
    best, _, worst = members(tmp_path)
    (wanted,) = as_json(capsys, "ls", best, code=1)
    (alone,) = as_json(capsys, "ls", worst, code=1)
    assert alone["messages"] != wanted["messages"]
    together = [worst, "--member", best]
    (found,) = as_json(capsys, "ls", *together)
    assert found["messages"] == wanted["messages"]
    name = found["queue"]
    assert as_json(capsys, "stats", *together)["queues"][0]["live"] == wanted["messages"]
    main(["cat", str(best)])
    bodies = capsys.readouterr().out
    assert main(["cat", *map(str, together)]) == 0
    assert capsys.readouterr().out == bodies
    assert main(["check", *map(str, together)]) == 0
    last = wanted["messages"] - 1
    (traced,) = as_json(capsys, "trace", *together, f"{name}:{last}")
    assert traced["summary"].startswith("live")
    assert as_json(capsys, "replay", *together, name, "--at", "-1")["entry"] > 10
    export = tmp_path / "all.jsonl"
    assert main(["export", *map(str, together), "--form", "jsonl", "--out", str(export)]) == 0
    assert len(export.read_text().splitlines()) == wanted["messages"]


def test_a_member_is_refused_where_it_says_nothing(tmp_path: Path, capsys: Capture) -> None:
    best, other, _ = members(tmp_path)
    qindex.open(tmp_path / "store").close()
    for command in (["ls"], ["check"], ["stats"], ["cat"], ["peek"]):
        assert main([*command, str(tmp_path / "store"), "--member", str(other)]) == 2
        assert "--member is for RabbitMQ nodes" in capsys.readouterr().err
    assert main(["ls", str(best), "--member", str(best)]) == 2
    assert "given twice" in capsys.readouterr().err


def test_members_are_compared_by_the_index_of_entries(tmp_path: Path, capsys: Capture) -> None:
    """The second one lacks the newest messages only; all others are the same ones."""
    best, second, _ = members(tmp_path)
    lives = []
    for path in (best, second):
        with open_at(path) as node:
            ((_, queue),) = quorum_queues(node).items()
            lives.append(set(queue.outcome.indexes))
    assert main(["diff", str(best), str(second), "--jsonl", "--ignore-state"]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    only = {int(each["req_id"]) for each in found if each["what"] == "only in A"}
    assert only == lives[0] - lives[1]
    assert {int(each["req_id"]) for each in found if each["what"] == "only in B"} == lives[
        1
    ] - lives[0]


# --- by hand, and with members in the other commands ----------------------------------------------


def test_step_goes_forwards_and_back(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = real_node("q1", tmp_path).path
    commands = ["n", "+20", "m", "b", "f 9", "m", "-3", "5000", "b", "$", "0", "?", "q", "n"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(commands)))
    assert main(["replay", str(path), "orders", "--step"]) == 0
    told = capsys.readouterr().out.splitlines()
    lines = [line.split()[:2] for line in told if " live  " in line]
    steps = as_steps(capsys, path, "orders")
    live = {-1: 0, **{step["entry"]: step["live"] for step in steps}}
    last = max(live)
    about_9 = next(
        step["entry"]
        for step in steps
        if step["entry"] > 19 and any(event[1] == 9 for event in events_of(step))
    )
    expected = [-1, 0, 20, 19, about_9, about_9 - 3, last, last - 1, last, 0]
    assert [int(number) for number, _ in lines] == expected
    assert [int(count) for _, count in lines] == [live[number] for number in expected]
    first, second = (b for a, b in pairwise(told) if "(* delivered before)" in a)
    assert first.split() == [str(number) for number in range(4, 21)]
    assert "9*" in second.split()
    assert f"  the end: entry {last:,}" in told


def as_steps(capsys: Capture, path: Path, queue: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["replay", str(path), queue, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def events_of(step: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each["verb"], each["message"]) for each in step.get("events", [])]


def test_diff_of_members_and_of_what_a_cluster_gives(tmp_path: Path, capsys: Capture) -> None:
    one, two, three = members(tmp_path)
    alone = as_json(capsys, "diff", three, one, code=1)
    (queue,) = alone["queues"]
    assert (queue["alike"], queue["only_a"], queue["only_b"]) == (72, 0, 72)
    both = as_json(capsys, "diff", three, two, "--member", one, "--member-b", one)
    assert both["same"]
    assert both["queues"][0]["alike"] == 144


def test_du_and_bisect_take_members(tmp_path: Path, capsys: Capture) -> None:
    one, _, three = members(tmp_path)
    (queue,) = as_json(capsys, "du", three, "--member", one)["queues"]
    assert queue["messages"] == 144
    told = as_json(capsys, "bisect", three, "three", "--member", one, "--cmd", "cat >/dev/null")
    assert (told["messages"], told["survives"]) == (144, True)
