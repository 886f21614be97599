"""How many bytes lie below directories, for who plans."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

import qindex
from qindex.spark.weigh import bytes_below


def test_too_many_open_files_are_told(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "store") as store:
        store.queue("a").publish(b"x")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = os.open(os.devnull, os.O_RDONLY)
    os.close(opened)  # the next one would be this
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened, hard))
    try:
        with pytest.raises(qindex.DiskError, match="Too many open files"):
            bytes_below([str(tmp_path / "store")], "store.meta")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_all_files_below_each_directory_count_in_its_place(tmp_path: Path) -> None:
    folders = [tmp_path / f"{number}" for number in range(150)]  # several calls, and threads
    for number, folder in enumerate(folders):
        deep = folder.joinpath(*"abcdef"[: number % 7])
        deep.mkdir(parents=True)
        (deep / "file").write_bytes(b"x" * number)
        (folder / ".hidden").write_bytes(b"y" * 5000)
    sizes = bytes_below([str(folder) for folder in folders])
    assert sizes == [5000 + number for number in range(150)]
    assert bytes_below([str(tmp_path)]) == [sum(sizes)]
    assert bytes_below([]) == []


def test_what_was_allocated_and_never_written_counts_nothing(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    (tmp_path / "written").write_bytes(b"x" * 70_000)
    assert bytes_below([str(tmp_path)]) == [70_000]


def test_links_and_pipes_count_nothing(tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "below").mkdir(parents=True)
    (there / "file").write_bytes(b"x" * 100)
    (there / "link").symlink_to(there / "file")
    (there / "loop").symlink_to(there)
    os.mkfifo(there / "pipe")
    (tmp_path / "link").symlink_to(there)
    assert bytes_below([str(there), str(tmp_path / "link")]) == [100, 0]


def test_a_directory_without_the_file_is_told_from_an_empty_one(tmp_path: Path) -> None:
    for name in ("with", "link", "without", "folder"):
        (tmp_path / name).mkdir()
    (tmp_path / "with/mark").touch()
    (tmp_path / "link/mark").symlink_to("../with/mark")
    (tmp_path / "without/other").write_bytes(b"x")
    (tmp_path / "folder/mark").mkdir()
    names = ("with", "link", "without", "folder", "gone")
    folders = [str(tmp_path / name) for name in names]
    assert bytes_below(folders, "mark") == [0, 0, -1, -1, -1]
    assert bytes_below(folders) == [0, 0, 1, 0, 0]


def test_what_lies_too_deep_counts_nothing(tmp_path: Path) -> None:
    for depth in (5, 30, 40, 400):
        folder = tmp_path.joinpath(*["x"] * depth)
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"x" * depth)
    assert bytes_below([str(tmp_path)]) == [35]
