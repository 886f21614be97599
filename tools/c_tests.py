"""The tests in C (tests/c): each is built with the parts of the core that it is about, and run.

    python tools/c_tests.py                  all of them, one after the other; some minutes
    python tools/c_tests.py faults times     these

They have asserts, and ASan and UBSan where the compiler has them. The core is compiled once for all
tests of a run. tests/rooms.py runs this beside the tests in Python, with --json: a line for each as
soon as it has ended; coverage_means.py builds them with counters. Exit code 0: all passed; 1: not;
2: it could not begin.
"""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import layers

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "c_ext"
TESTS = ROOT / "tests" / "c"
FLAGS = ["-std=c11", "-D_DEFAULT_SOURCE", "-g", "-pthread", f"-I{CORE}", f"-I{TESTS}"]
ALLOCATIONS = CORE / "proof/explore/allocations.h"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SECONDS_MAX = 900  # of one test
PARTS = [
    "disk/tape",
    "base/frame",
    "base/codec",
    "base/crc32c",
    "disk/limits",
    "disk/pieces",
    "disk/posix",
    "disk/spare",
    "base/error",
    "base/memory",
]


def message_store() -> list[Path]:
    return [*sorted(CORE.glob("bodies/*.c")), *(CORE / f"{part}.c" for part in PARTS)]


def simulated_disk() -> list[Path]:
    return [file for file in sorted(CORE.glob("proof/sim/*.c")) if file.name != "sim_store.c"]


def pure() -> list[Path]:
    parts = ["base/frame", "base/codec", "base/crc32c", "base/error"]
    return [CORE / f"{part}.c" for part in parts]


def real_disk() -> list[Path]:
    return [CORE / f"disk/{part}.c" for part in ("limits", "pieces", "posix", "spare")]


def tapes() -> list[Path]:
    return [CORE / "disk/tape.c", *real_disk()]


def engine() -> list[Path]:
    """On a simulated disk; its allocations are counted and can fail."""
    return layers.engine()


def foreign() -> list[Path]:
    """The readers of other brokers' files; their allocations can fail, too."""
    return sorted(CORE.glob("foreign/*.c"))


C_TESTS = {
    "messages": message_store,
    "batches": message_store,
    "compact": message_store,
    "message_corners": message_store,
    "births": message_store,
    "blanks": message_store,
    "disk_sim": simulated_disk,
    "frames": pure,
    "foreign": foreign,
    "disk_posix": real_disk,
    "pieces": real_disk,
    "tape": tapes,
    "bounds": engine,
    "columns": engine,
    "index_files": engine,
    "corners": engine,
    "crafted": engine,
    "commits": engine,
    "data": engine,
    "journals": engine,
    "readers": engine,
    "reopen": engine,
    "rewrites": engine,
    "timers": engine,
    "times": engine,
    "waits": engine,
    "clock": engine,
    "strange": engine,
    "threads": engine,
    "turns": engine,
    "schedules": engine,
    "worker": engine,
    "faults": engine,
    "faults_times": engine,
}
LONG = {"compact", "faults", "faults_times", "schedules"}  # they search for long


def objects(
    files: Sequence[Path], command: Sequence[str], folder: Path, *, counted: bool
) -> list[str]:
    """The object files of these, in `folder`; what an earlier test has compiled is taken.

    `counted`: their allocations are counted and can fail.
    """
    found: dict[Path, list[Path]] = {}
    for file in files:
        place = folder / ("counted" if counted else "plain") / file.parent.name
        found.setdefault(place, []).append(file)
    made: list[str] = []
    for place, sources in found.items():
        place.mkdir(parents=True, exist_ok=True)
        names = [place / f"{file.stem}.o" for file in sources]
        missing = [
            str(file) for file, name in zip(sources, names, strict=True) if not name.exists()
        ]
        if missing:
            more = ["-include", str(ALLOCATIONS)] if counted else []
            for file in missing:  # one at a time: ccache keeps what one call compiles
                words = [*command, *more, "-c", file]
                subprocess.run(words, cwd=place, check=True, capture_output=True, text=True)
        made += map(str, names)
    return made


