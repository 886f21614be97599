"""Directories that real brokers wrote, each with the truth about what is in it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers import unpack

from .quorum_nodes import RealNode, real_node
from .rabbitmq_server import Server

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "fixtures"
DEMO = ROOT / "qindex" / "cli" / "demo" / "demo_node"


@dataclass(frozen=True)
class DeadNode:
    """A node's directory, read-only by agreement, and what is known about it."""

    path: Path
    truth: dict[str, Any]

    @property
    def messages(self) -> dict[int, dict[str, Any]]:
        """What was published, by message number (which is its message_id too)."""
        fields = self.truth["fields"]
        return {row[0]: dict(zip(fields, row, strict=True)) for row in self.truth["messages"]}

    @property
    def recovered(self) -> dict[tuple[str, str], dict[str, Any]]:
        """What a real node gave back, by (vhost, queue)."""
        queues = self.truth["rabbitmq_recovers"]["queues"]
        return {(queue["vhost"], queue["name"]): queue for queue in queues}


@pytest.fixture(scope="session")
def shared_directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], DeadNode]:
    """The fixture of that broker and name, unpacked once; nobody changes it."""
    unpacked: dict[str, DeadNode] = {}

    def directory(broker: str, name: str) -> DeadNode:
        archive = SHARED / broker / f"{name}.tar.xz"
        if not archive.exists():
            pytest.skip("what real brokers wrote, ../shared/fixtures, is not here")
        if name not in unpacked:
            path = unpack(archive, tmp_path_factory.mktemp(name))
            with gzip.open(archive.with_name(f"{name}.json.gz")) as file:
                unpacked[name] = DeadNode(path, json.load(file))
        return unpacked[name]

    return directory


@pytest.fixture(scope="session")
def shared_node(shared_directory: Callable[[str, str], DeadNode]) -> Callable[[str], DeadNode]:
    """The RabbitMQ node of that name."""
    return lambda name: shared_directory("rabbitmq", name)


@pytest.fixture(scope="session")
def demo_node(tmp_path_factory: pytest.TempPathFactory) -> DeadNode:
    """The node that belongs to the project: it is here even where ../shared is not."""
    path = unpack(DEMO.with_suffix(".tar.xz"), tmp_path_factory.mktemp("demo"))
    return DeadNode(path, json.loads(DEMO.with_suffix(".json").read_text(encoding="utf-8")))


@pytest.fixture
def q1(tmp_path: Path) -> RealNode:
    return real_node("q1", tmp_path)


@pytest.fixture
def q2(tmp_path: Path) -> RealNode:
    return real_node("q2", tmp_path)


@pytest.fixture
def demo_copy(tmp_path: Path) -> DeadNode:
    """A copy of the demo node for this test alone, to damage."""
    path = unpack(DEMO.with_suffix(".tar.xz"), tmp_path / "demo")
    return DeadNode(path, json.loads(DEMO.with_suffix(".json").read_text(encoding="utf-8")))


@pytest.fixture
def stream_server(tmp_path: Path) -> Iterator[Server]:
    """The same, which speaks the stream protocol, too."""
    yield from started(Server(tmp_path, has_streams=True))


@pytest.fixture
def rabbitmq_server(tmp_path: Path) -> Iterator[Server]:
    """A real node, started; it ends with the test."""
    yield from started(Server(tmp_path))


@pytest.fixture
def rolling_server(tmp_path: Path) -> Iterator[Server]:
    """The same, whose shared log and segments of quorum queues are small."""
    settings = "raft.wal_max_size_bytes = 400000\nraft.segment_max_entries = 64\n"
    yield from started(Server(tmp_path, settings=settings))


def started(server: Server) -> Iterator[Server]:
    try:
        server.start()
        yield server
    finally:
        server.close()
