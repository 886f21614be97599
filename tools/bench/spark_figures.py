"""What the benchmarks of Spark share: CPU of a tree of processes, and figures as tables."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import table

REPEATS = 3


class Cost(NamedTuple):
    wall: float  # seconds
    cpu: float  # seconds of all processes
    rows: int

    def rate(self, seconds: float) -> float:
        """Millions of rows in a second."""
        return self.rows / 1e6 / seconds if seconds else 0.0


@dataclass
class Aim:
    """What was meant to be reached, and what was: a row of the verdicts."""

    what: str
    limit: float
    measured: float
    unit: str
    at_least: bool = False
    beside: str = ""  # what bounds it, measured in the same run

    @property
    def cells(self) -> list[str]:
        is_met = self.measured >= self.limit if self.at_least else self.measured <= self.limit
        word = "at least" if self.at_least else "at most"
        return [
            self.what,
            f"{word} {self.limit:g} {self.unit}",
            f"{self.measured:.3g} {self.unit}",
            "met" if is_met else "MISSED",
            self.beside,
        ]


@dataclass
class Figures:
    """Measures, prints each figure at once, and keeps them for a document."""

    sections: dict[str, list[list[str]]] = field(default_factory=dict)

    def begin(self, section: str) -> None:
        header = [section, "wall s", "M rows/s", "CPU s", "M rows/CPU s"]
        self.sections[section] = [header]
        print("\n" + line_of(header), flush=True)

    def add(self, name: str, rows: int, work: Callable[[], object], repeats: int = REPEATS) -> Cost:
        """The repetition with the shortest wall time, and its CPU."""
        best = Cost(float("inf"), 0.0, rows)
        for _ in range(repeats):
            cpu, started = cpu_seconds(), time.perf_counter()
            work()
            best = min(best, Cost(time.perf_counter() - started, cpu_seconds() - cpu, rows))
        cells = [name, f"{best.wall:.2f}", f"{best.rate(best.wall):.2f}"]
        cells += [f"{best.cpu:.2f}", f"{best.rate(best.cpu):.2f}"]
        self.sections[list(self.sections)[-1]].append(cells)
        print(line_of(cells), flush=True)
        return best

    def tell(self, title: str, rows: Sequence[Sequence[str]]) -> None:
        """A table that was made elsewhere."""
        self.sections[title] = [list(row) for row in rows]
        print()
        for line in table.align(self.sections[title]):
            print("  " + line, flush=True)


def line_of(cells: Sequence[str]) -> str:
    return f"  {cells[0]:44}" + "".join(f"{cell:>13}" for cell in cells[1:])


def as_rst(
    title: str, about: str, facts: Mapping[str, str], sections: Mapping[str, list[list[str]]]
) -> str:
    """`facts`: of the machine, from before the run."""
    parts = [title, "=" * len(title), "", about.strip(), ""]
    parts += [f":{name}: {value}" for name, value in facts.items()]
    for name, rows in sections.items():
        parts += ["", *table.rst_section(name), *table.rst_table([["", *rows[0][1:]], *rows[1:]])]
    return "\n".join(parts) + "\n"


def keep_orphans() -> None:
    """Processes whose parent ends become children of this one, so that cpu_seconds() has them."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def cpu_seconds() -> float:
    """Of this process and of all that it started, living and dead; see keep_orphans()."""
    ticks: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            ticks[int(folder.name)] = sum(map(int, fields[11:15]))
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    total, left = 0.0, [os.getpid()]
    while left:
        process = left.pop()
        total += ticks.get(process, 0)
        left += children.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")