def with_headers(source: Path) -> str:
    """The text of a test, and of the tests' headers that it includes."""
    text = source.read_text("utf-8")
    names = re.findall(r'^#include "(\w+\.h)"', text, re.M)
    return text + "".join(with_headers(TESTS / name) for name in names if (TESTS / name).exists())


def compile_test(
    name: str, compiler: str, flags: Sequence[str], folder: Path, core: Sequence[str] = ()
) -> Path:
    """Compile a test; the same folder keeps the objects of the core for the next one.

    `core` are flags for the engine's files alone. Raises CalledProcessError.
    """
    source, program = TESTS / f"test_{name}.c", folder / f"test_{name}"
    parts, others = C_TESTS[name](), [source]
    text = with_headers(source)
    # Functions of the system that the test puts its own in front of.
    wrapped = re.findall(r"^WRAP\([^,]+, (\w+)", text, re.M) + re.findall(r"__wrap_(\w+)\(", text)
    wraps = [f"-Wl,--wrap={name}" for name in sorted(set(wrapped))]
    command, counted = [compiler, *FLAGS, *flags], C_TESTS[name] in (engine, foreign)
    made = objects(parts, [*command, *core], folder, counted=counted)
    if counted:
        others.append(ALLOCATIONS.with_suffix(".c"))
    if C_TESTS[name] is engine:
        made += objects(sorted(CORE.glob("proof/sim/*.c")), command, folder, counted=False)
    words = [*command, *wraps, *map(str, others), *made, "-o", str(program)]
    subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
    return program


# ---- all of them ----


class Outcome(NamedTuple):
    """How a test ended; `code` is not 0 if it does not compile, too."""

    name: str
    code: int
    out: str
    err: str


def compiler() -> str | None:
    """A compiler for C, if there is one."""
    candidates = ["cc", *shlex.split(sysconfig.get_config_var("CC") or "")[:1]]
    return next(filter(None, map(shutil.which, candidates)), None)


def sanitizers(cc: str, folder: Path) -> list[str]:
    """The sanitizers' flags, if a program that uses them builds and runs."""
    source, program = folder / "empty.c", folder / "empty"
    source.write_text("int main(void) { return 0; }\n")
    try:
        subprocess.run([cc, *SANITIZERS, source, "-o", program], check=True, capture_output=True)
        subprocess.run([program], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        return []
    return SANITIZERS


def run(name: str, cc: str, flags: Sequence[str], folder: Path) -> Outcome:
    """Compile a test and run it."""
    data = folder / f"data_{name}"
    data.mkdir()
    try:
        program = compile_test(name, cc, flags, folder)
        ran = subprocess.run([program, data], capture_output=True, text=True, timeout=SECONDS_MAX)
    except subprocess.CalledProcessError as failed:
        return Outcome(name, failed.returncode, failed.stdout, failed.stderr)
    except subprocess.TimeoutExpired as late:
        return Outcome(name, 1, "", str(late))
    return Outcome(name, ran.returncode, ran.stdout, ran.stderr)


def run_all(names: Sequence[str], cc: str) -> Iterator[Outcome]:
    """Compile and run these, one after the other."""
    with tempfile.TemporaryDirectory(prefix="qindex-c-tests-") as made:
        folder = Path(made)
        # Optimising takes longer than the short tests take without it.
        level = "-O1" if LONG & set(names) else "-O0"
        flags = [level, "-UNDEBUG", *sanitizers(cc, folder)]
        for name in names:
            yield run(name, cc, flags, folder)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(C_TESTS))
    parser.add_argument("--json", action="store_true", help="each outcome as a line of JSON")
    options = parser.parse_args()
    cc = compiler()
    if cc is None:
        parser.error("there is no C compiler")
    for name in options.names:
        if name not in C_TESTS:
            parser.error(f"there is no {name}; there are {', '.join(C_TESTS)}")
    failed, begin = 0, time.monotonic()
    for outcome in run_all(options.names or [*C_TESTS], cc):
        passed = outcome.code == 0
        failed += not passed
        if options.json:
            print(json.dumps(outcome), flush=True)
            continue
        seconds, begin = time.monotonic() - begin, time.monotonic()
        print(f"{outcome.name:<16} {'passed' if passed else 'FAILED'} {seconds:6.1f} s", flush=True)
        if not passed:
            print(outcome.out + outcome.err)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
