"""Lines and branches of the C core that the project's own means reach together, by gcov.

    python tools/coverage_c.py                        every means, then one table; some minutes
    python tools/coverage_c.py --means corpus c       only these of: explorer suite c corpus
    python tools/coverage_c.py --untaken              also prints each branch that nobody took
    python tools/coverage_c.py --work DIR             keeps what each means said there; one that has
                                                      a file of this core there is not run again

Counted is all of c_ext but what serves tests only (proof). Each means compiles it
with --coverage into a temporary folder, without optimization, so that a branch is one of the
source, and without asserts: what cannot happen has no branch. What the compiler adds is not
counted: gcov calls it "throw", or unconditional, or the way back from a call that might not return.
A ``__builtin_expect`` is the condition inside it, once.

Branches that nothing can take are in coverage_c.txt, each with its reason. Exit code 0: every
branch was taken, or is in that list; 1: one was not and is not, or a branch in the list was taken
or is no more, or a means failed. With fewer means, only figures are told.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import coverage_means
import layers

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "c_ext"
EXCEPTIONS = Path(__file__).with_suffix(".txt")
LISTED_MAX = 0.01  # of all branches


class Place(NamedTuple):
    """A branch, by what survives an edit elsewhere: the n-th of a line with this text."""

    file: str
    function: str
    branch: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}: {self.function}: {self.branch}: {self.text}"


@dataclass
class Line:
    function: str
    count: int = 0
    branches: list[int] = field(default_factory=list)


File = dict[int, Line]  # by the number of the line


@dataclass(frozen=True)
class Share:
    covered: int
    of: int

    def __str__(self) -> str:
        percent = 100 * self.covered / self.of if self.of else 100
        return f"{percent:.1f} % ({self.covered:,} of {self.of:,})"


# ---- from counters to files ----


def is_core(path: Path) -> bool:
    return path.suffix in (".c", ".h") and layers.folder(path) not in ("", "proof", "amqp")


def add_line(file: File, entry: dict[str, Any]) -> None:
    counts = [branch["count"] for branch in entry["branches"] if not branch["throw"]]
    line = file.setdefault(entry["line_number"], Line(entry.get("function_name", "")))
    line.count += entry["count"]
    if not line.branches:
        line.branches = counts
    elif len(line.branches) == len(counts):
        line.branches = [old + new for old, new in zip(line.branches, counts, strict=True)]
    else:
        raise SystemExit(f"coverage_c: {line.function}: compiled in two ways")


def read(notes: Path, files: dict[str, File]) -> None:
    """Add what one object file's counters say."""
    gcov = ["gcov", "--json-format", "--stdout", "--branch-probabilities", str(notes)]
    done = subprocess.run(gcov, cwd=notes.parent, capture_output=True, text=True)
    for text in done.stdout.splitlines():
        for entry in json.loads(text)["files"]:
            path = Path(entry["file"])
            if is_core(path):
                for line in entry["lines"]:
                    add_line(files.setdefault(path.name, {}), line)


def measure(folders: Iterable[Path]) -> dict[str, File]:
    """What ran in any of the folders, by file of the core; removes the folders."""
    files: dict[str, File] = {}
    for folder in folders:
        for notes in sorted(folder.glob("**/*.gcno")):
            read(notes, files)
        shutil.rmtree(folder)
    return files


def merge(files: dict[str, File], more: dict[str, File]) -> None:
    for name, lines in more.items():
        for number, line in lines.items():
            entry = {
                "line_number": number,
                "function_name": line.function,
                "count": line.count,
                "branches": [{"count": count, "throw": False} for count in line.branches],
            }
            add_line(files.setdefault(name, {}), entry)


# ---- what was not taken ----


def sources() -> dict[str, list[str]]:
    paths = [path for path in CORE.glob("**/*.[ch]") if is_core(path)]
    return {path.name: path.read_text(encoding="utf-8").splitlines() for path in paths}


def untaken(files: dict[str, File]) -> Iterator[tuple[int, Place]]:
    """Each branch that nobody took, with the number of its line."""
    texts = sources()
    for name, lines in sorted(files.items()):
        for number, line in sorted(lines.items()):
            text = " ".join(texts[name][number - 1].split())
            for index, count in enumerate(line.branches):
                if count == 0:
                    yield number, Place(name, line.function, index, text)


