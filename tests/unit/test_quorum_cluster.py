"""Members of one cluster together, and the moment that counts as now, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import DEMO_NODE, unpack

DATA = Path(__file__).parents[1] / "compat" / "data"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """n1 has all; n2 lacks the newest, n3 much more."""
    return unpack(DATA / "quorum_c3.tar.xz", tmp_path / "c3")


@pytest.mark.parametrize("first", ["n1", "n2", "n3"])
def test_the_best_log_is_taken_whichever_member_is_named_first(run, cluster, first):
    others = [name for name in ("n1", "n2", "n3") if name != first]
    members = [part for name in others for part in ("--member", cluster / name)]
    code, out, _ = run("recover", cluster / first, *members, "--json")
    told = json.loads(out)
    (queue,) = told["queues"]
    assert (code, queue["live"]) == (0, 144)
    lagging = [f["text"] for f in told["findings"] if f["kind"] == "lagging member"]
    assert sorted(text.split("alone ")[1] for text in lagging) == [
        "12 of its 144 messages would be missing and 0 that are settled would come back",
        "72 of its 144 messages would be missing and 0 that are settled would come back",
    ]


def test_a_log_that_ends_before_what_another_member_had_applied_is_damaged(run, cluster):
    """Of two nodes each has the other one's shared log: of no use, and n3 lags far behind."""
    one, two = (next((cluster / name).glob("quo*/quorum/*/*.wal")) for name in ("n1", "n2"))
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)
    members = ["--member", cluster / "n2", "--member", cluster / "n3"]
    code, out, _ = run("recover", cluster / "n1", *members, "--json")
    told = [each for each in json.loads(out)["findings"] if each["kind"] == "missing"]
    assert code == 1
    damage = [each["text"] for each in told if each["severity"] == "damage"]
    assert any("quo1@localhost had applied entry" in text for text in damage)


@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_member_whose_own_log_is_gone_may_have_had_more_than_the_others(run, cluster, how):
    """The leader had twelve messages that no other one has."""
    wal = next((cluster / "n1").glob("quo*/quorum/*/*.wal"))
    wal.unlink() if how == "gone" else wal.write_bytes(b"RAWA\x01")
    members = ["--member", cluster / "n2", "--member", cluster / "n3"]
    code, out, _ = run("recover", cluster / "n1", *members, "--json")
    told = json.loads(out)
    assert code == 1
    assert told["account"]["live"] == 132
    (text,) = (each["text"] for each in told["findings"] if "if anything, is lost" in each["text"])
    assert "quo1@localhost had applied entry" in text


def test_the_messages_of_the_best_member_are_recovered(run, cluster, tmp_path):
    store = tmp_path / "store"
    code, _, _ = run("recover", cluster / "n3", "--member", cluster / "n1", "--out", store)
    assert code == 0
    code, out, _ = run("ls", store, "--json")
    assert json.loads(out) == [{"queue": "three", "messages": 144, "error": ""}]


def test_one_member_alone_is_suspected_to_lack_messages(run, cluster):
    code, out, _ = run("check", cluster / "n3", "--json")
    (finding,) = json.loads(out)["findings"]
    assert code == 1
    assert finding["severity"] == "suspected"
    assert "1 of the 3 members" in finding["text"]


@pytest.mark.parametrize(
    ("archive", "left_out"),
    [
        (DEMO_NODE, "not 23 classic queues and 0 streams of its own"),
        (DATA / "quorum_s1.tar.xz", "not 0 classic queues and 3 streams of its own"),
        (DATA / "quorum_q1.tar.xz", None),
    ],
)
def test_a_node_of_another_cluster_is_suspected_and_what_it_has_besides_is_told(
    run, cluster, tmp_path, archive, left_out
):
    stranger = unpack(archive, tmp_path / "stranger")
    others = ["--member", cluster / "n2", "--member", cluster / "n3"]
    assert run("recover", cluster / "n1", *others, "--json").code == 0
    code, out, _ = run("recover", cluster / "n1", *others, "--member", stranger, "--json")
    told = [each["text"] for each in json.loads(out)["findings"] if each["kind"] == "member"]
    assert code == 1
    assert any("perhaps it is no member of this cluster" in text for text in told)
    assert left_out is None or any(left_out in text for text in told)


def test_a_member_that_is_none_is_an_error(run, cluster, tmp_path):
    code, _, error = run("recover", cluster / "n1", "--member", tmp_path)
    assert code == 2
    assert "n1" in error or "RabbitMQ" in error
    code, _, error = run("recover", cluster / "n1", "--member", cluster / "n1")
    assert code == 2
    assert "twice" in error


def test_a_moment_far_ahead_expires_what_has_a_time_to_live(run, tmp_path):
    node = unpack(DATA / "quorum_q1.tar.xz", tmp_path / "q1")
    for number, (when, expired) in enumerate(
        [("2026-11-22T20:00Z", 0), ("2026-11-23T05:00Z", 9), ("1893456000", 38)]
    ):
        into = tmp_path / f"store{number}"
        _, out, _ = run("recover", node, "--at-time", when, "--out", into, "--json")
        told = json.loads(out)["recovered"]
        (queue,) = (each for each in told["queues"] if each["queue"] == "ttl")
        assert (queue["live"], queue["expired"]) == (38, expired), when
    code, _, error = run("recover", node, "--at-time", "tomorrow")
    assert code == 2
    assert "2026-11-23T05:00Z" in error


def test_du_tells_how_much_of_a_queue_s_segments_is_alive(run, tmp_path):
    node = unpack(DATA / "quorum_q2.tar.xz", tmp_path / "q2")
    _, out, _ = run("du", node, "--json")
    told = {queue["queue"]: queue for queue in json.loads(out)["queues"]}
    segments = sum(file.stat().st_size for file in node.glob("**/2F_BIG*/*.segment"))
    (log,) = node.glob("**/quorum/*/*.wal")
    assert 0 < told["big"]["index_bytes"] - segments < log.stat().st_size
    assert sum(queue["index_bytes"] for queue in told.values()) < log.stat().st_size + sum(
        file.stat().st_size for file in node.glob("**/*.segment")
    )
    assert 0 < told["big"]["live_index_bytes"] < segments
    assert told["big"]["messages"] == 650
