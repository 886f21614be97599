"""Slow syncs are logged when they happen, also while nobody asks for figures."""

import shutil
import subprocess
import sys

import pytest
from helpers import preloaded

SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static int slowly(const char *name, int fd) {
    if (access(getenv("SLOW_SYNC"), F_OK) == 0)
        usleep(1200000);
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(fd);
}
int fdatasync(int fd) { return slowly("fdatasync", fd); }
int fsync(int fd) { return slowly("fsync", fd); }
"""

SCRIPT = """
import logging, os, sys, threading, time, qindex

path, form = sys.argv[1], int(sys.argv[2])
store = qindex.open(path, format=form)
lines = []

class Handler(logging.Handler):
    def emit(self, record):
        store.queue("log").publish(record.getMessage().encode(), confirm=True)  # as a program may
        lines.append(record.getMessage())

logging.getLogger("qindex.store").addHandler(Handler())
queue = store.queue("a")
queue.publish(b"fast", confirm=True)
open(os.environ["SLOW_SYNC"], "w").close()
queue.publish(b"slow")
end = time.monotonic() + 60
while not lines:
    assert time.monotonic() < end, "nothing was said"
    time.sleep(0.01)
assert "took more than a second" in lines[0] and lines[0].startswith(path), lines
queue.publish(b"slow again", confirm=True)
assert len(lines) == 1, lines
os.unlink(os.environ["SLOW_SYNC"])
store.stats()  # says the rest
assert len(lines) == 2, lines
store.close()
assert len(lines) == 2, lines
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the shim")
@pytest.mark.parametrize("form", ["1", "2"])
def test_a_slow_sync_in_the_background_is_logged_then(tmp_path, form):
    environment = preloaded(tmp_path, SHIM) | {"SLOW_SYNC": str(tmp_path / "slow")}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "store"), form]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
