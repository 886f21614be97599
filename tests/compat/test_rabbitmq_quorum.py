"""Quorum queues of real nodes and libraries: exactly what these gave back after a restart."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import unpack

from qindex.brokers.rabbitmq.directory import Node, open_at

from .conftest import SHARED
from .quorum_nodes import NAMES, dead_letters, quorum_queues, real_node, rows


def check_accounts(node: Node) -> None:
    for queue in node.queues:
        assert queue.account.adds_up, (queue.name, queue.account)
        assert sum(1 for _ in queue.messages()) == queue.account.live
        assert queue.unreadable == 0


@pytest.mark.parametrize("name", NAMES)
def test_order_bodies_counts_and_keys_are_what_the_node_gave_back(
    tmp_path: Path, name: str
) -> None:
    real = real_node(name, tmp_path)
    with open_at(real.path) as node:
        found = {key: rows(queue, real.at_ms) for key, queue in quorum_queues(node).items()}
        told = {
            (queue["vhost"], queue["name"]): queue["messages"]
            for queue in real.truth["queues"]
            if not queue["rescue_of_dlx"]
        }
        assert found.keys() == told.keys()
        for key, messages in told.items():
            assert found[key] == messages, key
        assert [finding for finding in node.findings if finding.severity != "note"] == []
        check_accounts(node)
        assert not node.unread


def test_dead_letters_that_are_in_no_count_are_told_apart(tmp_path: Path) -> None:
    """The node published them after its start: the truth has them where they went to."""
    real = real_node("q1", tmp_path)
    (told,) = (queue["messages"] for queue in real.truth["queues"] if queue["rescue_of_dlx"])
    with open_at(real.path) as node:
        ((key, queue),) = dead_letters(node).items()
        found = list(queue.messages())
    assert key == ("vh/ünï", "alo")
    bodies = [hashlib.sha256(message.body).hexdigest()[:16] for message in found]
    assert bodies == [row[0] for row in told]
    assert {message.reason for message in found} == {"expired", "rejected"}


def test_names_come_from_the_log_or_the_node_s_tables_where_a_config_is_lost(
    tmp_path: Path,
) -> None:
    real = real_node("q1", tmp_path)
    for config in real.path.glob("quorum/*/*/config"):
        config.unlink()
    with open_at(real.path) as node:
        found = {key: rows(queue, real.at_ms) for key, queue in quorum_queues(node).items()}
    assert {key: messages for key, messages in real.queues.items() if "resc" not in key[1]} == found


def test_one_member_of_three_says_that_there_may_be_more(tmp_path: Path) -> None:
    real = real_node("c3", tmp_path)
    ((_, told),) = real.queues.items()
    lives = {}
    for member in ("n1", "n2", "n3"):
        (path,) = (real.path / member).glob("quo*@localhost")
        with open_at(path) as node:
            ((_, queue),) = quorum_queues(node).items()
            lives[member] = [row[0] for row in rows(queue, real.at_ms)]
            assert "suspected" in {finding.severity for finding in node.findings}
            assert queue.members == 3
    assert lives["n1"] == [row[0] for row in told]
    assert lives["n2"] == lives["n1"][: len(lives["n2"])]
    assert (len(lives["n2"]), len(lives["n3"])) == (132, 72)


# --- all of what other machines have, where it is there -------------------------------------------


def shared(name: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    archive = SHARED / "rabbitmq_quorum" / f"{name}.tar.xz"
    if not archive.exists():
        pytest.skip("what real brokers wrote, ../shared/fixtures, is not here")
    path = unpack(archive, folder)
    inner = path / "quo@localhost"
    truth = json.loads(archive.with_name(f"{name}.json").read_text(encoding="utf-8"))
    return inner if inner.is_dir() else path, truth


@pytest.mark.parametrize("name", ["q1", "q2", "q3", "q4", "m1"])
def test_every_message_with_its_properties(tmp_path: Path, name: str) -> None:
    from qindex.brokers.amqp import decode_properties

    path, truth = shared(name, tmp_path)
    at_ms = truth["restart_at"] * 1000
    told = {
        (queue["vhost"], queue["name"]): queue["messages"]
        for queue in truth["queues"]
        if queue["type"] == "quorum" and not queue["rescue_of_dlx"]
    }
    with open_at(path) as node:
        found = quorum_queues(node)
        assert found.keys() == told.keys()
        for key, messages in told.items():
            live = [m for m in found[key].messages() if not 0 < (m.expiry_us or 0) <= at_ms * 1000]
            assert len(live) == len(messages)
            for message, expected in zip(live, messages, strict=True):
                assert hashlib.sha256(message.body).hexdigest() == expected["sha256"]
                assert message.redelivered == expected["redelivered"]
                properties = decode_properties(message.properties)
                for prop, value in expected["props"].items():
                    mine = getattr(properties, prop)
                    if prop == "timestamp":
                        mine = int(mine.timestamp())
                    assert mine == value, prop
                count = expected["headers"].get("x-delivery-count", 0)
                assert message.delivery_count == count
        check_accounts(node)
