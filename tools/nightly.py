"""Everything that takes long, one after the other; what CI runs in minutes, for hours.

    python tools/nightly.py                about an hour and a half
    python tools/nightly.py --hours 8      the fuzzers, kills and cuts take what is left of the time
    python tools/nightly.py --list         what would run

The output of each step goes to build/nightly/; the end is a table. What cannot run here (no root,
no clang) says so in its output and counts as passed. Exit code 0: all passed; 1: something failed.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "nightly"
FIXED_HOURS = 0.5  # the suite under three sanitizers
PYTHON = sys.executable


@dataclass(frozen=True)
class Step:
    name: str
    command: list[str]


def steps(hours: float) -> list[Step]:
    """The time that is left goes to the searches in fixed shares."""
    minutes = max(hours - FIXED_HOURS, 0.1) * 60
    kills = str(round(minutes * 0.25 * 60 * 5))  # about five a second
    cuts = str(round(minutes * 0.2 * 60 * 4 / 3))  # about four a second, three file systems
    found = [
        Step("sanitizers", ["tools/sanitize.py", "all"]),
        Step("fuzz, canary", ["tools/fuzz.py", "--canary"]),
        Step("fuzz", ["tools/fuzz.py", "--minutes", str(minutes * 0.45)]),
        Step("kill -9", ["tests/crash/test_kill9.py", "--rounds", kills]),
        Step("power cuts, canary", ["tools/powercut.py", "--canary"]),
        Step("power cuts", ["tools/powercut.py", "--cuts", cuts, "--seed", str(int(time.time()))]),
        Step("torture", ["-m", "qindex", "torture", str(LOGS), "--minutes", str(minutes * 0.1)]),
    ]
    explorer = ROOT / "tools" / "explore.py"
    if explorer.exists():
        found.append(Step("explorer", [str(explorer)]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=1.5)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    failed = 0
    for step in steps(options.hours):
        if options.list:
            print(f"{step.name:<20} {' '.join(step.command)}")
            continue
        log = LOGS / f"{step.name.replace(', ', '-').replace(' ', '-')}.log"
        begin = time.monotonic()
        with log.open("w") as file:
            done = subprocess.run(
                [PYTHON, *step.command], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT
            )
        passed = done.returncode == 0
        failed += not passed
        minutes = (time.monotonic() - begin) / 60
        outcome = "passed" if passed else f"FAILED ({done.returncode}): see {log}"
        print(f"{step.name:<20} {minutes:6.1f} min  {outcome}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
