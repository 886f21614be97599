"""qindex.compat.queuelib beside queuelib's own disk queues, through queuelib's interface.

    python tools/bench/queuelib_queues.py --dir DIR              a table
    python tools/bench/queuelib_queues.py --dir DIR --write      it goes into QUEUELIB.rst

In each round each kind of queue does each work once, in a fresh folder; the best round counts,
since others who use the machine only make things slower. Rates are of calls, by the clock; in
brackets is the CPU time of a call, of all threads. A PriorityQueue and a RoundRobinQueue open eight
queues and close each when it is empty, and that is counted; what it takes is in the column `open,
close`, with another queue open in the folder. What a kill -9 leaves was tried.
"""

import argparse
import contextlib
import importlib
import importlib.metadata
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import table
from facts import machine_facts

RESULTS = Path(__file__).with_name("QUEUELIB.rst")
WAITING = 1000  # while one is pushed and one popped, in turns
QUEUES = 8  # in a PriorityQueue, a RoundRobinQueue
KILLED = 200  # pushed, then the process is killed
SLOW = 200  # a commit or a rewritten file for each call: so many times fewer calls
OPENED = 20  # queues, one after the other


@dataclass(frozen=True)
class Kind:
    """Queues: where their class is, and whether their calls are slow."""

    name: str
    module: str
    suffix: str
    is_slow: bool = False

    def open(self, order: str, path: Path) -> Any:
        return getattr(importlib.import_module(self.module), order + self.suffix)(str(path))


KINDS = [
    Kind("qindex", "qindex.compat.queuelib", "DiskQueue"),
    Kind("queuelib, files", "queuelib.queue", "DiskQueue"),
    Kind("queuelib, files, saved", "queuelib_queues", "SavedQueue", is_slow=True),
    Kind("queuelib, SQLite", "queuelib.queue", "SQLiteQueue", is_slow=True),
]


class FifoSavedQueue:
    """FifoDiskQueue with its positions saved by each call: what it takes to survive a kill."""

    def __init__(self, path: str) -> None:
        self._queue = importlib.import_module("queuelib").FifoDiskQueue(path)
        self.close, self.peek = self._queue.close, self._queue.peek

    def push(self, body: bytes) -> None:
        self._queue.push(body)
        self._queue._saveinfo(self._queue.info)

    def pop(self) -> Any:
        body = self._queue.pop()
        self._queue._saveinfo(self._queue.info)
        return body

    def __len__(self) -> int:
        return len(self._queue)


# --- works --------------------------------------------------------------------------------------

OPENING = "open, close"
Work = Iterator[tuple[str, int, Callable[[], object]]]  # what, how many calls, the calls


def times(count: int, *calls: Callable[[], object]) -> Callable[[], None]:
    def work() -> None:
        for _ in range(count):
            for call in calls:
                call()

    return work


