"""DiskQueue in NSQ's own files: the bytes of the original, and what is better than there."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qindex import DiskQueue
from qindex.brokers.reader import open_node

from .nsq_files import NAME, bodies, record, write_files, write_meta
from .test_nsq import META, file_name

if TYPE_CHECKING:
    from .conftest import DeadNode

FILE_BYTES = 128 << 10  # of the real directories
NUMBERED = [b"%029d" % number for number in range(600)]
PER_FILE = 4096 // len(record(NUMBERED[0]))


def open_queue(path: Path, file_bytes: int = 4096, **options: object) -> DiskQueue:
    return DiskQueue(NAME, path, max_bytes_per_file=file_bytes, format="nsq", **options)


def files_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def digest(body: bytes | None) -> str:
    return hashlib.sha256(body or b"").hexdigest()[:32]


def test_the_real_files_are_written_byte_for_byte(
    shared_directory: Callable[[str, str], DeadNode], tmp_path: Path
) -> None:
    (real,) = shared_directory("nsq", "nsq_clean").path.iterdir()
    with open_node(real) as node:
        (queue,) = node.queues
        queue.meta = None  # those that were read, too
        messages = [message.body for message in queue.messages()]
    write_meta(tmp_path, 0, (3, 0), (3, 0))
    with open_queue(tmp_path, FILE_BYTES) as ours:
        for body in messages:
            ours.put(body)
        for _ in range(len(messages) - 2500):
            ours.get()
    assert files_of(tmp_path) == files_of(real)


@pytest.mark.parametrize("name", ["nsq_clean", "nsq_kill9_sync100"])
def test_a_real_directory_is_taken_over(
    shared_directory: Callable[[str, str], DeadNode], tmp_path: Path, name: str
) -> None:
    dead = shared_directory("nsq", name)
    path = shutil.copytree(dead.path / name, tmp_path / "copy")
    truth = dead.truth["program_itself_returns_after_reopen"]
    with open_queue(path, FILE_BYTES) as queue:
        assert queue.depth == len(truth)
        queue.put(b"one more")
        assert [digest(body) for body in queue] == [*truth, digest(b"one more")]
        assert (queue.depth, queue.damaged) == (0, 0)
    assert len(files_of(path)) == 2


def test_the_bytes_are_those_of_the_format(tmp_path: Path) -> None:
    write_files(tmp_path / "wanted", bodies(700), 90)
    (tmp_path / "ours").mkdir()
    with open_queue(tmp_path / "ours") as queue:
        for body in bodies(700):
            queue.put(body)
        for _ in range(90):
            queue.get()
    assert files_of(tmp_path / "ours") == files_of(tmp_path / "wanted")
    with open_queue(tmp_path / "wanted") as queue:
        assert list(queue) == bodies(700)[90:]


def test_an_empty_queue_has_only_metadata(tmp_path: Path) -> None:
    open_queue(tmp_path).close()
    assert files_of(tmp_path) == {META: b"0\n0,0\n0,0\n"}
    with open_queue(tmp_path) as queue:
        queue.put(b"body")
        queue.empty()
        assert files_of(tmp_path) == {}
    assert files_of(tmp_path) == {META: b"0\n1,0\n1,0\n"}
    queue = open_queue(tmp_path)
    queue.put(b"body")
    queue.delete()
    assert files_of(tmp_path) == {}


def test_a_message_longer_than_a_file_has_one_of_its_own(tmp_path: Path) -> None:
    with open_queue(tmp_path, 10) as queue:
        for body in (b"a", b"b" * 100, b"c"):
            queue.put(body)
        assert [len(data) for _, data in sorted(files_of(tmp_path).items())][:3] == [5, 104, 5]
        assert list(queue) == [b"a", b"b" * 100, b"c"]


@pytest.mark.parametrize("size", [0x7FFFFFFF, 0xFFFFFFFF, 2000])
def test_a_damaged_file_is_set_aside_and_the_queue_goes_on(
    tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path, NUMBERED, 0)
    file = tmp_path / file_name(1)
    data = file.read_bytes()
    place = sum(len(record(body)) for body in NUMBERED[PER_FILE : PER_FILE + 10])
    file.write_bytes(data[:place] + size.to_bytes(4, "big") + data[place + 4 :])
    with open_queue(tmp_path, max_msg_size=1000) as queue:
        assert list(queue) == NUMBERED[: PER_FILE + 10] + NUMBERED[2 * PER_FILE :]
        assert (queue.damaged, queue.depth) == (1, 0)
    (told,) = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told[0] == "WARNING"
    assert told[1].startswith(f"{file} makes no sense from byte {place} on")
    assert set(files_of(tmp_path)) == {f"{file.name}.bad", file_name(4), META}
    with open_node(tmp_path) as node:
        recovered = [message.body for message in node.queues[0].messages()]
    assert recovered[:10] == NUMBERED[PER_FILE : PER_FILE + 10]
    assert recovered[-50:] == NUMBERED[2 * PER_FILE - 50 : 2 * PER_FILE]


def test_damage_in_the_file_that_is_written_begins_a_new_one(tmp_path: Path) -> None:
    with open_queue(tmp_path) as queue:
        queue.put(b"lost")
        (tmp_path / file_name(0)).write_bytes(b"\xff" * 8)
        queue.put(b"lost, too")
        assert queue.get() is None
        queue.put(b"kept")
        assert (queue.get(), queue.damaged) == (b"kept", 1)
    assert set(files_of(tmp_path)) == {file_name(0) + ".bad", file_name(1), META}


@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_file_is_passed_over_and_told(
    tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path, NUMBERED, 0)
    (tmp_path / file_name(number)).unlink()
    lost = slice(number * PER_FILE, (number + 1) * PER_FILE)
    with open_queue(tmp_path) as queue:
        assert list(queue) == NUMBERED[: lost.start] + NUMBERED[lost.stop :]
        assert (queue.depth, queue.damaged) == (0, 1)
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / file_name(number)} is missing, with its messages"
    ]


def test_what_the_original_has_set_aside_is_not_told_once_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path, NUMBERED, 0)
    (tmp_path / file_name(0)).rename(tmp_path / f"{file_name(0)}.bad")
    with open_queue(tmp_path) as queue:
        assert list(queue) == NUMBERED[PER_FILE:]
        assert queue.damaged == 0
    assert not caplog.records


def test_without_metadata_nothing_is_written_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path, bodies(300), 0)
    for text in (None, "nonsense", "5\n9,0\n3,0\n"):
        path = shutil.copytree(tmp_path, tmp_path.with_name(f"copy-{text and len(text)}"))
        (path / META).unlink() if text is None else (path / META).write_text(text)
        caplog.clear()
        with open_queue(path) as queue:
            assert queue.depth == 300
            queue.put(b"new")
            assert list(queue) == [*bodies(300), b"new"]
        (told,) = [record.getMessage() for record in caplog.records]
        assert told == f"{path / META} is missing or makes no sense: all is got once more"


def test_what_came_after_the_metadata_is_in_the_depth(tmp_path: Path) -> None:
    write_files(tmp_path, bodies(50), 10, 1 << 20)
    with (tmp_path / file_name(0)).open("ab") as file:
        file.write(record(b"later") * 3 + record(b"torn")[:5])
    (tmp_path / file_name(1)).write_bytes(record(b"latest"))
    with open_queue(tmp_path) as queue:
        assert queue.depth == 44
        queue.put(b"new")
        assert [queue.get() for _ in range(43)] == [*bodies(50)[10:], *[b"later"] * 3]
        assert list(queue) == [b"latest", b"new"]
        assert queue.damaged == 1  # the torn end, as in the original
    assert file_name(2) in files_of(tmp_path)


def test_a_read_file_that_was_finished_by_a_roll_is_no_damage(tmp_path: Path) -> None:
    """The original looks for more behind its end, and calls it .bad (nsq #1514)."""
    with open_queue(tmp_path, 100) as queue:
        queue.put(b"a" * 60)
        assert queue.get() == b"a" * 60
        queue.put(b"b" * 60)
        assert queue.get() == b"b" * 60
        assert queue.damaged == 0
    assert set(files_of(tmp_path)) == {file_name(1), META}


def test_a_put_that_failed_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite

    def full(fd: int, data: bytes, offset: int) -> int:
        if len(data) > 20:
            return pwrite(fd, data[:20], offset)
        raise OSError(28, "No space left on device")

    with open_queue(tmp_path) as queue:
        queue.put(b"one")
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            queue.put(b"x" * 30)
        monkeypatch.setattr(os, "pwrite", pwrite)
        assert queue.depth == 1
        assert queue.peek() == b"one"
        queue.put(b"two")
        assert list(queue) == [b"one", b"two"]


def test_metadata_are_synced_before_their_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def record_fsync(fd: int) -> None:
        calls.append("sync " + Path(os.readlink(f"/proc/self/fd/{fd}")).name.split(".")[-1])  # noqa: PTH115
        fsync(fd)

    def record_rename(self: Path, target: Path) -> Path:
        calls.append("rename")
        return rename(self, target)

    with open_queue(tmp_path) as queue:
        queue.put(b"body")
        monkeypatch.setattr(os, "fsync", record_fsync)
        monkeypatch.setattr(Path, "rename", record_rename)
        queue.sync()
        assert calls == ["sync dat", "sync tmp", "rename", f"sync {tmp_path.name}"]
        monkeypatch.undo()


def test_a_sync_in_the_background_that_failed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = open_queue(tmp_path, sync_timeout=0.005)

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    queue.put(b"body")
    while queue._files._sync_error is None:  # type: ignore[attr-defined]
        time.sleep(0.001)
    with pytest.raises(OSError, match="Input/output"):
        queue.put(b"body")
    monkeypatch.undo()
    assert queue.depth == 1
    queue.close()
