"""A disk that fails a sync (H13) and a disk that is full (H14).

The first is a shim in front of fdatasync, compiled here and preloaded into a child; the second a
small tmpfs, which needs root.
"""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest
from helpers import preloaded

import qindex

SHIM = """
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int fdatasync(int file) {
    if (access(getenv("FAIL_SYNC"), F_OK) != 0)
        return (int)syscall(SYS_fdatasync, file);
    unlink(getenv("FAIL_SYNC")); /* once: a second try would succeed, as on Linux */
    errno = EIO;
    return -1;
}
"""

SCRIPT = """
import os, sys, qindex
store = qindex.open(sys.argv[1], sync="never")
queue = store.queue("a")
queue.publish(b"safe", confirm=True)
open(os.environ["FAIL_SYNC"], "w").close()
try:
    queue.publish(b"unknown", confirm=True)
except qindex.OutcomeUnknown as error:
    assert "Input/output error" in str(error) and "nobody knows" in str(error)
else:
    raise SystemExit("the confirm came although the sync failed")
for call in (lambda: queue.publish(b"x"), queue.get, queue.sync, store.sync, queue.flush):
    try:
        call()
    except qindex.StoreFailed as error:
        assert "reopen" in str(error) and "cannot sync the journal" in str(error)
    else:
        raise SystemExit("a failed store went on")
try:
    store.close()
except qindex.StoreFailed as error:
    assert "closed" in str(error) and "Input/output error" in str(error)
else:
    raise SystemExit("close said that all is well")
store.close()  # it is closed
try:
    with qindex.open(sys.argv[1] + "2", sync="never") as store:
        store.queue("a").publish(b"unknown")
        open(os.environ["FAIL_SYNC"], "w").close()
        store.sync()
except qindex.OutcomeUnknown:
    pass  # the first error is the one that leaves the block
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the shim")
def test_h13_after_a_failed_sync_only_close_is_allowed(tmp_path):
    environment = preloaded(tmp_path, SHIM) | {"FAIL_SYNC": str(tmp_path / "fail")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path / "data")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    with qindex.open(tmp_path / "data") as store:
        bodies = [m.body for m in store.queue("a").browse()]
        assert bodies[0] == b"safe"
        assert bodies in ([b"safe"], [b"safe", b"unknown"])


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this system does not let root mount a tmpfs")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def publish_until_full(queue, body):
    published = []
    try:
        while len(published) < 200_000:
            published.append(queue.publish(body))
    except qindex.DiskFull:
        return published
    raise AssertionError("the disk never got full")


@pytest.mark.parametrize("embed_below", [0, 65536], ids=["stored", "embedded"])
@pytest.mark.parametrize("io", ["mmap", "pwrite"])
def test_h14_a_full_disk_refuses_publishes_and_serves_everything_else(small_disk, io, embed_below):
    options = {"io": io, "embed_below": embed_below, "max_journal_bytes": 1 << 20}
    options |= {"message_file_size": 1 << 20, "segment_entries": 1024}
    body = bytes(1000)
    with qindex.open(small_disk / "data", **options) as store:
        queue = store.queue("a")
        published = publish_until_full(queue, body)
        assert len(queue) == len(published)
        for _ in range(len(published) // 2):
            queue.ack(queue.get())
        queue.flush()
        store.compact()
        again = queue.publish(body)  # there is room again, without a restart
        assert again > published[-1]
        left = len(published) - len(published) // 2 + 1
        assert len(queue) == left
    with qindex.open(small_disk / "data", **options) as store:
        queue = store.queue("a")
        assert len(queue) == left
        assert all(message.body == body for message in queue.browse())
        assert not [finding for finding in store.findings if finding.severity == "damage"]


def test_a_low_water_mark_refuses_publishes_and_never_acks(tmp_path):
    with qindex.open(tmp_path / "store") as store:
        store.queue("a").publish_many([b"x" * 100] * 1000)
    with qindex.open(tmp_path / "store", min_free=1 << 60) as store:
        queue = store.queue("a")
        with pytest.raises(qindex.DiskFull):
            queue.publish_many([b"x" * 1000] * 10_000)
        while messages := queue.get_many(100):
            queue.nack(messages[0], delay=3600)
            queue.ack_many(messages[1:])
        queue.flush()
        assert queue.ready == queue.unacked == 0
    with qindex.open(tmp_path / "store") as store:
        store.queue("a").publish(b"there is room again")
