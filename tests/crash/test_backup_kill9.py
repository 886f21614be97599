"""A backup that is killed leaves the one before, or is complete."""

import os
import signal
import time

import qindex


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
