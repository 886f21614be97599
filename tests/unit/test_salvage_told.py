"""What salvage finds no messages of: it is told, and the exit code is 1."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import bodies, queue_directory

import qindex


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with qindex.open(tmp_path / "s", format=2) as store:
        for name in ("good", "bad"):
            store.queue(name).publish_many([b"%s %d" % (name.encode(), n) for n in range(50)])
    return tmp_path / "s"


def account(run: Any, path: Path) -> tuple[dict[str, Any], dict[str, list[bytes]], str]:
    """What --json says, what the new store holds, and stderr."""
    code, out, err = run("salvage", path, "--out", path.parent / "new", "--json")
    assert code == 1
    with qindex.open(path.parent / "new", read_only=True) as store:
        assert not store.check()
        return (
            json.loads(out),
            {name: bodies(store.queue(name).browse()) for name in store.queues()},
            err,
        )


@pytest.mark.parametrize("what", ["file", "link"])
def test_a_file_in_the_place_of_a_folder_is_a_lost_queue(run: Any, path: Path, what: str) -> None:
    folder = queue_directory(path, "bad")
    shutil.move(folder, path.parent / "moved")
    folder.write_text("x") if what == "file" else folder.symlink_to(path.parent / "moved")
    told, held, err = account(run, path)
    assert list(held) == ["good"]
    [text] = told["left_out"]
    assert f"left out: queues/{folder.name}: no folder, but a file or a link is" in err
    assert text in err
    for command in ("ls", "stats"):
        code, out, _ = run(command, path)
        assert code == 1
        assert "1 queue whose name is damaged: see qindex check" in out
    assert run("check", path).code == 1
