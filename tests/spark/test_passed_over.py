"""What is named, or may be a store or a broker, and cannot be read: a row and a finding."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import DEMO_NODE, in_child, unpack

import qindex
from qindex.cli.main import main

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

import pyarrow.dataset as ds

from qindex.spark.plan import find
from qindex.spark.search import NOTHING, UNKNOWN

NOBODY = 65534


def make_store(path: Path, body: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with qindex.open(path) as store:
        store.queue("q").publish(body)
    return path


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A good store and one whose store.meta is gone."""
    make_store(tmp_path / "fleet/good")
    (make_store(tmp_path / "fleet/bad") / "store.meta").unlink()
    return tmp_path / "fleet"


def unknown(*paths: object) -> dict[str, str]:
    """Name -> problem."""
    units = find(map(str, paths))
    return {Path(unit.source).name: unit.problem for unit in units if unit.format == UNKNOWN}


@pytest.mark.parametrize("how", ["named", "above", "pattern"])
def test_an_audit_tells_a_store_without_its_meta(
    fleet: Path, tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {
        "named": [fleet / "bad", fleet / "good"],
        "above": [fleet],
        "pattern": [fleet / "*"],
    }[how]
    out = tmp_path / "out"
    assert main(["audit", *map(str, paths), "--out", str(out), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["kinds"] == {"not recognised": 1}
    assert [each["broker"] for each in told["directories"]] == ["bad", "good"]
    (row,) = ds.dataset(out / "findings", format="parquet").to_table().to_pylist()
    assert (row["source"], row["kind"]) == (str(fleet / "bad"), "not recognised")
    assert "qindex salvage" in row["text"]
    page = (out / "report.html").read_text()
    assert "1 directory is damaged" in page
    assert "parts of a store of qindex" in page


def test_an_export_counts_it_and_ends_with_1(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["spark-export", str(fleet), "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert "1 message in" in said.out
    assert f"{fleet / 'bad'}: parts of a store of qindex" in said.err
    assert "1 damaged place" in said.err


def test_a_recovery_tells_it(
    tmp_path: Path, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(DEMO_NODE, fleet / "node")
    assert main(["spark-recover", str(fleet), "--out", str(tmp_path / "into")]) == 1
    said = capsys.readouterr()
    assert "not recovered" in said.out
    assert "parts of a store of qindex" in said.out
    assert "1 store of qindex passed over" in said.err


def test_spark_reads_it_as_a_finding_and_warns(spark: Any, fleet: Path) -> None:
    reader = spark.read.format("qindex").option("table", "findings")
    rows = reader.load(str(fleet)).toArrow().to_pylist()
    assert [(row["broker"], row["kind"]) for row in rows] == [("bad", "not recognised")]
    assert spark.read.format("qindex").load(str(fleet)).count() == 1


@pytest.mark.parametrize("table", ["messages", "records", "bodies"])
def test_rows_of_it_are_none_and_a_warning(
    fleet: Path, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    from qindex.spark.tables import Choice, batches

    units = find([str(fleet / "bad"), str(fleet / "good")])
    list(batches(units, table, ["source"], Choice()))
    assert f"{fleet / 'bad'}: parts of a store" in caplog.text


def test_each_named_path_is_told_of_and_what_a_pattern_matches_only_if_it_may_be_one(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (fleet / "empty").mkdir()
    (fleet / "readme.txt").touch()
    assert unknown(fleet / "*").keys() == {"bad"}
    assert unknown(fleet).keys() == {"bad"}
    named = unknown(fleet / "empty", fleet / "good", fleet / "readme.txt")
    assert named == {
        "empty": NOTHING,
        "readme.txt": "a file: name the directory that it is in",
    }
    command = ["audit", str(fleet / "empty"), str(fleet / "good"), "--out", str(tmp_path / "o")]
    assert main(command) == 1
    assert NOTHING in capsys.readouterr().out
    assert main(["audit", str(fleet / "empty"), "--out", str(tmp_path / "o")]) == 2


def remove_all_but(path: Path, *kept: str) -> None:
    for each in path.iterdir():
        if each.name not in kept:
            shutil.rmtree(each) if each.is_dir() else each.unlink()


@pytest.mark.parametrize(
    ("what", "kept"),
    [
        ("store", ["messages"]),
        ("store", ["queues"]),
        ("store", ["store.meta.new"]),
        ("node", ["quorum"]),
        ("node", ["msg_stores"]),
    ],
)
def test_parts_of_a_store_or_a_node_are_told_of(tmp_path: Path, what: str, kept: list[str]) -> None:
    path = tmp_path / "fleet" / "part"
    if what == "store":
        make_store(path, b"x" * 5000)
        (path / "store.meta").rename(path / "store.meta.new")
    else:
        (path / "quorum" / "rabbit@host").mkdir(parents=True)
        (path / "msg_stores").mkdir()
    remove_all_but(path, *kept)
    assert unknown(tmp_path).keys() == {"part"}


def test_files_of_a_broker_are_not_the_broker(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/binlog.1").touch()
    assert "match the pattern" in unknown(f"{tmp_path}/data/*")["data"]
    assert unknown(f"{tmp_path}/data") == {}


def test_a_link_is_not_followed_and_told_of_if_a_store_is_behind_it(
    fleet: Path, tmp_path: Path
) -> None:
    make_store(tmp_path / "elsewhere/store")
    (tmp_path / "other").mkdir()
    (fleet / "linked").symlink_to(tmp_path / "elsewhere")
    (fleet / "same").symlink_to(fleet / "good")
    (fleet / "nothing to do with it").symlink_to(tmp_path / "other")
    (fleet / "circle").symlink_to(fleet)
    (fleet / "gone").symlink_to(tmp_path / "gone")
    told = unknown(fleet)
    assert told.keys() == {"bad", "linked"}
    assert str(tmp_path / "elsewhere") in told["linked"]
    assert unknown(fleet / "*").keys() == {"bad", "gone"}  # a pattern's links are followed


def test_what_lies_below_a_store_or_a_flat_broker_is_found(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    make_store(tmp_path / "backup").rename(store / "backup")  # a copy, laid there by somebody
    (tmp_path / "beans").mkdir()
    (tmp_path / "beans/binlog.1").touch()
    make_store(tmp_path / "beans/store")
    assert sorted(unit.broker for unit in find([str(tmp_path)])) == [
        "beans",
        "beans/store",
        "store",
        "store/backup",
    ]


def test_another_format_is_passed_over_if_one_is_asked_for(fleet: Path) -> None:
    assert [unit.broker for unit in find([str(fleet)], "qindex")] == ["bad", "good"]
    assert find([str(fleet)], "rabbitmq") == []


@pytest.fixture
def for_nobody() -> Iterator[Path]:
    """A folder that everybody may enter; pytest's own are for its user only."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_folder_that_may_not_be_listed_is_told_of(for_nobody: Path) -> None:
    make_store(for_nobody / "good")
    for name in ("closed", "lost+found"):
        make_store(for_nobody / name / "store")
        (for_nobody / name).chmod(0)
    for path in (for_nobody / "good", *(for_nobody / "good").rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)

    def look() -> dict[str, str]:
        if os.getuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return unknown(for_nobody)

    told = in_child(look)
    for name in ("closed", "lost+found"):
        (for_nobody / name).chmod(0o700)
    assert told == "{'closed': 'it cannot be listed: Permission denied'}"


def test_a_copy_of_a_url_in_which_nothing_is_recognised_is_told_of(tmp_path: Path) -> None:
    from qindex.spark.plan import Unit
    from qindex.spark.remote import REMOTE, here

    (tmp_path / "some").mkdir()
    (tmp_path / "some/0.rdq").write_bytes(b"x")
    url = f"file://{tmp_path}/some"
    (unit,) = here(Unit(url, "some", REMOTE, 1))
    assert (unit.source, unit.broker, unit.format) == (url, "some", UNKNOWN)


def test_a_path_that_is_not_there_keeps_no_other_from_being_audited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, gone, out = make_store(tmp_path / "good"), tmp_path / "gone", tmp_path / "out"
    assert main(["audit", str(store), str(gone), "--out", str(out), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["account"]["live"] == 1
    (row,) = ds.dataset(out / "findings", format="parquet").to_table().to_pylist()
    assert (row["source"], row["text"]) == (str(gone), "no such directory")
    with pytest.raises(FileNotFoundError):
        find([str(gone)])
