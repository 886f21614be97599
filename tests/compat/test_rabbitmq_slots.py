"""A .config that is missing or wrong: the segments tell how many entries they have."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qindex.brokers.rabbitmq.directory import open_node
from qindex.cli.main import main

from .rabbitmq_files import Node, write_v1

if TYPE_CHECKING:
    from .conftest import DeadNode


@pytest.mark.parametrize("config", [None, "9048", "2008", "12048", "garbage"])
def test_the_segments_tell_how_many_entries_they_have(
    shared_node: Callable[[str], DeadNode], tmp_path: Path, config: str | None
) -> None:
    """A real node of 2048 entries: with another number acked messages would come back."""
    path = tmp_path / "node"
    shutil.copytree(shared_node("c_v1_seg2048_kill9").path, path)
    check_config(path, config, 26_300)


@pytest.mark.parametrize("config", [None, "9048", "2008"])
def test_a_small_node_tells_it_too(tmp_path: Path, config: str | None) -> None:
    node = Node(tmp_path / "node")
    write_v1(node, "q", 3 * 2048, 900, 10, slots=2048)
    path = node.close()
    (file,) = path.glob("**/.config")
    file.write_text("{segment_entry_count, 2048}.")
    live = 3 * 2048 - 900
    with open_node(path) as opened:
        assert (opened.counts.live, opened.findings) == (live, [])
    check_config(path, config, live)


def check_config(path: Path, config: str | None, live: int) -> None:
    (file,) = path.glob("**/.config")
    if config is None:
        file.unlink()
    else:
        file.write_text(f"{{segment_entry_count, {config}}}.")
    with open_node(path) as node:
        assert node.counts.live == live
        told = [finding for finding in node.findings if finding.severity != "note"]
        assert {finding.kind for finding in told} == {"config"}
        assert any("2,048 is taken" in finding.text for finding in told)
    assert main(["recover", str(path)]) == 1
