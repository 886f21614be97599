"""Measure qindex, a raw floor in C and other embedded queues on this machine, side by side.

Each round visits every system (A B C A B C ...), each measurement in a fresh process and a fresh
directory below --dir; the figures are medians over the rounds. Progress goes to standard error, the
tables to standard output. A missed target is a finding and exits 0; a work that fails exits 1.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import facts
import floor
import plan
import table
from loops import Job
from results import Results
from systems import System
from warm import WarmMemory
from works import FLOORS

WORKS = Path(__file__).with_name("works.py")
JOB_SECONDS_MAX = 600
WARM_MIB = 2048
DISK_NEEDED_GB = 5  # ten million messages of 100 B, twice


@dataclass(frozen=True)
class Measurement:
    step: plan.Step
    body_bytes: int
    system: str
    round_number: int

    @property
    def label(self) -> str:
        works = "+".join(self.step.works) + self.step.suffix
        return f"{self.system} {works} {self.body_bytes}"

    def matches(self, patterns: list[str]) -> bool:
        """Every pattern must be found in the label; one with a star must match all of it."""
        return all(fnmatch(self.label, p) if "*" in p else p in self.label for p in patterns)


def queue_counts(text: str) -> tuple[int, ...]:
    counts = tuple(int(word) for word in text.split(","))
    if not 1 <= len(counts) <= len(plan.QUEUE_COUNTS) or min(counts) < 1:
        raise ValueError(text)
    return counts


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds (5)")
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds, one round")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only measurements whose 'SYSTEM WORK SIZE' contains this, such as qindex or single "
        "(repeat to narrow; see --list)",
    )
    parser.add_argument(
        "--queues",
        type=queue_counts,
        default=plan.QUEUE_COUNTS,
        metavar="N,N",
        help="numbers of queues for the rows with many queues (1000,10000,100000)",
    )
    parser.add_argument("--list", action="store_true", help="list the measurements of a round")
    parser.add_argument("--dir", type=Path, help="where the data go, on a real disk (temp folder)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples")
    parser.add_argument("--rst", type=Path, metavar="FILE", help="write the tables for the docs")
    return parser.parse_args(arguments)


def measurements(
    options: argparse.Namespace, systems: dict[str, type[System]], with_floor: bool
) -> Iterator[Measurement]:
    """Rounds outermost, systems innermost: whatever drifts on the machine, drifts for all."""
    everything: dict[str, type[System] | None] = dict.fromkeys(FLOORS if with_floor else ())
    everything.update(systems)
    for round_number in range(1 if options.quick else options.rounds):
        for step in plan.steps(quick=options.quick, queue_counts=options.queues):
            for body_bytes in step.counts:
                for key, system in everything.items():
                    chosen = Measurement(step, body_bytes, key, round_number)
                    wanted = step.takes(key, system) and chosen.matches(options.only)
                    if wanted and round_number < step.rounds_max:
                        yield chosen


class WorkFailed(Exception):
    """A work's process ended without a result; the text is its last line on standard error."""


