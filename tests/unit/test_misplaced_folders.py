"""A folder that stands where another queue's was, copied or moved there, is damage."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import queue_directory

import qindex


@pytest.fixture(params=[1, 2])
def path(tmp_path: Path, request: Any) -> Path:
    with qindex.open(tmp_path / "s", format=request.param) as store:
        for name in ("a", "b"):
            store.queue(name).publish_many([name.encode() * 10] * 5)
    return tmp_path / "s"


def copy_over(path: Path) -> list[str]:
    shutil.rmtree(queue_directory(path, "b"))
    shutil.copytree(queue_directory(path, "a"), queue_directory(path, "b"))
    return ["b"]


def swap(path: Path) -> list[str]:
    one, other = (queue_directory(path, name) for name in "ab")
    one.rename(path / "kept")
    other.rename(one)
    (path / "kept").rename(other)
    return ["a", "b"]


@pytest.mark.parametrize("change", [copy_over, swap])
def test_check_tells_of_every_folder_that_is_another_queues(
    path: Path, change: Any, run: Any
) -> None:
    wrong = change(path)
    with qindex.open(path, read_only=True) as store:
        found = [each for each in store.check() if "is the folder of another queue" in each.text]
        assert {each.where for each in found} == {store.queue_directory(name) for name in wrong}
        assert all(each.severity == "damage" for each in found)
        for name in wrong:
            with pytest.raises(qindex.StoreCorrupt):
                store.queue(name)
        if "a" not in wrong:
            assert len(store.queue("a")) == 5
    assert run("check", path)[0] == 1


def test_compact_writes_nothing_into_such_a_folder(path: Path) -> None:
    swap(path)
    folders = [queue_directory(path, name) for name in "ab"]
    before = [file.read_bytes() for folder in folders for file in sorted(folder.iterdir())]
    with qindex.open(path) as store, pytest.raises(qindex.StoreCorrupt, match="another queue"):
        store.compact()
    assert before == [file.read_bytes() for folder in folders for file in sorted(folder.iterdir())]


def test_a_renamed_queue_is_at_its_place(path: Path, run: Any) -> None:
    with qindex.open(path, upgrade=True) as store:
        with qindex.open(path, read_only=True) as reader:
            assert reader.queues() == ["a", "b"]
            store.rename_queue("a", "c")
            assert not [each for each in reader.check() if each.severity == "damage"]
        assert not store.check()
        store.compact()
    assert run("check", path)[0] == 0
