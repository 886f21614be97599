"""A table of messages into another store: nothing is lost on the way; types are checked first."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from helpers import DEMO_NODE, unpack

import qindex

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from qindex.begun import FOLDER
from qindex.spark import sink_commit
from qindex.spark.headers import headers_as_json, headers_of_json
from qindex.spark.plan import find
from qindex.spark.schema import TABLES
from qindex.spark.sink_columns import check_columns
from qindex.spark.sink_commit import Write
from qindex.spark.sink_stage import stage
from qindex.spark.tables import Choice, batches

EVERY = [column.name for column in TABLES["messages"]]
HEADERS: dict[str, Any] = {
    "bytes": b"\xff\xfe",
    "text as bytes": b"abc",
    "time": datetime(2026, 11, 23, 5, 0, tzinfo=UTC),
    "decimal": Decimal("1.50"),
    "nan": float("inf"),
    "looks like one": {"$bytes": "AA=="},
    "nested": [{"$time": b"\x00"}, None, True, 1.0, 2**40],
    "\udcff": "é",
}


def commit(into: Path, rows: Any, queue: str | None = None) -> None:
    qindex.open(into).close()
    folder = Path(into, FOLDER, "w")
    staged = [stage(folder, f"0-{n}", queue, iter([batch])) for n, batch in enumerate(rows)]
    Write(str(into), "w").commit(0, staged)


def told(store: Path) -> list[tuple[Any, ...]]:
    found = []
    with qindex.open(store, read_only=True) as opened:
        for name in opened.queues():
            for m in opened.queue(name).browse():
                fields = (m.body, m.headers, m.priority, m.due, m.expires_at, m.redelivered)
                found.append((name, *fields, m.persistent))
    return sorted(found, key=lambda row: row[:2])


def test_what_a_table_has_is_written_as_it_was(tmp_path: Path) -> None:
    soon, late = time.time() + 60, time.time() + 1e6
    with qindex.open(tmp_path / "from", expire=False) as store:
        queue = store.queue("q")
        queue.publish(b"0", headers=HEADERS)
        for number, due in enumerate([soon, soon + 1, late, late + 7200, 1e9, None], start=1):
            queue.publish(b"%d" % number, due=due, priority=number % 3)
        queue.publish(b"7", priority=255, expires_at=4e9, persistent=False)
        queue.publish(b"8", redelivered=True)
        store.queue("\ud800").publish(b"9", priority=1, headers={"a": b"x" * 5000})
    units = find([str(tmp_path / "from")])
    commit(tmp_path / "into", list(batches(units, "messages", EVERY, Choice())))
    assert told(tmp_path / "into") == told(tmp_path / "from")
    with qindex.open(tmp_path / "into") as store:
        assert store.check() == []
        assert (len(store.queue("q")), store.queue("q").stats().delayed) == (9, 4)


def test_a_dead_node_s_messages_keep_exchange_and_keys(tmp_path: Path) -> None:
    unpack(DEMO_NODE, tmp_path / "node")
    units = find([str(tmp_path / "node")])
    rows = list(batches(units, "messages", EVERY, Choice()))
    commit(tmp_path / "into", rows)
    expected = [row for batch in rows for row in batch.to_pylist()]
    found = told(tmp_path / "into")
    assert len(found) == len(expected) > 100
    keys = sorted((row["queue"], row["body"], row["exchange"]) for row in expected)
    assert sorted((row[0], row[1], row[2]["exchange"]) for row in found) == keys
    assert all(row[2]["routing_keys"] for row in found)


def test_seconds_from_now_on(tmp_path: Path) -> None:
    batch = pa.record_batch(
        {"body": ["a", "b", "c"], "ttl": [60, None, 0.5], "delay": [None, 30.0, 0.0]}
    )
    commit(tmp_path / "into", [batch], "q")
    now = time.time()
    by_body = {row[1]: (row[4], row[5]) for row in told(tmp_path / "into")}
    assert by_body[b"a"] == (None, pytest.approx(now + 60, abs=20))
    assert by_body[b"b"] == (pytest.approx(now + 30, abs=20), None)
    assert by_body[b"c"][0] is None


@pytest.mark.parametrize(
    ("column", "values", "text"),
    [
        ("priority", [1, 256], "priority is 0 to 255, not 256"),
        ("priority", [-1, 0], "priority is 0 to 255, not -1"),
        ("delay", [-1.0, 0.0], "delay is 0 or more seconds, not -1.0"),
        ("ttl", [1.0, float("nan")], "ttl is 0 or more seconds"),
        ("headers", ["[]", None], "headers are a JSON object"),
        ("headers", ['{"a": {"$bytes": "?"}}', None], "headers are a JSON object"),
    ],
)
def test_a_row_that_cannot_be_published_is_refused(
    tmp_path: Path, column: str, values: list[Any], text: str
) -> None:
    batch = pa.record_batch({"body": ["a", "b"], column: values})
    with pytest.raises(ValueError, match=text):
        commit(tmp_path / "into", [batch], "q")


def test_a_row_has_one_time_not_two(tmp_path: Path) -> None:
    when = pa.array([datetime(2030, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    for at, after in (("due", "delay"), ("expires_at", "ttl")):
        batch = pa.record_batch({"body": ["a"], at: when, after: [1.0]})
        with pytest.raises(ValueError, match=f"rows have both {at} and {after}"):
            commit(tmp_path / "into", [batch], "q")


@pytest.mark.parametrize(
    ("column", "kind"),
    [("priority", "string"), ("due", "bigint"), ("ttl", "timestamp"), ("persistent", "int")],
)
def test_types_are_checked_when_a_query_is_planned(column: str, kind: str) -> None:
    with pytest.raises(ValueError, match=rf"the column {column} is .*, not {kind}"):
        check_columns([("body", "binary"), (column, kind)], "q")
    check_columns([("body", "binary"), (column, "void")], "q")
    every = [(column.name, column.type.replace("long", "bigint")) for column in TABLES["messages"]]
    check_columns(every, None)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.binary()
    | st.floats(allow_nan=False) | st.datetimes(timezones=st.just(UTC))
    | st.decimals(allow_nan=False, places=2),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["$bytes", "$object", "a", "\udc80"]), inner, max_size=2),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.text(), values, min_size=1, max_size=3))
def test_headers_come_back_from_json(headers: dict[str, Any]) -> None:
    text = headers_as_json(headers)
    assert text is not None
    text.encode()
    assert headers_of_json(text) == headers


@pytest.mark.parametrize("stop", range(8))
def test_a_commit_that_is_cut_off_is_finished_exactly_once(tmp_path: Path, stop: int) -> None:
    """Of parts with priorities and times, each in a lane of its own."""
    now = time.time()
    due = [None, now + 60, now + 1e6, None, now + 61, None]
    batch = pa.record_batch(
        {
            "body": [b"%d" % number for number in range(6)],
            "priority": [0, 1, 2, 3, 1, 0],
            "due": pa.array([d and int(d * 1e6) for d in due], pa.timestamp("us", "UTC")),
        }
    )
    into = tmp_path / "into"
    qindex.open(into).close()
    staged = [stage(Path(into, FOLDER, "w"), "0-0", "q", iter([batch]))]
    child = os.fork()
    if child == 0:
        published, left = sink_commit._publish_unit, [stop]

        def publish(*arguments: Any) -> None:
            if left[0] == 0:
                os._exit(0)
            left[0] -= 1
            published(*arguments)

        sink_commit._publish_unit = publish
        Write(str(into), "w").commit(0, staged)
        os._exit(0)
    os.waitpid(child, 0)
    had = set()
    with qindex.open(into) as store:  # a consumer comes first
        for message in store.queue("q").get_many(2):
            had.add(message.body)
            store.queue("q").ack(message)
    Write(str(into), "w").commit(0, staged)
    found = [row[1] for row in told(into)]
    assert len(found) == len(set(found)) == 6 - len(had)
    assert had.isdisjoint(found)


def test_a_time_that_comes_nearer_changes_its_place_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into, asked = tmp_path / "into", []
    real = sink_commit._next_req_id

    def moved(store: qindex.Store, unit: Any) -> int:
        asked.append(unit)
        return real(store, unit) + (1 << 52 if len(asked) == 1 else 0)

    monkeypatch.setattr(sink_commit, "_next_req_id", moved)
    commit(into, [pa.record_batch({"body": ["a", "b"], "delay": [60.0, 60.0]})], "q")
    assert [row[1] for row in told(into)] == [b"a", b"b"]
    assert len(asked) > 2


def test_spark_writes_what_it_reads(spark: Any, tmp_path: Path) -> None:
    with qindex.open(tmp_path / "from") as store:
        store.queue("q").publish(b"a", headers=HEADERS, priority=7, delay=1e5)
        store.queue("q").publish(b"b", ttl=1e6)
    frame = spark.read.format("qindex").option("columns", "*").load(str(tmp_path / "from"))
    frame.write.format("qindex").mode("append").save(str(tmp_path / "into"))
    assert told(tmp_path / "into") == told(tmp_path / "from")
    with pytest.raises(Exception, match="the column due is timestamp or"):
        frame.selectExpr("body", "queue", "1 as due").write.format("qindex").mode("append").save(
            str(tmp_path / "other")
        )
    assert not (tmp_path / "other").exists()


def test_parts_that_share_a_lane_have_different_req_ids(tmp_path: Path) -> None:
    """Else one of them would be taken for the other, if a commit is cut off between them."""
    now_us = int(time.time() * 1e6)
    with qindex.open(tmp_path / "s") as store:
        units = [
            sink_commit.Unit("f", "q", [], 3),
            sink_commit.Unit("f", "q", [], 2),
            sink_commit.Unit("f", "q", [], 4, priority=1),
            sink_commit.Unit("f", "q", [], 1, due_us=now_us + 10**13),
            sink_commit.Unit("f", "q", [], 1, due_us=now_us + 10**13),
            sink_commit.Unit("f", "other", [], 1),
        ]
        firsts = [unit.first for unit in sink_commit._place(store, units)]
    assert firsts[:3] == [0, 3, 1 << 52]
    assert firsts[4] == firsts[3] + 1
    assert firsts[5] == 0
