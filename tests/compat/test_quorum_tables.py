"""Quorum queues without Ra's tables and the node's: nothing is called whole or deleted then."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import unpack
from ra_files import flip

from qindex.brokers.rabbitmq.directory import open_at
from qindex.cli.main import main

from .quorum_nodes import DATA, RealNode, quorum_queues, real_node
from .quorum_sweep import ends_of
from .test_quorum_damage import Read, truth, wal_of
from .test_quorum_salvage import forget_definitions, read_wal, rewritten

Capture = pytest.CaptureFixture[str]
WAYS: dict[str, Callable[[bytes], bytes | None]] = {
    "gone": lambda data: None,
    "empty": lambda data: b"",
    "zeroed": lambda data: bytes(len(data)),
    "cut": lambda data: data[:3000],
    "without its objects": lambda data: data[:5432] + bytes(len(data) - 5432),
}


def change(file: Path, way: str) -> None:
    data = WAYS[way](file.read_bytes())
    if data is None:
        file.unlink()
    else:
        file.write_bytes(data)


def as_json(capsys: Capture, code: int, *arguments: object) -> Any:
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == code
    return json.loads(capsys.readouterr().out)


# --- up to where the node had come ----------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.sample(5)
def test_a_log_cut_between_two_records_is_not_clean_without_meta_dets(
    q1: RealNode, capsys: Capture, way: str
) -> None:
    """Nothing but this table tells that the log was longer."""
    wal = wal_of(q1)
    ends = sorted(ends_of(q1.path, wal))
    wal.write_bytes(wal.read_bytes()[: ends[len(ends) // 2]])
    (table,) = q1.path.glob("quorum/*/meta.dets")
    change(table, way)
    for command in ("check", "recover", "ls", "stats"):
        told = as_json(capsys, 1, command, q1.path)
    read = Read(q1)
    (finding,) = [each for each in read.findings if each.kind == "no notes"]
    assert finding.severity == "suspected"
    assert "7 logs may have been longer" in finding.text
    assert told


@pytest.mark.parametrize("name", ["q1", "q2", "n42", "n43", "c3"])
def test_every_server_of_a_sound_node_is_in_meta_dets(tmp_path: Path, name: str) -> None:
    path = real_node(name, tmp_path).path
    for node in path.glob("n?/quo?@localhost") if name == "c3" else [path]:
        with open_at(node) as opened:
            assert not [each for each in opened.findings if each.kind == "no notes"]


def test_a_queue_that_meta_dets_lacks_is_suspected_alone(q1: RealNode) -> None:
    (table,) = q1.path.glob("quorum/*/meta.dets")
    data = table.read_bytes()
    at = data.index(b"2F_ORD")
    mark = data.rindex(b"\x12\x34\x56\x78", 0, at)
    table.write_bytes(data[:mark] + bytes(4) + data[mark + 4 :])
    (finding,) = [each for each in Read(q1).findings if each.kind == "no notes"]
    assert (finding.about, finding.severity) == ("quorum queue orders", "suspected")


@pytest.mark.parametrize("where", ["coordination", "quorum"])
def test_khepri_s_log_is_compared_with_meta_dets_too(tmp_path: Path, where: str) -> None:
    path = unpack(DATA / "quorum_k17.tar.xz", tmp_path)
    (wal,) = path.glob("coordination/*/*.wal")
    ends = sorted(ends_of(path, wal))
    wal.write_bytes(wal.read_bytes()[: ends[-30]])
    if where == "quorum":
        (table,) = path.glob("coordination/*/meta.dets")
        table.unlink()
    with open_at(path) as node:
        told = [each for each in node.findings if each.severity != "note"]
        assert node.metadata is not None
        assert not node.metadata.is_exact
    kinds = {each.kind for each in told}
    assert ("no notes" if where == "quorum" else "missing") in kinds


@pytest.mark.parametrize("way", [*WAYS, "a bit"])
@pytest.mark.parametrize("flags", [None, b"[khepri_db]."])
@pytest.mark.sample(3)
def test_a_lost_snapshot_of_khepri_is_said_with_and_without_the_file_of_flags(
    tmp_path: Path, capsys: Capture, way: str, flags: bytes | None
) -> None:
    """Without that file it was taken for a Khepri that was only prepared, and left out silently.

    The classic queues of such a node are given, and are not called transient for it.
    """
    path = unpack(DATA / "quorum_k17.tar.xz", tmp_path / "node")
    shutil.copytree(
        unpack(DATA / "quorum_q1.tar.xz", tmp_path) / "quo@localhost/quorum", path / "quorum"
    )
    if flags is not None:
        path.with_name(f"{path.name}-feature_flags").write_bytes(flags)
    (file,) = path.glob("coordination/*/*/snapshots/*/snapshot.dat")
    if way == "a bit":
        file.write_bytes(flip(file.read_bytes(), 9073, 6))
    else:
        change(file, way)
    told = as_json(capsys, 1, "recover", path)
    damage = [each for each in told["findings"] if each["severity"] == "damage"]
    assert any(each["file"].startswith("coordination/") for each in damage)
    if told["khepri"] is None:
        assert not told["has_definitions"]
    else:
        assert not told["khepri"]["exact"]


# --- which queues were deleted --------------------------------------------------------------------


def only_the_shared_log(path: Path, *, tables: str = "") -> None:
    """`tables`: "names" or "definitions" are left."""
    for folder in path.glob("quorum/*/*/"):
        shutil.rmtree(folder)
    for table in path.glob("quorum/*/*.dets"):
        if tables != "names":
            table.unlink()
    if tables != "definitions":
        forget_definitions(path)
        shutil.rmtree(path / "coordination")


def test_with_nothing_but_the_shared_log_no_queue_is_called_deleted(
    q1: RealNode, tmp_path: Path, capsys: Capture
) -> None:
    only_the_shared_log(q1.path)
    told = as_json(capsys, 1, "recover", q1.path, "--out", tmp_path / "store", "--keep-expired")
    done = told["recovered"]["queues"]
    given = {(each["group"], each["queue"]): each["messages"] for each in done}
    wanted = {key: len(rows) for key, rows in truth(q1).items() if key[1] != "ttl"}
    assert {key: given.get(key) for key in wanted} == wanted
    assert not [each for each in told["findings"] if each["kind"] == "deleted"]
    assert sum("no table here says so" in each["text"] for each in told["findings"]) == 7


@pytest.mark.parametrize("tables", ["names", "definitions"])
def test_a_queue_that_a_table_names_is_not_deleted_though_its_directory_is_gone(
    q1: RealNode, tables: str
) -> None:
    only_the_shared_log(q1.path, tables=tables)
    read = Read(q1)
    assert {key: len(found) for key, found in read.rows.items()} == {
        key: len(found) for key, found in truth(q1).items()
    }
    assert sum("is not there" in text for text in read.damage) >= 7


def test_a_log_whose_second_entry_is_gone_too_is_a_queue_called_after_its_server(
    q1: RealNode,
) -> None:
    """Nothing at all says the name then."""
    only_the_shared_log(q1.path)
    wal = wal_of(q1)
    records, data = read_wal(q1)
    wal.write_bytes(rewritten([each for each in records if each.index > 2], data))
    with open_at(q1.path) as node:
        found = quorum_queues(node)
        assert sum(len(queue.outcome.indexes) for queue in found.values()) > 200
        assert any("says which queue" in each.text for each in node.findings)
