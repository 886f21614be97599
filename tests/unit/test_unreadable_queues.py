"""The disk does not give the files of one queue: all others are read, and it is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from helpers import queue_directory

import qindex


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "s"
    with qindex.open(path, format=2) as store:
        for name in ("a", "b", "c"):
            store.queue(name).publish_many([b"%d" % n * 3000 for n in range(5)])
    return path


@pytest.fixture(params=["journals", "queue.meta"])
def unread(request: pytest.FixtureRequest, store: Path) -> Path:
    """A FIFO in the place of a file is no file that could be damaged: the disk refuses it."""
    folder = queue_directory(store, "b")
    names = ("journal.jif", "journal.alt") if request.param == "journals" else ("queue.meta",)
    for name in names:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    return store


LINES = ["ls", "stats", "check", "cat", "export --out {o}.jsonl", "du", "diff {s}", "top --once"]


@pytest.mark.parametrize("line", [*LINES, "salvage --out {o}", "replay --verify"])
def test_the_others_are_read(run: Any, unread: Path, tmp_path: Path, line: str) -> None:
    asked = [word.format(s=unread, o=tmp_path / "out") for word in line.split()]
    code, out, err = run(asked[0], unread, *asked[1:])
    assert code == (3 if asked[0] == "diff" else 1), out + err
    if asked[0] in ("ls", "stats", "du", "salvage", "top", "replay"):
        assert {row.split()[0] for row in out.splitlines() if row.strip()} >= {"a", "c"}
    if asked[0] == "cat":
        assert out.count("4" * 3000) == 2
    if asked[0] == "export":
        assert len((tmp_path / "out.jsonl").read_bytes().splitlines()) == 10
    if asked[0] == "salvage":
        with qindex.open(tmp_path / "out", read_only=True) as new:
            assert [len(new.queue(name)) for name in ("a", "c")] == [5, 5]


def test_a_store_whose_meta_is_not_read_is_salvaged(run: Any, store: Path, tmp_path: Path) -> None:
    (store / "store.meta").unlink()
    (store / "store.meta").mkdir()
    code, out, _ = run("salvage", store, "--out", tmp_path / "new", "--json")
    assert code == 1
    assert [queue["messages"] for queue in json.loads(out)["queues"]] == [5, 5, 5]


@pytest.mark.parametrize("name", ["journal.jif", "store.meta"])
def test_what_was_moved_to_another_disk_is_not_left_out(
    run: Any, store: Path, tmp_path: Path, name: str
) -> None:
    file = store / name if name == "store.meta" else queue_directory(store, "b") / name
    file.rename(tmp_path / "moved")
    file.symlink_to(tmp_path / "moved")
    code, _, err = run("salvage", store, "--out", tmp_path / "new")
    assert code == 2
    assert "is a symbolic link, which is not followed" in err
    assert not (tmp_path / "new" / "store.meta").exists() or "new' holds a part of" in err
    assert run("ls", store).code == (2 if name == "store.meta" else 1)


@pytest.mark.parametrize("line", ["cat", "peek", "purge --yes", "delete --yes", "move --to a"])
def test_a_name_that_no_queue_can_have_is_no_queue(run: Any, store: Path, line: str) -> None:
    command, *options = line.split()
    ran = run(command, store, "x" * 70_000, *options)
    assert ran.code == 2
    assert "no queue 'xxx" in ran.err
    assert len(ran.err) < 1000
