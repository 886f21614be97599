"""DiskQueue: the same answers on the engine and in NSQ's own files."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import qindex
from qindex import DiskQueue

FORMATS = ["qindex", "nsq"]


@pytest.fixture(params=FORMATS)
def open_queue(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[..., DiskQueue]]:
    """Opens the queue "q" in tmp_path; what is still open is closed at the end."""
    opened = []

    def open_one(name: str = "q", **options: object) -> DiskQueue:
        opened.append(DiskQueue(name, tmp_path, format=request.param, **options))
        return opened[-1]

    yield open_one
    for queue in opened:
        queue.close()


def test_messages_come_in_order_and_once(open_queue):
    queue = open_queue()
    bodies = [b"%d" % n * (n % 50) for n in range(500)]
    for body in bodies:
        queue.put(body)
    assert queue.depth == len(queue) == 500
    assert queue.peek() == queue.peek() == bodies[0]
    assert [queue.get() for _ in range(200)] == bodies[:200]
    assert queue.depth == 300
    assert list(queue) == bodies[200:]
    assert (queue.depth, queue.peek(), queue.get(), list(queue)) == (0, None, None, [])


def test_a_restart_continues(open_queue):
    bodies = [b"%d" % n for n in range(300)]
    for start in range(0, 300, 100):
        queue = open_queue(max_bytes_per_file=4096)
        assert queue.depth == start // 2
        for body in bodies[start : start + 100]:
            queue.put(body)
        assert [queue.get() for _ in range(50)] == bodies[start // 2 : start // 2 + 50]
        queue.close()
    assert list(open_queue()) == bodies[150:]


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_any_bytes_may_be_put(open_queue, kind):
    queue = open_queue()
    queue.put(kind(b"body"))
    assert queue.get() == b"body"
    with pytest.raises(TypeError):
        queue.put("text")


def test_a_size_that_is_not_allowed_is_refused(open_queue):
    queue = open_queue(min_msg_size=2, max_msg_size=4)
    for body in (b"", b"1", b"12345"):
        with pytest.raises(ValueError, match="allowed are 2 to 4"):
            queue.put(body)
    queue.put(b"12")
    queue.put(b"1234")
    assert list(queue) == [b"12", b"1234"]


@pytest.mark.parametrize(
    "options",
    [
        {"min_msg_size": -1},
        {"min_msg_size": 5, "max_msg_size": 4},
        {"max_msg_size": 1 << 31},
        {"sync_every": 0},
        {"sync_timeout": 0},
        {"max_bytes_per_file": 0},
        {"format": "other"},
    ],
)
def test_settings_without_sense_are_refused(tmp_path, options):
    with pytest.raises(ValueError):
        DiskQueue("q", tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_empty_drops_all_and_goes_on(open_queue):
    queue = open_queue()
    for _ in range(10):
        queue.put(b"old")
    queue.get()
    queue.empty()
    assert (queue.depth, queue.get()) == (0, None)
    queue.put(b"new")
    queue.close()
    assert list(open_queue()) == [b"new"]


def test_delete_leaves_no_message(open_queue):
    queue = open_queue()
    queue.put(b"old")
    queue.delete()
    with pytest.raises(qindex.StoreClosed):
        queue.get()
    queue.close()
    assert open_queue().depth == 0


def test_a_closed_queue_refuses_everything(open_queue):
    with open_queue() as queue:
        queue.put(b"body")
    queue.close()
    verbs = [
        queue.get,
        queue.peek,
        queue.sync,
        queue.empty,
        lambda: queue.put(b""),
        lambda: queue.depth,
    ]
    for verb in verbs:
        with pytest.raises(qindex.StoreClosed):
            verb()
    assert repr(queue) == "<qindex.DiskQueue 'q' closed>"


def test_several_queues_share_a_directory(open_queue):
    one, two = open_queue("orders"), open_queue("orders:chan")
    one.put(b"one")
    two.put(b"two")
    one.close()
    assert list(two) == [b"two"]
    assert list(open_queue("orders")) == [b"one"]


def test_get_waits_for_a_put(open_queue):
    queue = open_queue()
    assert queue.get(timeout=0.01) is None
    got: list[bytes | None] = []
    threads = [
        threading.Thread(target=lambda: got.append(queue.get(timeout=None))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    while queue._waiting < 3:
        time.sleep(0.001)
    for number in range(3):
        queue.put(b"%d" % number)
    for thread in threads:
        thread.join(20)
    assert sorted(filter(None, got)) == [b"0", b"1", b"2"]


def test_close_wakes_who_waits(open_queue):
    queue = open_queue()
    ended = []

    def wait() -> None:
        with pytest.raises(qindex.StoreClosed):
            queue.get(timeout=None)
        ended.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    while not queue._waiting:
        time.sleep(0.001)
    queue.close()
    thread.join(20)
    assert ended == [True]


def test_threads_lose_and_double_nothing(open_queue):
    queue = open_queue(max_bytes_per_file=4096, sync_every=50)
    got: list[bytes] = []

    def put(thread: int) -> None:
        for number in range(200):
            queue.put(b"%d-%d" % (thread, number))

    def get() -> None:
        while (body := queue.get(timeout=20)) != b"end":
            got.append(body)

    putting = [threading.Thread(target=put, args=[n]) for n in range(4)]
    getting = [threading.Thread(target=get) for _ in range(4)]
    for thread in putting + getting:
        thread.start()
    for thread in putting:
        thread.join()
    for _ in getting:
        queue.put(b"end")
    for thread in getting:
        thread.join()
    assert sorted(got) == sorted(b"%d-%d" % (t, n) for t in range(4) for n in range(200))


def test_what_was_synced_is_told_to_the_disk(open_queue, monkeypatch):
    queue = open_queue(sync_every=10, sync_timeout=3600)
    files = queue._files
    counted = []
    monkeypatch.setattr(files, "sync", lambda sync=files.sync: (counted.append(1), sync()))
    for _ in range(25):
        queue.put(b"body")
    for _ in range(15):
        queue.get()
    assert len(counted) == 4


def test_on_the_engine_a_second_process_is_refused(tmp_path):
    with DiskQueue("q", tmp_path), pytest.raises(qindex.StoreLocked):
        qindex.open(tmp_path)
    with qindex.open(tmp_path) as store:
        assert store.queues() == ["q"]
        with pytest.raises(qindex.StoreLocked):
            DiskQueue("q", tmp_path)


def test_on_the_engine_what_is_got_is_done_with_at_the_next_get(tmp_path):
    queue = DiskQueue("q", tmp_path)
    for number in range(5):
        queue.put(b"%d" % number)
    for number in range(3):
        assert queue.get() == b"%d" % number
        with qindex.open(tmp_path, read_only=True) as looking:
            assert len(looking.queue("q")) == 5 - number
    queue.close()
    with DiskQueue("q", tmp_path) as queue:
        assert list(queue) == [b"3", b"4"]


@pytest.mark.parametrize("verb", ["get", "peek"])
def test_on_the_engine_a_damaged_message_is_passed_over_and_kept(tmp_path, verb, caplog):
    bodies = [b"%d" % n * 5000 for n in range(6)]
    with DiskQueue("q", tmp_path) as queue:
        for body in bodies:
            queue.put(body)
    file = tmp_path / "messages" / "0.qms"
    data = bytearray(file.read_bytes())
    for number in (0, 3):
        data[data.index(bodies[number]) + 9] ^= 1
    file.write_bytes(data)
    with DiskQueue("q", tmp_path) as queue:
        assert getattr(queue, verb)() == bodies[1]
        assert list(queue) == bodies[1 + (verb == "get") : 3] + bodies[4:]
        assert (queue.damaged, queue.depth) == (2, 0)
    told = [r.getMessage() for r in caplog.records if "passes over" in r.getMessage()]
    assert len(told) == 2
    assert told[0].startswith("queue 'q' passes over a damaged message: ")
    with DiskQueue("q", tmp_path) as queue:
        assert (queue.get(), queue.damaged) == (None, 2)


def test_the_name_is_loaded_when_it_is_asked_for():
    assert "DiskQueue" in qindex.__all__
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        qindex.Nothing  # noqa: B018 - the access is the test


def test_files_are_private_and_no_link_is_followed(tmp_path):
    with DiskQueue("q", tmp_path, format="nsq") as queue:
        queue.put(b"body")
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    data = tmp_path / "q.diskqueue.000000.dat"
    data.rename(tmp_path / "elsewhere")
    data.symlink_to(tmp_path / "elsewhere")
    with DiskQueue("q", tmp_path, format="nsq") as queue, pytest.raises(OSError):
        queue.get()
    data.unlink()
    for name in ("", "a/b", "a\0b"):
        with pytest.raises(ValueError):
            DiskQueue(name, tmp_path, format="nsq")


def test_a_verb_whose_sync_comes_too_late_for_a_close_has_happened(open_queue):
    queue = open_queue(sync_every=1)
    files = queue._files

    def close_under_it() -> None:
        queue.close()
        real_sync()

    real_sync, files.sync = files.sync, close_under_it
    queue.put(b"body")  # a StoreClosed here would say that it is not there
    assert list(open_queue()) == [b"body"]


def test_behind_a_close_that_another_thread_made_nothing_is_written(open_queue):
    queue = open_queue()
    files = queue._files
    queue.close()
    for verb in (lambda: files.put(b"late"), files.get):
        with pytest.raises(qindex.StoreClosed):
            verb()
    assert open_queue().depth == 0


def test_an_interrupt_behind_a_close_closes_nothing_twice(tmp_path, monkeypatch):
    queue = DiskQueue("q", tmp_path, format="nsq")
    queue.put(b"body")
    close = os.close

    def close_and_be_interrupted(fd):
        monkeypatch.undo()
        close(fd)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "close", close_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt):
        queue.empty()
    assert queue.get(timeout=0) == b"body"
    queue.close()  # Else a bad file descriptor, or somebody else's.
