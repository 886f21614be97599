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
