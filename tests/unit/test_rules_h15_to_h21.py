"""The rules H15 to H21, each by what can be seen of it from outside without a simulated disk.

Damage done to files has a test file of its own (test_damage.py), so has kill -9 (tests/crash).
"""

import contextlib
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import SMALL, content, crash, damage, files_of, ids, put_files, queue_directory, twice

import qindex
from qindex.testing import SimulatedDisk, abandon, tick

QUIET = {**SMALL, "max_journal_entries": 10_000, "idle": 3600}  # no flush but on demand


def fill(queue, count=40, **options):
    return queue.publish_many([b"%d" % i * (1 if i % 2 else 50) for i in range(count)], **options)


def segments_of(store, name):
    return sorted(file.name for file in queue_directory(store.path, name).glob("*.idx"))


def copy_now(store, target, without=()):
    """The store as a kill at this moment would leave it, in another place."""
    files = files_of(store.path)
    put_files(target, {n: data for n, data in files.items() if not n.endswith(tuple(without))})
    return target


def test_h15_compaction_keeps_every_survivor_and_never_reuses_a_file_number(open_store):
    store = open_store()
    queue = store.queue("a")
    numbers = set()
    for _ in range(6):
        queue.publish_many([os.urandom(900) for _ in range(12)])
        expected = {m.req_id: m.body for m in queue.browse()}
        queue.ack_many(message for message in queue.get_many(40) if message.req_id % 3)
        queue.nack_many([i for i in expected if i % 3 == 0])
        store.compact()
        assert all(expected[m.req_id] == m.body for m in queue.browse())
        now = {int(file.stem) for file in Path(store.path).glob("messages/*.qms")}
        assert not any(number < max(numbers, default=-1) for number in now - numbers)
        numbers |= now
        store.close()
        store = open_store()
        queue = store.queue("a")
    queue.purge()
    queue.flush()
    store.compact()
    assert store.stats().live_references == 0
    assert store.stats().message_bytes <= 2 * SMALL["message_file_size"]


def test_compactions_and_what_they_gave_back_are_counted(open_store):
    store = open_store()
    queue = store.queue("a")
    queue.publish_many([os.urandom(900) for _ in range(40)])
    assert (store.stats().compactions, store.stats().compacted_bytes) == (0, 0)
    queue.ack_many(message for message in queue.get_many(40) if message.req_id % 3)
    before = store.stats().message_bytes
    store.compact()
    figures = store.stats()
    assert figures.compactions >= 1
    assert 0 < figures.compacted_bytes <= before - figures.message_bytes
    store.compact()
    assert store.stats().compactions == figures.compactions  # there was nothing to do


@pytest.mark.parametrize("start", [0, 20], ids=["acked-meanwhile", "still-there"])
def test_h15_readers_keep_what_they_hold(open_store, start):
    store = open_store()
    queue = store.queue("a")
    queue.publish_many([b"%d" % i * 500 for i in range(40)])
    queue.sync()
    with qindex.open(store.path, read_only=True) as reader:
        assert len(reader.queue("a")) == 40
        queue.ack_many(queue.get_many(20))
        queue.flush()
        store.compact()
        seen = list(reader.queue("a").browse(start))
        assert all(m.body == b"%d" % m.req_id * 500 for m in seen)
        assert ids(seen)[-20:] == list(range(20, 40))


def test_h15_unfinished_output_of_a_compaction_is_removed(open_store):
    open_store().close()
    leftover = Path(open_store().path) / "messages" / "17.new"
    leftover.write_bytes(b"half a copy")
    store = qindex.open(leftover.parent.parent, read_only=True)
    store.close()
    assert leftover.exists()


def test_h17_a_clock_that_was_ahead_is_told_and_changes_nothing(open_store, tmp_path):
    """store.meta says that some session's clock was an hour ahead of the machine's."""
    store = open_store()
    store.queue("a").publish_many([b"1", b"2"], expires_at=[time.time() + 1800, None])
    store.close()
    meta = tmp_path / "data" / "store.meta"
    data = bytearray(meta.read_bytes()[:64])
    data[48:56] = int((time.time() + 3600) * 1e6).to_bytes(8)
    data[60:64] = crc32c(bytes(data[:60])).to_bytes(4)
    meta.write_bytes(twice(data))
    for _ in range(2):
        store = open_store()
        assert ids(store.queue("a").get_many(2)) == [0, 1]
        [finding] = store.findings
        assert finding.severity == "note"
        assert "the clock says" in finding.text
        store.close()


