"""qindex spark-export and spark-recover: a fleet of stores and dead brokers, in parts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import DEMO_NODE, unpack

import qindex
from qindex.cli.main import main

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[parquet]'")

import pyarrow.dataset as ds

from qindex.spark.export import ExportRefused, Job, export
from qindex.spark.plan import Unit, find
from qindex.spark.recover import RecoverRefused, recover
from qindex.spark.tables import Choice

COLUMNS = ["broker", "queue", "req_id", "body"]
STORES = 6
SECONDS_MAX = 60


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Stores, each with a message that only it has."""
    for number in range(STORES):
        path = tmp_path / f"fleet/store{number}"
        path.parent.mkdir(exist_ok=True)
        with qindex.open(path) as store:
            store.queue("q").publish_many([f"{number}/{i}".encode() for i in range(100)])
    return tmp_path / "fleet"


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    """Three copies of a dead RabbitMQ node."""
    for name in ("one", "two", "three"):
        unpack(DEMO_NODE, tmp_path / "dead" / name)
    return tmp_path / "dead"


def exported(out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(out, format="parquet").to_table().to_pylist()
    return sorted(rows, key=lambda row: (row["broker"], row["queue"], row["req_id"]))


def expected(count: int = 100) -> list[dict[str, Any]]:
    return [
        {"broker": f"store{n}", "queue": "q", "req_id": i, "body": f"{n}/{i}".encode()}
        for n in range(STORES)
        for i in range(count)
    ]


def run_export(spark: Any, fleet: Path, out: Path, **options: Any) -> dict[str, Any]:
    units = find([str(fleet)])
    return export(spark, units, str(out), Job([str(fleet)], COLUMNS, {}), Choice(), **options)


def bodies_in(store: Path) -> dict[str, list[bytes]]:
    with qindex.open(store, read_only=True) as opened:
        return {name: [m.body for m in opened.queue(name).browse()] for name in opened.queues()}


def kill_when(command: list[str], seen: Callable[[], bool]) -> None:
    """Runs a command and kills it as soon as that is seen, or it is done."""
    process = subprocess.Popen(
        [sys.executable, "-m", "qindex", *command], stdout=subprocess.DEVNULL
    )
    until = time.monotonic() + SECONDS_MAX
    while process.poll() is None and not seen():
        assert time.monotonic() < until
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_an_export_has_every_message_once(fleet: Path, tmp_path: Path) -> None:
    account = run_export(None, fleet, tmp_path / "out")
    assert (account["messages"], account["damaged"]) == (600, 0)
    assert exported(tmp_path / "out") == expected()


def test_on_spark_an_export_and_a_recovery_do_the_same(
    spark: Any, fleet: Path, dead: Path, tmp_path: Path
) -> None:
    account = run_export(spark, fleet, tmp_path / "out", target_bytes=1)
    assert (account["messages"], account["files"]) == (600, STORES)
    assert exported(tmp_path / "out") == expected()
    units = find([str(dead)])
    alone = recover(None, units, str(tmp_path / "alone"))
    together = recover(spark, units, str(tmp_path / "together"))
    for one, other in zip(alone, together, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
        name = one["into"]
        assert bodies_in(tmp_path / "alone" / name) == bodies_in(tmp_path / "together" / name)


def test_an_export_that_was_cut_off_goes_on_with_the_same_parts(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qindex.spark import tables

    read, read_from = tables.batches, []

    def failing(units: list[Unit], *rest: Any) -> Any:
        if len(read_from) == 3:
            raise KeyboardInterrupt
        read_from.extend(unit.source for unit in units)
        yield from read(units, *rest)

    out = tmp_path / "out"
    monkeypatch.setattr(tables, "batches", failing)
    with pytest.raises(KeyboardInterrupt):
        run_export(None, fleet, out, target_bytes=1)
    monkeypatch.undo()
    complete = {path: path.stat().st_ino for path in out.glob("part-*")}
    assert len(complete) == 3
    with qindex.open(fleet / "store0") as store:  # what comes later changes no plan
        store.queue("q").publish(b"later")
    account = run_export(None, fleet, out)
    assert account["went_on"]
    assert {path: path.stat().st_ino for path in complete} == complete
    assert [row for row in exported(out) if row["body"] != b"later"] == expected()
    assert {path.name for path in out.iterdir() if path.name.startswith("_")} == {"_export.json"}
    assert run_export(None, fleet, out)["messages"] == account["messages"]


def test_a_folder_with_something_else_is_refused(fleet: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").touch()
    with pytest.raises(ExportRefused, match="not empty"):
        run_export(None, fleet, out)
    (out / "mine").unlink()
    run_export(None, fleet, out)
    with pytest.raises(ExportRefused, match="another export"):
        export(None, find([str(fleet)]), str(out), Job([], COLUMNS, {}), Choice())


@pytest.mark.slow
def test_the_command_exports_goes_on_after_a_kill_and_says_what_it_did(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["spark-export", str(fleet), "--out", str(out), "--columns", ",".join(COLUMNS)]
    kill_when(command, lambda: any(out.glob("_part-*.draft")))
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 600
    assert exported(out) == expected()
    assert main([*command, "--queues", "other"]) == 2
    assert "another export" in capsys.readouterr().err


def test_an_export_leaves_out_what_is_damaged_and_says_so(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with qindex.open(fleet / "store0") as store:
        store.queue("q").publish(b"x" * 5000)
    file = fleet / "store0/messages/0.qms"
    data = bytearray(file.read_bytes())
    data[data.index(b"xxxx") + 9] ^= 1
    file.write_bytes(data)
    assert main(["spark-export", str(fleet), "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert "600 messages" in said.out
    assert "1 damaged place, left out here" in said.err


def test_each_dead_broker_gets_a_store_of_its_own(
    dead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "into"
    command = ["spark-recover", str(dead), "--out", str(into)]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "3 dead brokers" in out
    stores = sorted(path.parent for path in into.glob("*/store.meta"))
    assert len(stores) == 3
    for store in stores:
        assert main(["recover", str(dead / "one"), "--out", str(tmp_path / "one"), "--json"]) in (
            0,
            2,  # it is there already
        )
        assert bodies_in(store) == bodies_in(tmp_path / "one")
    assert main(command) == 0
    assert "3 by an earlier run" in capsys.readouterr().out


@pytest.mark.slow
def test_a_recovery_goes_on_after_a_kill(
    dead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "into"
    command = ["spark-recover", str(dead), "--out", str(into), "--json"]
    kill_when(command, lambda: any(into.glob("*.part/messages/*")))
    assert main(command) == 0
    accounts = json.loads(capsys.readouterr().out)["brokers"]
    assert len(accounts) == 3
    for account in accounts:
        store = into / account["out"]
        assert sum(map(len, bodies_in(store).values())) == account["messages"]
        assert account["live"] == account["messages"] + account["expired"]
    assert not list(into.glob("*.part"))


def test_one_broker_that_cannot_be_recovered_does_not_stop_the_others(
    dead: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from qindex.spark import recover as module

    opened = module.open_node

    def failing(path: str) -> Any:
        if "/two/" in path:
            raise OSError(5, "the disk failed")
        return opened(path)

    monkeypatch.setattr(module, "open_node", failing)
    command = ["spark-recover", str(dead), "--out", str(tmp_path / "into")]
    assert main(command) == 1
    assert "the disk failed" in capsys.readouterr().out
    monkeypatch.undo()
    assert main(command) == 0
    assert "2 by an earlier run" in capsys.readouterr().out


def test_a_store_from_elsewhere_is_not_taken_for_a_recovery(dead: Path, tmp_path: Path) -> None:
    units = find([str(dead)])
    name = recover(None, units[:1], str(tmp_path / "into"))[0]["into"]
    (tmp_path / f"into/accounts/{name}.json").unlink()
    with pytest.raises(RecoverRefused, match="is there already"):
        recover(None, units[:1], str(tmp_path / "into"))


def test_stores_alone_are_nothing_to_recover(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["spark-recover", str(fleet), "--out", str(tmp_path / "into")]) == 2
    assert "qindex salvage" in capsys.readouterr().err
    assert main(["spark-export", str(fleet), "--out", str(fleet / "store0/out")]) == 2
    assert "is inside" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["gone", "cut"])
def test_an_export_of_which_a_file_is_gone_or_changed_is_not_called_complete(
    fleet: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], what: str
) -> None:
    out = tmp_path / "out"
    command = ["spark-export", str(fleet), "--out", str(out)]
    assert main(command) == 0
    assert main(command) == 0, "complete: nothing is done again"
    part = max(out.glob("part-*.parquet"))
    if what == "gone":
        part.unlink()
    else:
        part.write_bytes(part.read_bytes()[:-1])
    before = sorted(out.iterdir())
    capfd.readouterr()
    assert main(command) == 2
    said = capfd.readouterr().err
    assert f"{part.name}' is gone, or was changed" in said
    assert "to export again" in said
    assert sorted(out.iterdir()) == before
