"""Names that are no UTF-8 go through all tables and end nothing: see qindex/names.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import qindex
from qindex.cli.main import main
from qindex.names import unwritten, written

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

import pyarrow.dataset as ds

from qindex import DiskQueue
from qindex.spark.plan import find
from qindex.spark.schema import TABLES
from qindex.spark.tables import Choice, batches

VALID = "a\\x{ff}"
QUEUES = ["\ud800", "\udcff", VALID, "a,b", "[x]", "plain"]
BYTES = os.fsdecode(b"caf\xe9")


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A store with such queues in such a directory; an NSQ file; one with a very long name."""
    root = tmp_path / "fleet"
    for name in (BYTES, "é" * 120):
        path = root / name / "store"
        path.parent.mkdir(parents=True)
        with qindex.open(path, expire=False) as store:
            for queue in QUEUES:
                store.queue(queue).publish(queue.encode("utf-8", "surrogatepass"))
            store.queue("\udfff").publish(
                b"x", headers={"\udc80": "\udc81".encode("latin1", "replace")}
            )
            store.queue("\udfff").publish(b"late" * 2000, expires_at=1.0)
    (root / "nsq").mkdir()
    with DiskQueue(BYTES, str(root / "nsq"), format="nsq") as queue:
        queue.put(b"abc")
    return root


@pytest.mark.parametrize("table", [table for table in TABLES if table != "audit"])
def test_each_table_has_their_written_form(fleet: Path, table: str) -> None:
    names = [column.name for column in TABLES[table]]
    units = find([str(fleet)])
    rows = [row for batch in batches(units, table, names, Choice()) for row in batch.to_pylist()]
    sources = {row["source"] for row in rows}
    assert sources
    assert {unwritten(source) for source in sources} <= {unit.source for unit in units}
    if table in ("messages", "queues"):
        queues = {row["queue"] for row in rows}
        assert {unwritten(queue) for queue in queues} == {*QUEUES, "\udfff", BYTES}
        assert {written(queue) for queue in (*QUEUES, "\udfff", BYTES)} == queues


def test_a_whole_fleet_is_audited_and_exported(fleet: Path, tmp_path: Path) -> None:
    """The one finding is the message that has expired, which is a warning."""
    assert main(["audit", str(fleet), "--out", str(tmp_path / "out")]) == 0
    rows = ds.dataset(tmp_path / "out/queues", format="parquet").to_table().to_pylist()
    assert len(rows) == 2 * (len(QUEUES) + 1) + 1
    assert main(["spark-export", str(fleet), "--out", str(tmp_path / "parquet")]) == 0
    found = ds.dataset(tmp_path / "parquet", format="parquet").to_table().to_pylist()
    of_broker = [row for row in found if unwritten(row["broker"]).startswith(BYTES)]
    bodies = {
        row["queue"]: row["body"] for row in of_broker if row["queue"] in map(written, QUEUES)
    }
    assert bodies == {written(name): name.encode("utf-8", "surrogatepass") for name in QUEUES}


@pytest.mark.parametrize("queue", QUEUES)
def test_a_queue_is_chosen_by_its_written_form(spark: Any, fleet: Path, queue: str) -> None:
    import json

    reader = spark.read.format("qindex").option("columns", "source,queue,body")
    frame = reader.option("queues", json.dumps([written(queue)])).load(f"{fleet}/*")
    rows = frame.toArrow().to_pylist()
    assert [row["body"] for row in rows] == [queue.encode("utf-8", "surrogatepass")] * 2
    again = reader.load(rows[0]["source"])  # what the table says is a path
    assert again.count() == 1


def test_one_that_makes_a_reader_fail_ends_nothing(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a mistake")

    monkeypatch.setattr("qindex.spark.examine_foreign.examine_node", fail)
    monkeypatch.setattr("qindex.spark.broker_rows.open_node", fail)
    assert main(["audit", str(fleet), "--out", str(tmp_path / "out")]) == 1
    assert "a mistake in qindex" in capsys.readouterr().out
    assert main(["spark-export", str(fleet), "--out", str(tmp_path / "parquet")]) == 1
    said = capsys.readouterr()
    assert "a mistake in qindex" in said.err
    assert f"{2 * (len(QUEUES) + 2):,} messages" in said.out


def test_a_recovery_of_such_a_directory_has_a_name_that_every_disk_takes(
    fleet: Path, tmp_path: Path
) -> None:
    assert main(["spark-recover", str(fleet / "nsq"), "--out", str(tmp_path / "one")]) == 0
    (fleet / "nsq").rename(fleet / BYTES / "nsq")
    assert main(["spark-recover", str(fleet), "--out", str(tmp_path / "into")]) == 0
    (store,) = (tmp_path / "into").glob("*/store.meta")
    store.parent.name.encode()
    with qindex.open(store.parent, read_only=True) as opened:
        assert [written(name) for name in opened.queues()] == [written(written(BYTES))]
