"""Memory for a stream does not grow with what is in its files."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from stream_files import write_stream

from qindex.brokers.rabbitmq.streams.stream import Stream
from qindex.brokers.tree import Findings, Tree

MB = 1 << 20


@pytest.mark.slow
def test_a_stream_that_is_eight_times_as_long_needs_no_more_memory(tmp_path: Path) -> None:
    peaks = []
    for count in (2_000, 16_000):
        (tmp_path / str(count)).mkdir()
        path = write_stream(
            tmp_path / str(count), [b"x" * 100] * count, per_chunk=50, per_segment=10
        )
        tracemalloc.start()
        findings = Findings()
        stream = Stream(path.name, "/", path.name, Tree(path.parent, findings), findings)
        stream.read()
        assert sum(1 for _ in stream.messages()) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < MB // 4
