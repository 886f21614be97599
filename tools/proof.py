"""What is proven about crashes, faults and damage: measured in this run, as one table.

    python tools/proof.py --quick                 under three minutes
    python tools/proof.py --long 2                two hours of the searches
    python tools/proof.py --quick --rst FILE      writes the table there, too
    python tools/proof.py --quick --work DIR      all means of coverage; what coverage_c.py --work
                                                  DIR kept of this core is taken

What FILE says behind its heading "Longer runs" stays.

Every figure in the column "here" is counted in this run; the column "best elsewhere" is what the
documentation or an issue of the other project says. Exit code 0: nothing was lost, wrong or silent;
1: something was, or a bug on purpose was not found.
"""

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from types import ModuleType

import coverage_c
import coverage_means
import explore
import schedules
from explore import FAULTS, Run, play, together

ROOT = Path(__file__).resolve().parents[1]
JOBS = 2
SEED = 1


@dataclass(frozen=True)
class Size:
    """How much of each search."""

    points: int
    programs: int  # of the sweep of faults
    flips: int
    schedules: int

    def times(self, factor: float) -> Size:
        return Size(*(round(count * factor) for count in astuple(self)))


QUICK = Size(points=12_000, programs=4, flips=20_000, schedules=10_000)
LONG_HOUR = QUICK.times(60)  # an hour is about sixty quick searches


@dataclass(frozen=True)
class Row:
    claim: str
    elsewhere: str
    here: str


def side_by_side(program: Path, plans: Sequence[Sequence[object]]) -> list[Run]:
    with ThreadPoolExecutor(JOBS) as pool:
        return list(pool.map(lambda plan: play(program, plan), plans))


def plans(words: Callable[[int], Sequence[object]]) -> list[list[object]]:
    """One per process, each with programs of its own."""
    return [["--seed", SEED + job * 1_000_000, *words(job)] for job in range(JOBS)]


