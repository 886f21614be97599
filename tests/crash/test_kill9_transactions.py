"""Kill a process that works in transactions, again and again: each of them is there, or nothing.

A token for each number goes round through the queues a, b and c: by a transaction that publishes it
anew in the next queue and acks it in the one before, or by a move. So in all of them together each
number is there exactly once, whenever the process is killed, and each hop has its line in `log`.
"""

import os
import random
import subprocess
import sys
import time

import pytest

import qindex

ROUNDS = int(os.environ.get("QINDEX_KILL_TRANSACTIONS", "25"))
QUEUES = ("a", "b", "c", "log")
TOKENS = 40

WORKER = """
import itertools, sys
import qindex

with qindex.open(sys.argv[1]) as store:
    queues = [store.queue(name) for name in "abc"]
    print("ready", flush=True)
    for turn in itertools.count():
        at = turn % 3
        to = "abc"[(at + 1) % 3]
        for message in queues[at].get_many(7):
            with store.transaction(confirm=turn % 5 == 0) as t:
                t.publish("log", message.body)
                if turn % 2:
                    t.move(message, to)
                else:
                    t.publish(to, message.body)
                    t.ack(message)
        if turn % 9 == 0:
            store.queue("log").purge()
"""


def killed_while_it_works(path, seconds):
    worker = subprocess.Popen([sys.executable, "-c", WORKER, path], stdout=subprocess.PIPE)
    assert worker.stdout.readline() == b"ready\n"
    time.sleep(seconds)
    worker.kill()
    worker.wait()
    worker.stdout.close()


@pytest.mark.slow
def test_each_token_is_in_exactly_one_queue_whenever_the_process_is_killed(tmp_path):
    path = str(tmp_path / "store")
    choice = random.Random(7)
    bodies = [b"%d|" % i + bytes(choice.choice((5, 300, 9000))) for i in range(TOKENS)]
    with qindex.open(path, format=2, max_journal_entries=500, embed_below=4096) as store:
        store.create_queues(QUEUES)
        store.queue("a").publish_many(bodies)
    hops = 0
    for _ in range(ROUNDS):
        killed_while_it_works(path, choice.uniform(0.01, 0.3))
        with qindex.open(path, read_only=True) as store:
            seen = [m.body for name in "abc" for m in store.queue(name).browse()]
        with qindex.open(path) as store:
            found = [m.body for name in "abc" for m in store.queue(name).browse()]
            hops += store.queue("log").stats().next_req_id > 0
            assert {finding.severity for finding in store.findings} <= {"note"}
        assert sorted(found) == sorted(bodies)
        assert sorted(seen) == sorted(bodies)
    assert hops == ROUNDS