def test_h17_expiry_is_absolute_and_lives_through_a_reopen(open_store):
    moment = time.time() + 0.05
    store = open_store()
    store.queue("a").publish_many([b"soon", b"S" * 900, b"kept"], expires_at=[moment, moment, None])
    store.queue("a").flush()
    store.close()
    time.sleep(0.1)
    assert [m.body for m in open_store().queue("a").get_many(9)] == [b"kept"]


def test_h18_a_missing_segment_is_reported_not_taken_for_empty(open_store):
    store = open_store()
    fill(store.queue("a"))
    store.queue("a").flush()
    store.close()
    (queue_directory(store.path, "a") / "1.idx").unlink()
    store = open_store()
    assert ids(store.queue("a").browse()) == [*range(16), *range(32, 40)]
    assert any("1.idx" in text for text in damage(store))
    assert len(store.queue("a")) == 24
    crash(store)


def test_h18_a_missing_message_file_is_reported(open_store):
    store = open_store(embed_below=0)
    store.queue("a").publish_many([b"x" * 900] * 20)
    store.close()
    (Path(store.path) / "messages" / "1.qms").unlink()
    store = open_store()
    store.check()
    assert damage(store)
    with pytest.raises(qindex.StoreCorrupt):
        list(store.queue("a").browse())
    crash(store)


def test_h18_unknown_files_are_left_alone(open_store):
    store = open_store()
    fill(store.queue("a"))
    store.close()
    root, own = Path(store.path), queue_directory(store.path, "a")
    odd = [
        "notes.txt",
        "0.idx.bak",
        "00.idx",
        "-1.idx",
        "1x.idx",
        "99.idx",
        "77.qms",
        "journal.old",
    ]
    strangers = [folder / name for folder in (root, own, root / "messages") for name in odd]
    strangers += [root / "queues" / "not-hex" / "file", root / "queues" / "README"]
    for stranger in strangers:
        stranger.parent.mkdir(exist_ok=True)
        stranger.write_bytes(b"somebody else's")
    for number in range(3):
        store = open_store()
        queue = store.queue("a")
        assert store.queues() == ["a"]
        queue.ack_many(queue.get_many(20))
        fill(queue)
        queue.flush()
        store.compact()
        assert all(s.read_bytes() == b"somebody else's" for s in strangers), number
        store.close()


def test_h19_everything_that_lived_through_an_unclean_end_says_redelivered(open_store):
    store = open_store()
    fill(store.queue("a"))
    store.queue("a").get_many(5)
    crash(store)
    queue = open_store().queue("a")
    fill(queue, 3)
    messages = queue.get_many(100)
    assert [m.redelivered for m in messages] == [True] * 40 + [False] * 3


def test_h19_transients_do_not_come_back_after_an_unclean_end(open_store):
    for flushed in (False, True):
        store = open_store()
        queue = store.queue("a")
        fill(queue, persistent=[i % 2 == 0 for i in range(40)])
        kept = [m.req_id for m in queue.browse() if m.persistent]
        if flushed:
            queue.flush()
        crash(store)
        store = open_store()
        assert ids(store.queue("a").browse()) == kept
        store.queue("a").purge()
        store.close()


def test_h19_transients_live_through_a_clean_close(open_store):
    store = open_store()
    fill(store.queue("a"), persistent=False)
    store.close()
    assert len(open_store().queue("a")) == 40


@pytest.mark.parametrize("end", ["kill", "power cut"])
@pytest.mark.parametrize("at_rest", [False, True])
def test_h19_transients_die_with_the_process_also_in_a_queue_at_rest(at_rest, end):
    disk = SimulatedDisk(seed=1)
    store = qindex.open("/", disk=disk, idle=1.0)
    queue = store.queue("a")
    queue.publish_many([b"0", b"1"], persistent=False)
    queue.publish(b"2")
    store.sync()
    for _ in range(3):
        disk.advance(2)
        tick(store) if at_rest else None
    assert ("journal.alt" in "".join(disk.files())) == at_rest, "its files were closed"
    left = disk.kill() if end == "kill" else disk.power_cut(seed=7)
    abandon(store)
    with qindex.open("/", disk=left, read_only=True) as store:
        seen = [m.body for m in store.queue("a", create=False).browse()]
    assert seen == [b"0", b"1", b"2"], "nobody has found out yet how it ended"
    for _ in range(2):
        with qindex.open("/", disk=left) as store:
            found = [(m.body, m.redelivered) for m in store.queue("a").browse()]
        assert found == [(b"2", True)]


