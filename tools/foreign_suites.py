"""Other people's tests, run on qindex.compat: what each suite has, what is run here, what is not.

    python tools/foreign_suites.py              run them, and say what passed
    python tools/foreign_suites.py --write      also write it into tests/compat/SUITES.rst

The suites are those of the interpreter that runs this and of the queuelib that is installed: they
are imported and given the stand-ins, nothing is copied. Rows of other interpreters stay as they
are. pytest runs the same classes (tests/compat/test_*_suite*.py) and holds the table to them.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.metadata
import inspect
import json
import platform
import queue
import subprocess
import sys
import tempfile
import textwrap
import types
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qindex import compat
from qindex.compat.queuelib import FifoDiskQueue, LifoDiskQueue, _Shared
from qindex.testing import abandon

TABLE = Path(__file__).resolve().parents[1] / "tests" / "compat" / "SUITES.rst"
RESULTS = TABLE.with_name("suites.json")

MARKS = "pytestmark"
CHUNKS = ("test_not_szhdr", "test_chunks", "test_clear_removes_chunks")
REASONS = {
    "base class": "about queuelib's abstract BaseQueue; no queue is in it",
    "dummy": "about a list that the test brings with it; no queue that could be replaced is in it",
    "chunks": "about the names and the bytes of the original's own files",
    "simple": "about SimpleQueue, which has no stand-in: it may be entered from a destructor or a"
    " signal handler that interrupts it, a store may not",
}


@dataclass(frozen=True)
class Suite:
    """A suite of tests. `way` becomes the first base of its classes and puts the stand-ins in;
    `reason(class's name, test)` is the key of why a test is not run, or None."""

    name: str
    version: str
    modules: list[ModuleType]
    way: type
    reason: Callable[[str, str], str | None]

    def classes(self) -> dict[str, type[unittest.TestCase]]:
        """The classes that a run of the suite would run, by name."""
        return {
            name: found
            for module in self.modules
            for name, found in inspect.getmembers(module, inspect.isclass)
            if issubclass(found, unittest.TestCase) and found.__module__ == module.__name__
        }

    def tests(self) -> Iterator[tuple[str, str, str | None]]:
        """Each test: its class, its name, and why it is not run."""
        for name, found in self.classes().items():
            for test in unittest.TestLoader().getTestCaseNames(found):
                yield name, test, self.reason(name, test)

    def bound(self) -> dict[str, type[unittest.TestCase]]:
        """The classes with the stand-ins in them, and without the tests that are not run."""
        missing: dict[str, dict[str, None]] = {}
        run: dict[str, dict[str, Any]] = {}
        for name, test, reason in self.tests():
            if reason:
                missing.setdefault(name, {})[test] = None
            else:
                run.setdefault(name, {})[test] = unmarked(getattr(self.classes()[name], test))
        return {
            name: type(
                name,
                (self.way, self.classes()[name]),
                {**tests, **missing.get(name, {}), "__module__": __name__},
            )
            for name, tests in run.items()
        }


def unmarked(test: Callable[..., object]) -> Callable[..., object]:
    """The test without pytest's marks: one that is expected to fail there must pass here."""
    if not hasattr(test, MARKS):
        return test
    plain = types.FunctionType(
        test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__
    )
    plain.__dict__.update({name: value for name, value in vars(test).items() if name != MARKS})
    return plain


# --- queuelib -----------------------------------------------------------------------------------


DISK_QUEUES = {
    "FifoDiskQueue": FifoDiskQueue,
    "LifoDiskQueue": LifoDiskQueue,
    "FifoSQLiteQueue": FifoDiskQueue,
    "LifoSQLiteQueue": LifoDiskQueue,
}


def without_a_path(test: Any, durable: type) -> type:
    """For the memory queues: each is in a folder of its own, which the test removes."""

    def make(self: Any) -> None:
        durable.__init__(self, f"{test.mkdtemp()}/queue")  # type: ignore[misc]

    return type(durable.__name__, (durable,), {"__init__": make})


def abandon_queuelib_stores() -> None:
    """Some tests close no queue and remove its folder."""
    for shared in _Shared.opened.values():
        abandon(shared.store)
    _Shared.opened.clear()


