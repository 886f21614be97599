"""DiskQueue(format="nsq") and NSQ's own diskqueue: the same calls, the same answers and files.

What the original did is recorded in go_diskqueue/recorded.json, and compared with everywhere. Where
Go is, and the module that go_diskqueue/go.mod pins, the original plays itself; RECORD=1 in the
environment records it anew.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from foreign_suites import GO_TESTS

from qindex import DiskQueue

from .go_original import NAME, PROGRAM, RECORDED, SEEDS, Original, Ours, build, play, record

SYNCED, UNSYNCED = 100, 50
KILLED = f"""
import os, signal, sys
from qindex import DiskQueue

queue = DiskQueue({NAME!r}, sys.argv[1], max_bytes_per_file=1000, format="nsq", sync_timeout=3600)
for number in range({SYNCED + UNSYNCED}):
    queue.put(b"%d" % number)
    if number == {SYNCED - 1}:
        queue.sync()
for number in range(10):
    assert queue.get() == b"%d" % number
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_ours_answers_and_leaves_what_the_original_did(tmp_path: Path, seed: int) -> None:
    recorded = json.loads(RECORDED.read_text())[str(seed)]
    assert play([Ours()], tmp_path / "ours", seed) == recorded


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("go"))


@pytest.mark.interop
def test_each_test_of_the_original_is_written_again(program: Path) -> None:
    """In test_diskqueue_original.py. `program` is asked for because it skips without Go."""
    listed = subprocess.run(
        ["go", "test", "-list", "^Test", "github.com/nsqio/go-diskqueue"],
        cwd=PROGRAM,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert re.findall("^Test.*", listed, re.MULTILINE) == list(GO_TESTS)


@pytest.fixture
def original(program: Path) -> Iterator[Original]:
    started = Original(program)
    yield started
    started.kill()


@pytest.mark.interop
def test_the_original_does_what_is_recorded(program: Path, tmp_path: Path) -> None:
    found = record(program, tmp_path)
    if os.environ.get("RECORD"):
        RECORDED.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(RECORDED.read_text())


@pytest.mark.interop
@pytest.mark.parametrize("ours_first", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_they_take_each_others_queue_over(
    original: Original, tmp_path: Path, seed: int, ours_first: bool
) -> None:
    players = [Ours(), original] if ours_first else [original, Ours()]
    assert play(players, tmp_path / "both", seed) == json.loads(RECORDED.read_text())[str(seed)]


@pytest.mark.interop
def test_ours_goes_on_after_the_original_was_killed(original: Original, tmp_path: Path) -> None:
    original.open(tmp_path, 1000)
    for number in range(SYNCED):
        assert original.call("put", f"{number:08x}") == "ok"
    assert original.call("get") == f"0x{0:08x}"
    original.kill()
    with DiskQueue(NAME, tmp_path, max_bytes_per_file=1000, format="nsq") as queue:
        assert queue.depth in (SYNCED - 1, SYNCED)  # the get was not synced
        got = [int.from_bytes(body) for body in queue]
        assert got == list(range(SYNCED - len(got), SYNCED))
        assert len(got) >= SYNCED - 1
        assert queue.damaged == 0


@pytest.mark.interop
def test_the_original_goes_on_after_ours_was_killed(original: Original, tmp_path: Path) -> None:
    worker = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert worker.returncode == -9
    original.open(tmp_path, 1000)
    # Its depth is that of the last sync: with it alone it would be empty before its end.
    got = [original.call("await") for _ in range(SYNCED + UNSYNCED - 10)]
    wanted = [f"0x{(b'%d' % number).hex()}" for number in range(SYNCED + UNSYNCED)]
    assert got[0] in wanted[:11]
    assert got == wanted[wanted.index(got[0]) :][: len(got)]