def test_h20_a_signal_in_the_middle_of_a_call_changes_nothing(store):
    import signal

    queue, given, hits = store.queue("a"), [], []
    before = signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        while len(hits) < 50:
            given += [queue.publish(b"x" * 100), *queue.publish_many([b"y" * 10] * 5)]
            queue.ack_many(queue.get_many(3))
            queue.sync()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert given == list(range(len(given)))
    assert len(queue) == len(given) - 3 * (len(given) // 6)


def test_h21_files_are_0600_and_directories_0700(store):
    os.umask(os.umask(0))  # whatever it is
    fill(store.queue("a"))
    store.queue("a").publish(b"x" * 3000)
    store.queue("a").flush()
    root = Path(store.path)
    for entry in [root, *root.rglob("*")]:
        wanted = 0o700 if entry.is_dir() else 0o600
        assert stat.S_IMODE(entry.stat().st_mode) == wanted, entry


UNREADABLE = """
import pathlib, sys, time, qindex
root = pathlib.Path(sys.argv[1])
small = {"embed_below": 64, "message_file_size": 16384}
with qindex.open(root, **small) as store:
    store.queue("a").publish_many([b"1" * 5000] * 8)
next(root.rglob("queue.meta")).write_bytes(b"junk")
store = qindex.open(root, **small)
while not store.findings:  # the scan runs, since there are files that it may free
    time.sleep(0.001)
store.queue("b").publish(b"2")
try:
    store.compact()
except qindex.QindexError:
    pass
assert store.queue("b").get().body == b"2"
"""


def test_h21_an_unreadable_queue_does_not_take_the_process_down(tmp_path):
    script = [sys.executable, "-c", UNREADABLE, str(tmp_path / "data")]
    assert subprocess.run(script, stderr=subprocess.DEVNULL).returncode == 0


LINKED = ["store.meta", "LOCK", "journal.jif", "0.idx", "0.qms"]  # queue.meta: see above


@pytest.mark.parametrize("name", LINKED)
@pytest.mark.parametrize("kind", ["symlink", "fifo", "directory", "socket"])
def test_h21_only_regular_files_are_opened(open_store, tmp_path, name, kind, monkeypatch):
    store = open_store()
    fill(store.queue("a"))
    store.queue("a").flush()
    known = dict(content(store)["a"])
    store.close()
    root = Path(store.path)
    target = next(root.rglob(name))
    moved = tmp_path / "moved"
    target.rename(moved)
    if kind == "symlink":
        target.symlink_to(moved)
    elif kind == "fifo":
        os.mkfifo(target)
    elif kind == "directory":
        target.mkdir()
    else:
        monkeypatch.chdir(target.parent)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(target.name)
    before = moved.read_bytes()
    shown = None
    try:
        store = open_store()
    except (qindex.QindexError, OSError):
        store = None
    if store:
        try:
            shown = {m.req_id: m.body for m in store.queue("a").browse()}
            assert shown.items() <= known.items()
        except qindex.QindexError:
            pass
        with contextlib.suppress(qindex.DiskError):
            store.check()
        assert damage(store) or shown == known or shown is None
        crash(store)
    assert moved.read_bytes() == before, "what a link points to is not touched"
    assert os.path.lexists(target)


def test_h21_a_queue_directory_that_is_a_link_is_not_followed(open_store, tmp_path):
    store = open_store()
    fill(store.queue("a"))
    store.close()
    own = queue_directory(store.path, "a")
    own.rename(tmp_path / "moved")
    own.symlink_to(tmp_path / "moved")
    before = files_of(tmp_path / "moved")
    store = open_store()
    with pytest.raises(qindex.QindexError):
        fill(store.queue("a"))
    assert files_of(tmp_path / "moved") == before
    crash(store)


def crc32c(data):
    from qindex._core import lib

    return lib.qi_crc32c(0, data, len(data))
