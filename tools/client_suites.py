"""The suites of AMQP clients, run against `qindex serve`: what passes, and why the rest does not.

    python tools/client_suites.py --work DIR                 py-amqp and kombu
    python tools/client_suites.py --work DIR --pika CHECKOUT pika, too: its sdist has no tests
    python tools/client_suites.py --work DIR --write         also write docs/figures/clients.rst

A test that passes without a broker says nothing about this one: each suite runs twice, with the
broker and without, and only tests that fail without it are counted. The suites insist on port 5672
of this machine. DIR gets an environment of its own, the sources, and the broker's directory.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

TARGET = Path(__file__).resolve().parents[1] / "docs" / "figures" / "clients.rst"
TOOLS = ["pytest<9", "pytest-timeout", "pytest-xdist", "twisted", "tornado", "gevent"]


@dataclass(frozen=True)
class Suite:
    name: str
    version: str
    tests: list[str]
    options: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # part of a test's name -> why it fails

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


SUITES = [
    Suite("amqp", "5.3.1", ["t/integration"], reasons={"tls": "TLS is not there yet"}),
    Suite("kombu", "5.6.0", ["t/integration/test_py_amqp.py"]),
    Suite(
        "pika",
        "1.4.0",
        [
            "tests/acceptance/blocking_adapter_test.py",
            "tests/acceptance/async_adapter_tests.py",
            "tests/acceptance/enforce_one_basicget_test.py",
            "tests/acceptance/twisted_adapter_tests.py",
            "tests/acceptance/io_services_tests.py",
        ],
        ["-n", "4", "--dist", "loadfile"],
        {"TestTx": "transactions are not there yet", "TestTX": "transactions are not there yet"},
    ),
]


@dataclass
class Row:
    suite: Suite
    passed: list[str]  # that fail without a broker
    failed: list[str]
    idle: int  # that pass without a broker, too
    skipped: int


class Work:
    """The folder in which the suites are unpacked and run."""

    def __init__(self, folder: Path, pika: Path | None) -> None:
        self.folder = folder
        self.python = folder / "env" / "bin" / "python"
        self._pika = pika

    def prepare(self, suites: list[Suite]) -> None:
        if not self.python.exists():
            venv.create(self.folder / "env", with_pip=True)
        wanted = [suite.requirement for suite in suites]
        self._pip("install", "-q", *TOOLS, *wanted)
        for suite in suites:
            if suite.name != "pika" and not self.sources(suite).exists():
                self._pip(
                    *("download", "-q", "--no-deps", "--no-binary", ":all:", suite.requirement),
                    *("-d", str(self.folder)),
                )
                with tarfile.open(f"{self.sources(suite)}.tar.gz") as packed:
                    packed.extractall(self.folder, filter="data")

    def _pip(self, *arguments: str) -> None:
        subprocess.run([self.python, "-m", "pip", *arguments], check=True)

    def sources(self, suite: Suite) -> Path:
        if suite.name == "pika" and self._pika is not None:
            return self._pika
        return self.folder / f"{suite.name}-{suite.version}"

    def run(self, suite: Suite) -> dict[str, str]:
        """The outcome of each test: passed, failed or skipped."""
        report = self.folder / f"{suite.name}.xml"
        report.unlink(missing_ok=True)
        subprocess.run(
            [
                *(self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "60"),
                *(f"--junit-xml={report}", *suite.options, *suite.tests),
            ],
            cwd=self.sources(suite),
            stdout=subprocess.DEVNULL,
            check=False,
        )
        cases = ElementTree.parse(report).iter("testcase")  # noqa: S314 - pytest wrote it
        return {f"{case.get('classname')}.{case.get('name')}": _outcome(case) for case in cases}

    @contextmanager
    def broker(self) -> Iterator[None]:
        serve = [sys.executable, "-m", "qindex", "serve", str(self.folder / "node")]
        process = subprocess.Popen(
            [*serve, "--log", "error"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            if process.stdout is None or not process.stdout.readline():
                raise SystemExit("the broker did not start: is port 5672 free?")
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _outcome(case: ElementTree.Element) -> str:
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in kinds else "passed"


def count(suite: Suite, up: dict[str, str], down: dict[str, str]) -> Row:
    idle = {test for test, outcome in down.items() if outcome == "passed"}
    found = {kind: [test for test in up if up[test] == kind and test not in idle] for kind in KINDS}
    return Row(suite, found["passed"], found["failed"], len(idle), len(found["skipped"]))


KINDS = ("passed", "failed", "skipped")


def reason_of(suite: Suite, test: str) -> str:
    return next((why for part, why in suite.reasons.items() if part in test), "NOT EXPLAINED")


def shown(rows: list[Row]) -> str:
    lines = [
        "Suites of AMQP clients, run against ``qindex serve`` by ``tools/client_suites.py``. Each",
        "suite ran twice, with the broker and without; what passes without one is not counted.",
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "",
        *_cells(
            "suite", "version", "passed", "failed", "skipped", "not counted: pass without a broker"
        ),
    ]
    for row in rows:
        figures = (len(row.passed), len(row.failed), row.skipped, row.idle)
        lines += _cells(row.suite.name, row.suite.version, *map(str, figures))
    for row in rows:
        reasons: dict[str, list[str]] = {}
        for test in row.failed:
            reasons.setdefault(reason_of(row.suite, test), []).append(test)
        for why, tests in reasons.items():
            names = sorted({test.split(".")[-2] for test in tests})
            lines += ["", f"{row.suite.name}: {len(tests)} fail, because {why}:", ""]
            lines += [f"- ``{name}``" for name in names]
    return "\n".join(lines) + "\n"


def _cells(*texts: str) -> list[str]:
    return [f"   {'* ' if at == 0 else '  '}- {text}" for at, text in enumerate(texts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="a folder for sources and runs")
    parser.add_argument("--pika", type=Path, help="a checkout of pika at the version that is named")
    parser.add_argument("--write", action="store_true", help=f"write {TARGET.name}")
    options = parser.parse_args()
    suites = [suite for suite in SUITES if suite.name != "pika" or options.pika is not None]
    options.work.mkdir(parents=True, exist_ok=True)
    work = Work(options.work.resolve(), options.pika and options.pika.resolve())
    work.prepare(suites)
    down = {suite.name: work.run(suite) for suite in suites}
    up = {}
    for suite in suites:
        with work.broker():
            up[suite.name] = work.run(suite)
    rows = [count(suite, up[suite.name], down[suite.name]) for suite in suites]
    if options.write:
        TARGET.write_text(shown(rows), encoding="utf-8")
    print(shown(rows))
    unexplained = [
        test for row in rows for test in row.failed if reason_of(row.suite, test) == "NOT EXPLAINED"
    ]
    sys.exit(bool(unexplained))


if __name__ == "__main__":
    main()
