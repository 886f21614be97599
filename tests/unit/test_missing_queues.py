"""A queue whose folder somebody removed by hand is missed by a check, in a store of format 2."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import queue_directory

import qindex
from qindex.testing import abandon


def fill(path: Path, form: Any = 2) -> None:
    with qindex.open(path, format=form) as store:
        for name in ("a", "b", "c"):
            queue = store.queue(name)
            queue.publish_many([b"%d" % i for i in range(10)])
            queue.ack_many(queue.get_many(3))
            queue.nack(queue.get(), requeue=False)  # type: ignore[arg-type]


def missing(path: Path, **options: Any) -> list[qindex.Finding]:
    with qindex.open(path, **options) as store:
        return [found for found in store.check() if found.severity == "damage"]


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("gone", [["a"], ["a", "c"]])
def test_a_folder_that_was_removed_is_told_with_what_was_in_it(
    tmp_path: Path, gone: list[str], read_only: bool
) -> None:
    fill(tmp_path)
    assert missing(tmp_path, read_only=True) == []
    for name in gone:
        shutil.rmtree(queue_directory(tmp_path, name))
    [found] = missing(tmp_path, read_only=read_only)
    assert found.where == "queues"
    assert found.lost == 6 * len(gone)
    assert f"{len(gone)} queue" in found.text
    assert f"{found.lost} messages at the end of the last session" in found.text
    assert missing(tmp_path)  # also when it was opened and closed meanwhile


def test_the_command_ends_with_1(tmp_path: Path, run: Any) -> None:
    fill(tmp_path)
    shutil.rmtree(queue_directory(tmp_path, "b"))
    code, out, _ = run("check", tmp_path)
    assert code == 1
    assert "1 queue of which the counts are here has no folder any more" in out
    code, out, _ = run("check", tmp_path, "--json")
    assert code == 1
    assert json.loads(out)["findings"][0]["lost"] == 6


def test_a_folder_that_is_put_back_is_not_missed(tmp_path: Path) -> None:
    fill(tmp_path / "store")
    folder = queue_directory(tmp_path / "store", "b")
    folder.rename(tmp_path / "elsewhere")
    assert missing(tmp_path / "store", read_only=True)
    (tmp_path / "elsewhere").rename(folder)
    assert not missing(tmp_path / "store", read_only=True)


def test_what_was_deleted_is_not_missed(tmp_path: Path) -> None:
    fill(tmp_path)
    with qindex.open(tmp_path) as store:
        store.delete_queue("a")
        assert not store.check()
    with qindex.open(tmp_path) as store:
        store.queue("a").publish(b"another")
        assert not store.check()
    assert not missing(tmp_path, read_only=True)


def test_nothing_is_said_where_nothing_is_known(tmp_path: Path) -> None:
    """Behind a kill a deletion may have been cut off; format 1 has no place for counts."""
    fill(tmp_path / "killed")
    store = qindex.open(tmp_path / "killed")
    store.queue("a").publish(b"x")
    abandon(store)
    shutil.rmtree(queue_directory(tmp_path / "killed", "b"))
    assert not missing(tmp_path / "killed", read_only=True)
    fill(tmp_path / "old", form=1)
    shutil.rmtree(queue_directory(tmp_path / "old", "b"))
    assert not missing(tmp_path / "old")


@pytest.mark.parametrize("listed", [True, False])
def test_it_stays_told_behind_a_session_that_is_killed_until_it_is_accepted(
    tmp_path: Path, run: Any, listed: bool
) -> None:
    path = tmp_path / "store"
    fill(path)
    shutil.rmtree(queue_directory(path, "b"))
    store = qindex.open(path)
    if listed:
        assert store.queues() == ["a", "c"]
    abandon(store)
    for line in (
        ["check", path],
        ["backup", path, tmp_path / "copy"],
        ["check", tmp_path / "copy"],
    ):
        assert run(*line)[0] == 1, line
    assert "or queues with their folders" in run("check", path)[1]
    assert run("check", path, "--accept-losses")[0] == 0
    assert missing(path) == []


def test_behind_a_clean_end_it_is_accepted_too(tmp_path: Path, run: Any) -> None:
    """Also where a folder of a queue that has no counts stands for the one that is missing."""
    fill(tmp_path)
    with qindex.open(tmp_path) as store:
        store.queue("no counts")
        store.queue("b").data[b"key"] = b"value"
    shutil.rmtree(queue_directory(tmp_path, "b"))
    with qindex.open(tmp_path) as store:
        assert store.queues() == ["a", "c", "no counts"]
    assert run("check", tmp_path)[0] == 1
    assert run("check", tmp_path, "--accept-losses")[0] == 0
    assert missing(tmp_path) == missing(tmp_path, read_only=True) == []
