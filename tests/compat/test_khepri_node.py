"""A node with its metadata in Khepri gives what the same node gives with Mnesia's tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import unpack

from qindex.brokers.rabbitmq.directory import open_at, open_node
from qindex.brokers.rabbitmq.erlang import Atom
from qindex.cli.main import main

from .khepri_node import command, move_to_khepri, path_of, transaction
from .test_rabbitmq_dead_letters import (  # noqa: F401  they are fixtures
    assert_as_the_node_does,
    dead,
    lose_tables,
    recovered,
    truth,
)

DATA = Path(__file__).parent / "data"


def resource(kind: str, name: bytes, vhost: bytes = b"/") -> Any:
    return (Atom("resource"), vhost, Atom(kind), name)


@pytest.mark.parametrize("in_snapshot", [False, True])
def test_dead_letters_go_where_khepri_says(
    dead: Path,  # noqa: F811
    truth: dict[str, Any],  # noqa: F811
    tmp_path: Path,
    in_snapshot: bool,
) -> None:
    """Exchanges of all kinds, bindings, a policy: as what a real node did with them."""
    move_to_khepri(dead, in_snapshot=in_snapshot)
    report = assert_as_the_node_does(dead, truth, tmp_path)
    assert report.dead_lettered > 30


def test_the_same_queues_with_the_same_arguments(dead: Path) -> None:  # noqa: F811
    def told() -> list[Any]:
        with open_node(dead) as node:
            queues = [(vhost.name, q.name, q.durable, q.arguments) for vhost in node.vhosts
                      for q in vhost.queues]  # fmt: skip
            assert node.has_definitions
            return queues

    before = told()
    move_to_khepri(dead)
    assert told() == before
    assert len(before) > 10


def test_a_report_says_what_khepri_has(
    dead: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    move_to_khepri(dead, in_snapshot=True)
    assert main(["recover", str(dead), "--json"]) == 0
    khepri = json.loads(capsys.readouterr().out)["khepri"]
    assert khepri["exact"] is True
    assert khepri["vhost_names"] == ["/"]
    assert khepri["users"] == ["guest"]
    assert [each["policy"] for each in khepri["policies"]] == ["ae", "ttlpol"]
    assert khepri["bindings"] >= 9


def test_behind_a_transaction_nothing_is_dropped_by_a_guess(
    dead: Path,  # noqa: F811
    tmp_path: Path,
    truth: dict[str, Any],  # noqa: F811
) -> None:
    binding = transaction("rabbit_db_binding:-create_in_khepri/2-fun-1-")
    move_to_khepri(dead, binding, in_snapshot=True)
    report = recovered(dead, tmp_path / "store", truth["booted"])
    assert report.dead_lettered == report.expired == 0
    (reason,) = report.reasons
    assert "newest changes of the node's metadata are not known" in reason
    with open_node(dead) as node:
        assert not node.facts()["khepri"]["exact"]
        assert any("could not be read" in remark for remark in node.remarks)


def test_a_queue_that_a_transaction_deleted_is_not_a_loss(dead: Path) -> None:  # noqa: F811
    """It has no files any more. One that has some is kept, and a note says so."""
    gone, kept = resource("queue", b"gone"), resource("queue", b"d.direct")
    record: list[Any] = [Atom("amqqueue"), gone, Atom("true"), Atom("false"), Atom("none"), []]
    record += [Atom("none")] * 13 + [Atom("rabbit_quorum_queue"), {}]
    declared = tuple(record)
    path = path_of(declared)
    put = command(Atom("put"), path, (Atom("p_data"), declared), {})
    deletes = [
        transaction("rabbit_db_queue:-delete_in_khepri/2-fun-0-", each) for each in (gone, kept)
    ]
    copy = shutil.copytree(dead, dead.with_name("other"))
    move_to_khepri(copy, put)
    with open_node(copy) as node:
        assert [unread.name for unread in node.unread] == ["gone"]
    move_to_khepri(dead, put, *deletes)
    with open_node(dead) as node:
        assert node.unread == []
        assert {"d.direct"} <= {queue.name for queue in node.queues}
        texts = [finding.text for finding in node.findings if finding.kind == "metadata"]
        assert "queue gone in / was deleted, it seems: it has no files" in texts
        assert (
            "queue d.direct in / may have been deleted; its files are here, so it is kept" in texts
        )
        assert not [finding for finding in node.findings if finding.severity == "damage"]


def test_which_store_is_in_force(dead: Path) -> None:  # noqa: F811
    """The flag decides; without the file, Khepri counts if Mnesia has no queues."""
    flags = dead.with_name(f"{dead.name}-feature_flags")
    kept = shutil.copytree(dead, dead.with_name("kept"))
    move_to_khepri(dead)

    def is_khepri() -> bool:
        with open_at(dead) as node:
            assert node.has_definitions
            return node.metadata is not None

    assert is_khepri()
    flags.unlink()
    assert is_khepri()
    for file in kept.glob("*.*"):
        if file.is_file():
            shutil.copy(file, dead)
    assert not is_khepri()
    flags.write_bytes(b"[khepri_db].\n")
    assert is_khepri()
    flags.write_bytes(b"[quorum_queue].\n")
    assert not is_khepri()


def test_a_khepri_that_is_in_force_and_not_here_is_damage(dead: Path) -> None:  # noqa: F811
    move_to_khepri(dead)
    shutil.rmtree(dead / "coordination")
    with open_node(dead) as node:
        assert not node.has_definitions
        assert "metadata is in Khepri, whose files are not here" in node.findings[0].text


def test_what_khepri_itself_wrote_names_its_queues(tmp_path: Path) -> None:
    """The store of Khepri 0.17.7: its queues have no files, and one of them was deleted."""
    from .conftest import SHARED

    archive = SHARED / "rabbitmq_quorum" / "k17.tar.xz"
    if not archive.exists():
        pytest.skip("what real brokers wrote, ../shared/fixtures, is not here")
    folder = unpack(archive, tmp_path)
    with open_at(folder) as node:
        assert node.metadata is not None
        unread = {(each.vhost, each.name) for each in node.unread}
        assert unread == {("/", "latek1"), ("vh/ü", "qk1"), ("/", "sk1"), ("vh/ü", "sk1")}
        assert any("queue qk1 in / was deleted" in finding.text for finding in node.findings)


@pytest.mark.sample(2)
@pytest.mark.parametrize("damage", ["lost", "folder lost", "flipped", "cut"])
def test_without_a_sound_snapshot_no_queue_is_lost_and_nothing_is_dropped_by_a_guess(
    dead: Path,  # noqa: F811
    tmp_path: Path,
    truth: dict[str, Any],  # noqa: F811
    damage: str,
) -> None:
    with open_node(dead) as node:
        before = {queue.name: queue.account.live for queue in node.queues if queue.account.live}
    behind = command(Atom("put"), [Atom("rabbitmq"), Atom("other")], (Atom("p_data"), 1), {})
    move_to_khepri(dead, behind, in_snapshot=True)
    (file,) = dead.glob("coordination/*/*/snapshots/*/snapshot.dat")
    data = bytearray(file.read_bytes())
    data[data.index(b"d.direct")] ^= 0x20
    if damage == "folder lost":
        shutil.rmtree(file.parent.parent)
    elif damage == "lost":
        file.unlink()
    else:
        file.write_bytes(data if damage == "flipped" else data[: len(data) // 2])
    with open_node(dead) as node:
        live = {queue.name: queue.account.live for queue in node.queues if queue.account.live}
        assert live == before
        assert not node.facts()["khepri"]["exact"]
        assert [finding for finding in node.findings if finding.severity == "damage"]
        assert any("could not be read, or not for sure" in remark for remark in node.remarks)
    report = recovered(dead, tmp_path / "store", truth["booted"])
    assert report.messages == report.live == sum(before.values())
    assert report.dead_lettered == report.expired == 0
    assert report.kept > 30
    assert main(["check", str(dead)]) == main(["recover", str(dead)]) == 1
