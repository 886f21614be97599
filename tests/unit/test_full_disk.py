"""Others have filled the disk to the last byte: a store is opened all the same, and drained.

On a small tmpfs and a small ext4, which root mounts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import qindex

MESSAGES = 700
KILLED = """
import os, sys, qindex
store = qindex.open(sys.argv[1], sync="never")
store.queue("q").publish_many([b"more"] * 10)
os._exit(0)
"""


def try_mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"this system does not let root mount that: {done.stderr.strip()}")


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    if request.param == "tmpfs":
        try_mount("-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk))
    else:
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("mkfs.ext4 is not there")
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(24 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
        try_mount("-o", "loop", str(image), str(disk))
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path) -> None:
    """To the last byte, by somebody else."""
    with (disk / "others").open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 16, 4096, 512, 1):
            while True:
                try:
                    if file.write(bytes(size)) < size:
                        break
                except OSError:
                    break
        os.fsync(file.fileno())
    with pytest.raises(OSError, match="No space left"):
        (disk / "a draft").write_bytes(bytes(4096))
    (disk / "a draft").unlink(missing_ok=True)


@pytest.mark.parametrize("io", ["mmap", "pwrite"])
def test_a_store_on_a_full_disk_is_opened_and_drained(disk: Path, io: str) -> None:
    path = disk / "data"
    with qindex.open(path, io=io) as store:
        queue = store.queue("q")
        queue.publish_many([b"%d" % number for number in range(MESSAGES)])
        queue.flush()
        for number in range(20):
            store.queue(f"other {number}").publish(b"one")
    fill(disk)
    for _ in range(3):  # opened and closed, nothing else
        with qindex.open(path, io=io) as store:
            assert len(store.queue("q")) == MESSAGES
    with qindex.open(path, io=io) as store:
        with pytest.raises(qindex.DiskFull):
            store.queue("q").publish_many([bytes(4000)] * 20)
        with suppress(qindex.DiskFull):
            while True:
                store.queue("q").publish(b"small")
        for number in range(20):
            other = store.queue(f"other {number}")
            message = other.get()
            assert message is not None
            other.ack(message)
        queue = store.queue("q")
        for number in range(MESSAGES):
            message = queue.get()
            assert message is not None
            assert message.body == b"%d" % number
            queue.ack(message)
        while message := queue.get():  # what fitted into the journal's last page
            assert message.body == b"small"
            queue.ack(message)
        assert len(queue) == 0
    with qindex.open(path, io=io) as store:
        assert len(store.queue("q")) == 0
        assert [finding for finding in store.findings if finding.severity == "damage"] == []


def test_after_a_kill_a_full_disk_lets_it_open(disk: Path) -> None:
    path = disk / "data"
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=True)
    fill(disk)
    with qindex.open(path) as store:
        queue = store.queue("q")
        for _ in range(10):
            message = queue.get()
            assert message is not None
            queue.ack(message)
    with qindex.open(path) as store:
        assert len(store.queue("q")) == 0
