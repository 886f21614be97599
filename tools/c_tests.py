"""How the tests in C (tests/c) are built: each with the parts of the core that it is about.

Used by tests/unit/test_messages_c.py and, with counters, by coverage_means.py.
"""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "c_ext"
TESTS = ROOT / "tests" / "c"
FLAGS = ["-std=c11", "-D_DEFAULT_SOURCE", "-g", "-pthread", f"-I{CORE}", f"-I{TESTS}"]
ALLOCATIONS = CORE / "explore" / "allocations.h"
PARTS = ["tape", "frame", "codec", "crc32c", "disk_posix", "error"]


def message_store() -> list[Path]:
    return [
        *sorted(CORE.glob("messages*.c")),
        *sorted(CORE.glob("compact*.c")),
        *(CORE / f"{part}.c" for part in PARTS),
    ]


def simulated_disk() -> list[Path]:
    return [file for file in sorted(CORE.glob("sim/*.c")) if file.name != "sim_store.c"]


def pure() -> list[Path]:
    return [CORE / f"{part}.c" for part in ("frame", "codec", "crc32c", "dump", "error", "walk")]


def real_disk() -> list[Path]:
    return [CORE / "disk_posix.c"]


def engine() -> list[Path]:
    """On a simulated disk; its allocations are counted and can fail."""
    return sorted(CORE.glob("*.c"))


def foreign() -> list[Path]:
    """The readers of other brokers' files; their allocations can fail, too."""
    return sorted(CORE.glob("formats/*.c"))


C_TESTS = {
    "messages": message_store,
    "compact": message_store,
    "message_corners": message_store,
    "births": message_store,
    "disk_sim": simulated_disk,
    "frames": pure,
    "foreign": foreign,
    "disk_posix": real_disk,
    "columns": engine,
    "corners": engine,
    "crafted": engine,
    "journals": engine,
    "readers": engine,
    "rewrites": engine,
    "times": engine,
    "waits": engine,
    "threads": engine,
    "faults": engine,
    "faults_times": engine,
}


def compile_test(
    name: str, compiler: str, flags: Sequence[str], program: Path, core: Sequence[str] = ()
) -> None:
    """Compile a test, its object files beside it; `core` are flags for the engine's files alone.

    Raises CalledProcessError if it does not compile.
    """
    source = TESTS / f"test_{name}.c"
    parts, others = C_TESTS[name](), [source]
    # Functions of the system that the test puts its own in front of.
    text = source.read_text("utf-8")
    wrapped = re.findall(r"^WRAP\([^,]+, (\w+)", text, re.M) + re.findall(r"__wrap_(\w+)\(", text)
    wraps = [f"-Wl,--wrap={name}" for name in sorted(set(wrapped))]
    if C_TESTS[name] in (engine, foreign):
        core = [*core, "-include", str(ALLOCATIONS)]
        others.append(ALLOCATIONS.with_suffix(".c"))
    if C_TESTS[name] is engine:
        others += sorted(CORE.glob("sim/*.c"))
    objects = [str(program.parent / f"{part.stem}.o") for part in parts]
    for command in (
        [compiler, *FLAGS, *flags, *core, "-c", *map(str, parts)],
        [compiler, *FLAGS, *flags, *wraps, *map(str, others), *objects, "-o", str(program)],
    ):
        subprocess.run(command, cwd=program.parent, check=True, capture_output=True, text=True)
