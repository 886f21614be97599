"""The suites of AMQP clients, run against `qindex serve`: what passes, and why the rest does not.

    python tools/client_suites.py --work DIR                      those whose tests a registry has
    python tools/client_suites.py --work DIR --only kombu         one of them
    python tools/client_suites.py --work DIR --checkout pika=SRC  also one with tests in git only
    python tools/client_suites.py --work DIR --prepare            install, and run nothing
    python tools/client_suites.py --work DIR --write              also write the table

A test that passes without a broker says nothing about this one: a suite's first run is without one,
and the table says how many pass either way. The suites insist on port 5672 of this machine; after
--prepare they need no network. DIR gets an environment for each suite, the sources, and the
broker's directory. Celery also needs Redis, amqplib needs Node.

tests/compat/clients.json keeps the row of each suite; a run with --write replaces those of the
suites that it has run, and makes docs/figures/clients.rst from all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import textwrap
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

ROOT: Final = Path(__file__).resolve().parents[1]
TARGET: Final = ROOT / "docs" / "figures" / "clients.rst"
ROWS: Final = ROOT / "tests" / "compat" / "clients.json"
TOOLS: Final = ["pytest<9", "pytest-timeout", "pytest-xdist", "pytest-rerunfailures"]
CELERY_TOOLS: Final = ["pytest-celery", "pytest-order", "pytest-subtests", "pydantic"]
URL: Final = "amqp://guest:guest@127.0.0.1:5672/"
UP_SECONDS, DOWN_SECONDS = 300, 10  # that one test may take, with the broker and without
DOWN_OPTIONS: Final = ["-p", "no:rerunfailures"]  # what fails then fails again
NAMES_SHOWN: Final = 12
NOT_EXPLAINED: Final = "NOT EXPLAINED"
NO_TX: Final = "transactions are not there yet"
NO_TLS: Final = "TLS is not there yet"
NO_NAMES: Final = "the machine that ran it resolves no names of the Internet"
CELERY_LOGS: Final = "pytest hears none of the worker's log; they fail with RabbitMQ, too"
CELERY_RACE: Final = "the test sets its variable when the worker may have set it already"
RABBITMQ_4: Final = "RabbitMQ 4 answers so; RabbitMQ 3 and this broker answer with 503"

# aio-pika's tests start a container. This plugin says that it runs: at the usual port.
NO_DOCKER: Final = """\
import sys, types
docker = types.ModuleType("tests.docker_client")
class Info:
    id, host, ports = "none", "127.0.0.1", {"5672/tcp": 5672, "5671/tcp": 5671}
class Client:
    def __init__(self, info): pass
    def run(self, image, ports, environment=None): return Info()
    def kill(self, container): pass
    remove = kill
