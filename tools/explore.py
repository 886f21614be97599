"""Cuts the power everywhere: before every change of a simulated disk and after every sync.

    python tools/explore.py                          20,000 crash points, two processes
    python tools/explore.py --minutes 30 --jobs 2    for so long
    python tools/explore.py --seed 12 --point 345    the same images again, bit for bit
    python tools/explore.py --mutants                each protocol bug on purpose must be found
    python tools/explore.py --bug delete_not_synced  an engine with this bug: a finding is expected
    python tools/explore.py --program "seed=... ; publish a 40; sync a; cut 17"
    python tools/explore.py --faults --programs 8    every call and allocation of 8 programs fails
    python tools/explore.py --flips 10000            bits and sectors of synced images are damaged

Compiles the engine with the simulated disk and the explorer (c_ext/proof) into build/explore.
A finding is printed with the seed and the point that replay it, and as a shorter program.
Exit code 0: nothing found (with --mutants: every one was); 1: a finding (or one was not); 2: usage.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import layers
from explored import EXPLORED, FOUND_BY_FAULTS, FOUND_BY_FLIPS, FOUND_FROM

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "c_ext"
MUTANT_POINTS = 5_000
SEEDS_PER_JOB = 1_000_000
FLAGS = ["-std=c11", "-O2", "-g", "-UNDEBUG", "-D_DEFAULT_SOURCE", "-pthread", f"-I{CORE}"]

COLOURED = sys.stdout.isatty() and "NO_COLOR" not in os.environ
GREEN, RED, GREY, BOLD = "32", "31", "90", "1"


def paint(colour: str, text: str) -> str:
    return f"\033[{colour}m{text}\033[0m" if COLOURED else text


def sources() -> list[Path]:
    return [*layers.engine(), *beside()]


def beside() -> list[Path]:
    return sorted([*CORE.glob("proof/sim/*.c"), *CORE.glob("proof/explore/*.c")])


def compile_all(compiler: str, flags: Sequence[str], program: Path, folder: Path) -> None:
    """The engine's allocations are counted and can fail, the others' not: two compilations."""
    counted = ["-include", str(CORE / "proof/explore/allocations.h")]
    engine = layers.engine()
    parts = [*((file, counted) for file in engine), *((file, []) for file in beside())]
    for file, more in parts:  # one at a time: ccache keeps what one call compiles
        subprocess.run([compiler, *flags, *more, "-c", str(file)], cwd=folder, check=True)
    objects = [str(folder / f"{file.stem}.o") for file, _ in parts]
    subprocess.run([compiler, *flags, *objects, "-o", str(program)], cwd=folder, check=True)


def build(*, mutants: bool = False) -> Path:
    """Compile the explorer, unless these sources were compiled before; return the program."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise SystemExit("tools/explore.py needs a C compiler (cc)")
    flags = [*FLAGS, *(["-DQI_BUGS"] if mutants else [])]
    digest = hashlib.blake2b(" ".join([compiler, *flags]).encode(), digest_size=8)
    for file in [*sources(), *layers.headers()]:
        digest.update(file.read_bytes())
    program = ROOT / "build" / "explore" / f"explore-{digest.hexdigest()}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        draft = program.with_suffix(f".{os.getpid()}")
        with tempfile.TemporaryDirectory() as folder:
            compile_all(compiler, flags, draft, Path(folder))
        draft.replace(program)
    return program


def mutants() -> list[str]:
    """The names of all protocol bugs in the engine's sources; races are for schedules.py."""
    found: set[str] = set()
    for file in layers.engine():
        found.update(re.findall(r"QI_BUG\((\w+)\)", file.read_text(encoding="utf-8")))
    return sorted(name for name in found if not name.startswith("race_"))


@dataclass
class Run:
    """What one process of the explorer said."""

    counts: dict[str, float] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)  # of --faults and --flips
    code: int = 0


