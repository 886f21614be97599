"""DiskQueue and kill -9: what was put is there, what was done with does not come again."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from qindex import DiskQueue

ROUNDS = 8
WORKER = """
import sys
from qindex import DiskQueue

path, kind, start = sys.argv[1], sys.argv[2], int(sys.argv[3])
queue = DiskQueue("q", path, format=kind, max_bytes_per_file=4096, sync_every=40)
say = lambda text: (sys.stdout.write(text), sys.stdout.flush())
say("open 0\\n")
for number in range(start, start + 100000):
    queue.put(b"%d" % number)
    say(f"put {number}\\n")
    if number % 3:
        say(f"get {int(queue.get())}\\n")
"""


def run_and_kill(path, kind, start, seconds):
    """What a worker reported before it was killed: numbers put and got."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, path, kind, str(start)], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout.readline() == "open 0\n"
    time.sleep(seconds)  # some hundreds of operations; how many does not matter
    worker.kill()
    lines = worker.stdout.read().splitlines(keepends=True)
    worker.communicate()
    told = [line.split() for line in lines if line.endswith("\n")]
    return [[int(number) for verb, number in told if verb == what] for what in ("put", "get")]


# How many messages that were got may come again: with NSQ's files those since the last sync; the
# last get may be one of which nobody heard.
@pytest.mark.parametrize(("kind", "again"), [("qindex", range(2)), ("nsq", range(-1, 41))])
@pytest.mark.sample(2)
def test_nothing_is_lost_when_the_process_is_killed(tmp_path, kind, again):
    start, there = 0, []
    for round_number in range(ROUNDS):
        put, got = run_and_kill(tmp_path, kind, start, 0.02 + 0.01 * round_number)
        assert put == list(range(start, start + len(put)))
        wanted = there + put
        assert got == wanted[: len(got)]
        start += len(put)
        with DiskQueue("q", tmp_path, format=kind, max_bytes_per_file=4096) as queue:
            depth = queue.depth
            there = [int(body) for body in queue]
            assert (len(there), queue.damaged) == (depth, 0)
            for number in there:
                queue.put(b"%d" % number)
        if there[-1:] == [start]:  # put, but nobody heard of it
            wanted.append(start)
        start += 1
        done = len(wanted) - len(there)
        assert there == wanted[done:]
        assert len(got) - done in again
    assert start > 2 * ROUNDS
