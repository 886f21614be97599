"""Queues in a process of their own: the record is whole, and what it cannot hold is refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import (
    Dies,
    EveryCall,
    Hangs,
    Lines,
    LinksOut,
    Maps,
    WritesInAThread,
    WritesUnseen,
)

from qindex.testing import Adapter, QueueBroken, Run, Unrecordable, find, process, replay


def test_what_was_written_outlives_a_kill_and_what_was_synced_a_power_cut():
    replay(Lines, "open\npublish 9\nkill\nopen\npublish 9\nsync\npublish 20\npower 0\nopen")


def test_a_cut_call_leaves_a_part_of_its_operations():
    with Run(Lines) as run:
        run.play("open")
        run.play("power 2 during close at 0")
        run.play("open")
        run.play("kill during publish 9 at 7")
        assert run.lines[-1] == "kill during publish 9 at 1"  # it has one operation
        run.play("open")
        assert [message.serial for message in run.model.live()] == [1]


@pytest.mark.slow
def test_syncs_in_the_wrong_place_are_found():
    assert find(Lines, examples=20) is None
    broken = find(WritesUnsynced, examples=60)
    assert broken is not None
    assert broken.script == "open\npublish 6\nsync\npower 0\nopen"
    assert broken.violations[0].kind == "lost"


class WritesUnsynced(Lines):
    def sync(self):
        pass


def test_the_record_of_every_call_makes_the_same_files():
    with Run(EveryCall) as run:
        run.play("open")
        run.play("publish 9")
        kinds = {op.kind for op in run.ground.ops}
        assert kinds == {
            "create", "mkdir", "write", "resize", "rename", "link", "unlink", "rmdir", "sync",
            "syncall",
        }  # fmt: skip
        run.play("kill")  # compares


def test_a_thread_that_writes_is_recorded_in_order():
    with Run(WritesInAThread) as run:
        for _ in range(5):
            run.play("open")
            run.play("kill")


@pytest.mark.parametrize(
    ("queue", "text"), [(Maps, "maps lines"), (WritesUnseen, "lines"), (LinksOut, "link")]
)
def test_what_cannot_be_recorded_is_refused(queue, text):
    with pytest.raises(Unrecordable, match=text):
        replay(queue, "open\npublish 9\nkill")


def test_a_call_that_does_not_return_is_reported_and_the_next_run_works():
    for _ in range(2):
        with pytest.raises(QueueBroken, match="hung: publish did not return"):
            replay(Hangs, "open\npublish 9")


def test_a_process_that_dies_is_reported_and_the_next_run_works():
    for _ in range(2):
        with pytest.raises(QueueBroken, match="the process died in it, exit code 7"):
            replay(Dies, "open\npublish 9")


def test_an_adapter_must_stand_where_a_process_finds_it():
    class Local(Lines):
        pass

    with pytest.raises(ValueError, match="top level"):
        replay(Local, "open")


def test_an_adapter_of_a_script_is_loaded_from_its_file(tmp_path):
    script = tmp_path / "my_queue.py"
    script.write_text(
        "from processes import Lines\n"
        "from qindex.testing import replay\n"
        "class Mine(Lines):\n    pass\n"
        "if __name__ == '__main__':\n"
        "    replay(Mine, 'open\\npublish 9\\nkill\\nopen')\n"
        "    print('kept')\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": f"{root}:{root}/tests/property", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("kept\n", "")


def test_an_adapter_that_cannot_be_loaded_says_why(tmp_path):
    class Nowhere(Adapter):
        pass

    Nowhere.__qualname__ = "Nowhere"  # it says that it stands at the top level, and does not
    with pytest.raises(ImportError, match="Nowhere"):
        replay(Nowhere, "open")


class Ends(Lines):
    pass


def test_a_process_that_ends_at_once_says_so(monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(ImportError, match="Ends cannot be loaded: the process ended"):
        replay(Ends, "open")


@pytest.mark.parametrize("cut", [1, process._LINE.size, process._LINE.size + 3])
def test_a_line_that_is_half_written_is_taken_when_it_is_whole(tmp_path, cut):
    """Threads of the queue go on writing while the record is read."""
    ground = object.__new__(process.ProcessGround)
    ground.record, ground.read, ground.scratch = tmp_path / "record", 0, set()
    line = process._LINE.pack(b"w", 0, 0, 7, 4096, 4) + b"body"
    ground.record.write_bytes(line + line[:cut])
    assert [(op.number, op.data) for op in ground._take_ops()] == [(7, b"body")]
    ground.record.write_bytes(line + line)
    assert [(op.offset, op.data) for op in ground._take_ops()] == [(4096, b"body")]
    assert ground._take_ops() == []
