"""The command line as tests use it: in this process, or as a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
from helpers import DEMO_NODE, FEW, unpack

import qindex
from qindex.cli.main import main
from qindex.testing import SimulatedDisk, abandon

SVG_TEXT = "{http://www.w3.org/2000/svg}text"


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`run("stats", path)` in this process, into pipes."""

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`start("demo")` as a process of its own; killed at the end if it still runs."""
    started = []

    def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "qindex", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
            encoding="utf-8",
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(seed=1)


@pytest.fixture
def simulated(disk: SimulatedDisk) -> Iterator[qindex.Store]:
    """An open store on it, with sizes as small as they go."""
    store = qindex.open("/", disk=disk, **FEW)
    yield store
    abandon(store)


@pytest.fixture(params=["store", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """Where a broker keeps its queues, or None: in memory."""
    return tmp_path / "data" if request.param == "store" else None


@pytest.fixture(scope="session")
def dead_node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The RabbitMQ node that ships; nobody changes it."""
    path = tmp_path_factory.mktemp("dead")
    unpack(DEMO_NODE, path)
    return path


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """A closed store: 470 messages in two queues; journals, small segments, a message file."""
    path = tmp_path / "data"
    with qindex.open(path, segment_entries=64) as store:
        for name in ("mails", "orders"):
            queue = store.queue(name)
            queue.publish_many([b"body %d" % number for number in range(300)])
            queue.publish_many([b"B" * 9000] * 5, headers={"kind": "big"})
            if name == "orders":
                queue.flush()
            queue.ack_many(queue.get_many(70))
    return path


@pytest.fixture
def numbers(run: Callable[..., Ran]) -> Callable[..., Any]:
    """`numbers("depth", path, "orders")`: what plot --json prints."""

    def numbers(*arguments: object) -> Any:
        code, out, err = run("plot", *arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return numbers


@pytest.fixture
def draws(run: Callable[..., Ran], tmp_path: Path) -> Callable[..., list[str | None]]:
    """plot draws an SVG and a PNG; the texts in the SVG."""
    pytest.importorskip("matplotlib")

    def draws(*arguments: object) -> list[str | None]:
        for name in ("p.svg", "p.png", "again.svg"):
            code, out, err = run("plot", *arguments, "--out", tmp_path / name)
            assert (code, err) == (0, "")
            assert out.startswith(str(tmp_path / name))
        assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG\r\n")
        assert arguments[0] == "recovery" or (
            (tmp_path / "p.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()
        )
        root = ElementTree.fromstring((tmp_path / "p.svg").read_text())  # noqa: S314 - our own
        return [element.text for element in root.iter(SVG_TEXT)]

    return draws
