"""trace, replay and dump know every kind of record that FORMAT.rst describes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import qindex
from qindex.native.frames import DEAD_US
from qindex.native.times import time_text

ENTRIES = 64


def test_trace_shows_burials_and_delays(run: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "data"
    with qindex.open(path, segment_entries=ENTRIES) as store:
        queue = store.queue("q", dead_letters=True)
        rejected = queue.publish(b"rejected")
        delayed = queue.publish(b"delayed", delay=1000, priority=3)
        expired = queue.publish(b"expired", ttl=0.001)
        back = queue.publish(b"back")
        time.sleep(0.01)
        for message in queue.get_many(4):
            queue.nack(message, requeue=False)
        queue.expire()
        queue.flush()  # the first two are in segments, what follows is in the journal
        held = queue.publish(b"held")
        queue.nack(queue.get_many(1)[0], delay=2000)
        assert queue.redrive() == 3
    for req_id, wanted in (
        (rejected, ["bury", "dead letter: rejected", "taken back from the dead letters"]),
        (expired, ["bury", "dead letter: expired", "taken back"]),
        (back, ["bury", "dead letter: rejected"]),
        (delayed, ["time", "priority 3, held until"]),
        (held, ["time", "held until"]),
    ):
        code, out, _ = run("trace", path, f"q:{req_id}")
        assert code == 0
        assert all(word in out for word in wanted), (wanted, out)
        assert "7205759403" not in out


def test_replay_calls_a_burial_by_its_name(run: Callable[..., Any], tmp_path: Path) -> None:
    """It printed the core's mark for one: held until 72057594037.927673."""
    with qindex.open(tmp_path / "data") as store:
        queue = store.queue("q", dead_letters=True)
        queue.publish(b"rejected")
        queue.publish(b"delayed", delay=1000)
        queue.nack(queue.get_many(1)[0], requeue=False)
    code, out, _ = run("replay", tmp_path / "data", "q")
    assert code == 0
    told = [" ".join(line.split()[3:]) for line in out.splitlines()]
    assert any(line.startswith("time 0 buried as a dead letter: rejected") for line in told), out
    assert sum("held until 20" in line for line in told) == 1, out
    assert "7205759403" not in out


def test_trace_reads_the_journals_of_history(run: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "data"
    with qindex.open(path, segment_entries=16, max_journal_entries=10, keep_history=1 << 20) as s:
        queue = s.queue("q")
        for number in range(40):
            queue.publish(b"%d" % number)
        queue.ack_many(queue.get_many(20))
        queue.flush()
    code, out, _ = run("trace", path, "q:3")
    assert code == 0
    words = [line.split()[2] for line in out.splitlines() if "past." in line]
    assert words == ["publish", "deliver", "ack"], out
    assert "acked" in out.splitlines()[-1]
    code, out, _ = run("trace", path, "q:39")
    assert [line.split()[2] for line in out.splitlines() if "past." in line] == ["publish"]
    assert "live, ready" in out


def test_trace_shows_what_a_purge_took_from_each_priority(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    with qindex.open(tmp_path / "data") as store:
        queue = store.queue("q")
        low, high = queue.publish(b"low"), queue.publish(b"high", priority=9)
        queue.purge()
    for req_id in (low, high):
        code, out, _ = run("trace", tmp_path / "data", f"q:{req_id}")
        assert code == 0
        assert "purge" in out


def test_replay_says_what_a_burial_is(run: Callable[..., Any], tmp_path: Path) -> None:
    with qindex.open(tmp_path / "data") as store:
        queue = store.queue("q", dead_letters=True)
        queue.publish(b"a")
        queue.publish(b"b", priority=4)  # so that a LANES frame comes with the CLOSE
        for message in queue.get_many(2):
            queue.nack(message, requeue=False)
    code, out, _ = run("replay", tmp_path / "data", "q")
    assert code == 0
    assert out.count("buried as a dead letter: rejected") == 2
    assert "where 1 more lane" in out
    assert "held until 7" not in out


def test_dump_says_what_a_time_stands_for(run: Callable[..., Any], tmp_path: Path) -> None:
    with qindex.open(tmp_path / "data") as store:
        queue = store.queue("q", dead_letters=True)
        queue.publish_many([b"a", b"b"])
        for message in queue.get_many(2):
            queue.nack(message, requeue=False)
        queue.redrive(1)
    code, out, _ = run("dump", tmp_path / "data")
    assert code == 0
    assert "(dead letter: rejected)" in out
    assert "(taken back from the dead letters)" in out


@pytest.mark.parametrize(
    ("due_us", "text"),
    [
        (0, "not held"),
        (1, "taken back from the dead letters, due at once"),
        (2, "due at once"),
        (1_700_000_000_000_000, "held until 2023-11-14T22:13:20Z"),
        (DEAD_US - 1, "held until 4253-05-31T22:20:37.927673Z"),
        (DEAD_US + 1, "buried as a dead letter: expired"),
        (DEAD_US + 2, "buried as a dead letter: rejected"),
        (DEAD_US + 3, "buried as a dead letter: delivered too often"),
        (DEAD_US + 4, "buried as a dead letter: the queue was full"),
        (DEAD_US + 9, "buried as a dead letter: reason 9"),
    ],
)
def test_each_value_of_a_time_has_words(due_us: int, text: str) -> None:
    assert time_text(due_us, 0) == text