def listen(process: subprocess.Popen[str], run: Run) -> Iterator[Run]:
    """Fill in `run` line by line; yield it whenever the counts changed."""
    assert process.stdout
    for line in process.stdout:
        word, _, rest = line.rstrip().partition(" ")
        if word in ("progress", "done"):
            pairs = (pair.split("=") for pair in rest.split())
            run.counts = {name: float(value) for name, value in pairs}
            yield run
        elif word in ("swept", "calls", "flipped", "most", "refused"):
            for name, value in (pair.split("=") for pair in rest.split()):
                part, _, whole = value.partition("/")
                run.figures[f"{word} {name}"] = int(part)
                run.figures[f"{name} of"] = int(whole or part)
        elif word == "finding":
            run.findings.append(rest)
        elif word == "program":
            run.programs.append(rest)
    run.code = process.wait()


def play(program: Path, arguments: Sequence[object], run: Run | None = None) -> Run:
    """Run the explorer to its end."""
    run = run or Run()
    with subprocess.Popen(
        [str(program), *map(str, arguments)], stdout=subprocess.PIPE, text=True
    ) as process:
        for _ in listen(process, run):
            pass
    return run


def summary(runs: Sequence[Run], seconds: float) -> str:
    total = {
        name: sum(run.counts.get(name, 0) for run in runs)
        for name in ("points", "recoveries", "damages", "programs")
    }
    rate = total["points"] / seconds if seconds else 0
    return (
        f"{total['points']:,.0f} crash points, {total['recoveries']:,.0f} recoveries,"
        f" {total['damages']:,.0f} damaged files, {total['programs']:,.0f} programs;"
        f" {rate:,.0f} points/s"
    )


def show_finding(run: Run, job_arguments: Sequence[object], bug: str | None) -> None:
    tool = "python tools/explore.py" + (f" --bug {bug}" if bug else "")
    for finding, program in zip_longest(run.findings, run.programs, fillvalue=""):
        where = dict(re.findall(r"(seed|point|image)=(\d+)", finding)[:3])
        what = re.sub(r"^seed=\d+ point=\d+ image=\d+ call=", "before ", finding)
        print(f"\n{paint(RED, '✗')} {paint(BOLD, what)}")
        if where.get("seed") not in (None, "0"):
            print(f"  again:   {tool} --seed {where['seed']} --points 1000000")
            print(f"  only it: {tool} --seed {where['seed']}", end=" ")
            print(f"--point {where['point']}")
        if program:
            print("  as a test, to be pasted into tests/crash/test_explorer.py:")
            print(f"    {program}")
    if run.code and (run.code != 1 or not run.findings):
        print(f"{paint(RED, '✗')} the explorer ended with code {run.code}: {job_arguments}")


