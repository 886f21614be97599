"""What runs the C core to have it counted: the project's own means, each compiled with --coverage.

Each returns the folder of its object files, whose counters coverage_c.py reads, and what failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import c_tests
import explore
import fuzz
import layers

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "c_ext"
FUZZ = ROOT / "tests" / "fuzz"
# Each process adds its counters to the files when it ends; one that is killed counts nothing.
FLAGS = ["--coverage", "-O0", "-DNDEBUG"]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "*.so", "__pycache__", ".*_cache", ".hypothesis"
)
# These compile the core themselves (and are means of their own here), look at sources, or measure.
OTHER_TESTS = " and ".join(
    f"not {name}"
    for name in ("explorer", "corpus", "messages_c", "shape", "bench", "torture", "limits")
)


class Ran(NamedTuple):
    folder: Path
    failed: str = ""


def temporary() -> Path:
    return Path(tempfile.mkdtemp(prefix="qindex-coverage-"))


def compiler() -> str:
    return shutil.which(os.environ.get("CC", "gcc")) or "gcc"


# ---- explorer ----

POWER_CUTS = ["--points", 3000, "--every", 8, "--images", 3]
FAULTS = ["--faults", "--programs", 2, "--operations", 60]
FLIPS = ["--flips", 2000, "--operations", 60]


def explorer() -> Ran:
    """Power cuts, every fault of some programs, flipped bits."""
    folder = temporary()
    flags = [flag for flag in explore.FLAGS if flag not in ("-O2", "-UNDEBUG")]
    program = folder / "explore"
    explore.compile_all(compiler(), [*flags, *FLAGS], program, folder)
    failed = ""
    for words in (POWER_CUTS, FAULTS, FLIPS):
        run = explore.play(program, ["--seed", 1, *words])
        if run.findings or run.code:
            failed += f"{words[0]}: {run.findings or run.code}\n"
    return Ran(folder, failed)


# ---- suite ----


def suite() -> Ran:
    """All tests of pytest that use the extension module."""
    folder = temporary()
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT, dirs_exist_ok=True)
    environment = os.environ | {"QINDEX_CFLAGS": " ".join(FLAGS), "QINDEX_LDFLAGS": "--coverage"}
    setup = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(setup, cwd=folder, env=environment, check=True, capture_output=True)
    # Hypothesis: the same examples each time.
    tests = [sys.executable, "-m", "pytest", "-q", "--hypothesis-profile=ci", "--color=no"]
    tests += ["-p", "no:cacheprovider"]
    done = subprocess.run([*tests, "-k", OTHER_TESTS], cwd=folder, capture_output=True, text=True)
    return Ran(folder, done.stdout[-4000:] if done.returncode else "")


# ---- tests in C ----


def in_c() -> Ran:
    """The tests in C, each with the parts of the core that it is about."""
    folder, failed = temporary(), ""
    for name in c_tests.C_TESTS:
        data = folder / f"data_{name}"
        data.mkdir()
        program = c_tests.compile_test(name, compiler(), ["--coverage", "-O0"], folder, FLAGS)
        done = subprocess.run([program, data], capture_output=True, text=True)
        if done.returncode:
            failed += f"{name}: {done.stderr[-1000:]}\n"
    return Ran(folder, failed)


# ---- corpus ----


def corpus() -> Ran:
    """What the fuzzer kept, opened once more; its disk in memory stands for disk/posix.c."""
    folder, failed = temporary(), ""
    flags = [flag for flag in fuzz.FLAGS if flag != "-UNDEBUG"]
    flags += [*FLAGS, "-DSTANDALONE", "-DLIMIT_SECONDS=10.0", f"-I{CORE}", f"-I{FUZZ}"]
    store = [file for file in layers.engine() if file.name not in fuzz.LEFT_OUT]
    store += [FUZZ / name for name in fuzz.HARNESS]
    foreign = [*CORE.glob("foreign/*.c"), FUZZ / "fuzz_foreign.c"]
    for name, inputs, sources in (("store", "store", store), ("foreign", "formats", foreign)):
        own = folder / name
        own.mkdir()
        command = [compiler(), *flags, *map(str, sources), "-o", str(own / "fuzz")]
        subprocess.run(command, cwd=own, check=True)
        words = [own / "fuzz", *sorted((FUZZ / "corpus" / inputs).iterdir())]
        done = subprocess.run(words, capture_output=True, text=True)
        failed += f"{name}: {done.stderr[-1000:]}\n" if done.returncode else ""
    return Ran(folder, failed)


MEANS: dict[str, Callable[[], Ran]] = {
    "explorer": explorer,
    "suite": suite,
    "c": in_c,
    "corpus": corpus,
}
