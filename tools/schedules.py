"""Plays threads in schedules that a seed decides; what is left must agree with what they were told.

    python tools/schedules.py                           20,000 schedules, half a minute
    python tools/schedules.py --schedules N --seed S    more, others
    python tools/schedules.py --mutants                 each race on purpose must be found

Builds tests/c/test_schedules.c: three threads publish, get, ack, sync and purge beside the engine's
own worker, on a simulated disk that is killed or loses power in between. A finding is printed with
the seed that plays it again: QINDEX_SEED=S QINDEX_SCHEDULES=1 tells each verb.
Exit code 0: nothing found (with --mutants: every one was); 1: a finding (or one was not); 2: usage.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import c_tests
import layers

MUTANT_SCHEDULES = 20_000  # the rarest race needs some 9,000; that many take 20 seconds
AT_ONCE = 1_000  # one process plays so many
FLAGS = ["-O2", "-UNDEBUG"]


def races() -> list[str]:
    """Names of the races on purpose in the engine's sources."""
    found: set[str] = set()
    for file in [*layers.engine(), *layers.headers()]:
        found.update(re.findall(r"QI_BUG\((race_\w+)\)", file.read_text("utf-8")))
    return sorted(found)


def play(program: Path, seed: int, count: int, race: str = "") -> tuple[int, str]:
    """The number of turns, and no finding; or 0, and what is known of one."""
    environment = os.environ | {
        "QINDEX_SEED": str(seed),
        "QINDEX_SCHEDULES": str(count),
        "QINDEX_BUG": race,
    }
    ran = subprocess.run(
        [program, "."], env=environment, capture_output=True, text=True, errors="replace"
    )
    turns = re.search(r"(\d+) turns", ran.stderr)
    if ran.returncode == 0 and turns:
        return int(turns[1]), ""
    where = f"exit code {ran.returncode} in one of {count:,} schedules from seed {seed} on"
    return 0, f"{ran.stderr}{where}"  # a process that crashes says nothing


def explore(program: Path, options: argparse.Namespace) -> int:
    begin, played, turns, findings = time.monotonic(), 0, 0, 0
    seeds = range(options.seed, options.seed + options.schedules, AT_ONCE)
    counts = [min(AT_ONCE, options.seed + options.schedules - seed) for seed in seeds]
    with ThreadPoolExecutor(options.jobs) as pool:
        for count, (more, finding) in zip(
            counts, pool.map(lambda *what: play(program, *what), seeds, counts), strict=True
        ):
            played, turns, findings = played + count, turns + more, findings + bool(finding)
            if finding:
                print(f"\r✗ {finding}")
            if sys.stderr.isatty():
                print(f"\r{played:,} schedules, {turns:,} turns", end="", file=sys.stderr)
    seconds = time.monotonic() - begin
    print(
        f"\r{'✗' if findings else '✓'} {played:,} schedules, {turns:,} turns, {findings} findings;"
        f" {seconds:.0f} s"
    )
    return int(findings > 0)


def hunt(program: Path, options: argparse.Namespace) -> int:
    missed, names = [], races()
    with ThreadPoolExecutor(options.jobs) as pool:
        ran = pool.map(lambda name: play(program, options.seed, MUTANT_SCHEDULES, name), names)
        for name, (_, finding) in zip(names, ran, strict=True):
            seed = re.search(r"QINDEX_SEED=(\d+)", finding)
            what = re.search(r"Assertion `(.*?)' failed", finding)
            if not seed:
                missed.append(name)
                print(f"  ✗ {name:<34} not found {finding[-200:]}")
                continue
            after = int(seed[1]) - options.seed + 1
            print(f"  ✓ {name:<34} {after:>5,}  {what[1][:60] if what else ''}")
    print(
        f"{'✗' if missed else '✓'} {len(names) - len(missed)} of {len(names)} races found, each"
        f" within {MUTANT_SCHEDULES:,} schedules"
    )
    return int(bool(missed))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--schedules", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--mutants", action="store_true")
    options = parser.parse_args()
    compiler = c_tests.compiler()
    if compiler is None:
        parser.error("there is no C compiler")
    with tempfile.TemporaryDirectory(prefix="qindex-schedules-") as folder:
        flags = [*FLAGS, *(["-DQI_BUGS"] if options.mutants else [])]
        program = c_tests.compile_test("schedules", compiler, flags, Path(folder))
        return hunt(program, options) if options.mutants else explore(program, options)


if __name__ == "__main__":
    sys.exit(main())
