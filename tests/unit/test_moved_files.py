"""A file that was moved to another disk, with a link in its place: refused, and nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import queue_directory

import qindex

NAMES = [
    "store.meta",
    "queue.meta",
    "journal.jif",
    "journal.alt",
    "0.idx",
    "0.qms",
    "queues",
    "messages",
    "QUEUE",
]
WANTED = [b"%d" % number for number in range(40)] + [b"B" * 9000]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with qindex.open(path, segment_entries=16) as store:
        queue = store.queue("q")
        queue.publish_many(WANTED[:30])
        queue.flush()  # 0.idx and the other journal
        queue.publish_many(WANTED[30:])
        store.queue("other").publish(b"other")
    return path


def place_of(path: Path, name: str) -> Path:
    if name == "QUEUE":
        return Path(queue_directory(path, "q"))
    places = [path / name, Path(queue_directory(path, "q")) / name, path / "messages" / name]
    return next(place for place in places if place.exists())


def move(place: Path, tmp_path: Path) -> Path:
    moved = tmp_path / "other disk"
    place.rename(moved)
    place.symlink_to(moved)
    return moved


def look(path: Path, read_only: bool) -> None:
    with qindex.open(path, read_only=read_only) as store:
        for message in store.queue("q").browse():
            assert message.body in WANTED


def bodies(path: Path) -> list[bytes]:
    with qindex.open(path) as store:
        assert store.findings == []
        return [message.body for message in store.queue("q").browse()]


@pytest.mark.parametrize("name", NAMES)
def test_a_moved_file_is_refused_and_nothing_is_lost(tmp_path: Path, path: Path, name: str) -> None:
    try:
        place = place_of(path, name)
    except StopIteration:
        place = Path(queue_directory(path, "q")) / name  # the journal that is free
        place.write_bytes(b"")
    moved = move(place, tmp_path)
    for read_only in (True, False, False):
        with pytest.raises(qindex.DiskError, match=r"symbolic link.*move what it points to back"):
            look(path, read_only)
    place.unlink()
    moved.rename(place)
    assert bodies(path) == WANTED


@pytest.mark.parametrize("name", ["0.idx", "0.qms", "QUEUE"])
def test_check_says_what_to_do(
    tmp_path: Path, path: Path, name: str, run: Callable[..., Any]
) -> None:
    move(place_of(path, name), tmp_path)
    code, out, err = run("check", path)
    assert code != 0
    assert "symbolic link" in out + err


def test_a_stray_link_does_not_stop_check(
    tmp_path: Path, path: Path, run: Callable[..., Any]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (path / "queues" / "a link").symlink_to(tmp_path / "elsewhere")
    code, out, err = run("check", path)
    assert (code, err) == (0, "")
    (path / "queues" / ("ab" * 16)).symlink_to(tmp_path / "elsewhere")
    code, out, err = run("check", path)
    assert code == 1
    assert "symbolic link" in out + err
    assert "other" in out or "42" in out, "the queues that are there are checked"


@pytest.mark.parametrize("was", ["an empty folder", "a queue"])
def test_a_folder_without_its_queue_meta_is_damage_of_one_queue(
    tmp_path: Path, path: Path, run: Callable[..., Any], was: str
) -> None:
    """It ended check, and an open with limits, with an error of the disk, for all queues."""
    folder = path / "queues" / ("ab" * 16)
    if was == "a queue":
        with qindex.open(path) as store:
            store.queue("lost").publish(b"x")
        folder = Path(queue_directory(path, "lost"))
        (folder / "queue.meta").unlink()
    else:
        folder.mkdir()
    code, out, err = run("check", path)
    assert code == 1
    assert f"{folder.name}/queue.meta is missing" in out + err
    assert "other" in out or "42" in out, "the queues that are there are checked"
    with qindex.open(path, max_messages=10**6) as store:
        assert store.queue("other").ready
        assert [finding.severity for finding in store.check()].count("damage") == 1
        if was == "a queue":
            with pytest.raises(qindex.StoreCorrupt, match=r"queue\.meta is missing"):
                store.queue("lost")
    assert folder.is_dir()


def test_a_link_that_no_segment_has_stays(tmp_path: Path, path: Path) -> None:
    stray = Path(queue_directory(path, "q")) / "900.idx"
    (tmp_path / "elsewhere").write_bytes(b"mine")
    stray.symlink_to(tmp_path / "elsewhere")
    assert bodies(path) == WANTED
    assert stray.is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"
