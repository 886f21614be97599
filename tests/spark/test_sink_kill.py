"""A commit of the sink that is killed at every line of it, whoever opens the store next.

python tests/spark/test_sink_kill.py      all lines, and says how many there were
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import qindex

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

from spark_sinks import WRITE, bodies_in, both_queues, drain, make_store, staged, write

from qindex.begun import FOLDER
from qindex.spark import sink_commit

SHARED = Path("/dev/shm")  # noqa: S108 - a kill is not a power cut: memory serves
MEMORY = SHARED if SHARED.is_dir() else None
EACH = 3  # lines: so often with a consumer
SETTLING = 40  # lines, about, of settling what was cut off


def in_a_child(action: Any) -> int:
    """Runs it in a fork, which inherits no open store; its exit code, or minus its signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_before(line: int, action: Any) -> None:
    """Does it, killed before the n-th line of what commits and settles."""
    left = line

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(("sink_commit.py", "begun.py")):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(None)


def kill_at(line: int, *, drained: bool) -> bool:
    """Kill a commit there, then try again as Spark does; whether it was killed.

    `drained`: a consumer has all there is in between, and it was killed while it opened the store.
    """
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        store = make_store(Path(folder))
        write(store).commit(6, staged(store, 6))
        had = drain(store)
        files = staged(store)
        code = in_a_child(lambda: kill_before(line, lambda: write(store).commit(7, files)))
        assert code in (0, -signal.SIGKILL), code
        if drained:
            in_a_child(lambda: kill_before(line // EACH % SETTLING, lambda: qindex.open(store)))
            for name, bodies in drain(store).items():
                had[name] += bodies
        write(store).commit(7, staged(store))
        found = bodies_in(store)
        assert {name: had[name] + found[name] for name in had} == both_queues(6, 7), line
        with qindex.open(store) as opened:
            assert opened.check() == []
        return code != 0


def cut_off(tmp_path: Path) -> tuple[str, list[Any]]:
    """A store whose commit of batch 7 was killed between its two queues' first parts."""
    store = make_store(tmp_path)
    files = staged(store)

    def commit() -> None:
        publish, calls = sink_commit._publish_unit, count()

        def killed(*given: Any) -> None:
            if next(calls) == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            publish(*given)

        sink_commit._publish_unit = killed
        write(store).commit(7, files)

    assert in_a_child(commit) == -signal.SIGKILL
    return store, files


def test_a_store_is_not_opened_if_what_is_there_cannot_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a consumer would ack it, and the retry would publish it once more."""
    store, files = cut_off(tmp_path)
    monkeypatch.setattr("qindex.begun._write", lambda *_: os.close(1 << 20))
    with pytest.raises(OSError, match="Bad file descriptor"):
        qindex.open(store)
    monkeypatch.undo()
    had = drain(store)  # the lock was given back
    assert sum(map(len, had.values())) == 10
    write(store).commit(7, files)
    found = bodies_in(store)
    assert {name: sorted(had.get(name, []) + found[name]) for name in found} == {
        name: sorted(bodies) for name, bodies in both_queues(7).items()
    }


def test_to_write_down_what_is_there_takes_no_space(tmp_path: Path) -> None:
    store, _ = cut_off(tmp_path)
    spare = Path(store, FOLDER, WRITE, "state.new").stat()
    qindex.open(store).close()
    state = Path(store, FOLDER, WRITE, "state.json").stat()
    assert (state.st_ino, state.st_size <= spare.st_size) == (spare.st_ino, True)


def test_a_damaged_state_stops_the_sink_but_no_consumer(tmp_path: Path) -> None:
    store, files = cut_off(tmp_path)
    Path(store, FOLDER, WRITE, "state.json").write_bytes(b"?")
    assert sum(map(len, drain(store).values())) == 10
    with pytest.raises(ValueError, match="Expecting value"):
        write(store).commit(7, files)


def test_who_opens_a_store_after_a_cut_off_commit_still_says_the_rules(tmp_path: Path) -> None:
    store, _ = cut_off(tmp_path)
    with qindex.open(store) as opened:
        queue = opened.queue("even", dead_letters=True)
        queue.nack(queue.get(), requeue=False)
        assert queue.dead == 1
        assert not opened._find_queue("odd", create=False)._has_rules


def kill_everywhere() -> int:
    """At each line, at some with a consumer in between; how many there are."""
    for line in count():
        was_killed = [kill_at(line, drained=drained) for drained in {False, line % EACH == 0}]
        if not all(was_killed):
            return line
    raise AssertionError


@pytest.mark.slow
def test_killed_at_any_line_a_commit_is_finished_by_the_next_without_loss_or_doubles() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 100  # lines


if __name__ == "__main__":
    print(kill_everywhere())