class OnQindex(unittest.TestCase):
    """All six queues of queuelib are ours while a test runs."""

    def setUp(self) -> None:
        names = {
            **DISK_QUEUES,
            "FifoMemoryQueue": without_a_path(self, FifoDiskQueue),
            "LifoMemoryQueue": without_a_path(self, LifoDiskQueue),
        }
        patch = mock.patch.multiple(sys.modules[type(self).__mro__[2].__module__], **names)
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(abandon_queuelib_stores)
        super().setUp()


def why_not_queuelib(name: str, test: str) -> str | None:
    if name == "InterfaceTest" and test == "test_queue":
        return "base class"
    if name.startswith("Dummy"):
        return "dummy"
    return "chunks" if test in CHUNKS else None


def queuelib() -> Suite:
    """ImportError without queuelib."""
    modules = [
        importlib.import_module(f"queuelib.tests.test_{name}")
        for name in ("queue", "pqueue", "rrqueue")
    ]
    version = importlib.metadata.version("queuelib")
    return Suite("queuelib", version, modules, OnQindex, why_not_queuelib)


# --- the standard library -----------------------------------------------------------------------


STANDARD_NAMES = ("Queue", "LifoQueue", "PriorityQueue")


def stand_in(test: unittest.TestCase, durable: type, name: str) -> type:
    """The class as the tests make it: from a maxsize alone, each in a store of its own."""

    def make(self: Any, maxsize: int = 0) -> None:
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        durable.__init__(self, f"{folder.name}/store", maxsize, sync="never")  # type: ignore[misc]
        test.addCleanup(self.close)

    return type(name, (durable,), {"__init__": make})


class OnThreads(unittest.TestCase):
    def setUp(self) -> None:
        names = {name: getattr(queue, name) for name in dir(queue) if name[0] != "_"}
        self.queue = SimpleNamespace(**names)
        for name in STANDARD_NAMES:
            setattr(self.queue, name, stand_in(self, getattr(compat, name), name))
        super().setUp()


class OnALoop(unittest.TestCase):
    def setUp(self) -> None:
        names = {
            name: stand_in(self, getattr(compat, f"Async{name}"), name) for name in STANDARD_NAMES
        }
        loop = SimpleNamespace(**{**vars(asyncio), **names})
        module = sys.modules[type(self).__mro__[2].__module__]
        patch = mock.patch.object(module, "asyncio", loop)
        patch.start()
        self.addCleanup(patch.stop)
        original = getattr(self, "q_class", None)
        if original is not None:
            self.q_class = names[original.__name__]
        super().setUp()


def why_not_standard(name: str, test: str) -> str | None:
    return "simple" if "SimpleQueue" in name else None


def standard(module: str, way: type) -> Suite:
    """ImportError where the interpreter comes without its own tests."""
    found = importlib.import_module(module)
    version = platform.python_version()
    return Suite(f"CPython's {module}", version, [found], way, why_not_standard)


def threads() -> Suite:
    return standard("test.test_queue", OnThreads)


def loop() -> Suite:
    return standard("test.test_asyncio.test_queues", OnALoop)


# --- NSQ's diskqueue ----------------------------------------------------------------------------

# In Go: they cannot be run here, so they are written again. Its benchmarks check nothing.
GO_TESTS = {
    "TestDiskQueue": "test_disk_queue",
    "TestDiskQueueRoll": "test_roll",
    "TestDiskQueuePeek": "test_peek",
    "TestDiskQueueEmpty": "test_empty",
    "TestDiskQueueCorruption": "test_corruption",
    "TestDiskQueueSyncAfterRead": "test_sync_after_read",
    "TestDiskQueueTorture": "test_torture",
    "TestDiskQueueResize": "test_resize",
}
REWRITTEN = TABLE.with_name("test_diskqueue_original.py")
GO_MODULE = TABLE.parent / "go_diskqueue" / "go.mod"


def rewritten() -> dict[str, Any]:
    """The row of go-diskqueue; pytest runs the tests, in each format that they are for."""
    version = GO_MODULE.read_text(encoding="utf-8").split()[-1].removeprefix("v")
    passed = [
        test
        for test in GO_TESTS.values()
        if not subprocess.run(
            [sys.executable, "-m", "pytest", "-q", f"{REWRITTEN}", "-k", f"{test}["],
            stdout=sys.stderr,
            check=False,
        ).returncode
    ]
    row = {"suite": "go-diskqueue, rewritten", "version": version, "tests": len(GO_TESTS)}
    return {**row, "run": len(GO_TESTS), "passed": len(passed), "why": {}}


