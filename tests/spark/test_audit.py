"""The audit finds every planted fault and nothing else, with Spark and without."""

from __future__ import annotations

import json
import re
import threading
import time
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers import DEMO_NODE, unpack

import qindex

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

from fleet import Planted, make_fleet
from pyarrow import parquet

from qindex.cli.main import main
from qindex.spark.audit import run, run_on_spark
from qindex.spark.examine import KINDS, Limits, examine
from qindex.spark.joins import join_bodies, read
from qindex.spark.output import Output
from qindex.spark.plan import find

# What only other brokers' directories have, and what is no store at all.
NOT_PLANTED = {"note", "account", "not recognised", "not read", "suspected"}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Planted]]:
    path = tmp_path_factory.mktemp("audit") / "fleet"
    return path, make_fleet(path, brokers=16, queues=3, messages=4000)


def expected(planted: list[Planted]) -> Counter[tuple[str, str | None, str]]:
    counts: Counter[tuple[str, str | None, str]] = Counter()
    for each in planted:
        counts[each.broker, each.queue, each.kind] += each.count
    return counts


def found(findings: list[tuple[str, dict[str, Any]]]) -> Counter[tuple[str, str | None, str]]:
    """What torn tails and the like say of themselves is no fault."""
    counts: Counter[tuple[str, str | None, str]] = Counter()
    for broker, row in findings:
        if row["kind"] != "note":
            counts[broker, row.get("queue"), row["kind"]] += row["count"]
    return counts


