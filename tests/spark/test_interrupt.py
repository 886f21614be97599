"""Ctrl-C while Spark works: the tasks end, and nothing but "interrupted" is told."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import qindex.spark
from qindex.cli import spark_fleet
from qindex.cli.spark_fleet import check_interrupt, session_on, stopping
from qindex.look.screen import Screen

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A session that starts in no time; what becomes of it."""
    told: list[str] = []
    session = SimpleNamespace(stop=lambda: told.append("stopped"))
    monkeypatch.setattr(spark_fleet, "find_spec", lambda name: object())
    monkeypatch.setattr(qindex.spark, "start_session", lambda master: session)
    monkeypatch.setattr(qindex.spark, "register", lambda session: session)
    return told


def test_an_interrupt_waits_until_it_can_be_told(fake: list[str]) -> None:
    """It does not cut off what Spark's Python side is just sending."""
    before = signal.getsignal(signal.SIGINT)
    progress: list[tuple[int, int]] = []
    with pytest.raises(KeyboardInterrupt), session_on(Screen(), "local"):  # noqa: PT012
        at = stopping(lambda done, total: progress.append((done, total)))
        at(1, 2)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        fake.append("goes on")
        at(2, 2)
    assert fake == ["goes on", "stopped"]
    assert progress == [(1, 2)]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_interrupt_is_told_at_once(fake: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt), session_on(Screen(), "local"):  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    assert fake == ["stopped"]


def test_an_interrupt_of_one_session_is_not_one_of_the_next(fake: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt), session_on(Screen(), "local"):  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        check_interrupt()
    with session_on(Screen(), "local"):
        check_interrupt()


def test_what_interrupts_the_wait_ends_the_tasks(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from qindex.spark.spread import collect

    file = tmp_path / "begun"

    def slow(batches: Any) -> Any:
        file.touch()
        time.sleep(60)
        yield from batches

    def interrupt(done: int, total: int) -> None:
        if file.exists():
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        collect(spark, spark.range(2).mapInArrow(slow, "id long"), interrupt)
    assert time.monotonic() - started < 50
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
    assert "py4j" not in capfd.readouterr().err
    assert spark.range(3).count() == 3


def test_the_first_example_runs(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    with qindex.open(tmp_path / "store") as store:
        store.queue("orders").publish(b"x")
    monkeypatch.setattr(qindex.spark, "start_session", lambda: spark)
    lines = str(qindex.spark.__doc__).splitlines()
    example = "\n".join(line.strip() for line in lines if line.startswith("    "))
    code = compile(example.replace("/brokers/*", str(tmp_path)), "example", "exec")
    exec(code, {})  # noqa: S102 - ours
    assert "orders" in capsys.readouterr().out