def read_exceptions(text: str) -> Counter[Place]:
    """Blocks: lines ``file: function: branch: source``, then the reason for them, indented."""
    found: Counter[Place] = Counter()
    waiting = False  # for a reason
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if line[0] == " ":
            waiting = False
            continue
        parts = line.split(": ", 3)
        if len(parts) != 4 or not parts[2].isdigit():
            raise SystemExit(f"{EXCEPTIONS.name}:{number}: not 'file: function: branch: source'")
        found[Place(parts[0], parts[1], int(parts[2]), parts[3])] += 1
        waiting = True
    if waiting:
        raise SystemExit(f"{EXCEPTIONS.name}: the last branches have no reason")
    return found


def compare(files: dict[str, File], listed: Counter[Place]) -> list[str]:
    """What is wrong between what was not taken and the list of what cannot be."""
    missing = Counter(place for _, place in untaken(files))
    numbers = {place: number for number, place in untaken(files)}
    wrong = [
        f"{place.file}:{numbers[place]}: branch {place.branch} was not taken: {place.text}"
        for place in sorted((missing - listed).elements(), key=lambda p: (p.file, numbers[p]))
    ]
    wrong += [f"{EXCEPTIONS.name}: taken, or no more: {place}" for place in listed - missing]
    branches = total(files)[1].of
    if listed.total() > LISTED_MAX * branches:
        wrong.append(f"{EXCEPTIONS.name}: {listed.total()} of {branches} branches are too many")
    return wrong


# ---- figures ----


def total(files: dict[str, File]) -> tuple[Share, Share]:
    """Lines and branches."""
    lines = [line for file in files.values() for line in file.values()]
    counts = [count for line in lines for count in line.branches]
    return (
        Share(sum(line.count > 0 for line in lines), len(lines)),
        Share(sum(count > 0 for count in counts), len(counts)),
    )


def table(files: dict[str, File]) -> str:
    """One line per file: lines, branches, and which lines never ran."""
    text = f"    {'file':<22}{'lines':>24}{'branches':>26}   lines that never ran\n"
    for name, file in [*sorted(files.items()), ("all", {})]:
        lines, branches = total({name: file} if file else files)
        never = [str(number) for number, line in sorted(file.items()) if line.count == 0]
        shown = " ".join(never[:8]) + (f" and {len(never) - 8} more" if len(never) > 8 else "")
        text += f"    {name:<22}{lines!s:>24}{branches!s:>26}   {shown}".rstrip() + "\n"
    return text


# ---- the means ----


def fingerprint() -> str:
    """Of the core's sources: figures of others are of other lines."""
    digest = hashlib.blake2b(digest_size=8)
    for name, lines in sorted(sources().items()):
        digest.update("\n".join([name, *lines]).encode())
    return digest.hexdigest()


def run_means(name: str, work: Path | None = None) -> tuple[dict[str, File], str]:
    """What this means reaches, and what failed in it."""
    kept = work / f"{name}.json" if work else None
    if kept and kept.exists():
        said = json.loads(kept.read_text(encoding="utf-8"))
        if said["sources"] == fingerprint():
            return {
                file: {int(number): Line(*line) for number, line in lines.items()}
                for file, lines in said["files"].items()
            }, ""
    ran = coverage_means.MEANS[name]()
    files = measure([ran.folder])
    if kept and not ran.failed:
        kept.parent.mkdir(parents=True, exist_ok=True)
        plain = {
            file: {
                number: [line.function, line.count, line.branches] for number, line in lines.items()
            }
            for file, lines in files.items()
        }
        said = {"sources": fingerprint(), "files": plain}
        kept.write_text(json.dumps(said), encoding="utf-8")
    return files, ran.failed


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = list(coverage_means.MEANS)
    parser.add_argument("--means", nargs="+", choices=every, default=every)
    parser.add_argument("--untaken", action="store_true")
    parser.add_argument("--work", type=Path, metavar="DIR")
    options = parser.parse_args(words)
    files: dict[str, File] = {}
    failed = False
    for name in options.means:
        begin = time.monotonic()
        more, why = run_means(name, options.work)
        merge(files, more)
        lines, branches = total(more)
        print(f"{name:<10} lines {lines}, branches {branches}; {time.monotonic() - begin:.0f} s")
        if why:
            print(f"{name}: FAILED\n{why}")
            failed = True
        sys.stdout.flush()
    print(table(files), end="")
    if options.untaken:
        for number, place in untaken(files):
            print(f"{place.file}:{number}: {place.function}: {place.branch}: {place.text}")
    if len(options.means) < len(every):
        return int(failed)
    wrong = compare(files, read_exceptions(EXCEPTIONS.read_text(encoding="utf-8")))
    print("\n".join(wrong) or "every branch was taken, or is listed with its reason")
    return int(failed or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
