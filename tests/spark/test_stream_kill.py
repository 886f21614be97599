"""A query from one store into another, whose driver and workers are killed again and again.

python tests/spark/test_stream_kill.py FOLDER      runs the query until it is done
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import qindex

QUEUES = ("a", "b", "c")
MESSAGES = 1000  # in each
LIMIT = 1000  # per batch: three of them
SECONDS_MAX = 250  # of one run


def query(folder: Path) -> None:
    """Takes everything from one store, acks it, and publishes it into the other one."""
    from qindex.spark import register, start_session

    spark = register(start_session("local[2]", short_lived=True))
    messages = (
        spark.readStream.format("qindex")
        .option("columns", "queue,body")
        .option("ack", True)
        .option("maxMessagesPerTrigger", LIMIT)
        .load(str(folder / "from"))
    )
    started = (
        messages.repartition(2)
        .writeStream.format("qindex")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "into"))
    )
    started.awaitTermination()
    spark.stop()


def run_until(folder: Path, moment: Callable[[Path], bool]) -> bool:
    """Starts the query and kills all of its processes then; whether it was killed."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with Path(folder, "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        until = time.monotonic() + SECONDS_MAX
        try:
            while process.poll() is None and not moment(folder):
                assert time.monotonic() < until, "the query does not come to its end"
                time.sleep(0.002)
            return process.poll() is None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def files(pattern: str, count: int) -> Callable[[Path], bool]:
    return lambda folder: sum(1 for _ in folder.glob(pattern)) >= count


def bodies_in(path: Path) -> dict[str, list[bytes]]:
    with qindex.open(path, read_only=True) as store:
        return {name: [m.body for m in store.queue(name).browse()] for name in store.queues()}


@pytest.mark.slow
def test_killed_anywhere_a_query_delivers_each_message_once_and_acks_it(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs pyspark: pip install 'qindex[spark]'")
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")
    published = {name: [f"{name}{i}".encode() for i in range(MESSAGES)] for name in QUEUES}
    with qindex.open(tmp_path / "from") as store:
        for name, bodies in published.items():
            store.queue(name).publish_many(bodies)
    kills = 0
    for moment in (
        files("checkpoint/offsets/0", 1),  # planned, not read
        files("into/spark/*/0-*.arrow", 2),  # staged, not published
        files("checkpoint/commits/0", 1),  # committed, not acked
    ):
        kills += run_until(tmp_path, moment)
        into = bodies_in(tmp_path / "into") if (tmp_path / "into").exists() else {}
        for name, bodies in bodies_in(tmp_path / "from").items():
            missing = set(published[name]) - set(into.get(name, [])) - set(bodies)
            assert not missing, f"lost while it was down: {sorted(missing)[:5]}"
    assert kills >= 2, (tmp_path / "log").read_text()[-4000:]  # those files stay: never missed
    assert not run_until(tmp_path, lambda _: False)
    into = bodies_in(tmp_path / "into")
    assert {name: sorted(bodies) for name, bodies in into.items()} == {
        name: sorted(bodies) for name, bodies in published.items()
    }
    assert bodies_in(tmp_path / "from") == {name: [] for name in QUEUES}


if __name__ == "__main__":
    query(Path(sys.argv[1]))
