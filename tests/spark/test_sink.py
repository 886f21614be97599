"""df.write.format("qindex") in a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import qindex


def bodies(store: Path, queue: str) -> list[bytes]:
    with qindex.open(store, read_only=True) as opened:
        return [message.body for message in opened.queue(queue).browse()]


def test_rows_become_messages_in_the_order_of_partitions(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(0, 1000, numPartitions=3).selectExpr("cast(id as string) as body")
    for _ in range(2):
        rows.write.format("qindex").option("queue", "q").mode("append").save(str(tmp_path / "s"))
    expected = [str(i).encode() for i in range(1000)]
    assert bodies(tmp_path / "s", "q") == expected * 2
    assert list((tmp_path / "s/spark").iterdir()) == []


def test_a_write_with_a_name_happens_once(spark: Any, tmp_path: Path) -> None:
    for version, number in ((0, "1"), (0, "2"), (1, "3"), (0, "4")):
        (
            spark.sql(f"select '{number}' as body, 'q' as queue")
            .write.format("qindex")
            .option("writeId", "nightly")
            .option("writeVersion", version)
            .mode("append")
            .save(str(tmp_path / "s"))
        )
    assert bodies(tmp_path / "s", "q") == [b"1", b"3"]


def test_what_was_read_can_be_written_back(spark: Any, tmp_path: Path) -> None:
    with qindex.open(tmp_path / "from") as store:
        store.queue("q").publish(b"body", headers={"a": 1}, expires_at=4e9)
    messages = spark.read.format("qindex").option("columns", "*").load(str(tmp_path / "from"))
    kept = messages.select("queue", "req_id", "body", "headers", "expires_at", "persistent")
    kept.write.format("qindex").mode("append").save(str(tmp_path / "into"))
    with qindex.open(tmp_path / "into") as store:
        message = store.queue("q").get()
    assert message is not None
    assert (message.body, message.headers, message.expires_at) == (b"body", {"a": 1}, 4e9)


def test_an_overwrite_is_refused(spark: Any, tmp_path: Path) -> None:
    rows = spark.sql("select 'x' as body, 'q' as queue")
    with pytest.raises(Exception, match="queues are appended to"):
        rows.write.format("qindex").mode("overwrite").save(str(tmp_path / "s"))


def test_rows_that_are_no_messages_are_refused_before_anything_runs(
    spark: Any, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="unknown columns bdy"):
        spark.sql("select 'x' as body, 'y' as bdy, 'q' as queue").write.format("qindex").mode(
            "append"
        ).save(str(tmp_path / "s"))
    assert not (tmp_path / "s").exists()


def test_a_row_that_is_no_message_fails_the_write_and_nothing_is_published(
    spark: Any, tmp_path: Path
) -> None:
    rows = spark.range(0, 10, numPartitions=2).selectExpr(
        "'q' as queue", "if(id = 7, null, 'x') as body"
    )
    with pytest.raises(Exception, match="1 rows have no body"):
        rows.write.format("qindex").mode("append").save(str(tmp_path / "s"))
    with qindex.open(tmp_path / "s", read_only=True) as store:
        assert store.queues() == []
