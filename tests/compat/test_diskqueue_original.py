"""The tests of NSQ's own diskqueue, written again: TestDiskQueueRoll is test_roll, and so on.

They run on the engine and in the original's files. Where the original's tests look into its fields,
these look at its files. tools/foreign_suites.py counts them into SUITES.rst.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Literal

import foreign_suites
import pytest

from qindex import DiskQueue, StoreClosed
from qindex.brokers.nsq.directory import Meta, data_name, meta_name, parse_meta

NAME = "q"
PATIENCE = 30  # seconds
BODY = bytes(range(10))
LENGTH = 4 + len(BODY)  # in a file


class Place:
    """A queue's directory, in one of the formats."""

    def __init__(self, path: Path, kind: Literal["qindex", "nsq"]) -> None:
        self.path = path
        self.kind = kind
        self.opened: list[DiskQueue] = []

    def open(self, max_bytes: int, *, min_size: int = 0, **options: float) -> DiskQueue:
        queue = DiskQueue(
            NAME,
            self.path,
            max_bytes_per_file=max_bytes,
            min_msg_size=min_size,
            max_msg_size=1 << 10,
            format=self.kind,
            **options,
        )
        self.opened.append(queue)
        return queue

    def meta(self) -> Meta | None:
        """What the original's metadata say; without syncing."""
        try:
            return parse_meta((self.path / meta_name(NAME)).read_bytes())
        except FileNotFoundError:
            return None

    def file(self, number: int) -> Path:
        return self.path / data_name(NAME, number)

    def holds(self, queue: DiskQueue, *, write: tuple[int, int]) -> None:
        """Where the next message will be. The engine has no such place to look at."""
        if self.kind == "nsq":
            queue.sync()
            meta = self.meta()
            assert meta is not None
            assert meta.write == write


@pytest.fixture(params=["qindex", "nsq"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path, request.param)
    yield found
    for queue in found.opened:
        queue.close()


in_its_files = pytest.mark.parametrize("place", ["nsq"], indirect=True)


def put(queue: DiskQueue, number: int, body: bytes = BODY) -> None:
    before = queue.depth
    for done in range(number):
        queue.put(body)
        assert queue.depth == before + done + 1


def test_the_table_counts_them() -> None:
    assert {name for name in globals() if name.startswith("test_")} == {
        *foreign_suites.GO_TESTS.values(),
        "test_the_table_counts_them",
    }
    (row,) = [row for row in foreign_suites.rows() if "go-diskqueue" in row["suite"]]
    assert row["tests"] == row["run"] == row["passed"] == len(foreign_suites.GO_TESTS)
    assert row["version"] in foreign_suites.GO_MODULE.read_text()


def test_disk_queue(place: Place) -> None:
    queue = place.open(1024, min_size=4)
    assert queue.depth == 0
    queue.put(b"test")
    assert queue.depth == 1
    assert queue.get() == b"test"


def test_roll(place: Place) -> None:
    queue = place.open(10 * LENGTH, min_size=len(BODY))
    put(queue, 11)
    place.holds(queue, write=(1, LENGTH))
    for left in reversed(range(11)):
        assert queue.get() == BODY
        assert queue.depth == left


@pytest.mark.parametrize(
    ("calls", "times"), [("peek get", 10), ("peek peek get", 10), ("get peek", 9)]
)
def test_peek(place: Place, calls: str, times: int) -> None:
    queue = place.open(10 * LENGTH, min_size=len(BODY))
    for _ in range(2):  # the second time behind an empty()
        put(queue, 10)
        for call in calls.split() * times:
            left = queue.depth - (call == "get")
            assert getattr(queue, call)() == BODY
            assert queue.depth == left
        queue.empty()


def test_empty(place: Place) -> None:
    queue = place.open(100)
    put(queue, 100)
    for _ in range(3):
        assert queue.get() == BODY
    assert queue.depth == 97
    queue.empty()
    if place.kind == "nsq":
        assert not list(place.path.iterdir())
    assert queue.depth == 0
    put(queue, 100)
    assert list(queue) == [BODY] * 100
    assert queue.depth == 0


@in_its_files
def test_corruption(place: Place) -> None:
    queue = place.open(1000, min_size=10, sync_every=5)
    body = bytes([91]) + bytes(118) + bytes([211])  # 8 of 124 bytes in a file
    put(queue, 25, body)
    os.truncate(place.file(1), 400)  # 3 are whole, 5 are lost
    assert [queue.get() for _ in range(19)] == [body] * 19
    os.truncate(place.file(3), 100)  # the file that is written, with the last one
    assert queue.peek() is None  # the original reads ahead: it has seen the damage by now
    queue.put(body)  # in the fifth file
    assert queue.get() == body
    queue.put(body)
    with place.file(4).open("r+b") as file:
        file.seek(124)
        file.write(bytes(4))  # a size that is not allowed
    assert queue.peek() is None
    queue.put(body)  # in the sixth file
    assert queue.get() == body
    put(queue, 2, body)
    os.truncate(place.file(5), 100)
    assert queue.depth == 2
    assert queue.get() is None
    assert (queue.depth, queue.damaged) == (0, 4)
    bad = sorted(file.name for file in place.path.glob("*.bad"))
    assert bad == [f"{place.file(number).name}.bad" for number in (1, 3, 4, 5)]


@in_its_files
def test_sync_after_read(place: Place) -> None:
    def come(wanted: Meta) -> None:
        end = time.monotonic() + PATIENCE
        while place.meta() != wanted:
            assert time.monotonic() < end, f"{place.meta()} instead of {wanted}"
            time.sleep(0.005)

    queue = place.open(1 << 11, sync_timeout=0.05)
    queue.put(bytes(1000))
    come(Meta(1, (0, 0), (0, 1004)))
    queue.put(bytes(1000))
    assert queue.get() == bytes(1000)
    come(Meta(1, (0, 1004), (0, 2008)))


def test_torture(place: Place) -> None:
    queue = place.open(1 << 18)
    done: list[int] = []
    enough = threading.Event()

    def write() -> None:
        for number in count():
            try:
                queue.put(b"%d" % number)
            except StoreClosed:
                break
            done.append(number)
            if number == 300:
                enough.set()

    writers = [threading.Thread(target=write) for _ in range(4)]
    for thread in writers:
        thread.start()
    assert enough.wait(PATIENCE)
    queue.close()  # under the writers' hands
    for thread in writers:
        thread.join(PATIENCE)

    queue = place.open(1 << 18)
    assert queue.depth == len(done)
    read: list[int] = []

    def drain() -> None:
        read.extend(int(body) for body in queue)

    readers = [threading.Thread(target=drain) for _ in range(4)]
    for thread in readers:
        thread.start()
    for thread in readers:
        thread.join(PATIENCE)
    assert queue.depth == 0
    assert sorted(read) == sorted(done)


def test_resize(place: Place) -> None:
    bodies = [bytes([number]) + BODY[1:] for number in (*range(9), *range(20, 30))]
    queue = place.open(8 * LENGTH, min_size=len(BODY), sync_timeout=1)
    for body in bodies[:9]:
        queue.put(body)
    place.holds(queue, write=(1, LENGTH))
    assert queue.depth == 9
    queue.close()
    queue = place.open(10 * LENGTH, min_size=len(BODY), sync_timeout=1)
    for body in bodies[9:]:
        queue.put(body)
    place.holds(queue, write=(2, LENGTH))
    assert queue.depth == 19
    assert list(queue) == bodies
    assert (queue.depth, queue.damaged) == (0, 0)
    queue.close()
    assert not list(place.path.glob("*.bad"))
