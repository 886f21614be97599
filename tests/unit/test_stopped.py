"""What to do with a store that a command has filled by half: not to delete what it had before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import qindex


@pytest.fixture
def sources(tmp_path: Path, dead_node: Path) -> dict[str, list[object]]:
    store = tmp_path / "s"
    with qindex.open(store, format=2) as opened:
        opened.queue("q").publish_many([b"x"] * 10)
    return {
        "salvage": [store],
        "replay": [store, "q", "--at", "10"],
        "recover": [dead_node],
    }


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("command", ["salvage", "replay", "recover"])
def test_a_full_disk_costs_no_queue_that_was_there(
    run: Any,
    tmp_path: Path,
    sources: dict[str, list[object]],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    there: bool,
) -> None:
    into = tmp_path / "into"
    if there:
        with qindex.open(into, format=2) as store:
            store.queue("mine").publish(b"kept")

    def full(*_: object, **__: object) -> None:
        raise qindex.DiskFull("no space")

    monkeypatch.setattr("qindex.cli.salvage.command.put", full)
    monkeypatch.setattr("qindex.cli.replay.into.put", full)
    monkeypatch.setattr(qindex.Store, "sync", full)
    code, _, err = run(command, *sources[command], "--out", into)
    assert code == 2
    assert "no space" in err
    if there:
        assert "keep the 1 queue that it had before, delete the others" in err
        assert "delete it" not in err
        with qindex.open(into, read_only=True) as store:
            assert [m.body for m in store.queue("mine").browse()] == [b"kept"]
    else:
        assert "holds a part of the messages: delete it" in err
