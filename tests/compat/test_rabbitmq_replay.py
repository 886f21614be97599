"""Journals that real nodes wrote, replayed record by record against what recovery reads."""

import json

import pytest

from qindex.brokers.rabbitmq.directory import open_node
from qindex.cli.main import main


@pytest.mark.parametrize(
    ("name", "records"), [("a_v1_clean", 0), ("b_v1_kill9", 4827), ("c_v1_seg2048_kill9", 16318)]
)
def test_replay_and_recovery_come_to_the_same(shared_node, capsys, name, records):
    path = shared_node(name).path
    assert main(["replay", str(path), "--verify", "--json"]) == 0
    verdicts = json.loads(capsys.readouterr().out)
    assert sum(verdict["record_count"] for verdict in verdicts) == records
    with open_node(path) as node:
        counts = [queue.counts for queue in node.queues]
    there = sum(c.live + c.transient + c.body_missing for c in counts)
    assert sum(verdict["messages"] for verdict in verdicts) == there > 300


def test_version_2_keeps_no_journal(shared_node, capsys):
    path = str(shared_node("e_v2_clean").path)
    assert main(["replay", path, "--verify", "--json"]) == 0
    verdicts = json.loads(capsys.readouterr().out)
    assert {verdict["skipped"] for verdict in verdicts} - {""}
    assert not any(verdict["same"] for verdict in verdicts if verdict["skipped"])
    queue = next(verdict["queue"] for verdict in verdicts if "," not in verdict["queue"])
    assert main(["replay", path, queue]) == 2
    assert "an index of version 2" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["b_v1_kill9", "c_v1_seg2048_kill9"])
def test_the_depth_behind_the_last_record_is_what_recovery_reads(shared_node, capsys, name):
    path = shared_node(name).path
    with open_node(path) as node:
        queues = [
            queue for queue in node.queues if len(queue.parts) == 1 and queue.vhost.name == "/"
        ]
    for queue in queues:
        assert main(["plot", "depth", str(path), queue.name, "--json"]) == 0
        curve = json.loads(capsys.readouterr().out)
        counts = queue.counts
        assert curve["depth"][-1] == counts.live + counts.transient + counts.body_missing
        assert curve["record_count"] == counts.journal_records
        assert len(curve["depth"]) == len(curve["numbers"]) <= 302
        assert all(age is None or 0 <= age < 3600 for age in curve["age_seconds"])
