"""Sums and hints of commands on quorum queues: each message counts once, a hint can be followed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from qindex.brokers.rabbitmq.directory import open_at
from qindex.brokers.reader import total
from qindex.cli.main import main

from .quorum_nodes import dead_letters, quorum_queues, real_node
from .quorum_sweep import ends_of
from .test_quorum_commands import as_json, members

Capture = pytest.CaptureFixture[str]


def test_a_dead_letter_that_waits_counts_once(tmp_path: Path, capsys: Capture) -> None:
    path = real_node("q1", tmp_path).path
    with open_at(path) as node:
        account = total(node.queues)
        published = sum(queue.outcome.found for queue in quorum_queues(node).values())
        waiting = sum(queue.account.found for queue in dead_letters(node).values())
    assert (account.found, waiting) == (published, 8) == (296, 8)
    assert account.adds_up
    told = as_json(capsys, "recover", path)
    assert told["account"]["found"] == sum(queue["found"] for queue in told["queues"]) == 296


@pytest.mark.parametrize("name", ["q1", "q2", "n42", "c3"])
def test_the_total_has_quorum_queues_too(tmp_path: Path, capsys: Capture, name: str) -> None:
    path = real_node(name, tmp_path).path
    path = members(tmp_path / "c3")[0] if name == "c3" else path
    told = as_json(capsys, "recover", path, code=int(name == "c3"))
    total, account = told["total"], told["account"]
    assert (total["live"], total["published"]) == (account["live"], account["found"])
    assert total["live_bytes"] == account["live_bytes"]
    assert total["acked"] == account["gone_by"].get("acked", 0)
    assert total["redelivered"] == account["marks"].get("redelivered", 0) > 0


@pytest.mark.parametrize("name", ["q1", "n42", "n43"])
def test_the_delivery_count_is_that_of_the_headers(
    tmp_path: Path, capsys: Capture, name: str
) -> None:
    path = real_node(name, tmp_path).path
    main(["cat", str(path), "--jsonl"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    counts = [row["headers"].get("delivery_count", 0) for row in rows]
    assert [row["delivery_count"] for row in rows] == counts
    assert max(counts) > 0


# --- du -------------------------------------------------------------------------------------------


def test_du_counts_each_byte_of_the_shared_log(tmp_path: Path, capsys: Capture) -> None:
    """All of it belongs to queues, but for the heads of file and names."""
    path = real_node("q1", tmp_path).path
    (wal,) = path.glob("quorum/*/*.wal")
    told = as_json(capsys, "du", path)
    with open_at(path) as node:
        uids = [queue.outcome.server.uid for queue in quorum_queues(node).values()]
    heads = 5 + sum(2 + len(uid) for uid in uids)
    assert len(ends_of(path, wal)) > 400
    assert sum(queue["index_bytes"] for queue in told["queues"]) == wal.stat().st_size - heads
    (log,) = [file for file in told["files"] if file["kind"] == "shared log"]
    live = sum(queue["live_index_bytes"] for queue in told["queues"])
    assert log["live_bytes"] == live > log["bytes"] // 2
    assert log["live_bytes"] + log["garbage_bytes"] == log["bytes"]
    main(["du", str(path)])
    assert "1 shared log, 425 kB = 354 kB live + 70.6 kB garbage" in capsys.readouterr().out


# --- audit ----------------------------------------------------------------------------------------


def test_an_audit_takes_the_best_member(tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("pyarrow")
    one, two, three = members(tmp_path)
    out = tmp_path / "audit"
    alone = as_json(capsys, "audit", three, "--out", out, "--master", "none", code=1)
    assert alone["account"]["live"] == 72
    told = as_json(
        capsys, "audit", three, "--member", one, "--member", two, "--out", out, "--master", "none"
    )
    assert told["account"]["live"] == 144
    assert set(told["kinds"]) == {"note"}


def test_an_audit_refuses_members_that_say_nothing(tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("pyarrow")
    one, two, three = map(str, members(tmp_path))
    out = str(tmp_path / "audit")
    for arguments, text in (
        ([one, two, "--member", three], "name its directory, and no other"),
        ([one, "--member", one], "given twice"),
        ([one, "--member", str(tmp_path / "nothing")], "no such directory"),
        ([one, "--member", two, "--master", "local[1]"], "leave --master out"),
    ):
        assert main(["audit", *arguments, "--out", out]) == 2, arguments
        assert text in capsys.readouterr().err


# --- what is only suspected -----------------------------------------------------------------------


def test_what_is_suspected_is_not_called_damaged(tmp_path: Path, capsys: Capture) -> None:
    _, _, three = members(tmp_path)
    for command in (["check"], ["peek"], ["du"], ["recover", "--report", str(tmp_path / "page")]):
        assert main([command[0], str(three), *command[1:]]) == 1
        told = "".join(capsys.readouterr())
        assert "damaged place" not in told
        assert "suspected" in told
    page = (tmp_path / "page").read_text()
    assert "1 suspected loss." in page
    assert "damaged place" not in page


def replays(path: Path) -> list[list[str]]:
    told = [str(path), "three"]
    return [told, [*told, "--at", "5"], [*told, "--until", "9"], [*told, "--to", "3"]]


def test_a_replay_of_a_member_alone_says_that_others_may_have_more(
    tmp_path: Path, capsys: Capture
) -> None:
    one, two, three = members(tmp_path)
    for arguments in replays(three):
        assert main(["replay", *arguments]) == 1, arguments
        assert "others may have newer messages" in capsys.readouterr().err
        both = ["--member", str(one), "--member", str(two)]
        assert main(["replay", *arguments, *both]) == 0, arguments
        assert capsys.readouterr().err == ""


# --- hints ----------------------------------------------------------------------------------------


def hint(told: str) -> list[str]:
    (line,) = [each for each in told.splitlines() if each.startswith("To take them: ")]
    return shlex.split(line.partition(": qindex ")[2].replace("STORE", "store"))


@pytest.mark.parametrize("below", ["", "quorum", "quorum/quo3@localhost", "coordination"])
def test_the_hint_of_recover_can_be_followed(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    """It names the node, not a folder in it, and all members: without them messages are lost."""
    one, two, three = members(tmp_path)
    given: list[Any] = [three / below, "--member", one, "--member", two]
    assert main(["recover", *map(str, given)]) == 0
    monkeypatch.chdir(tmp_path)
    arguments = hint(capsys.readouterr().out)
    assert arguments[1] == str(three)
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recovered"]["messages"] == 144


def test_several_nodes_below_a_directory_are_named(tmp_path: Path, capsys: Capture) -> None:
    members(tmp_path)
    for command in ("ls", "stats", "check", "recover", "peek"):
        assert main([command, str(tmp_path)]) == 2
        assert "several at once (RabbitMQ node quo1@localhost" in capsys.readouterr().err
