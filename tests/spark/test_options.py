"""Options of reads, streams and sinks are refused if nobody knows them, with advice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import qindex

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'qindex[spark]'")
pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, StringType, StructType
from spark_streams import reader

from qindex.spark.options import READ, STREAM, WRITE, WRITE_STREAM, Use, known, seconds
from qindex.spark.sink import BatchWriter, StreamWriter
from qindex.spark.source import QindexSource

ROWS = StructType().add("body", BinaryType()).add("queue", StringType())


@pytest.mark.parametrize(
    ("use", "name", "text"),
    [
        (READ, "queue", "spark.read has no option 'queue': is it queues?"),
        (STREAM, "Queue", "spark.readStream has no option 'Queue': is it queues?"),
        (STREAM, "maxOffsetPerTrigger", "is it maxOffsetsPerTrigger?"),
        (STREAM, "writeId", "that is one of df.write. It has path, paths, table"),
        (STREAM, "subscribe", '.option("queues", "orders,events")'),
        (WRITE, "topic", '.option("queue", "orders")'),
        (WRITE, "checkpointLocation", "that is one of df.writeStream"),
        (WRITE_STREAM, "qeue", "is it queue?"),
        (READ, "ack", "that is one of spark.readStream"),
        (READ, "nonsense", "It has path, paths, table"),
    ],
)
def test_an_unknown_option_is_refused_with_advice(use: Use, name: str, text: str) -> None:
    with pytest.raises(ValueError) as raised:
        known({"path": "/x", name: "1"}, use)
    assert text in str(raised.value)


def test_each_use_refuses_before_anything_is_done(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    options = {"path": path, "qeues": "a"}
    source = QindexSource(options)
    for make in (
        lambda: source.reader(StructType().add("queue", "string")),
        lambda: reader(path, qeues="a"),
        lambda: BatchWriter(options, ROWS, False),
        lambda: StreamWriter(options, ROWS, False),
    ):
        with pytest.raises(ValueError, match="no option 'qeues'"):
            make()
    assert not Path(path).exists()


def test_what_kafka_calls_them_is_understood(tmp_path: Path) -> None:
    stream = reader(str(tmp_path), maxOffsetsPerTrigger=20, minOffsetsPerTrigger=3)
    assert stream.getDefaultReadLimit() == ReadMaxRows(20)
    assert stream.options.at_least == 3
    with pytest.raises(ValueError, match="maxMessagesPerTrigger is given twice"):
        reader(str(tmp_path), maxOffsetsPerTrigger=20, maxMessagesPerTrigger=30)


@pytest.mark.parametrize(
    ("text", "value"), [("15m", 900), ("500ms", 0.5), ("2 h", 7200), ("1.5", 1.5), ("30s", 30)]
)
def test_times(text: str, value: float) -> None:
    assert seconds({"x": text}, "x", 1) == value
    with pytest.raises(ValueError, match="x is seconds, or like"):
        seconds({"x": f"{text} days"}, "x", 1)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("minReqId", "one", "minReqId is a whole number"),
        ("checkBodies", "no", "checkBodies is true or false"),
        ("expiresAfter", "soon", "expiresAfter is ISO 8601"),
        ("targetBytes", "0", "targetBytes is a whole number from 1 on"),
        ("paths", "/a", "paths is a JSON list"),
    ],
)
def test_values_of_a_read_that_make_no_sense(name: str, value: str, text: str) -> None:
    source = QindexSource({"path": "/x", name: value})
    with pytest.raises(ValueError, match=text):
        source.reader(StructType().add("queue", "string"))


def test_spark_refuses_them_too_and_what_it_adds_itself_is_known(
    spark: Any, tmp_path: Path
) -> None:
    store = str(tmp_path / "store")
    with qindex.open(store) as opened:
        opened.queue("a").publish(b"1")
        opened.queue("b").publish(b"2")
    with pytest.raises(Exception, match="no option 'queue': is it queues"):
        spark.read.format("qindex").option("queue", "a").load(store).count()
    stream = spark.readStream.format("qindex").option("ack", True).option("columns", "*")
    writer = (
        stream.option("queue", "a")
        .load(store)
        .select("body")
        .writeStream.format("qindex")
        .option("queue", "copy")
        .option("checkpointLocation", str(tmp_path / "wrong"))
        .trigger(availableNow=True)
    )
    with pytest.raises(Exception, match="no option 'queue': is it queues"):
        writer.start(str(tmp_path / "copies")).awaitTermination()
    with qindex.open(store) as opened:
        assert [len(opened.queue(name)) for name in ("a", "b")] == [1, 1]
    query = (
        spark.readStream.format("qindex")
        .option("queues", '["a"]')
        .option("columns", "*")
        .load(store)
        .select("body")
        .writeStream.format("qindex")
        .queryName("copy")
        .option("queue", "copy")
        .option("checkpointLocation", str(tmp_path / "right"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "copies"))
    )
    query.awaitTermination()
    with qindex.open(tmp_path / "copies") as opened:
        assert [message.body for message in opened.queue("copy").browse()] == [b"1"]
    spark.read.format("qindex").load([store, store]).count()
