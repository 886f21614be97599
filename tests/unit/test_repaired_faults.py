"""Faults that were found by reading the core; each test says what should be and now is.

What happens in a child process is what would take the test run down with it.
"""

import random
import struct
import subprocess
import sys
import threading
import time

from helpers import twice

import qindex
from qindex._core import lib
from qindex.native.records import records

MANIFEST = 3


def child(path, script):
    """Run a script that has `path` and `qindex`; return its exit code."""
    head = "import os, sys, threading, time, qindex\npath = sys.argv[1]\n"
    done = subprocess.run([sys.executable, "-c", head + script, str(path)], capture_output=True)
    return done.returncode


def journal_of(path, name="journal.jif"):
    (folder,) = (path / "queues").iterdir()
    return folder / name


def frames_of(raw):
    offset = 8192
    while raw[offset : offset + 8] not in (b"", bytes(8)):
        (word,) = struct.unpack_from(">I", raw, offset)
        yield offset, word >> 28, word & 0xFFFFFFF
        offset += 8 + (word & 0xFFFFFFF)


def flip(path, offset):
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 1
    path.write_bytes(raw)


def test_a_flipped_bit_among_random_bodies_costs_one_message(tmp_path):
    store = qindex.open(tmp_path / "a", idle=3600)
    queue, dice = store.queue("q"), random.Random(1)
    for _ in range(5000):
        queue.publish(dice.randbytes(3000))
    queue.sync()
    queue.publish(b"with a MARK before it", confirm=True)
    journal = journal_of(tmp_path / "a")
    image = tmp_path / "b"
    subprocess.run(["cp", "-r", tmp_path / "a", image], check=True)
    store.close()
    _, (offset, _, _), *_ = frames_of(journal.read_bytes())
    flip(journal_of(image), offset + 100)
    with qindex.open(image, read_only=True) as reader:
        assert len(reader.queue("q")) >= 5000
        assert "damage" in {finding.severity for finding in reader.findings}


def test_a_flipped_bit_in_the_manifest_of_a_flush_costs_no_segment(tmp_path):
    script = """
queue = qindex.open(path, idle=3600).queue("q")
queue.publish_many([b"m"] * 1000)
queue.flush()
for body in (b"x", b"y"):
    queue.publish(body, confirm=True)
os._exit(0)
"""
    assert child(tmp_path / "a", script) == 0
    journal = journal_of(tmp_path / "a", "journal.alt")
    manifests = [at for at, kind, _ in frames_of(journal.read_bytes()) if kind == MANIFEST]
    flip(journal, manifests[-1] + 12)
    with qindex.open(tmp_path / "a") as store:
        assert len(store.queue("q")) == 1002


def test_compact_with_a_queue_that_cannot_be_read_does_not_crash(tmp_path):
    with qindex.open(tmp_path / "a") as store:
        store.queue("q").publish(b"x")
    journal = journal_of(tmp_path / "a")
    flip(journal, 0)
    flip(journal, 4096)
    script = """
store = qindex.open(path)
store.queue("other").publish(b"x")
time.sleep(0.5)
try:
    store.compact()
except qindex.QindexError:
    pass
"""
    assert child(tmp_path / "a", script) == 0


def test_a_store_meta_with_an_impossible_segment_size_is_refused(tmp_path):
    with qindex.open(tmp_path / "a") as store:
        store.queue("q").publish(b"x")
    meta = tmp_path / "a/store.meta"
    head = bytearray(meta.read_bytes()[:60])
    head[12:16] = bytes(4)
    meta.write_bytes(twice(head + struct.pack(">I", lib.qi_crc32c(0, bytes(head), 60))))
    script = """
try:
    qindex.open(path).queue("q")
except qindex.QindexError:
    sys.exit(3)
"""
    assert child(tmp_path / "a", script) == 3


def test_a_reader_may_come_while_the_next_journal_is_still_empty(tmp_path):
    with qindex.open(tmp_path / "a") as store:
        store.queue("q").publish(b"x")
    journal_of(tmp_path / "a", "journal.alt").touch()
    with qindex.open(tmp_path / "a", read_only=True) as reader:
        assert len(reader.queue("q")) == 1


def test_a_get_may_step_over_any_number_of_expired_messages(tmp_path):
    with qindex.open(tmp_path / "a", sync="never", max_journal_bytes=4096) as store:
        queue = store.queue("q")
        for _ in range(6):
            queue.publish_many([b""] * 100_000, expires_at=1)
        assert queue.get() is None
        assert len(queue) == 0


def test_every_record_of_a_big_batch_is_found(tmp_path):
    with qindex.open(tmp_path / "a", sync="never", embed_below=65536) as store:
        store.queue("q").publish_many([b"x" * 60_000] * 300)
        raw = journal_of(tmp_path / "a").read_bytes()
    assert [record.verb for record in records(raw)].count("publish") == 300


def test_what_is_published_during_a_sync_is_synced_by_the_next_one(tmp_path):
    with qindex.open(tmp_path / "a", idle=3600) as store:
        queue = store.queue("q")
        for _ in range(30):
            end = time.perf_counter() + 0.012
            while time.perf_counter() < end:
                queue.publish(b"b" * 200)
            end = time.perf_counter() + 10  # the interval is 5 ms, but a disk may be slow
            while queue.stats().unsynced_bytes:  # a flush may append to the journal later
                assert time.perf_counter() < end
                time.sleep(0.001)


def test_compact_from_several_threads_right_after_open_counts_every_reference(tmp_path):
    with qindex.open(tmp_path / "a") as store:
        for i in range(60):
            store.queue(f"q{i}").publish(b"x" * 5000)
    with qindex.open(tmp_path / "a") as store:
        threads = [threading.Thread(target=store.compact) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.stats().live_references == 60


def test_close_waits_for_a_compaction_in_another_thread(tmp_path):
    script = """
for i in range(15):
    store = qindex.open(f"{path}{i}", message_file_size=1 << 20)
    queue = store.queue("q")
    queue.publish_many([b"x" * 5000] * 4000)
    queue.ack_many([m for m in queue.get_many(4000) if m.req_id % 4])
    queue.sync()
    def compact():
        try:
            store.compact()
        except qindex.QindexError:
            pass
    thread = threading.Thread(target=compact)
    thread.start()
    time.sleep(0.002 * i)
    store.close()
    thread.join()
"""
    assert child(tmp_path / "a", script) == 0