def explore(options: argparse.Namespace) -> int:
    program = build(mutants=bool(options.bug))
    jobs = 1 if options.point or options.program else options.jobs
    plans: list[list[object]] = []
    for job in range(jobs):
        plan: list[object] = ["--seed", options.seed + job * SEEDS_PER_JOB]
        plan += ["--images", options.images, "--every", options.every, "--shrink"]
        if options.point:
            plan += ["--point", options.point]
        if options.minutes:
            plan += ["--seconds", int(options.minutes * 60)]
        else:
            plan += ["--points", -(-options.points // jobs)]
        if options.program:
            plan += ["--program", options.program]
        if options.bug:
            plan += ["--bug", options.bug]
        plans.append(plan)
    runs = [Run() for _ in plans]
    begin = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [
            pool.submit(play, program, plan, run) for plan, run in zip(plans, runs, strict=True)
        ]
        while COLOURED and not all(job.done() for job in waiting):
            time.sleep(0.2)
            print(f"\r  {summary(runs, time.monotonic() - begin):<100}", end="", flush=True)
    for done in waiting:
        done.result()
    for run, plan in zip(runs, plans, strict=True):
        show_finding(run, plan, options.bug)
    failed = any(run.findings or run.code for run in runs)
    mark = paint(RED, "✗") if failed else paint(GREEN, "✓")
    print(f"{chr(13) if COLOURED else ''}{mark} {summary(runs, time.monotonic() - begin)}")
    return int(failed)


def together(runs: Sequence[Run]) -> Counter[str]:
    """The figures of all runs: sums, but for what is a maximum."""
    total: Counter[str] = Counter()
    for run in runs:
        for name, value in run.figures.items():
            total[name] = max(total[name], value) if name[:4] == "most" else total[name] + value
    return total


FAULTS = {
    "eio": "calls of the disk, EIO",
    "enospc": "calls of the disk, no space",
    "memory": "allocations",
}


def show_faults(figures: Counter[str]) -> None:
    for kind, text in FAULTS.items():
        for times, words in (("once", "once"), ("ever", "for ever")):
            failed, of = figures[f"swept {kind}-{times}"], figures[f"{kind}-{times} of"]
            print(f"  {text + ', ' + words:<40} {failed:>9,} failed, of {of:,}")
    by_phase = [
        f"{name.split()[1]} {count:,}"
        for name, count in figures.most_common()
        if name.startswith("calls ")
    ]
    print(paint(GREY, f"  calls of the disk in: {', '.join(by_phase)}"))


REACHES = ("nothing", "message", "frame", "more", "queue", "store")


def show_flips(figures: Counter[str]) -> None:
    print(f"  {'':<14}{'tried':>10}{'silent':>8}{'wrong':>7}   lost:", end="")
    print("".join(f"{reach:>10}" for reach in REACHES), "  most messages")
    names = {
        "bit": "bits flipped",
        "zeros": "sectors zero",
        "stale": "sectors old",
        "gone": "logs removed",
    }
    for kind, name in names.items():
        counts = [figures[f"flipped {kind}-{word}"] for word in ("tried", "silent", "wrong")]
        print(f"  {name:<14}{counts[0]:>10,}{counts[1]:>8,}{counts[2]:>7,}        ", end="")
        print("".join(f"{figures[f'flipped {kind}-{reach}']:>10,}" for reach in REACHES), end="")
        print(f"   {figures[f'most {kind}-lost']:>12,}")


def sweep(program: Path, options: argparse.Namespace, words: Sequence[object]) -> list[Run]:
    """Runs with --faults or --flips, each job with other programs."""
    plans = [
        ["--seed", options.seed + job * SEEDS_PER_JOB, "--operations", options.operations, *words]
        for job in range(1 if options.program else options.jobs)
    ]
    with ThreadPoolExecutor(len(plans)) as pool:
        return list(pool.map(lambda plan: play(program, plan), plans))


def faults_or_flips(options: argparse.Namespace) -> int:
    jobs = 1 if options.program else options.jobs
    words: list[object] = ["--faults", "--programs", -(-options.programs // jobs)]
    if options.fault:
        words += ["--fault", options.fault]
    if options.flips:
        words = ["--flips", -(-options.flips // jobs)]
    if options.program:
        words += ["--program", options.program]
    if options.bug:
        words += ["--bug", options.bug]
    begin = time.monotonic()
    runs = sweep(build(mutants=bool(options.bug)), options, words)
    for run in runs:
        for finding, program in zip_longest(run.findings, run.programs, fillvalue=""):
            what = re.sub(r"^.*?call=", "", finding)
            fault = re.search(r"fault=(\S+)", finding)
            print(f"{paint(RED, '✗')} {what}")
            again = f" --fault {fault[1]}" if fault else ""
            mode = "--flips 1000" if options.flips else "--faults"
            seed = re.search(r"seed=(\d+)", finding)
            print(f"  again: python tools/explore.py {mode}{again}", end=" ")
            print(f"--jobs 1 --seed {seed[1] if seed else 0} --operations {options.operations}")
            print(paint(GREY, f"  {program}"))
        if run.code and (run.code != 1 or not run.findings):
            print(f"{paint(RED, '✗')} the explorer ended with code {run.code}")
    figures = together(runs)
    (show_flips if options.flips else show_faults)(figures)
    failed = any(run.findings or run.code for run in runs)
    programs = sum(run.counts.get("programs", 0) for run in runs)
    recoveries = sum(run.counts.get("recoveries", 0) for run in runs)
    print(
        f"{paint(RED, '✗') if failed else paint(GREEN, '✓')} {programs:,.0f} programs,"
        f" {recoveries:,.0f} recoveries; {time.monotonic() - begin:.0f} s"
    )
    return int(failed)


def hunt(options: argparse.Namespace) -> int:
    """Each bug must be found, or the one that is named; the engine's sources have them."""
    program, names = build(mutants=True), [options.bug] if options.bug else mutants()
    limit = min(options.points, MUTANT_POINTS)

    by_program = {explored.bug: explored.program for explored in EXPLORED}

    def one(name: str) -> Run:
        seed = FOUND_FROM.get(name, options.seed)
        arguments = ["--bug", name, "--seed", seed, "--points", limit]
        if name in FOUND_BY_FAULTS:
            words = ["--bug", name, "--seed", FOUND_BY_FAULTS[name], "--faults"]
            if name in by_program:
                return play(program, [*words, "--program", by_program[name]])
            return play(program, [*words, "--programs", 8, "--operations", 60])
        if name in FOUND_BY_FLIPS:
            words = ["--bug", name, "--seed", FOUND_BY_FLIPS[name], "--operations", 60]
            return play(program, [*words, "--flips", 1000])
        if name in by_program:
            return play(program, [*arguments, "--images", 12, "--program", by_program[name]])
        return play(program, [*arguments, "--every", options.every])

    missed: list[str] = []
    begin = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        for name, run in zip(names, pool.map(one, names), strict=True):
            points = run.counts.get("points", 0)
            # An engine that died may have died of something else.
            if run.findings and not any("call=signal" in finding for finding in run.findings):
                what = re.sub(r"^.*?operation", "operation", run.findings[0])[:70]
                print(f"  {paint(GREEN, '✓')} {name:<28} {points:>6,.0f}  {paint(GREY, what)}")
            else:
                print(f"  {paint(RED, '✗')} {name:<28} {points:>6,.0f}  not found")
                missed.append(name)
    seconds = time.monotonic() - begin
    mark = paint(RED, "✗") if missed else paint(GREEN, "✓")
    print(
        f"{mark} {len(names) - len(missed)} of {len(names)} bugs found, each within {limit:,}"
        f" points; {seconds:.0f} s"
    )
    return int(bool(missed))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=20_000, help="crash points in all")
    parser.add_argument("--minutes", type=float, default=0, help="instead of a number of points")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--point", type=int, default=0, help="look at this point of the seed alone")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--images", type=int, default=3, help="power cuts per point")
    parser.add_argument("--every", type=int, default=8, help="look at one point in so many")
    parser.add_argument("--program", help="play this text instead of one made from a seed")
    parser.add_argument("--mutants", action="store_true")
    parser.add_argument("--faults", action="store_true", help="each call fails, once and for ever")
    parser.add_argument("--programs", type=int, default=8, help="with --faults")
    parser.add_argument("--operations", type=int, default=60, help="of a program of --faults")
    parser.add_argument("--fault", help="this one alone, as a finding names it")
    parser.add_argument("--flips", type=int, default=0, help="so many damaged places")
    parser.add_argument(
        "--bug", help="in an engine with this bug on purpose; with --mutants: only it"
    )
    options = parser.parse_args(words)
    if options.point or options.program:
        options.every = 1
    if options.bug and options.bug not in mutants():
        parser.error(f"--bug: the engine has no bug on purpose that is called {options.bug!r}")
    if options.faults or options.flips:
        return faults_or_flips(options)
    return hunt(options) if options.mutants else explore(options)


if __name__ == "__main__":
    sys.exit(main())
