"""What a task of a stream holds in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

import qindex

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'qindex[spark]'")
pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

from pyspark.sql.types import LongType, StructType

from qindex.spark.stream import StreamReader
from qindex.spark.stream_offsets import Range
from qindex.spark.stream_rows import read_ranges
from qindex.spark.stream_store import identity


def test_big_bodies_come_in_batches_of_bounded_size(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("q")
        for _ in range(15):
            queue.publish_many([b"x" * (1 << 20)] * 10)
        whole = Range(store.path, "q", identity(store, "q"), 0, 150, 149)
        batches = read_ranges([whole], ["body"], pytest.fail, whole=True)
        sizes = [batch.nbytes for batch in batches]
    assert sum(sizes) > 150 << 20
    assert max(sizes) <= 96 << 20


def test_an_ack_of_what_nobody_has_read_is_refused() -> None:
    schema = StructType().add("req_id", LongType())
    with pytest.raises(ValueError, match="body is not among the columns"):
        StreamReader({"path": "/somewhere", "ack": "owner"}, schema)