docker.ContainerInfo, docker.DockerClient, docker.DockerHostInfo = Info, Client, object
docker.DockerNotAvailableError, docker.check_docker_available = OSError, object
sys.modules["tests.docker_client"] = docker
"""


@dataclass(frozen=True)
class Suite:
    """A client's tests. `reasons`: a pattern of a test's name -> why it fails here."""

    name: str
    version: str
    tests: list[str]
    options: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    packages: list[str] = field(default_factory=list)  # beside the client and pytest
    environment: dict[str, str] = field(default_factory=dict)
    in_git: bool = False  # no registry has its tests: --checkout says where they are
    needs_redis: bool = False
    plugin: str = ""  # of pytest
    is_node: bool = False

    def reason(self, test: str) -> str:
        found = (why for part, why in self.reasons.items() if re.search(part, test))
        return next(found, NOT_EXPLAINED)


SUITES: Final = [
    Suite("amqp", "5.3.1", ["t/integration"], reasons={"tls": NO_TLS}),
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
        {"(?i)TestTx": NO_TX, "Getaddrinfo": NO_NAMES, "InvalidExchangeType": RABBITMQ_4},
        ["twisted", "tornado", "gevent"],
        in_git=True,
    ),
    Suite(
        "celery",
        "5.6.3",
        ["t/integration/test_tasks.py", "t/integration/test_inspect.py"],
        packages=["kombu==5.6.0", "amqp==5.3.1", "redis<6", *CELERY_TOOLS],
        reasons={"trace_log": CELERY_LOGS, "replaced_task_nesting_level_0": CELERY_RACE},
        environment={"TEST_BROKER": f"py{URL}/", "TEST_BACKEND": "redis://127.0.0.1:6379/0"},
        in_git=True,
        needs_redis=True,
    ),
    Suite(
        "aio-pika",
        "9.6.0",
        ["tests"],
        ["-p", "no:asyncio", "-p", "no_docker"],
        {"amqps": NO_TLS, "transaction": NO_TX},
        ["aiormq==6.9.3", "aiomisc>=18", "aiomisc-pytest", "shortuuid", "timeout-decorator"],
        in_git=True,
        plugin=NO_DOCKER,
    ),
    Suite(
        "aiormq",
        "6.9.3",
        ["tests"],
        reasons={"amqps|ssl": NO_TLS, "transaction|tx_": NO_TX},
        packages=["aiomisc>=18", "aiomisc-pytest"],
        environment={"AMQP_URL": URL},
        in_git=True,
    ),
    Suite(
        "amqplib",
        "2.0.1",
        ["test"],
        reasons={
            "ipv6": "the broker listens on 127.0.0.1",
            "serverProperties": "its name is qindex",
        },
        packages=["claire@0.4.1"],
        is_node=True,
    ),
]


class Work:
    """The folder in which the suites are unpacked and run."""

    def __init__(self, folder: Path, checkouts: dict[str, Path]) -> None:
        self.folder = folder
        self._checkouts = checkouts

    def python(self, suite: Suite) -> Path:
        return self.folder / f"env-{suite.name}" / "bin" / "python"

    def sources(self, suite: Suite) -> Path:
        unpacked = self.folder / f"{suite.name}-{suite.version}"
        return self._checkouts.get(suite.name, unpacked / "package" if suite.is_node else unpacked)

    def lacks(self, suite: Suite) -> str:
        """Why the suite cannot be run here; empty: it can be."""
        if suite.in_git and suite.name not in self._checkouts:
            return "no registry has its tests (see --checkout)"
        programs = ["node", "npm"] if suite.is_node else []
        programs += ["redis-server"] if suite.needs_redis else []
        missing = [program for program in programs if shutil.which(program) is None]
        return f"there is no {missing[0]}" if missing else ""

    # --- install -------------------------------------------------------------------------------

    def prepare(self, suite: Suite) -> None:
        if suite.is_node:
            self._prepare_node(suite)
            return
        pip = [self.python(suite), "-m", "pip"]
        if not self.python(suite).exists():
            venv.create(self.python(suite).parents[1], with_pip=True)
        requirement = f"{suite.name}=={suite.version}"
        wanted = [*TOOLS, *suite.packages, requirement]
        subprocess.run([*pip, "install", "-q", *wanted], check=True)
        if suite.plugin:
            (self.folder / "no_docker.py").write_text(suite.plugin)
        if not self.sources(suite).exists():
            command = [*pip, "download", "-q", "--no-deps", "--no-binary", ":all:"]
            subprocess.run([*command, requirement, "-d", str(self.folder)], check=True)
            self._unpack(Path(f"{self.sources(suite)}.tar.gz"), self.folder)

    def _prepare_node(self, suite: Suite) -> None:
        if self.sources(suite).exists():
            return
        name = f"{suite.name}-{suite.version}"
        command = ["npm", "pack", "--silent", f"{suite.name}@{suite.version}"]
        subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        self._unpack(self.folder / f"{name}.tgz", self.folder / name)
        # Beside the package, not in it: there, npm would install all that its developers need.
        install = ["npm", "install", "--silent", "--prefix", str(self.folder / name)]
        subprocess.run([*install, *suite.packages], check=True)

    @staticmethod
    def _unpack(file: Path, folder: Path) -> None:
        with tarfile.open(file) as packed:
            packed.extractall(folder, filter="data")

    # --- run -----------------------------------------------------------------------------------

    def run(self, suite: Suite, seconds: int, *options: str) -> dict[str, str]:
        """The outcome of each test: passed, failed or skipped. `options` are pytest's."""
        command: list[Any]
        report = self.folder / f"{suite.name}.xml"
        report.unlink(missing_ok=True)
        if suite.is_node:
            command = ["node", "--test", f"--test-timeout={seconds * 1000}"]
            command += ["--test-reporter=junit", f"--test-reporter-destination={report}"]
        else:
            command = [self.python(suite), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
            command += ["--timeout", str(seconds), f"--junit-xml={report}", *suite.options]
            command += [*options, *suite.tests]
        with (self.folder / f"{suite.name}.log").open("w") as log:
            subprocess.run(
                command,
                cwd=self.sources(suite),
                env={**os.environ, "PYTHONPATH": str(self.folder), **suite.environment},
                stdout=log,
                stderr=log,
                check=False,
            )
        if not report.exists():
            raise SystemExit(f"{suite.name} did not run: see {self.folder / suite.name}.log")
        return dict(outcomes(ElementTree.parse(report).getroot(), ""))  # noqa: S314 - their own

    @contextmanager
    def redis(self) -> Iterator[None]:
        command = ["redis-server", "--bind", "127.0.0.1", "--port", "6379", "--save", ""]
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            process.wait()

    @contextmanager
    def broker(self) -> Iterator[None]:
        """A new one: queues that a run has left would have messages for the next one."""
        shutil.rmtree(self.folder / "node", ignore_errors=True)
        serve = [sys.executable, "-m", "qindex", "serve", str(self.folder / "node")]
        process = subprocess.Popen(
            [*serve, "--log-file", str(self.folder / "broker.log")],
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


def outcomes(element: ElementTree.Element, path: str) -> Iterator[tuple[str, str]]:
    """Each test of a JUnit report. Node nests suites in each other, pytest names classes."""
    for child in element:
        name = child.get("name", "")
        name = Path(name).name if name.startswith("/") else name  # a file that did not end well
        if child.tag == "testcase":
            kinds = {each.tag for each in child}
            whole = f"{path or child.get('classname', '')}.{name}"
            if kinds & {"failure", "error"}:
                yield whole, "failed"
            else:
                yield whole, "skipped" if "skipped" in kinds else "passed"
        elif name:  # a suite; Node calls some of them "undefined"
            # pytest has one suite around all, whose name says nothing.
            yield from outcomes(child, "" if name == "pytest" else f"{path} {name}".strip())


def idle_of(suite: Suite) -> list[str] | None:
    """The tests that pass without a broker, if an earlier run of this version has found them."""
    for row in kept():
        if row["suite"] == suite.name and row["version"] == suite.version:
            found: list[str] = row["idle"]
            return found
    return None


def row_of(suite: Suite, up: dict[str, str], idle: list[str]) -> dict[str, Any]:
    """What is kept of a run."""
    passed = [test for test, outcome in up.items() if outcome == "passed"]
    failed: dict[str, list[str]] = {}
    for test, outcome in up.items():
        if outcome == "failed":
            failed.setdefault(suite.reason(test), []).append(test)
    return {
        "suite": suite.name,
        "version": suite.version,
        "passed": len(passed),
        "skipped": sum(outcome == "skipped" for outcome in up.values()),
        "failed": {why: sorted(tests) for why, tests in sorted(failed.items())},
        "idle": idle,
    }


def kept() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ROWS.read_text(encoding="utf-8"))
    return found


def shown(rows: list[dict[str, Any]]) -> str:
    """docs/figures/clients.rst."""
    lines = [
        "Suites of AMQP clients, run against ``qindex serve`` by ``tools/client_suites.py``. Each",
        "suite ran twice, with the broker and without. What passes without one says nothing about",
        "this broker, so the last column is to be subtracted.",
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "",
        *_cells(["suite", "version", "passed", "failed", "skipped", "pass without a broker"]),
    ]
    for row in rows:
        failed = sum(map(len, row["failed"].values()))
        lines += _cells(
            [row["suite"], row["version"], row["passed"], failed, row["skipped"], len(row["idle"])]
        )
    for row in rows:
        for why, tests in row["failed"].items():
            names = sorted({_short(test) for test in tests})
            text = f"{row['suite']}: {len(tests)} fail, because {why}: "
            text += ", ".join(f"``{name}``" for name in names[:NAMES_SHOWN])
            text += f" and {len(names) - NAMES_SHOWN} more." if len(names) > NAMES_SHOWN else "."
            lines += ["", *textwrap.wrap(text, 100, break_long_words=False)]
    return "\n".join(lines) + "\n"


def _short(test: str) -> str:
    """The name of a test without its module and its parameters."""
    parts = test.partition("[")[0].split(".")
    return f"{parts[-2]}.{parts[-1]}" if parts[-1] == "test" else parts[-1]


def _cells(values: list[Any]) -> list[str]:
    return [f"   {'* ' if at == 0 else '  '}- {value}" for at, value in enumerate(values)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="a folder for sources and runs")
    parser.add_argument(
        "--checkout",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="the sources of this client, at the version that is pinned here",
    )
    parser.add_argument("--only", action="append", choices=[each.name for each in SUITES])
    parser.add_argument("--prepare", action="store_true", help="install, and run nothing")
    parser.add_argument("--write", action="store_true", help=f"write {ROWS.name}, {TARGET.name}")
    options = parser.parse_args()
    checkouts = {name: Path(at).resolve() for name, at in (o.split("=") for o in options.checkout)}
    options.work.mkdir(parents=True, exist_ok=True)
    work = Work(options.work.resolve(), checkouts)
    rows = []
    for suite in SUITES:
        if options.only and suite.name not in options.only:
            continue
        if why := work.lacks(suite):
            print(f"{suite.name}: left out, because {why}")
            continue
        work.prepare(suite)
        if options.prepare:
            continue
        with ExitStack() as stack:
            if suite.needs_redis:
                stack.enter_context(work.redis())
            idle = idle_of(suite)
            if idle is None:
                found = work.run(suite, DOWN_SECONDS, *DOWN_OPTIONS)
                idle = sorted(test for test, outcome in found.items() if outcome == "passed")
            stack.enter_context(work.broker())
            rows.append(row_of(suite, work.run(suite, UP_SECONDS), idle))
        print(shown(rows[-1:]).partition("broker\n")[2], flush=True)
    if options.write:
        found = {row["suite"]: row for row in [*kept(), *rows]}
        ordered = [found[suite.name] for suite in SUITES if suite.name in found]
        ROWS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
        TARGET.write_text(shown(ordered), encoding="utf-8")
    sys.exit(any(NOT_EXPLAINED in row["failed"] for row in rows))


if __name__ == "__main__":
    main()