@pytest.mark.parametrize("seed", range(1, 5))
def test_every_planted_fault_is_found_and_nothing_else(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "fleet"
    planted = make_fleet(path, brokers=5 + 4 * seed, messages=1000 * seed, seed=seed)
    assert {each.kind for each in planted} == KINDS.keys() - NOT_PLANTED
    findings = [
        (unit.broker, row) for unit in find([str(path)]) for row in examine(unit, Limits()).findings
    ]
    assert found(findings) == expected(planted)


def test_real_directories_have_no_damage(tmp_path: Path) -> None:
    unpack(DEMO_NODE, tmp_path / "node")
    (unit,) = find([str(tmp_path)])
    examination = examine(unit, Limits())
    assert {row["kind"] for row in examination.findings} == {"expired", "orphan bodies"}


def test_of_dead_letters_nothing_is_expected(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("q", dead_letters=True, max_deliveries=5)
        queue.publish(b"expired", expires_at=1.0)
        queue.publish(b"poison")
        for _ in range(5):
            queue.nack(queue.get())
        assert queue.get() is None
        assert queue.dead == 2
    (unit,) = find([str(tmp_path)])
    examination = examine(unit, Limits(stuck_behind=0))
    assert examination.findings == []
    assert [row["live"] for row in examination.queues] == [2]


def test_the_account_adds_up(fleet: tuple[Path, list[Planted]]) -> None:
    for unit in find([str(fleet[0])]):
        for row in examine(unit, Limits()).queues:
            if "error" not in row:
                assert row["found"] == row["live"] + row["gone"] + row["lost"]
                assert min(row["live"], row["gone"], row["lost"]) >= 0


def test_without_bodies_only_the_index_is_looked_at(fleet: tuple[Path, list[Planted]]) -> None:
    kinds = set()
    for unit in find([str(fleet[0])]):
        kinds |= {row["kind"] for row in examine(unit, Limits(check_bodies=False)).findings}
    assert kinds >= {"expired", "stuck", "poison", "duplicate", "references", "unreadable"}
    assert not kinds & {"damaged body", "orphan bodies"}


def test_a_store_in_use_is_not_taken_for_damaged(tmp_path: Path) -> None:
    """Bodies and segments come and go while they are looked at: none of that is a finding."""
    path = tmp_path / "store"
    with qindex.open(path, embed_below=64, message_file_size=65536, sync="never") as store:
        queue = store.queue("orders")
        ended = threading.Event()

        def write() -> None:
            while not ended.is_set():
                queue.publish_many([b"x" * 500] * 200)
                queue.ack_many(queue.get_many(190))
                queue.flush()
                store.compact()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            (unit,) = find([str(path)])
            for _ in range(10):
                findings = examine(unit, Limits()).findings
                assert [row for row in findings if row["severity"] == "damage"] == []
        finally:
            ended.set()
            writer.join()


def test_an_index_alone_is_not_damage(tmp_path: Path) -> None:
    with qindex.QueueIndex(tmp_path / "index") as index:
        index.publish_many(3)
    (unit,) = find([str(tmp_path)])
    assert [row["kind"] for row in examine(unit, Limits()).findings] == ["note"]


def test_limits_say_from_when_on_something_is_a_finding(fleet: tuple[Path, list[Planted]]) -> None:
    limits = Limits(stuck_behind=100_000, poison_deliveries=6)
    for unit in find([str(fleet[0])]):
        kinds = {row["kind"] for row in examine(unit, limits).findings}
        assert not kinds & {"stuck", "poison"}


# --- the command --------------------------------------------------------------------------------


def audit(*arguments: object) -> int:
    return main(["audit", *map(str, arguments)])


def test_tables_and_report_are_written_and_the_exit_code_says_what_is_wrong(
    fleet: tuple[Path, list[Planted]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, planted = fleet
    out = tmp_path / "out"
    assert audit(path, "--out", out, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    rows = tables_in(out)["findings"]
    assert found([(row["broker"], row) for row in rows]) == expected(planted)
    totals = {kind: sum(each.count for each in planted if each.kind == kind) for kind in KINDS}
    assert {k: n for k, n in told["kinds"].items() if k != "note"} == {
        kind: number for kind, number in totals.items() if number
    }
    assert told["account"]["found"] == sum(row["found"] or 0 for row in tables_in(out)["queues"])
    page = (out / "report.html").read_text()
    assert all(each.broker in page for each in planted)
    assert not re.search("https?:|src=|href=|<script", page)
    assert "default-src 'none'" in page


def tables_in(out: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        table: parquet.read_table(out / table).to_pylist()
        for table in ("queues", "files", "findings")
    }


def test_an_audit_again_replaces_its_tables(
    fleet: tuple[Path, list[Planted]], tmp_path: Path
) -> None:
    first = audit(fleet[0], "--out", tmp_path / "out")
    before = tables_in(tmp_path / "out")
    assert audit(fleet[0], "--out", tmp_path / "out") == first
    after = tables_in(tmp_path / "out")
    assert {table: len(rows) for table, rows in after.items()} == {
        table: len(rows) for table, rows in before.items()
    }


def test_a_sound_store_ends_with_0_and_warnings_only_if_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with qindex.open(tmp_path / "one", expire=False) as store:
        store.queue("<b>evil</b>").publish(b"x", ttl=0.001)
        store.queue("orders").publish(b"y")
    time.sleep(0.002)
    assert audit(tmp_path / "one", "--out", tmp_path / "out") == 0
    shown = capsys.readouterr().out
    assert "2 messages in the files = 0 gone + 2 live" in shown
    assert "(one process)" in shown
    assert "<b>evil" not in (tmp_path / "out/report.html").read_text()
    assert audit(tmp_path / "one", "--out", tmp_path / "out", "--strict") == 1


def test_one_process_several_or_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    from qindex.cli.spark_fleet import choose_way
    from qindex.look.screen import CommandError

    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(4)))
    gib = 1 << 30
    for master, jobs, sizes, expected in (
        ("auto", 0, [10_000] * 10, (None, 1, "one process: more pay from about 1 GB on")),
        ("auto", 0, [gib] * 10, (None, 4, "4 processes")),
        ("auto", 0, [gib] * 3, (None, 3, "3 processes")),
        ("auto", 0, [gib], (None, 1, "one process")),
        ("none", 0, [gib] * 10, (None, 4, "4 processes")),
        ("auto", 1, [gib] * 10, (None, 1, "one process")),
        ("auto", 2, [10_000] * 10, (None, 2, "2 processes")),
        ("yarn", 0, [1], ("yarn", 1, "Spark with the master yarn")),
    ):
        assert choose_way(Namespace(master=master, jobs=jobs), sizes) == expected
    assert choose_way(Namespace(master="auto", jobs=0), [gib], splits=True).jobs == 4
    for master, jobs in (("auto", -1), ("yarn", 2)):
        with pytest.raises(CommandError, match="--jobs is"):
            choose_way(Namespace(master=master, jobs=jobs), [gib])


@pytest.mark.slow
def test_several_processes_find_the_same(
    fleet: tuple[Path, list[Planted]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(name: str, *more: str) -> Any:
        assert audit(fleet[0], "--out", tmp_path / name, "--json", *more) == 1
        found = json.loads(capsys.readouterr().out)
        for summary in found["directories"]:
            summary["seconds"] = summary["sums"]["recovery_seconds"] = 0
            for rows in [*summary["top"].values(), summary["top"].pop("recovery_seconds")]:
                for row in rows:
                    row["recovery_seconds"] = 0
        found["account"]["recovery_seconds"] = 0
        assert found.pop("how") == ("2 processes" if more else "one process")
        return {key: each for key, each in found.items() if key not in ("seconds", "report")}

    assert told("one") == told("two", "--jobs", "2")
    assert tables_in(tmp_path / "one")["findings"] == tables_in(tmp_path / "two")["findings"]


def test_what_cannot_be_examined_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with qindex.open(tmp_path / "one") as store:
        store.queue("orders")
    for arguments, said in (
        ([tmp_path / "one", "--out", tmp_path / "one/out"], "where nothing is changed"),
        ([tmp_path / "two", "--out", tmp_path / "out"], "no such directory"),
        ([tmp_path / "one", "--format", "nsq", "--out", tmp_path / "out"], "no store and no"),
    ):
        assert audit(*arguments) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_join_of_frames_finds_the_same_in_parts(
    spark: Any, fleet: tuple[Path, list[Planted]]
) -> None:
    path, planted = fleet
    rows = join_bodies(*read(spark, [f"{path}/*"])).toArrow().to_pylist()
    kinds = {"lost", "damaged body", "references", "duplicate", "orphan bodies"}
    of_bodies = [each for each in planted if each.kind in kinds and each.count != 50]
    assert {row["kind"] for row in rows} == kinds
    assert found([(row["broker"], row) for row in rows]) == expected(of_bodies)


def test_spark_finds_the_same(
    spark: Any, fleet: tuple[Path, list[Planted]], tmp_path: Path
) -> None:
    path, planted = fleet
    output = Output(str(tmp_path / "out"), "2026-01-01")
    report = run_on_spark(spark, [f"{path}/*"], Limits(), output)
    units = find([f"{path}/*"])
    plain = run(units, Limits(), Output(str(tmp_path / "plain"), "2026-01-01"))
    assert report.kinds == plain.kinds
    assert [each.broker for each in report.summaries] == [unit.broker for unit in units]
    frame = spark.read.parquet(str(tmp_path / "out/findings"))
    rows = frame.where("kind != 'note' and day = '2026-01-01'").toArrow().to_pylist()
    assert found([(row["broker"], row) for row in rows]) == expected(planted)
