"""Work in several processes: the same as in one; an error, a kill or an interrupt ends all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import qindex
from qindex.cli.main import main

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

import pyarrow.dataset as ds

from qindex.spark.spread import WorkerDied, in_processes, spread


def double(number: int) -> dict[str, Any]:
    return {"number": 2 * number, "process": os.getpid()}


def fail(number: int) -> dict[str, Any]:
    raise ValueError(f"task {number}")


def die(number: int) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def interrupts(number: int) -> dict[str, Any]:
    return {"handler": str(signal.getsignal(signal.SIGINT))}


def test_a_terminal_s_interrupt_is_for_the_first_process_only() -> None:
    before = signal.getsignal(signal.SIGINT)
    found = spread(None, range(4), interrupts, jobs=2)
    assert {each["handler"] for each in found} == {str(signal.SIG_IGN)}
    assert signal.getsignal(signal.SIGINT) is before


def test_results_come_in_order_and_from_other_processes() -> None:
    seen: list[tuple[int, int]] = []
    found = spread(None, range(5), double, lambda done, total: seen.append((done, total)), 2)
    assert [each["number"] for each in found] == [0, 2, 4, 6, 8]
    assert os.getpid() not in {each["process"] for each in found}
    assert seen[-1] == (5, 5)


@pytest.mark.slow
def test_what_a_task_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="task 2"):
        in_processes([2, 2], fail, 2)


@pytest.mark.slow
def test_a_process_that_is_killed_is_told() -> None:
    with pytest.raises(WorkerDied, match="Use fewer --jobs"):
        in_processes([1, 2], die, 2)


def test_an_interrupt_ends_the_processes() -> None:
    def interrupt(at: Any) -> None:
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        in_processes([60, 60], time.sleep, 2, interrupt)
    assert time.monotonic() - started < 50


@pytest.mark.slow
def test_ctrl_c_on_a_terminal_ends_an_audit_without_a_traceback(tmp_path: Path) -> None:
    """It goes to all processes of the group."""
    for name in "ab":
        with qindex.open(tmp_path / name, sync="never") as store:
            store.queue("q").publish_many([b"x" * 100] * 400_000)
    command = [sys.executable, "-m", "qindex", "audit", str(tmp_path / "a"), str(tmp_path / "b")]
    command += ["--out", str(tmp_path / "out"), "--jobs", "2", "--progress"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    begun = process.stderr.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=100)
    assert "Traceback" not in told
    if begun:
        assert (process.returncode, told.splitlines()[-1]) == (130, "qindex: interrupted")
    else:  # it was done within a second
        assert process.returncode == 0


def test_an_export_has_the_same_rows(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "fleet").mkdir()
    for name in "abc":
        with qindex.open(tmp_path / "fleet" / name) as store:
            store.queue("q").publish_many([name.encode()] * 10)
    rows = {}
    for jobs in ("1", "2"):
        out = tmp_path / f"out{jobs}"
        command = ["spark-export", str(tmp_path / "fleet"), "--out", str(out), "--json"]
        assert main([*command, "--columns", "broker,req_id,body", "--jobs", jobs]) == 0
        assert json.loads(capsys.readouterr().out)["messages"] == 30
        found = ds.dataset(out, format="parquet").to_table().to_pylist()
        rows[jobs] = sorted(found, key=lambda row: (row["broker"], row["req_id"]))
    assert rows["1"] == rows["2"]
