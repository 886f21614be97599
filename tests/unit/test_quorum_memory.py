"""Memory for a quorum queue does not grow with its log, only with what is live."""

from __future__ import annotations

import argparse
import tracemalloc
from pathlib import Path

import pytest
from bench import quorum_log

from qindex.brokers.rabbitmq.directory import open_at

SHORT, LONG = 64_000, 192_000


def peak(folder: Path, count: int, *, in_wal: bool) -> int:
    """Of reading a log of so many entries, with as many live messages always."""
    quorum_log.make(
        argparse.Namespace(
            folder=folder, entries=count, body=20, live=3000, version=8, in_wal=in_wal
        )
    )
    tracemalloc.start()
    with open_at(folder) as node:
        (queue,) = node.queues
        assert queue.outcome.entries == count  # type: ignore[union-attr]
        assert queue.account.live == 2501  # more than are delivered: a line waits
    reached = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return reached


@pytest.mark.slow
@pytest.mark.parametrize("in_wal", [False, True])
def test_a_log_that_is_three_times_as_long_needs_no_more_memory(
    tmp_path: Path, in_wal: bool
) -> None:
    """But for the shared log, of which twelve bytes an entry are kept: its places."""
    peak(tmp_path / "first", 10_000, in_wal=in_wal)  # imports what is needed
    short, long = (peak(tmp_path / str(n), n, in_wal=in_wal) for n in (SHORT, LONG))
    shared = (LONG - SHORT) // (1 if in_wal else 5)
    assert long - short < 12 * shared + 128 * 1024
