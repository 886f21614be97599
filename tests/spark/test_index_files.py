"""The table records of stores with things in them that are not theirs, or that change meanwhile."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

import qindex

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

from qindex.spark.plan import Unit, find, plan
from qindex.spark.tables import Choice, batches


@pytest.fixture
def units(tmp_path: Path) -> list[Unit]:
    """Three stores, each with two queues."""
    for number in range(3):
        with qindex.open(tmp_path / f"{number}", segment_entries=64) as store:
            store.queue("kept").publish_many([b"x"] * 100)
            store.queue("kept").flush()
            store.queue("other").publish_many([b"y"] * 5)
    return find([str(tmp_path)])


def counts(
    units: list[Unit], names: tuple[str, ...] = (), choice: Choice | None = None
) -> list[int]:
    """Records of each store."""
    found = [0] * 3
    for batch in batches(units, "records", ["broker", *names], choice or Choice()):
        for broker in batch["broker"].to_pylist():
            found[int(broker)] += 1
    return found


def folder_of(unit: Unit, name: str) -> Path:
    with qindex.open(unit.source, read_only=True) as store:
        return Path(unit.source) / store.queue_directory(name)


def test_queues_are_chosen_with_and_without_files_of_a_plan(units: list[Unit]) -> None:
    assert counts(units) == [105] * 3
    for names, queues, expected in (
        (("size",), (), 105),
        (("queue",), ("kept",), 100),
        (("size",), ("o*",), 5),
        (("size",), ("*",), 105),
        (("size",), ("nobody",), 0),
    ):
        choice = Choice(queues=queues)
        assert counts(units, names, choice) == [expected] * 3
        tasks = plan(units, "records", target_bytes=1000)
        parts = [counts(task, names, choice) for task in tasks]
        assert [sum(each) for each in zip(*parts, strict=True)] == [expected] * 3
        assert any(unit.files for task in tasks for unit in task)


def test_links_pipes_and_folders_are_not_read(
    units: list[Unit], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_of(units[0], "kept")
    os.mkfifo(folder / "7.idx")
    (folder / "8.idx").symlink_to(folder_of(units[1], "kept") / "0.idx")
    (folder / "9.alt").mkdir()
    (folder / "0.idx.old").write_bytes((folder / "0.idx").read_bytes())
    (folder / "past.3.0.idx").write_bytes((folder / "0.idx").read_bytes())
    (folder.parent / "a file").write_bytes(b"?")
    (folder.parent / "a link").symlink_to(folder_of(units[1], "kept"))
    with caplog.at_level(logging.WARNING, "qindex.spark"):
        assert counts(units) == [105] * 3
    told = [record.getMessage() for record in caplog.records]
    assert [name for name in ("7.idx", "8.idx", "9.alt") if not any(name in t for t in told)] == []
    assert len(told) == 3
    assert all(text.startswith(f"{units[0].source}: cannot open ") for text in told)


def test_a_store_that_has_gone_is_told_and_the_others_are_read(
    units: list[Unit], caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(units[1].source)
    shutil.rmtree(Path(units[2].source) / "queues")
    with caplog.at_level(logging.WARNING, "qindex.spark"):
        assert counts(units) == [105, 0, 0]
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [
        units[1].source,
        units[2].source,
    ]


def test_files_that_go_while_a_store_is_read_are_passed_over(units: list[Unit]) -> None:
    shutil.rmtree(folder_of(units[0], "other"))
    tasks = plan(units, "records", target_bytes=1000)
    (folder_of(units[1], "kept") / "0.idx").unlink()
    found = [counts(task) for task in tasks]
    assert [sum(each) for each in zip(*found, strict=True)] == [100, 41, 105]
    assert counts(units) == [100, 41, 105]