def alone(kind: Kind, order: str, folder: Path, body: bytes, count: int) -> Work:
    queue = kind.open(order, folder / "alone")
    push = lambda: queue.push(body)  # noqa: E731 - called in a loop, so it must be small
    yield "push", count, times(count, push)
    yield "pop", count, times(count, queue.pop)
    times(WAITING if not kind.is_slow else 10, push)()
    yield "push, pop in turns", count, times(count // 2, push, queue.pop)
    yield OPENING, OPENED, times(OPENED, lambda: kind.open(order, folder / "other").close())
    queue.close()


def together(kind: Kind, order: str, folder: Path, body: bytes, count: int) -> Work:
    """Each `count` pushed to some queues in turns, then popped."""
    queuelib = importlib.import_module("queuelib")
    for name in ("PriorityQueue", "RoundRobinQueue"):
        (folder / name).mkdir()
        made = getattr(queuelib, name)(
            lambda key, name=name: kind.open(order, folder / name / f"{key}")
        )

        def push_and_pop(made: Any = made) -> None:
            for number in range(count // 2):
                made.push(body, number % QUEUES)
            while made.pop() is not None:
                pass

        yield name, count // 2 * 2, push_and_pop
        made.close()


PUSH_AND_DIE = """
import os, signal, sys
from pathlib import Path
import queuelib_queues as bench

queue = bench.KINDS[int(sys.argv[1])].open(sys.argv[2], Path(sys.argv[3]))
for number in range(bench.KILLED):
    queue.push(b"%d" % number)
os.kill(os.getpid(), signal.SIGKILL)
"""


def survivors(kind: Kind, order: str, path: Path) -> int:
    """How many of KILLED come back after the process that pushed them was killed."""
    subprocess.run(
        [sys.executable, "-c", PUSH_AND_DIE, str(KINDS.index(kind)), order, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    count = 0
    with contextlib.suppress(OSError, ValueError, struct.error):  # it cannot be read any more
        queue = kind.open(order, path)
        while queue.pop() is not None:
            count += 1
        queue.close()
    return count


# --- rounds and tables --------------------------------------------------------------------------

Key = tuple[str, str, int, str]  # kind, order, bytes, work
Figures = dict[Key, tuple[float, float]]  # seconds and CPU seconds a call; the best of each


def measure(kind: Kind, order: str, size: int, count: int, folder: Path, best: Figures) -> None:
    count = max(2, count // SLOW) if kind.is_slow else count
    for works in (alone, together):
        for name, calls, work in works(kind, order, folder, b"x" * size, count):
            begin, cpu = time.perf_counter(), time.process_time()
            work()
            taken = (time.perf_counter() - begin, time.process_time() - cpu)
            key = (kind.name, order, size, name)
            before = best.get(key, (float("inf"),) * 2)
            best[key] = (min(before[0], taken[0] / calls), min(before[1], taken[1] / calls))


def kinds_for(order: str) -> list[Kind]:
    return [kind for kind in KINDS if (order, kind.suffix) != ("Lifo", "SavedQueue")]


def rounds(directory: str | None, number: int, count: int) -> tuple[Figures, dict[Key, int]]:
    best: Figures = {}
    alive: dict[Key, int] = {}
    for _ in range(number):
        for order, size in (("Fifo", 100), ("Fifo", 1024), ("Lifo", 100), ("Lifo", 1024)):
            for kind in kinds_for(order):
                folder = Path(tempfile.mkdtemp(prefix="qindex-bench-", dir=directory))
                try:
                    measure(kind, order, size, count, folder, best)
                    key = (kind.name, order, size, "kill")
                    if key not in alive:
                        alive[key] = survivors(kind, order, folder / "kill")
                finally:
                    shutil.rmtree(folder)
    return best, alive


def lines(order: str, size: int, best: Figures, alive: dict[Key, int]) -> list[list[str]]:
    names = list(dict.fromkeys(key[3] for key in best))
    found = [["", *names, f"after kill -9, of {KILLED:,}"]]
    for kind in kinds_for(order):
        cells = []
        for name in names:
            seconds, cpu = best[kind.name, order, size, name]
            shown = table.number(1 / seconds, table.RATE)
            if name == OPENING:
                shown = table.number(seconds * 1e3, table.MS)
            cells.append(f"{shown} ({table.three_digits(cpu * 1e6)} µs)")
        left = alive[kind.name, order, size, "kill"]
        found.append([kind.name, *cells, f"{left:,}"])
    return found


def shown(facts: dict[str, str], best: Figures, alive: dict[Key, int]) -> str:
    title = "qindex.compat.queuelib beside queuelib's disk queues"
    parts = [title, "=" * len(title), "", *(__doc__ or "").partition("\n\n")[2].splitlines()[3:]]
    parts += ["", *(f":{name}: {value}" for name, value in facts.items())]
    for order, size in dict.fromkeys(key[1:3] for key in best):
        parts += ["", *table.rst_section(f"{order.upper()}, bodies of {size:,} bytes")]
        parts += table.rst_table(lines(order, size, best, alive))
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", help="a folder on the disk to measure (the temporary one)")
    parser.add_argument(
        "--count", type=int, default=20_000, help="calls of the fast kinds (20,000)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    facts = machine_facts(Path(options.dir or tempfile.gettempdir()))
    found = rounds(options.dir, options.rounds, options.count)
    facts["load at end"] = machine_facts(Path.cwd())["load at start"]
    facts["rounds"] = f"{options.rounds} of {options.count:,} calls"
    facts["queuelib"] = importlib.metadata.version("queuelib")
    text = shown(facts, *found)
    if options.write:
        RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
