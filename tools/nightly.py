"""Everything that takes long, one after the other; what CI runs in minutes, for hours.

    python tools/nightly.py                about two hours, on a machine with four processors
    python tools/nightly.py --hours 8      the searches share what the tests leave of the time
    python tools/nightly.py --list         what would run

The output of each step goes to build/nightly/; the end is a table. What cannot run here (no root,
no clang) says so in its output and counts as passed. Exit code 0: all passed; 1: something failed.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "nightly"
FIXED_HOURS = 1.0  # all tests but the long ones, under three sanitizers and without
PYTHON = sys.executable
SHARED = ["-n", str(os.cpu_count() or 1), "--dist", "worksteal"]
FAST = ["-m", "not slow and not long", *SHARED]
SLOW = ["-m", "slow and not long", *SHARED]


@dataclass(frozen=True)
class Step:
    name: str
    command: list[str]
    new_format: int = 2  # of the stores that tests make (tests/conftest.py)


def steps(hours: float) -> list[Step]:
    """The time that is left goes to the searches in fixed shares."""
    minutes = max(hours - FIXED_HOURS, 0.1) * 60
    seed = str(int(time.time()))
    dice = ["--seed", seed]
    machines = ["tests/property", "--hypothesis-profile=long", f"--hypothesis-seed={seed}"]

    def so_many(share: float, each_minute: float) -> str:
        return str(max(1, round(minutes * share * each_minute)))

    return [
        Step("sanitizers", ["tools/sanitize.py", "all", "--slow"]),
        Step("sanitizers, bugs on purpose", ["tools/sanitize.py", "all", "--canary"]),
        Step("suites of clients", ["tools/client_suites.py", "--work", str(LOGS / "suites")]),
        Step("slow tests", ["-m", "pytest", *SLOW, "tests"]),
        Step("long tests", ["-m", "pytest", "-m", "long", "tests"]),
        Step("stores of format 1", ["-m", "pytest", *FAST, "tests/unit"], new_format=1),
        Step("state machines", ["-m", "pytest", *machines]),
        Step("fuzz, canary", ["tools/fuzz.py", "--canary"]),
        Step("fuzz", ["tools/fuzz.py", "--minutes", str(minutes * 0.25)]),
        Step("explorer, bugs on purpose", ["tools/explore.py", "--mutants"]),
        Step("explorer", ["tools/explore.py", "--minutes", str(minutes * 0.25), *dice]),
        Step("schedules, races on purpose", ["tools/schedules.py", "--mutants"]),
        Step("schedules", ["tools/schedules.py", "--schedules", so_many(0.05, 40_000), *dice]),
        Step("faults", ["tools/explore.py", "--faults", "--programs", so_many(0.1, 5), *dice]),
        Step("flips", ["tools/explore.py", "--flips", so_many(0.1, 100_000), *dice]),
        Step("kill -9", ["tests/crash/test_kill9.py", "--rounds", so_many(0.1, 300)]),
        Step("strangers", ["tools/strangers.py", "model", "--steps", so_many(0.02, 20_000), *dice]),
        Step(
            "strangers, kills", ["tools/strangers.py", "kills", "--kills", so_many(0.03, 60), *dice]
        ),
        Step(
            "strangers, crowds",
            ["tools/strangers.py", "crowd", "--kills", so_many(0.03, 40), *dice],
        ),
        Step(
            "strangers, clocks",
            ["tools/strangers.py", "clocks", "--steps", so_many(0.01, 90_000), *dice],
        ),
        Step(
            "strangers, consumers",
            ["tools/strangers.py", "consumers", "--steps", so_many(0.02, 6_000), *dice],
        ),
        Step("harmed disks, canaries", ["tools/disks.py", "--canary"]),
        Step("power cuts", ["tools/disks.py", "cut", "--times", so_many(0.05, 80), *dice]),
        Step(
            "power cuts, many queues",
            ["tools/disks.py", "groups", "--times", so_many(0.05, 80), *dice],
        ),
        Step("full disks", ["tools/disks.py", "full", *dice]),
        Step("failing syncs", ["tools/disks.py", "sync", "--times", so_many(0.05, 15), *dice]),
        Step("torture", ["-m", "qindex", "torture", str(LOGS), "--minutes", str(minutes * 0.05)]),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}  # scripts outside of the package too
    failed = 0
    for step in steps(options.hours):
        if options.list:
            print(f"{step.name:<26} {' '.join(step.command)}")
            continue
        log = LOGS / f"{step.name.replace(', ', '-').replace(' ', '-')}.log"
        begin = time.monotonic()
        with log.open("w") as file:
            done = subprocess.run(
                [PYTHON, *step.command],
                cwd=ROOT,
                env=environment | {"QINDEX_TEST_FORMAT": str(step.new_format)},
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        passed = done.returncode == 0
        failed += not passed
        minutes = (time.monotonic() - begin) / 60
        outcome = "passed" if passed else f"FAILED ({done.returncode}): see {log}"
        print(f"{step.name:<26} {minutes:6.1f} min  {outcome}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
