"""Directories on other file systems: fsspec's memory stands for all that are not local."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from helpers import DEMO_NODE, unpack

import qindex
from qindex.cli.main import main

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")
pytest.importorskip("fsspec", reason="needs fsspec: pip install 'qindex[spark]'")

import fsspec

from qindex.spark import store_rows as native
from qindex.spark.audit import run
from qindex.spark.examine import Limits
from qindex.spark.output import Output
from qindex.spark.plan import Unit, find, plan
from qindex.spark.recover import RecoverRefused, recover
from qindex.spark.tables import Choice, batches

COLUMNS = ["source", "broker", "format", "queue", "body"]


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A store, and RabbitMQ's demo node a folder further down."""
    with qindex.open(tmp_path / "fleet", embed_below=100) as store:  # makes the folder; moved below
        store.queue("orders").publish_many([b"small", b"stored " * 100])
    (tmp_path / "fleet").rename(tmp_path / "store")
    (tmp_path / "fleet/node").mkdir(parents=True)
    (tmp_path / "store").rename(tmp_path / "fleet/store")
    unpack(DEMO_NODE, tmp_path / "fleet/node/deep")
    return tmp_path / "fleet"


@pytest.fixture
def memory(fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The fleet's URL; on the disk it is not there any more, and copies have a folder of theirs."""
    files = fsspec.filesystem("memory")
    files.put(str(fleet), "/backups", recursive=True)
    shutil.rmtree(fleet)
    (tmp_path / "copies").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    yield "memory://backups"
    files.rm("/backups", recursive=True)


def rows(paths: list[str], table: str = "messages", **choice: Any) -> list[dict[str, Any]]:
    units = find(paths)
    tasks = plan(units, table, tasks_min=2)
    found = []
    for unit in [unit for task in tasks for unit in task]:
        for batch in batches([unit], table, COLUMNS, Choice(**choice)):
            found += batch.to_pylist()
    return sorted(found, key=str)


def test_what_is_elsewhere_is_read_as_what_is_here(fleet: Path, memory: str) -> None:
    found = rows([f"{memory}/*"])
    ours = [row for row in found if row["format"] == "qindex"]
    assert [row["body"] for row in ours] == [b"small", b"stored " * 100]
    assert {(row["source"], row["broker"]) for row in ours} == {(f"{memory}/store", "store")}
    theirs = [row for row in found if row["format"] == "rabbitmq"]
    assert len(theirs) > 100
    assert {row["source"].partition("node/deep")[0] for row in theirs} == {f"{memory}/"}
    assert rows([f"{memory}/st[a-z]re"]) == ours
    assert [unit.broker for unit in find([f"{memory}/*"])] == ["node", "store"]


@pytest.mark.parametrize("fails", [False, True])
def test_copies_are_removed(
    memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    copies, seen = tmp_path / "copies", []

    def watched(unit: Unit, *rest: Any) -> Iterator[Any]:
        seen.append(len(list(copies.iterdir())))
        if fails:
            raise RuntimeError("in the middle")
        yield from read(unit, *rest)

    read = native.messages
    monkeypatch.setattr(native, "messages", watched)
    some = batches(find([f"{memory}/store"]), "messages", COLUMNS, Choice())
    with pytest.raises(RuntimeError) if fails else nullcontext():
        assert sum(batch.num_rows for batch in some) == 2
    assert seen == [1]
    assert list(copies.iterdir()) == []


def test_an_audit_examines_them_and_a_recovery_says_what_to_do(memory: str, tmp_path: Path) -> None:
    report = run(find([f"{memory}/*"]), Limits(), Output(str(tmp_path / "out"), "2026-01-01"))
    assert [(each.format, each.broker.partition("/")[0]) for each in report.summaries] == [
        ("rabbitmq", "node"),
        ("qindex", "store"),
    ]
    assert report.summaries[1].sums["live"] == 2
    assert not report.has("damage")
    with pytest.raises(RecoverRefused, match="copy it to this machine"):
        recover(None, find([f"{memory}/*"]), str(tmp_path / "into"))


def test_the_command_takes_urls(
    memory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", f"{memory}/store", "--out", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["account"]["live"] == 2
    assert main(["audit", f"{memory}/none/*", "--out", str(tmp_path / "out")]) == 2
    assert main(["audit", "nowhere://none", "--out", str(tmp_path / "out")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_a_name_that_leads_out_of_the_folder_is_refused(memory: str) -> None:
    files = fsspec.filesystem("memory")
    files.store["/backups/store/../../evil"] = type(files.open("/backups/x", "wb"))(files, "/x")
    with pytest.raises(ValueError, match=r"has a file .*\.\."):
        rows([f"{memory}/store"])


def test_spark_reads_hadoops_file_urls(spark: Any, fleet: Path) -> None:
    expected = rows([str(fleet)])
    for path in (f"file://{fleet}", f"file://{fleet}/*"):
        frame = spark.read.format("qindex").option("columns", ",".join(COLUMNS)).load(path)
        assert sorted((row.asDict() for row in frame.collect()), key=str) == expected
