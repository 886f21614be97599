"""The steps of docs/rescue/runbook.rst on nodes with quorum queues and with streams."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import unpack

DATA = Path(__file__).parents[1] / "compat/data"
# The largest of these files is the one in which a bit flips, for section 3.
NODES = {
    "quorum_q1": "**/quorum/*/*.wal",
    "quorum_s1": "**/stream/__st_*/*.segment",
}


@pytest.fixture(params=list(NODES))
def node(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """The copy that is worked on, and the file to damage."""
    path = unpack(DATA / f"{request.param}.tar.xz", tmp_path / "node")
    return path, max(path.glob(NODES[request.param]), key=lambda file: file.stat().st_size)


@pytest.mark.sample(2)
def test_the_runbook_brings_everything_back(
    node: tuple[Path, Path], run: Any, tmp_path: Path
) -> None:
    copy, store = node[0], tmp_path / "store"
    told = json.loads(run("recover", copy, "--json").out)
    live = told["account"]["live"]
    queue = max(told["queues"], key=lambda each: each["live"])["queue"]
    assert run("recover", copy).code == 0
    assert run("peek", copy, queue, "-n", "1").code == 0
    assert run("trace", copy, f"{queue}:0").code == 0
    assert run("du", copy, "--explain").code == 0

    code, out, _ = run(
        "recover", copy, "--out", store, "--keep-expired", "--report", tmp_path / "r"
    )
    assert code == 0
    assert f"{live:,} live = {live:,} recovered + 0 expired + 0 unreadable" in out
    assert f"{live:,}" in (tmp_path / "r").read_text(encoding="utf-8")
    code, _, error = run("recover", copy, "--out", store)
    assert code == 2
    assert "the store already has" in error

    assert run("check", store).code == 0
    code, out, _ = run("diff", copy, store, "--ignore-state")
    assert code == 0
    assert f"{live:,} messages alike" in out
    file = tmp_path / "messages.jsonl"
    assert run("export", store, "--out", file).code == 0
    assert len(file.read_text(encoding="utf-8").splitlines()) == live
    assert run("cat", store, queue, "-n", "1").code == 0
    assert run("top", store, "--once", "--interval", "0.1").code == 0


@pytest.mark.sample(2)
def test_the_runbook_says_what_damage_cost(
    node: tuple[Path, Path], run: Any, tmp_path: Path
) -> None:
    copy, file = node
    before = json.loads(run("recover", copy, "--json").out)["account"]["live"]
    broken = tmp_path / "broken"
    shutil.copytree(copy, broken)
    damaged = broken / file.relative_to(copy)
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 0x10
    damaged.write_bytes(data)
    page = tmp_path / "broken.html"
    code, out, _ = run("recover", broken, "--report", page)
    assert code == 1
    assert "damage" in out
    assert damaged.name in out
    assert "To take them: qindex recover" in out
    told = json.loads(run("recover", broken, "--json").out)
    assert not told["complete"]
    assert before - 5 <= told["account"]["live"] <= before
    assert "damaged place" in page.read_text(encoding="utf-8")
    assert run("recover", broken, "--out", tmp_path / "store").code == 1
    assert run("check", broken).code == 1
    assert run("diff", copy, broken).code in (1, 3)
