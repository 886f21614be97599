"""One writer, many readers, forks and threads: who may use a store, and when (H16)."""

import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest
from helpers import content, files_of, ids, in_child, queue_directory

import qindex


def run_python(script, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True
    )
    return done.stdout + done.stderr


def test_a_second_open_in_the_same_process_is_refused_and_harmless(store):
    store.queue("a").publish(b"before")
    for _ in range(3):
        with pytest.raises(qindex.StoreLocked, match=str(os.getpid())):
            qindex.open(store.path)
    store.queue("a").publish(b"after")
    assert "StoreLocked" in run_python(
        "import qindex, sys; qindex.open(sys.argv[1])", store.path
    ), "the failed opens must not have dropped the lock"


def test_another_process_is_told_who_holds_the_lock(store):
    said = run_python("import qindex, sys; qindex.open(sys.argv[1])", store.path)
    assert "StoreLocked" in said
    assert str(os.getpid()) in said


def test_another_spelling_of_the_path_meets_the_same_lock(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("data")
    for path in ("data", "./data/", "data/../data", "link"):
        with pytest.raises(qindex.QindexError):
            qindex.open(path)


def test_the_lock_is_free_after_close_and_after_kill_9(tmp_path):
    script = (
        "import os, qindex, signal, sys\n"
        "store = qindex.open(sys.argv[1])\n"
        "store.queue('a').publish(b'kept')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run_python(script, tmp_path / "data")
    for _ in range(2):
        with qindex.open(tmp_path / "data") as store:
            assert store.queue("a").peek().body == b"kept"


@pytest.mark.sample(2)
def test_a_forked_child_may_not_use_the_parents_store(store, queue):
    queue.publish_many([b"1", b"2"])
    uses = [
        lambda: queue.publish(b"child"),
        lambda: queue.publish_many([b"child"]),
        queue.get,
        lambda: queue.get_many(2),
        queue.peek,
        lambda: queue.ack(0),
        lambda: queue.nack(0),
        queue.flush,
        queue.sync,
        queue.purge,
        queue.stats,
        store.sync,
        store.stats,
        store.compact,
        store.check,
        store.queues,
        lambda: store.queue("new"),
        lambda: store.publish(["orders"], b"child", create=True),
        lambda: store.delete_queue("orders"),
    ]
    for use in uses:
        assert in_child(use).startswith("StoreForked")
    assert ids(queue.get_many(9)) == [0, 1]
    assert store.queues() == ["orders"]


def test_a_childs_exit_does_not_close_the_parents_store(store, queue):
    queue.publish(b"1")
    child = os.fork()
    if child == 0:
        store._finalizer()  # what the interpreter's exit would run
        os._exit(0)
    os.waitpid(child, 0)
    queue.publish(b"2")
    with pytest.raises(qindex.StoreLocked):
        qindex.open(store.path)
    assert ids(queue.get_many(9)) == [0, 1]


def test_a_child_may_open_a_store_of_its_own(store, tmp_path):
    def use():
        with qindex.open(tmp_path / "childs") as own:
            return own.queue("a").publish(b"mine")

    assert in_child(use) == "0"


def test_the_lock_is_not_kept_by_a_forked_child(open_store):
    """A child that outlives the parent's close must not block the next writer for ever."""
    store = open_store()
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(told, b"!")
        signal.pause()
        os._exit(0)
    try:
        os.read(ready, 1)
        store.close()
        open_store().queue("a").publish(b"")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(told)


def test_a_reader_beside_a_writer_sees_what_was_published(store):
    queue = store.queue("a")
    queue.publish_many([b"%d" % i * 30 for i in range(60)])
    queue.ack_many(queue.get_many(20))
    with qindex.open(store.path, read_only=True) as reader:
        assert reader.read_only
        assert reader.queues() == ["a"]
        assert ids(reader.queue("a").browse()) == list(range(20, 60))
        assert [m.body for m in reader.queue("a").browse(40, 42)] == [b"40" * 30, b"41" * 30]
        assert reader.check() == []
    queue.publish(b"the writer is not disturbed")


def test_a_reader_changes_no_byte(store):
    queue = store.queue("a")
    queue.publish_many([b"%d" % i * 30 for i in range(60)])
    queue.get_many(5)
    store.close()
    before = files_of(store.path)
    with qindex.open(store.path, read_only=True) as reader:
        reader.check()
        reader.stats()
        assert len(content(reader)["a"]) == 60
    assert files_of(store.path) == before


def test_a_reader_refuses_every_change(store):
    store.queue("a").publish_many([b"1", b"2"])
    store.close()
    with qindex.open(store.path, read_only=True) as reader:
        queue = reader.queue("a")
        uses = [
            lambda: queue.publish(b""),
            lambda: queue.publish_many([b""]),
            queue.get,
            lambda: queue.get_many(1),
            lambda: queue.ack(0),
            lambda: queue.nack_many([0]),
            queue.purge,
            queue.flush,
            lambda: reader.publish(["a"], b""),
            lambda: reader.delete_queue("a"),
            reader.compact,
        ]
        for use in uses:
            with pytest.raises(qindex.ReadOnly):
                use()
        with pytest.raises(qindex.QindexError):
            reader.queue("new")
        assert queue.peek().req_id == 0


def test_many_readers_may_look_at_once_and_while_a_writer_works(open_store):
    store = open_store()
    queue = store.queue("a")
    queue.publish_many([b"%d" % i * 30 for i in range(200)])
    failures = []

    def look():
        try:
            for _ in range(15):
                with qindex.open(store.path, read_only=True) as reader:
                    seen = list(reader.queue("a").browse(stop=200))
                    assert all(m.body == b"%d" % m.req_id * 30 for m in seen)
                    assert ids(seen) == sorted(ids(seen))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        queue.publish(b"more" * 30)
        message = queue.get()
        queue.nack(message) if message.req_id % 2 else queue.ack(message)
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_a_copied_queue_directory_is_refused_by_name(open_store):
    store = open_store()
    store.queue("a").publish(b"of a")
    store.close()
    copy = queue_directory(store.path, "b")
    shutil.copytree(queue_directory(store.path, "a"), copy)
    before = files_of(copy)
    for options in ({"read_only": True}, {}):
        store = open_store(**options)
        for _ in range(2):
            with pytest.raises(qindex.StoreCorrupt, match=r"of queue a, not of b: was it copied"):
                store.queue("b")
        if options:
            assert files_of(copy) == before
        assert store.queue("a").peek().body == b"of a"
        store.close()


@pytest.mark.parametrize("what", ["queue", "message file"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_that_lost_its_meta_is_not_taken_for_an_empty_folder(tmp_path, what, read_only):
    with qindex.open(tmp_path / "a") as store:
        store.queue("q").publish(b"x" * 10_000)
    (tmp_path / "a" / "store.meta").unlink()
    if what == "message file":
        shutil.rmtree(tmp_path / "a" / "queues")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(qindex.StoreCorrupt, match=r"store\.meta is missing"):
        qindex.open(tmp_path / "a", read_only=read_only)
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != "LOCK"] == [
        path for path in before if path.name != "LOCK"
    ]


def test_an_exit_handler_that_comes_later_finds_a_closed_store(tmp_path):
    script = """
import atexit, sys
atexit.register(lambda: print(try_it()))
import qindex
def try_it():
    try:
        queue.publish(b"late")
    except qindex.StoreClosed:
        return "closed"
queue = qindex.open(sys.argv[1]).queue("a")
queue.publish(b"in time")
"""
    assert run_python(script, tmp_path / "s") == "closed\n"
    with qindex.open(tmp_path / "s") as store:
        assert ids(store.queue("a").get_many(9)) == [0]


def test_a_signals_handler_may_close_the_store_in_the_middle_of_a_call(tmp_path):
    script = """
import signal, sys, qindex
store = qindex.open(sys.argv[1])
signal.signal(signal.SIGALRM, lambda *_: store.close())
signal.setitimer(signal.ITIMER_REAL, 0.02)
try:
    while True:
        store.queue("a"), store.delete_queue("a")
except qindex.StoreClosed:
    print("closed")
"""
    assert run_python(script, tmp_path / "s") == "closed\n"


@pytest.mark.parametrize("path", ["a\0b", b"a\0b"])
def test_a_path_with_a_nul_is_refused_and_nothing_is_made(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="NUL"):
        qindex.open(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["queues", "messages"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_folder_that_is_missing_is_not_made_anew(tmp_path, folder, read_only):
    """Its messages may lie on a disk that is not mounted: the bodies of no queue would be freed."""
    path = tmp_path / "data"
    with qindex.open(path) as store:
        store.queue("a").publish_many([b"x" * 6000] * 9)
    (path / folder).rename(tmp_path / "elsewhere")
    with pytest.raises(qindex.StoreCorrupt, match=f"the folder {folder} is missing"):
        qindex.open(path, read_only=read_only)
    (tmp_path / "elsewhere").rename(path / folder)
    with qindex.open(path) as store:
        assert len(store.queue("a")) == 9
        assert store.check() == []


def test_a_refused_option_leaves_nothing_behind(tmp_path):
    with pytest.raises(ValueError, match="power of two from 8 to 16384, not 7"):
        qindex.open(tmp_path / "new", segment_entries=7)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("make", [qindex.open, qindex.QueueIndex])
def test_a_missing_folder_above_is_named(tmp_path, make):
    with pytest.raises(qindex.StoreMissing, match=r"no folder '\S*/no', .* are not created"):
        make(tmp_path / "no" / "way")
    with pytest.raises(qindex.StoreMissing, match="there is no store at"):
        qindex.open(tmp_path / "no" / "way", create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{}, {"create": False}, {"read_only": True}])
@pytest.mark.parametrize("below", ["", "store", "a/b"])
def test_a_file_is_no_store(tmp_path, options, below):
    file = tmp_path / "file"
    file.write_bytes(b"somebody's")
    with pytest.raises(qindex.NotAStore, match=r"a store is a directory, and '\S*/file' is a file"):
        qindex.open(file / below, **options)
    assert file.read_bytes() == b"somebody's"
