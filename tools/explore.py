"""Cuts the power everywhere: before every change of a simulated disk and after every sync.

    python tools/explore.py                          20,000 crash points, two processes
    python tools/explore.py --minutes 30 --jobs 2    for so long
    python tools/explore.py --seed 12 --point 345    the same images again, bit for bit
    python tools/explore.py --mutants                each protocol bug on purpose must be found
    python tools/explore.py --program "seed=... ; publish a 40; sync a; cut 17"

Compiles the engine with the simulated disk and the explorer (c_ext/explore) into build/explore. A
finding is printed with the seed and the point that replay it, and as a shorter program.
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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from explored import EXPLORED

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
    files = [*CORE.glob("*.c"), *CORE.glob("sim/*.c"), *CORE.glob("explore/*.c")]
    return sorted(file for file in files if file.name != "python_calls.c")  # needs an interpreter


def compile_all(compiler: str, flags: Sequence[str], program: Path) -> None:
    """The engine's allocations are counted and can fail, the others' not: two compilations."""
    counted = ["-include", str(CORE / "explore" / "allocations.h")]
    engine = [file for file in sources() if file.parent == CORE]
    others = [str(file) for file in sources() if file.parent != CORE]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [compiler, *flags, *counted, "-c", *map(str, engine)], cwd=folder, check=True
        )
        objects = [str(Path(folder, f"{file.stem}.o")) for file in engine]
        subprocess.run([compiler, *flags, *others, *objects, "-o", str(program)], check=True)


def build(*, mutants: bool = False) -> Path:
    """Compile the explorer, unless these sources were compiled before; return the program."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise SystemExit("tools/explore.py needs a C compiler (cc)")
    flags = [*FLAGS, *(["-DQI_BUGS"] if mutants else [])]
    digest = hashlib.blake2b(" ".join([compiler, *flags]).encode(), digest_size=8)
    for file in [*sources(), *sorted(CORE.glob("**/*.h"))]:
        digest.update(file.read_bytes())
    program = ROOT / "build" / "explore" / f"explore-{digest.hexdigest()}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        draft = program.with_suffix(f".{os.getpid()}")
        compile_all(compiler, flags, draft)
        draft.replace(program)
    return program


def mutants() -> list[str]:
    """The names of all protocol bugs in the engine's sources."""
    found: set[str] = set()
    for file in CORE.glob("*.c"):
        found.update(re.findall(r"QI_BUG\((\w+)\)", file.read_text(encoding="utf-8")))
    return sorted(found)


@dataclass
class Run:
    """What one process of the explorer said."""

    counts: dict[str, float] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)
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


def show_finding(run: Run, job_arguments: Sequence[object]) -> None:
    for finding, program in zip(
        run.findings, [*run.programs, *[""] * len(run.findings)], strict=False
    ):
        where = dict(re.findall(r"(seed|point|image)=(\d+)", finding)[:3])
        what = re.sub(r"^seed=\d+ point=\d+ image=\d+ call=", "before ", finding)
        print(f"\n{paint(RED, '✗')} {paint(BOLD, what)}")
        if where.get("seed") not in (None, "0"):
            print(f"  again:   python tools/explore.py --seed {where['seed']} --points 1000000")
            print(f"  only it: python tools/explore.py --seed {where['seed']}", end=" ")
            print(f"--point {where['point']}")
        if program:
            print("  as a test, to be pasted into tests/crash/test_explorer.py:")
            print(f"    {program}")
    if run.code and not run.findings:
        print(f"{paint(RED, '✗')} the explorer ended with code {run.code}: {job_arguments}")


def explore(options: argparse.Namespace) -> int:
    program = build()
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
        show_finding(run, plan)
    failed = any(run.findings or run.code for run in runs)
    mark = paint(RED, "✗") if failed else paint(GREEN, "✓")
    print(f"{chr(13) if COLOURED else ''}{mark} {summary(runs, time.monotonic() - begin)}")
    return int(failed)


def hunt(options: argparse.Namespace) -> int:
    """Each bug must be found; which ones is in the engine's sources."""
    program, names = build(mutants=True), mutants()
    limit = min(options.points, MUTANT_POINTS)

    by_program = {explored.bug: explored.program for explored in EXPLORED}

    def one(name: str) -> Run:
        arguments = ["--bug", name, "--seed", options.seed, "--points", limit]
        if name in by_program:
            return play(program, [*arguments, "--images", 12, "--program", by_program[name]])
        return play(program, [*arguments, "--every", options.every])

    missed = []
    begin = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        for name, run in zip(names, pool.map(one, names), strict=True):
            points = run.counts.get("points", 0)
            if run.findings:
                what = re.sub(r"^.*?(operation|signal)", r"\1", run.findings[0])[:70]
                print(f"  {paint(GREEN, '✓')} {name:<28} {points:>6,.0f}  {paint(GREY, what)}")
            else:
                print(f"  {paint(RED, '✗')} {name:<28} {points:>6,.0f}  not found")
                missed.append(name)
    seconds = time.monotonic() - begin
    found = len(names) - len(missed)
    mark = paint(RED, "✗") if missed else paint(GREEN, "✓")
    print(
        f"{mark} {found} of {len(names)} bugs found, each within {limit:,} points; {seconds:.0f} s"
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
    options = parser.parse_args(words)
    if options.point or options.program:
        options.every = 1
    return hunt(options) if options.mutants else explore(options)


if __name__ == "__main__":
    sys.exit(main())