# --- the table ----------------------------------------------------------------------------------


def key(row: dict[str, Any]) -> tuple[str, ...]:
    """A suite's row is replaced by that of another patch release of the same version."""
    return (row["suite"], *row["version"].split(".")[:2])


def counted(suite: Suite) -> dict[str, Any]:
    """A row of the table but for what passed."""
    row: dict[str, Any] = {"suite": suite.name, "version": suite.version, "tests": 0, "run": 0}
    why: dict[str, list[str]] = {}
    for name, test, reason in suite.tests():
        row["tests"] += 1
        if reason is None:
            row["run"] += 1
        else:
            why.setdefault(REASONS[reason], []).append(f"{name}.{test}")
    return {**row, "why": why}


def left_out(row: dict[str, Any]) -> int:
    return sum(map(len, row["why"].values()))


def run(suite: Suite) -> dict[str, Any]:
    """The row, of a run."""
    loader = unittest.TestLoader()
    tests = [loader.loadTestsFromTestCase(each) for each in suite.bound().values()]
    result = unittest.TextTestRunner(stream=sys.stderr).run(unittest.TestSuite(tests))
    others = len(result.skipped) + len(result.failures) + len(result.errors)
    return {**counted(suite), "passed": result.testsRun - others}


def rows() -> list[dict[str, Any]]:
    """What is committed."""
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def compare(suite: Suite) -> None:
    """AssertionError if what is committed is not what is found here; LookupError: there is no row.

    Of another patch release only the kinds of reasons are compared: tests come and go with those.
    """
    ours = counted(suite)
    found = [row for row in rows() if key(row) == key(ours)]
    if not found:
        raise LookupError(
            f"no row of {suite.name} {suite.version}: tools/foreign_suites.py --write"
        )
    (row,) = found
    assert row["tests"] == row["run"] + left_out(row)
    assert row["passed"] == row["run"]
    if row["version"] == ours["version"]:
        assert {name: row[name] for name in ours} == ours
    assert set(ours["why"]) == set(row["why"])
    assert TABLE.read_text(encoding="utf-8") == shown(rows()), "SUITES.rst is not of suites.json"


def columns(heads: list[str], cells: list[list[str]]) -> list[str]:
    """A simple table of reStructuredText."""
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    rule = "  ".join("=" * width for width in widths)
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in [heads, *cells]
    ]
    return [rule, lines[0], rule, *lines[1:], rule]


def shown(found: list[dict[str, Any]]) -> str:
    """SUITES.rst."""
    counts = ["tests", "run", "passed", "left out"]
    summary = [
        [row["suite"], row["version"], *(str(row.get(name, left_out(row))) for name in counts)]
        for row in found
    ]
    lines = [
        "Foreign suites",
        "==============",
        "",
        "Tests that others wrote for the queues that qindex.compat stands in for, run on the",
        "stand-ins. Written by ``python tools/foreign_suites.py --write``; pytest runs the same",
        "tests and compares the counts.",
        "",
        *columns(["suite", "version", *counts], summary),
    ]
    for row in found:
        if row["why"]:
            lines += ["", f"Left out of {row['suite']} {row['version']}:", ""]
        for reason, tests in row["why"].items():
            text = f"- {len(tests)} {reason}: {places(tests)}."
            lines += textwrap.wrap(text, 118, subsequent_indent="  ", break_long_words=False)
    return "\n".join(lines) + "\n"


def places(tests: list[str]) -> str:
    """Which tests: all of some classes, or some of them."""
    classes, names = (
        ", ".join(f"``{name}``" for name in sorted(set(part)))
        for part in zip(*(test.split(".") for test in tests), strict=True)
    )
    return f"{names} of {classes}" if names.count(",") < 3 else f"all of {classes}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.name} and its numbers")
    options = parser.parse_args()
    found = [*(run(suite) for suite in (queuelib(), threads(), loop())), rewritten()]
    if options.write:
        kept = {key(row): row for row in (rows() if RESULTS.exists() else [])}
        kept.update({key(row): row for row in found})
        found = [kept[each] for each in sorted(kept)]
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        TABLE.write_text(shown(found), encoding="utf-8")
    print(shown(found))
    sys.exit(any(row["passed"] < row["run"] for row in found))


if __name__ == "__main__":
    main()
