"""Kill a busy process with SIGKILL, again and again, and hold recovery to what was reported.

    pytest tests/crash                                 100 rounds, or QINDEX_KILL_ROUNDS
    python tests/crash/test_kill9.py --rounds 10000    as many as you like; --seed repeats a run

The loop itself is qindex/cli/torture/kill.py: `qindex torture` runs it on a user's disk.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
import zlib
from pathlib import Path

import pytest

from qindex.cli.torture.kill import play
from qindex.cli.torture.ledger import Broken, Ledger
from qindex.cli.torture.worker import body_of

ROUNDS = int(os.environ.get("QINDEX_KILL_ROUNDS", "100"))


@pytest.mark.slow
def test_nothing_reported_is_lost_doubled_or_altered_by_kill_9(tmp_path):
    loop = play(tmp_path, 1, rounds=ROUNDS)
    assert loop.rounds == ROUNDS
    assert loop.operations > 0


def reported(*lines):
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


PUBLISHED = reported(
    {"op": "publish", "queues": ["a"], "bodies": [[1, 9], [2, 9]], "persistent": True},
    {"ids": [[0, 1]]},
)


@pytest.mark.parametrize(
    "found",
    [
        [(0, b"1|whatever")],
        [(0, b"1|"), (1, b"2|")],
        [],
    ],
)
def test_the_ledger_notices_what_is_lost_or_altered(found):
    ledger = Ledger(["a"])
    ledger.follow(PUBLISHED)
    with pytest.raises(Broken):
        ledger.reconcile("a", found)


GET = {"op": "get", "queue": "a", "count": 1}


def shown(ledger, *req_ids):
    """What recovery shows if these are there."""
    return [(req_id, ledger.queues["a"].live[req_id].body) for req_id in req_ids]


def cut_off_in_a_get(ledger):
    """A life that ended in the middle of a get(); both messages are there in the next one."""
    ledger.follow(reported(GET))
    ledger.reconcile("a", shown(ledger, *ledger.queues["a"].live))


@pytest.mark.parametrize("lives", [0, 1, 2, 3])
def test_each_get_that_was_cut_off_may_count_once(lives):
    for count in range(1, 6):
        ledger = Ledger(["a"])
        ledger.follow(PUBLISHED)
        for _ in range(lives):
            cut_off_in_a_get(ledger)
        crc = zlib.crc32(ledger.queues["a"].live[0].body)
        answer = reported(GET, {"got": [[0, crc, count, lives > 0]]})
        if count <= lives + 1:
            ledger.follow(answer)
        else:
            with pytest.raises(Broken):
                ledger.follow(answer)


# ---- several threads: what they overlap in is in any order, what they do not is exact ----


def by(thread, **line):
    return {"thread": thread, **line}


def begins_publish(thread, *tags):
    bodies = [[tag, 24] for tag in tags]
    return by(thread, op="publish", queues=["a"], bodies=bodies, persistent=True)


def got(req_id, tag, count=1):
    return [req_id, zlib.crc32(body_of(tag, 24)), count, count > 1]


def begins(thread, op, **line):
    return by(thread, op=op, queue="a", **line)


ONE, TWO = begins_publish(0, 1), begins_publish(1, 2, 3)
GETS = begins(2, "get", count=1)
FINE = {
    "the later one comes first": [ONE, TWO, by(1, ids=[[0, 1]]), by(0, ids=[[2]])],
    "taken before it was reported": [TWO, GETS, by(2, got=[got(5, 2)]), by(1, ids=[[5, 6]])],
    "one of two that overlap": [TWO, by(1, ids=[[0, 1]]), GETS, ONE, by(2, got=[got(1, 3)])],
    "given back while it is taken": [
        *[TWO, by(1, ids=[[0, 1]]), begins(0, "get", count=1), by(0, got=[got(0, 2)])],
        *[begins(0, "nack", ids=[0]), GETS, by(2, got=[got(0, 2, 2)]), by(0, done=True)],
    ],
}
BROKEN = {
    "a hole in a batch": [TWO, by(1, ids=[[0, 2]])],
    "an id twice": [ONE, TWO, by(1, ids=[[0, 1]]), by(0, ids=[[1]])],
    "an id below one that was reported": [TWO, by(1, ids=[[5, 6]]), ONE, by(0, ids=[[4]])],
    "nobody published it": [TWO, GETS, by(2, got=[got(0, 4)])],
    "taken, then reported with another id": [
        TWO,
        GETS,
        by(2, got=[got(5, 2)]),
        by(1, ids=[[4, 5]]),
    ],
    "not the first, and nothing overlaps": [TWO, by(1, ids=[[0, 1]]), GETS, by(2, got=[got(1, 3)])],
    "two have it": [
        *[TWO, by(1, ids=[[0, 1]]), GETS, begins(0, "get", count=1)],
        *[by(2, got=[got(0, 2)]), by(0, got=[got(0, 2, 2)])],
    ],
    "taken while it is acked": [
        *[TWO, by(1, ids=[[0, 1]]), GETS, by(2, got=[got(0, 2)]), begins(2, "ack", ids=[0])],
        *[ONE, begins(1, "get", count=1), by(1, got=[got(0, 2, 2)])],
    ],
}


@pytest.mark.parametrize("lines", FINE.values(), ids=FINE)
def test_operations_that_overlap_may_be_in_any_order(lines):
    Ledger(["a"]).follow(reported(*lines))


@pytest.mark.parametrize("lines", BROKEN.values(), ids=BROKEN)
def test_what_no_order_explains_is_noticed(lines):
    ledger = Ledger(["a"])
    with pytest.raises(Broken):
        ledger.follow(reported(*lines))


@pytest.mark.parametrize(
    ("found", "fine"),
    [
        ([0, 1], True),  # neither publish was done, nor the ack
        ([1, 2, 3, 4], True),  # all of it was
        ([0, 1, 3], True),  # the single one was, behind a gap
        ([0, 1, 2], False),  # half a batch
        ([0], False),  # a message that nobody acked is gone
    ],
)
def test_each_operation_in_doubt_was_done_or_not(found, fine):
    ledger = Ledger(["a"])
    ledger.follow(
        reported(
            *[TWO, by(1, ids=[[0, 1]]), GETS, by(2, got=[got(0, 2)]), begins(2, "ack", ids=[0])],
            *[begins_publish(0, 9), begins_publish(1, 7, 8)],
        )
    )
    tags = {0: 2, 1: 3, 2: 7, 3: 9 if 2 not in found else 8, 4: 9}
    bodies = [(req_id, body_of(tags[req_id], 24)) for req_id in found]
    if fine:
        ledger.reconcile("a", bodies)
        assert list(ledger.queues["a"].live) == found
    else:
        with pytest.raises(Broken):
            ledger.reconcile("a", bodies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--keep", metavar="DIR", help="work here and keep what is left")
    arguments = parser.parse_args()
    base = Path(arguments.keep or tempfile.mkdtemp(prefix="qindex-kill9-"))
    base.mkdir(exist_ok=True)

    def progress(rounds: int, operations: int) -> None:
        print(f"\r{rounds} kills survived, {operations} operations", end="", flush=True)

    print(f"seed {arguments.seed}, stores in {base}")
    play(base, arguments.seed, rounds=arguments.rounds, progress=progress)
    print()
    if not arguments.keep:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
