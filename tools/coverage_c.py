"""Lines and branches of the C core that ran: gcov over the explorer and, if wanted, the tests.

Used by proof.py. The core is compiled with --coverage into temporary folders, without asserts: what
cannot happen has no branch. What is left uncovered is printed by line; nothing is left out of the
sums but the explorer, the simulated disk and the part that knows Python.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import explore

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["--coverage", "-O0", "-DNDEBUG"]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "*.so", "__pycache__", ".*_cache", ".hypothesis"
)


@dataclass
class File:
    lines: dict[int, int] = field(default_factory=dict)
    branches: dict[tuple[int, int], int] = field(default_factory=dict)  # of a line, the n-th


@dataclass(frozen=True)
class Share:
    covered: int
    of: int

    def __str__(self) -> str:
        percent = 100 * self.covered / self.of if self.of else 100
        return f"{percent:.1f} % ({self.covered:,} of {self.of:,})"


def build() -> tuple[Path, Path]:
    """The explorer with counters: the program, and the folder of its objects."""
    folder = Path(tempfile.mkdtemp(prefix="qindex-coverage-"))
    compiler = shutil.which(os.environ.get("CC", "gcc")) or "gcc"
    flags = [flag for flag in explore.FLAGS if flag not in ("-O2", "-UNDEBUG")] + FLAGS
    program = folder / "explore"
    explore.compile_all(compiler, flags, program, folder)
    return program, folder


def run_suite() -> Path:
    """Run tests on a copy of the tree, its core built with counters; the folder of the objects."""
    folder = Path(tempfile.mkdtemp(prefix="qindex-coverage-"))
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT, dirs_exist_ok=True)
    environment = os.environ | {"QINDEX_CFLAGS": " ".join(FLAGS), "QINDEX_LDFLAGS": "--coverage"}
    setup = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(setup, cwd=folder, env=environment, check=True, capture_output=True)
    tests = ["-m", "pytest", "-q", "-x", "tests/unit", "tests/compat", "-p", "no:cacheprovider"]
    left_out = ["-k", "not bench and not shape and not torture and not demo"]
    subprocess.run([sys.executable, *tests, *left_out], cwd=folder, capture_output=True)
    return folder


def read(notes: Path, files: dict[str, File]) -> None:
    """Add what one object file's counters say."""
    gcov = ["gcov", "--json-format", "--stdout", "--branch-probabilities", str(notes)]
    done = subprocess.run(gcov, cwd=notes.parent, capture_output=True, text=True)
    for text in done.stdout.splitlines():
        for entry in json.loads(text)["files"]:
            name = Path(entry["file"])
            if name.suffix != ".c" or name.parent.name != "c_ext":
                continue
            file = files.setdefault(name.name, File())
            for line in entry["lines"]:
                number = line["line_number"]
                file.lines[number] = file.lines.get(number, 0) + line["count"]
                for index, branch in enumerate(line["branches"]):
                    key = (number, index)
                    file.branches[key] = file.branches.get(key, 0) + branch["count"]


def measure(folders: Sequence[Path]) -> dict[str, File]:
    """What ran in any of the folders, by file of the core; removes the folders."""
    files: dict[str, File] = {}
    for folder in folders:
        for notes in sorted(folder.glob("**/*.gcno")):
            read(notes, files)
        shutil.rmtree(folder)
    return files


def share(counts: dict[int, int] | dict[tuple[int, int], int]) -> Share:
    return Share(sum(count > 0 for count in counts.values()), len(counts))


def total(files: dict[str, File]) -> tuple[Share, Share]:
    lines, branches = [], []
    for file in files.values():
        lines.append(share(file.lines))
        branches.append(share(file.branches))
    return (
        Share(sum(part.covered for part in lines), sum(part.of for part in lines)),
        Share(sum(part.covered for part in branches), sum(part.of for part in branches)),
    )


def table(files: dict[str, File]) -> str:
    """One line per file: lines, branches, and which lines never ran."""
    text = f"    {'file':<22}{'lines':>24}{'branches':>26}   lines that never ran\n"
    for name, file in sorted(files.items()):
        never = [str(number) for number, count in sorted(file.lines.items()) if count == 0]
        shown = " ".join(never[:8]) + (f" and {len(never) - 8} more" if len(never) > 8 else "")
        line = f"    {name:<22}{share(file.lines)!s:>24}{share(file.branches)!s:>26}   {shown}"
        text += line.rstrip() + "\n"
    return text
