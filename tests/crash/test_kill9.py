"""Kill a busy process with SIGKILL, again and again, and hold recovery to what was reported.

    pytest tests/crash                                 100 rounds, or QINDEX_KILL_ROUNDS
    python tests/crash/test_kill9.py --rounds 10000    as many as you like; --seed repeats a run

The loop itself is qindex/cli/torture_kill.py: `qindex torture` runs it on a user's disk.
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

from qindex.cli.torture_kill import play
from qindex.cli.torture_ledger import Broken, Ledger

ROUNDS = int(os.environ.get("QINDEX_KILL_ROUNDS", "100"))


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
    ledger.remember_ready()
    ledger.killed()
    with pytest.raises(Broken):
        ledger.reconcile("a", found)


GET = {"op": "get", "queue": "a", "count": 1}


def cut_off_in_a_get(ledger):
    """A life that ended in the middle of a get(); both messages are there in the next one."""
    ledger.follow(reported(GET))
    ledger.remember_ready()
    ledger.killed()
    ledger.reconcile("a", [(i, entry.body) for i, entry in ledger.queues["a"].live.items()])


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
