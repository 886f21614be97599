"""Backups of an open store: one moment, what is copied, what is refused, what a cut leaves."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import SMALL, on_a_loop

import qindex
import qindex.backup
from qindex import aio

QUEUES = [f"q{i}" for i in range(4)]
MANY = [f"m{i}" for i in range(30)]  # more than max_open_files lets be open
WRITTEN_LAST = ("store.meta", "backup.json")


def bodies(path):
    """All messages of a copy, queue by queue. It is opened read-only, as a check does."""
    with qindex.open(path, read_only=True, create=False) as store:
        assert store.check() == []
        return {name: [m.body for m in store.queue(name).browse()] for name in store.queues()}


def fill(store, count=300):
    for name in QUEUES:
        store.queue(name).publish_many([b"%d" % i for i in range(count)])
        store.queue(name).publish_many([b"%d" % i * 5000 for i in range(5)])


@pytest.mark.parametrize("version", [1, 2])
def test_a_copy_opens_as_the_store_would_after_a_kill(tmp_path, version):
    with qindex.open(tmp_path / "data", format=version) as store:
        queue = store.queue("a", dead_letters=True)
        queue.publish_many([b"0", b"1", b"2", b"3"])
        queue.publish(b"later", delay=1000, headers={"k": "v"})
        queue.publish(b"gone", persistent=False)
        queue.publish(b"big" * 5000, priority=7)
        queue.nack(queue.get(), requeue=False)
        queue.ack(queue.get())
        queue.get()
        if version == 2:
            store.data[b"key"] = b"value"
        made = store.backup(tmp_path / "copy")
        queue.publish(b"behind it")
        store.queue("b").publish(b"behind it")
        assert made.path == str(tmp_path / "copy")
        assert made.files == sum(len(names) for *_, names in os.walk(made.path)) - 1  # backup.json
    assert bodies(tmp_path / "copy").keys() == {"a"}
    with qindex.open(tmp_path / "copy", create=False) as store:
        queue = store.queue("a")
        assert (queue.ready, queue.unacked, queue.delayed, queue.dead) == (3, 0, 1, 1)
        message = queue.get()
        assert (message.body, message.redelivered) == (b"1", True)
        assert [m.body for m in queue.browse(state="dead")] == [b"big" * 5000]
        assert [m.headers for m in queue.browse(state="delayed")] == [{"k": "v"}]
        if version == 2:
            assert store.data[b"key"] == b"value"
        assert store.check() == []
    assert oct((tmp_path / "copy/queues").stat().st_mode)[-3:] == "700"


@pytest.mark.sample(3)
@pytest.mark.parametrize("options", [{}, {"format": 2}, {"max_open_files": 24}], ids=str)
def test_each_copy_is_one_moment_while_publishers_and_consumers_go_on(tmp_path, options):
    stop = threading.Event()

    def work(store):
        queues, number = [store.queue(name) for name in QUEUES], 0
        while not stop.is_set() and number < 20_000:
            number += 1
            for queue in queues:  # one thread publishes to one queue after the other
                queue.publish(b"%08d" % number * (600 if number % 7 == 0 else 1))
            for queue in queues if number % 5 else ():
                queue.ack(queue.get())
            time.sleep(0.0002)

    with qindex.open(tmp_path / "data", **(SMALL | options)) as store:
        for name in MANY if "max_open_files" in options else ():
            store.queue(name).publish_many([b"%08d" % i for i in range(7)])
        thread = threading.Thread(target=work, args=[store], daemon=True)
        thread.start()
        try:
            for _ in range(6):
                time.sleep(0.05)
                store.backup(tmp_path / "copy")
                copied = bodies(tmp_path / "copy")
                many = [copied.pop(name) for name in MANY if name in copied]
                assert all(len(found) == 7 for found in many)
                newest = [int(found[-1][:8]) for found in copied.values() if found]
                assert newest == sorted(newest, reverse=True)
                assert not newest or newest[0] - newest[-1] <= 1
                for found in filter(None, copied.values()):
                    numbers = [int(body[:8]) for body in found]
                    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        finally:
            stop.set()
            thread.join()
        assert store.check() == []


def test_the_second_backup_copies_only_what_has_changed(tmp_path):
    with qindex.open(tmp_path / "data", message_file_size=65536) as store:
        fill(store, 3000)
        for name in QUEUES:
            store.queue(name).flush()
        first = store.backup(tmp_path / "copy")
        again = store.backup(tmp_path / "copy")
        assert again.files == first.files
        assert again.copied_bytes < first.copied_bytes / 2
        before = bodies(tmp_path / "copy")
        store.queue("q1").publish_many([b"new"] * 3000)
        store.queue("q1").flush()
        store.backup(tmp_path / "copy")
        after = bodies(tmp_path / "copy")
        assert {name for name in QUEUES if before[name] != after[name]} == {"q1"}
        files = sorted((tmp_path / "data/messages").glob("*.qms"), key=lambda f: int(f.stem))
        shared = [f.samefile(tmp_path / "copy/messages" / f.name) for f in files]
        assert shared == [True] * (len(files) - 1) + [False]  # the newest is written to
    assert len(shared) > 1
    assert not (tmp_path / "data/backup.hold").exists()
    assert not (tmp_path / "copy.partial").exists()


@pytest.mark.parametrize("session", [1, 2])
def test_a_growing_file_is_taken_from_the_backup_before_in_one_session_only(tmp_path, session):
    """A power cut can take a log with its name. The next session can have a new one of this name,
    of the same length, and in the same inode."""
    for folder in ("hold", "copy", "copy.partial"):
        (tmp_path / folder / "commits").mkdir(parents=True)
    log = tmp_path / "hold/commits/1.log"
    log.write_bytes(b"new bytes")
    (tmp_path / "held twice").hardlink_to(log)  # the store has it, too
    (tmp_path / "copy/commits/1.log").write_bytes(b"old bytes")
    (tmp_path / "hold/store.meta").write_bytes(b"")
    taken = {"commits/1.log": [log.stat().st_ino, 9, 1]}
    making = qindex.backup._Making(
        tmp_path / "hold", tmp_path / "copy.partial", tmp_path / "copy", taken
    )
    making.copy_all({"commits/1.log": 9}, session)
    copied = (tmp_path / "copy.partial/commits/1.log").read_bytes()
    assert copied == (b"old bytes" if session == 1 else b"new bytes")


def test_store_meta_is_a_copy_since_a_full_disk_has_it_written_over_in_place(tmp_path, monkeypatch):
    shares = []
    real = qindex.backup._Making.copy_all

    def copy_all(making, *arguments):
        shares.append((making.hold / "store.meta").samefile(tmp_path / "data/store.meta"))
        real(making, *arguments)

    monkeypatch.setattr(qindex.backup._Making, "copy_all", copy_all)
    with qindex.open(tmp_path / "data") as store:
        store.queue("a").publish(b"x")
        store.backup(tmp_path / "copy")
    assert shares == [False]


def test_a_copy_and_its_store_go_their_own_ways(tmp_path):
    with qindex.open(tmp_path / "data", **SMALL) as store:
        fill(store)
        store.backup(tmp_path / "copy")
        truth = bodies(tmp_path / "copy")
        with qindex.open(tmp_path / "copy") as copy:
            for name in QUEUES:
                copy.queue(name).publish_many([b"copy"] * 300)
                copy.queue(name).ack_many(copy.queue(name).get_many(200))
            copy.compact()
        for name in QUEUES:
            assert [m.body for m in store.queue(name).browse()] == truth[name]
            store.queue(name).ack_many(store.queue(name).get_many(300))
        store.compact()
        assert store.check() == []
    assert all(found[-1] == b"copy" for found in bodies(tmp_path / "copy").values())


def test_what_is_no_backup_of_this_store_is_not_touched(tmp_path):
    with qindex.open(tmp_path / "data") as store, qindex.open(tmp_path / "other") as other:
        store.queue("a").publish(b"x")
        for name in ("full", "way.partial"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "mine").write_text("x")
        (tmp_path / "file").write_text("x")
        other.backup(tmp_path / "others")
        store.backup(tmp_path / "used")
        with qindex.open(tmp_path / "used") as used:
            used.queue("a").publish(b"y")
        for name in ("full", "file", "others", "used", "way", "other"):
            with pytest.raises(qindex.NotAStore):
                store.backup(tmp_path / name)
        for name in ("data", "data/below", "."):
            with pytest.raises(qindex.StoreNested):
                store.backup(tmp_path / name)
        assert (tmp_path / "full/mine").exists()
        assert (tmp_path / "way.partial/mine").exists()
        assert bodies(tmp_path / "used") == {"a": [b"x", b"y"]}
        (tmp_path / "empty").mkdir()
        store.backup(tmp_path / "empty")
        assert bodies(tmp_path / "empty") == {"a": [b"x"]}
    with pytest.raises(qindex.StoreClosed):
        store.backup(tmp_path / "late")
    with qindex.open(tmp_path / "data", read_only=True) as store, pytest.raises(qindex.ReadOnly):
        store.backup(tmp_path / "late")
    assert not (tmp_path / "late").exists()


@pytest.mark.parametrize("verb", ["_sync", "_write", "_copy_bytes", "_put_in_place"])
def test_whatever_fails_the_backup_that_was_there_stays(tmp_path, monkeypatch, verb):
    real = getattr(qindex.backup, verb)
    with qindex.open(tmp_path / "data", message_file_size=65536) as store:
        fill(store)
        store.backup(tmp_path / "copy")
        truth = bodies(tmp_path / "copy")
        fill(store)
        for fails_at in (*range(8), *range(8, 80, 9)):
            left = [fails_at]

            def failing(*arguments, left=left):
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(5, "no more")
                return real(*arguments)

            monkeypatch.setattr(qindex.backup, verb, failing)
            with suppress(OSError):
                store.backup(tmp_path / "copy")
            monkeypatch.undo()
            if bodies(tmp_path / "copy") != truth:
                break  # it was in its place already
            if not (tmp_path / "copy.partial/store.meta").exists():  # else it is whole
                with pytest.raises((qindex.StoreMissing, qindex.StoreCorrupt)):
                    qindex.open(tmp_path / "copy.partial", create=False)
        store.backup(tmp_path / "copy")
        assert bodies(tmp_path / "copy") != truth
        assert not (tmp_path / "copy.partial").exists()


def test_it_is_a_store_only_when_everything_in_it_is_durable(tmp_path, monkeypatch):
    steps, real, put = [], os.fsync, qindex.backup._put_in_place

    def fsync(file):
        real(file)
        steps.append(str(Path(f"/proc/self/fd/{file}").readlink()))

    def placed(*arguments):
        steps.append("placed")
        put(*arguments)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(qindex.backup, "_put_in_place", placed)
    with qindex.open(tmp_path / "data", format=2) as store:
        fill(store)
        store.backup(tmp_path / "copy")
    partial, expected = str(tmp_path / "copy.partial"), set()
    for above, _, names in os.walk(tmp_path / "copy"):
        inside = above.replace(str(tmp_path / "copy"), partial)
        expected |= {inside, *(f"{inside}/{n}" for n in names if n not in WRITTEN_LAST)}
    meta = steps.index(f"{partial}/store.meta.new")
    assert expected <= set(steps[:meta])
    assert steps[meta + 1 :] == [partial, "placed", str(tmp_path)]


PROGRAM = """
import sys, threading, time, qindex
store = qindex.open(sys.argv[1], message_file_size=65536, max_journal_entries=500)
queues = [store.queue(f"q{i}") for i in range(4)]
def work():
    for number in range(5000):
        for queue in queues:
            queue.publish(b"%08d" % number * (600 if number % 7 == 0 else 1))
        time.sleep(0.0002)