def run_work(job: Job) -> dict[str, float]:
    command = [sys.executable, str(WORKS), job.to_json()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=JOB_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise WorkFailed(f"no result after {JOB_SECONDS_MAX} s") from None
    lines = done.stdout.splitlines()
    # A work that kills itself has printed its figures before: then they count.
    killed_itself = done.returncode == -9 and job.work.endswith("_fill")
    if not lines or (done.returncode != 0 and not killed_itself):
        errors = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise WorkFailed(errors[-1])
    figures: dict[str, float] = json.loads(lines[-1])
    return figures


def measure(chosen: Measurement, data: Path, library: str) -> dict[str, float]:
    """Run one step's works in a fresh directory, and remove it."""
    directory = data / "work"
    directory.mkdir()
    figures: dict[str, float] = {}
    try:
        for work in chosen.step.works:
            job = Job(
                work=work,
                system=chosen.system,
                directory=str(directory),
                body_bytes=chosen.body_bytes,
                count=chosen.step.counts[chosen.body_bytes],
                seconds_max=chosen.step.seconds_max,
                floor_library=library,
            )
            figures.update(run_work(job))
            if figures.get("filled", job.count) < job.count:
                return {}  # Too slow to be filled: no figure.
    finally:
        shutil.rmtree(directory)
    return {figure + chosen.step.suffix: value for figure, value in figures.items()}


def measure_all(todo: list[Measurement], data: Path, library: str, memory: WarmMemory) -> Results:
    results = Results()
    broken: set[str] = set()
    started = time.monotonic()
    for number, chosen in enumerate(todo, 1):
        if chosen.label in broken:
            continue
        progress(number, len(todo), chosen, time.monotonic() - started)
        # What others left to write, or took of the memory, must not slow this one.
        os.sync()
        memory.release()
        try:
            figures = measure(chosen, data, library)
        except WorkFailed as failure:
            # Once is enough: later rounds would fail in the same way.
            broken.add(chosen.label)
            results.failures.append(f"{chosen.label}: {failure}")
            print(f"\nFAILED {chosen.label}: {failure}", file=sys.stderr)
            continue
        finally:
            memory.hold()
        results.add(chosen.round_number, chosen.body_bytes, chosen.system, figures)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    results.derive_sync_share()
    return results


def progress(number: int, total: int, chosen: Measurement, seconds: float) -> None:
    left = seconds / (number - 1) * (total - number + 1) if number > 1 else 0
    estimate = f", about {left / 60:.0f} min left" if left > 90 else ""
    text = f"[{number}/{total}] round {chosen.round_number + 1}: {chosen.label}{estimate}"
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def command_line(options: argparse.Namespace) -> str:
    """The command without folders, which say nothing to another reader."""
    words = ["python", "tools/bench/run.py"]
    words += ["--quick"] if options.quick else ["--rounds", str(options.rounds)]
    if options.queues != plan.QUEUE_COUNTS:
        words += ["--queues", ",".join(map(str, options.queues))]
    for pattern in options.only:
        words += ["--only", pattern]
    for name in ("json", "rst"):
        if getattr(options, name) is not None:
            words += [f"--{name}", getattr(options, name).name]
    return shlex.join(words)


def build_floor(data: Path) -> str:
    try:
        return str(floor.build(data))
    except floor.FloorUnavailable as reason:
        print(f"raw floor skipped: {reason}", file=sys.stderr)
        return ""


def warn(data: Path, machine: dict[str, str]) -> None:
    if machine["file system"] == "tmpfs":
        print("warning: tmpfs has no disk, a sync there costs nothing; use --dir", file=sys.stderr)
    if float(machine["load at start"]) > 0.5:
        print("warning: the machine is not quiet, figures will suffer", file=sys.stderr)
    if facts.free_gb(data) < DISK_NEEDED_GB:
        print(f"warning: less than {DISK_NEEDED_GB} GB free", file=sys.stderr)


def write_files(options: argparse.Namespace, report: table.Report) -> None:
    if options.json is not None:
        content = {
            "command": report.command,
            "machine": report.facts,
            "versions": report.versions,
            "figures": report.results.to_json(),
            "failures": report.results.failures,
        }
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    if options.rst is not None:
        options.rst.write_text(table.as_rst(report))


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    systems, versions, missing = facts.installed_systems()
    for name in missing:
        print(f"not installed, skipped: {name}", file=sys.stderr)
    data = Path(tempfile.mkdtemp(prefix="qindex-bench-", dir=options.dir))
    try:
        machine = facts.machine_facts(data)
        warn(data, machine)
        library = build_floor(data)
        todo = list(measurements(options, systems, with_floor=bool(library)))
        if options.list:
            print("\n".join(sorted({chosen.label for chosen in todo})))
            return 0
        with WarmMemory(WARM_MIB // 8 if options.quick else WARM_MIB) as memory:
            results = measure_all(todo, data, library, memory)
    except KeyboardInterrupt:
        print("\nstopped; its data are removed", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(data)
    report = table.Report(
        results=results,
        labels=plan.labels(plan.steps(quick=options.quick, queue_counts=options.queues)),
        systems=systems,
        versions=versions,
        missing=missing,
        facts=machine,
        command=command_line(options),
        rounds=1 if options.quick else options.rounds,
        quick=options.quick,
    )
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(table.as_text(report, colour=colour), end="")
    write_files(options, report)
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