def power_cuts(program: Path, size: Size) -> list[Run]:
    return side_by_side(
        program, plans(lambda _: ["--points", size.points // JOBS, "--every", 8, "--images", 3])
    )


def faults(program: Path, size: Size) -> list[Run]:
    count = max(1, size.programs // JOBS)
    return side_by_side(
        program, plans(lambda _: ["--faults", "--programs", count, "--operations", 60])
    )


def flips(program: Path, size: Size) -> list[Run]:
    return side_by_side(program, plans(lambda _: ["--flips", size.flips // JOBS]))


def findings_of(runs: Sequence[Run]) -> list[str]:
    found = [finding for run in runs for finding in run.findings]
    return found + [f"ended with code {run.code}" for run in runs if run.code and not run.findings]


def count_of(runs: Sequence[Run], name: str) -> int:
    return int(sum(run.counts.get(name, 0) for run in runs))


# ---- rows ----


def rows_of_power_cuts(runs: Sequence[Run]) -> list[Row]:
    found = len(findings_of(runs))
    points, nested = count_of(runs, "points"), count_of(runs, "nested")
    images, barriers = count_of(runs, "recoveries"), count_of(runs, "barriers")
    return [
        Row(
            "confirmed publish lost, synced ack back, phantom, wrong bytes",
            "SQLite: 0, by protocol. RabbitMQ 4.x classic queues: no fsync before a confirm",
            f"{found} in {points:,} crash points, {images:,} recoveries"
            f" ({nested:,} of them cut inside a recovery)",
        ),
        Row(
            "open() is a barrier: what it showed stays",
            "claimed by none",
            f"{found} violations in {barriers:,} power cuts right after an open",
        ),
    ]


def rows_of_flips(runs: Sequence[Run]) -> list[Row]:
    figures = together(runs)

    def of(kind: str, word: str) -> int:
        return figures[f"flipped {kind}-{word}"]

    def reaches(kinds: Sequence[str]) -> str:
        told = ", ".join(
            f"{word} {sum(of(kind, word) for kind in kinds):,}"
            for word in ("nothing", "message", "frame", "more", "queue", "store")
        )
        most = max(figures[f"most {kind}-lost"] for kind in kinds)
        return f"{told}; most messages lost where the queue opens: {most}"

    sectors = ("zeros", "stale")
    silent_sectors = sum(of(kind, "silent") for kind in sectors)
    return [
        Row(
            "silent loss, or wrong bytes, from a flipped bit",
            "RabbitMQ v2: 16-bit CRC; v1: none",
            f"{of('bit', 'silent')} silent, {of('bit', 'wrong')} wrong in {of('bit', 'tried'):,}"
            " flips",
        ),
        Row(
            "damage radius of a flipped bit: flips by what was lost",
            "RabbitMQ v2: 4,096 entries; NSQ diskqueue: the rest of the file",
            reaches(("bit",)),
        ),
        Row(
            "damage radius of one bad sector (zeros, older bytes): the same",
            "as above",
            f"{reaches(sectors)}; {sum(of(kind, 'wrong') for kind in sectors)} wrong,"
            f" {silent_sectors} silent in {sum(of(kind, 'tried') for kind in sectors):,} (a journal"
            " without its last MARK, or older bytes that are whole)",
        ),
    ]


def rows_of_faults(runs: Sequence[Run]) -> list[Row]:
    figures = together(runs)
    found = len(findings_of(runs))
    parts = []
    for kind, text in FAULTS.items():
        failed = sum(figures[f"swept {kind}-{times}"] for times in ("once", "ever"))
        tried = sum(figures[f"{kind}-{times} of"] for times in ("once", "ever"))
        parts.append(f"{text}: {failed:,} of {tried:,} runs failed one")
    space = figures["swept enospc-once"] + figures["swept enospc-ever"]
    return [
        Row(
            "every I/O call and every malloc of a program fails, once and for ever",
            "SQLite: both",
            f"{found} findings in {count_of(runs, 'programs')} programs; {'; '.join(parts)}"
            " (no space: only calls that take some can fail)",
        ),
        Row(
            "disk full: publishes are refused, the rest goes on, it comes up again",
            "RabbitMQ #984: does not come up again",
            f"{found} findings in {space:,} runs where space ran out; {full_disk()}",
        ),
    ]


def full_disk() -> str:
    """The real thing: tests that mount a small tmpfs (needs root)."""
    words = ["-m", "pytest", "-q", "tests/unit/test_failing_disk.py", "-k", "h14", "--color=no"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "could not run"
    outcome = re.findall(r"\d+ (?:passed|failed|skipped|error)", last)
    return "on a real full disk: " + (", ".join(outcome) or last)


def said_by(tool: ModuleType, words: Sequence[object], pattern: str) -> list[int]:
    """The numbers in a line that another tool prints; zeros if it does not."""
    command = [sys.executable, str(tool.__file__), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(pattern, done.stdout)
    if not found:
        return [0] * re.compile(pattern).groups
    return [int(number.replace(",", "")) for number in found.groups()]


def row_of_schedules(size: Size) -> tuple[Row, int]:
    pattern = r"([\d,]+) schedules, ([\d,]+) turns, (\d+) findings"
    played, turns, found = said_by(schedules, ["--schedules", size.schedules], pattern)
    return Row(
        "what threads were told is true, in any schedule, after a kill or a power cut in it",
        "not published",
        f"{found} findings in {played:,} schedules, {turns:,} turns",
    ), found + (played == 0)


def row_of_bugs() -> tuple[Row, int]:
    got, bugs = said_by(explore, ["--mutants"], r"(\d+) of (\d+) bugs found")
    won, races = said_by(schedules, ["--mutants"], r"(\d+) of (\d+) races found")
    here = f"{got} of {bugs}, and {won} of {races} races"
    missed = bugs - got + races - won + (bugs == 0) + (races == 0)
    return Row("bugs on purpose (QI_BUG) that are found", "not published", here), missed


def rows_of_coverage(means: Sequence[str], work: Path | None) -> tuple[list[Row], str, int]:
    """The row, the table, and how many means failed or branches are neither taken nor listed."""
    files: dict[str, coverage_c.File] = {}
    failed = 0
    for name in means:
        more, why = coverage_c.run_means(name, work)
        coverage_c.merge(files, more)
        failed += bool(why)
        print(why, end="")
    lines, branches = coverage_c.total(files)
    here = f"lines {lines}, branches {branches}"
    if len(means) == len(coverage_means.MEANS):
        listed = coverage_c.read_exceptions(coverage_c.EXCEPTIONS.read_text(encoding="utf-8"))
        wrong = coverage_c.compare(files, listed)
        failed += len(wrong)
        rest = "the rest is" if not wrong else f"{len(wrong):,} are neither taken nor"
        here += f"; {rest} listed with reasons ({listed.total()})"
    row = Row(
        f"coverage of the C core ({', '.join(means)})", "SQLite: 100 % of branches (MC/DC)", here
    )
    return [row], coverage_c.table(files), failed


# ---- the table ----

TITLE = "What one run of tools/proof.py measured"
LONGER = "\nLonger runs\n"


def longer_runs(file: Path) -> str:
    """What somebody wrote down of them."""
    _, heading, text = file.read_text("utf-8").partition(LONGER) if file.exists() else ("", "", "")
    return heading + text


def rst_table(rows: Sequence[Row]) -> str:
    text = ".. list-table::\n   :header-rows: 1\n   :widths: 30 25 45\n\n"
    for row in [Row("property", "best elsewhere", "here"), *rows]:
        text += f"   * - {row.claim}\n     - {row.elsewhere}\n     - {row.here}\n"
    return text


def rst(rows: Sequence[Row], coverage: str, length: str, seconds: float) -> str:
    return (
        f"{TITLE}\n{'=' * len(TITLE)}\n\n"
        f"``python tools/proof.py {length}``, {seconds / 60:.1f} minutes on {platform.system()}"
        f" {platform.machine()}. Made by the tool: run it again to have it anew. How each search\n"
        'works is in docs/internals/tests.rst, "How crash safety is shown".\n\n'
        f"{rst_table(rows)}\nCoverage of the C core by file\n"
        f"------------------------------\n\n::\n\n{coverage}"
    )


def show(rows: Sequence[Row]) -> None:
    for row in rows:
        print(f"{explore.paint(explore.BOLD, row.claim)}\n  here:      {row.here}")
        print(f"  elsewhere: {row.elsewhere}", flush=True)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--quick", action="store_true")
    length.add_argument("--long", type=float, metavar="HOURS")
    parser.add_argument("--rst", type=Path, metavar="FILE")
    parser.add_argument("--work", type=Path, metavar="DIR", help="as of coverage_c.py")
    options = parser.parse_args(words)
    size = LONG_HOUR.times(options.long) if options.long else QUICK
    begin = time.monotonic()
    program = explore.build()
    rows: list[Row] = []
    bad: Counter[str] = Counter()
    for name, search, rows_of in (
        ("power cuts", power_cuts, rows_of_power_cuts),
        ("flips", flips, rows_of_flips),
        ("faults", faults, rows_of_faults),
    ):
        runs = search(program, size)
        for finding in findings_of(runs):
            print(f"{explore.paint(explore.RED, '✗')} {name}: {finding}")
            bad[name] += 1
        new = rows_of(runs)
        show(new)
        rows += new
    row, bad["schedules"] = row_of_schedules(size)
    show([row])
    rows.append(row)
    row, bad["bugs"] = row_of_bugs()
    whole = options.long or options.work
    means = list(coverage_means.MEANS) if whole else ["explorer", "c", "corpus"]
    more, coverage, bad["coverage"] = rows_of_coverage(means, options.work)
    show([row, *more])
    rows += [row, *more]
    print(coverage)
    if options.rst:
        words_run = f"--long {options.long:g}" if options.long else "--quick"
        words_run += " --work DIR" if options.work else ""
        text = rst(rows, coverage, words_run, time.monotonic() - begin)
        options.rst.write_text(text + longer_runs(options.rst), encoding="utf-8")
    print(f"{time.monotonic() - begin:.0f} s")
    return int(sum(bad.values()) > 0)


if __name__ == "__main__":
    sys.exit(main())