threading.Thread(target=work, daemon=True).start()
for _ in range(100):
    store.backup(sys.argv[2])
    print("made", flush=True)
"""


@pytest.mark.slow
def test_a_kill_leaves_the_old_backup_or_the_new_one(tmp_path):
    data, copy = tmp_path / "data", tmp_path / "copy"
    for _ in range(5):
        command = [sys.executable, "-c", PROGRAM, str(data), str(copy)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"made\n"
            time.sleep(random.random() * 0.2)
            process.kill()
        last = [int(found[-1][:8]) for found in bodies(copy).values() if found]
        assert not last or max(last) - min(last) <= 1
        with qindex.open(data) as store:  # the store itself has lost nothing
            assert not (data / "backup.hold").exists()
            assert not any(finding.severity == "damage" for finding in store.check())
            lengths = [len(store.queue(name)) for name in QUEUES]
            assert max(lengths) - min(lengths) <= 1
            for name in QUEUES:
                store.queue(name).purge()
            store.backup(copy)


@on_a_loop
async def test_for_an_event_loop(tmp_path):
    async with aio.open(tmp_path / "data") as store:
        await (await store.queue("a")).publish(b"x")
        assert (await store.backup(tmp_path / "copy")).files == 3
    assert bodies(tmp_path / "copy") == {"a": [b"x"]}


def test_the_command_backs_up_a_store_that_no_process_has_open(tmp_path):
    with qindex.open(tmp_path / "data") as store:
        store.queue("a").publish(b"x")
        command = [sys.executable, "-m", "qindex", "backup", tmp_path / "data", tmp_path / "copy"]
        refused = subprocess.run(command, capture_output=True, text=True)
        assert (refused.returncode, "has this store open" in refused.stderr) == (2, True)
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    files = sum(path.is_file() for path in (tmp_path / "copy").rglob("*")) - 1  # backup.json
    assert f" {files} files" in done.stdout
    assert bodies(tmp_path / "copy") == {"a": [b"x"]}
    command[-1] = tmp_path / "data/inside"
    assert subprocess.run(command, capture_output=True).returncode == 2


def test_a_queue_that_is_deleted_meanwhile_is_no_error(tmp_path):
    over = threading.Event()
    with qindex.open(tmp_path / "data") as store:
        store.queue("stays").publish(b"x")

        def come_and_go():
            while not over.is_set():
                for name in "abcd":
                    store.queue(name).publish(b"y")
                    store.delete_queue(name)

        thread = threading.Thread(target=come_and_go)
        thread.start()
        try:
            for number in range(30):
                store.backup(tmp_path / f"copy{number}")
                assert bodies(tmp_path / f"copy{number}")["stays"] == [b"x"]
        finally:
            over.set()
            thread.join()


def test_a_backup_that_is_killed_leaves_the_one_before_or_is_complete(tmp_path):
    path, copy = tmp_path / "data", tmp_path / "copy"
    with qindex.open(path) as store:
        store.queue("q").publish_many([b"%d" % n for n in range(50)])
        store.backup(copy)
    for n in range(8):
        child = os.fork()
        if child == 0:
            store = qindex.open(path)
            while True:
                store.queue("q").publish(b"more")
                store.backup(copy)
        time.sleep(0.05 + 0.02 * n)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with qindex.open(copy, read_only=True) as store:
            assert len(store.queue("q")) >= 50
            assert not [f for f in store.check() if f.severity == "damage"]
