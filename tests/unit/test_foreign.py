"""The door to foreign directories: no link is followed, and a dying disk is survived."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from qindex.brokers import tree as foreign
from qindex.brokers.tree import Findings, Tree


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"0123456789")
    tree = Tree(tmp_path, Findings())
    yield tree
    tree.close()


def test_a_file_is_read_by_its_place_below_the_directory(tree: Tree) -> None:
    with tree.open("a/b/file") as source:
        assert source.size == 10
        assert source.read(3, 4) == b"3456"
        assert source.read(8, 100) == b"89"
        assert source.read(10, 1) == b""
    assert tree.folders() == ["a"]
    assert tree.folders("a") == ["b"]
    assert tree.files("a/b") == ["file"]
    assert tree.read("a/b/file", 100) == b"0123456789"
    assert tree.read("a/b/nothing", 100) is None
    assert not tree.findings.kept


def test_an_interrupt_behind_a_close_is_no_damage(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It closed that descriptor once more, and the error of this took the interrupt's place."""
    close, closed = os.close, []

    def close_and_be_interrupted(fd: int) -> None:
        close(fd)
        closed.append(fd)
        if len(closed) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "close", close_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt):
        tree.read("a/b/file", 100)
    assert len(closed) == len(set(closed)) == 2
    assert not tree.findings.kept


def test_the_files_of_a_folder_are_opened_in_the_order_of_their_names(
    tree: Tree, tmp_path: Path
) -> None:
    (tmp_path / "a" / "b" / "another").write_bytes(b"0")
    (tmp_path / "a" / "b" / "not").write_bytes(b"00")
    (tmp_path / "a" / "b" / "link").symlink_to("file")
    found = []
    for source in tree.sources("a/b", lambda name: name != "not"):
        with source:
            found.append((source.where, source.size))
    assert found == [("a/b/another", 1), ("a/b/file", 10)]
    assert [(each.kind, each.where) for each in tree.findings.kept] == [("unreadable", "a/b/link")]


def test_what_is_longer_than_allowed_is_cut_and_said(tree: Tree) -> None:
    assert tree.read("a/b/file", 4) == b"0123"
    assert [finding.kind for finding in tree.findings.kept] == ["too long"]


@pytest.mark.parametrize("link", ["folder", "file"])
def test_no_symbolic_link_is_followed(tree: Tree, tmp_path: Path, link: str) -> None:
    if link == "folder":
        (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
        place = "link/file"
    else:
        (tmp_path / "link").symlink_to(tmp_path / "a" / "b" / "file")
        place = "link"
    assert tree.folders() == ["a"]
    assert tree.files() == []
    assert tree.try_open(place) is None
    assert tree.read(place, 100) is None
    with pytest.raises(OSError, match=r"."):
        tree.open(place)
    assert {finding.kind for finding in tree.findings.kept} == {"unreadable"}


def test_a_pipe_is_not_opened_and_does_not_block(tree: Tree, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert tree.files() == []
    with pytest.raises(OSError, match="not a regular file"):
        tree.open("pipe")


def test_a_sector_that_cannot_be_read_is_zeros_and_a_finding(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(range(1, 256)) * 100
    (tmp_path / "big").write_bytes(data)
    pread = os.pread

    def dying(fd: int, count: int, offset: int) -> bytes:
        if offset < 8192 <= offset + count - 1 or 8192 <= offset < 12288:
            raise OSError(errno.EIO, "Input/output error")
        return pread(fd, count, offset)

    monkeypatch.setattr(foreign.os, "pread", dying)
    with tree.open("big") as source:
        read = source.read(100, 20_000)
    assert read == data[100:8192] + bytes(4096) + data[12288:20_100]
    (finding,) = tree.findings.kept
    assert (finding.kind, finding.where, finding.offset) == ("unreadable", "big", 8192)


def test_a_file_that_became_shorter_ends_where_it_ends(tree: Tree, tmp_path: Path) -> None:
    with tree.open("a/b/file") as source:
        os.truncate(tmp_path / "a" / "b" / "file", 5)
        assert source.read(0, 10) == b"01234"
        assert source.size == 5


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_files_that_are_kept_open_are_few(tree: Tree, tmp_path: Path) -> None:
    for number in range(foreign.OPEN_FILES_MAX * 3):
        (tmp_path / f"f{number}").write_bytes(b"x%d" % number)
    before = open_files()
    for number in range(foreign.OPEN_FILES_MAX * 3):
        source = tree.kept_open(f"f{number}")
        assert source is not None
        assert source.read(0, 9) == b"x%d" % number
        assert tree.kept_open(f"f{number}") is source
    assert open_files() <= before + foreign.OPEN_FILES_MAX
    assert tree.kept_open("missing") is None
    tree.close()
    assert open_files() < before


def test_findings_are_capped_per_file_and_stand_once() -> None:
    findings = Findings()
    for offset in range(foreign.FINDINGS_PER_FILE_MAX * 2):
        for _ in range(2):
            findings.damage("kind", "file", offset, "text")
    findings.note("kind", "other", 0, "text")
    assert len(findings.kept) == foreign.FINDINGS_PER_FILE_MAX + 2
    assert findings.kept[-2].kind == "too many"
    assert str(findings.kept[-1]) == "note: other at byte 0: text"
