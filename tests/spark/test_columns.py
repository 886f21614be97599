"""Columns say what `qindex dump` and get() say, row by row; hostile bytes cost time, not memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qindex
from qindex.cli.dump.command import lines_of

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

from qindex._core import lib
from qindex.spark import columns

KINDS = ("publish", "publish", "deliver", "ack", "time", "event", "count", "purge")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One queue with segments and a journal that is not flushed, all kinds of records in them."""
    path = tmp_path_factory.mktemp("columns") / "store"
    with qindex.open(path, segment_entries=8, embed_below=64, sync="never", format=1) as store:
        queue = store.queue("orders")
        for number in range(30):
            queue.publish(b"x" * (number * 5), ttl=1e6 if number % 3 else None)
        queue.publish(b"later", delay=1e6, priority=3)
        queue.publish(b"first", priority=9)
        queue.ack_many(queue.get_many(10)[3:])
        queue.flush()
        for _ in range(3):
            queue.nack_many(queue.get_many(5))
        queue.flush()
        queue.nack_many(queue.get_many(5))
        store.queue("purged").publish_many([b"x"] * 3)
        store.queue("purged").purge()
        queue.publish(b"", persistent=False)
        queue.publish(b"later still", delay=1e6)
        queue.publish(b"y" * 100, headers={"k": 1})
    return path


def files_of(store: Path) -> list[Path]:
    return sorted(f for f in store.glob("queues/*/*") if f.suffix in (".idx", ".alt", ".jif"))


def rows_of(walk: Any) -> list[dict[str, Any]]:
    return [row for batch in walk for row in batch.to_pylist()]


def as_dumped(row: dict[str, Any], entries: int) -> str:
    """A row in the words of `qindex dump`; a segment's lines have slots."""
    verb = KINDS[row["kind"]]
    if verb == "purge":
        return f"{row['offset']} purge"
    number = row["req_id"] % entries if entries else row["req_id"]
    if row["kind"] < lib.QI_ROW_DELIVER:
        kind = "transient" if row["kind"] else "persistent"
        msg_id = row["msg_id"].hex() if row["msg_id"] else "-"
        expiry_us = (
            (row["expiry_us"] - EPOCH) // timedelta(microseconds=1) if row["expiry_us"] else 0
        )
        sizes = f"size {row['size']} embedded {row['embedded']}"
        return (
            f"{row['offset']} {verb} {kind} {number} {sizes} msg_id {msg_id} expiry_us {expiry_us}"
        )
    if verb == "time":
        due_us = (row["due_us"] - EPOCH) // timedelta(microseconds=1) if row["due_us"] else 0
        return f"{row['offset']} time {number} due_us {due_us} priority {row['priority']}"
    more = {"event": " (first: deliver, second: ack)", "count": f" delivered {row['count']} times"}
    return f"{row['offset']} {verb} {number}{more.get(verb, '')}"


@pytest.mark.parametrize("rows", [1, 3, 65536])
def test_records_are_those_of_dump(store: Path, rows: int) -> None:
    seen = set()
    for file in files_of(store):
        data = file.read_bytes()
        if not any(data[:64]):  # a journal that was flushed
            assert rows_of(columns.records(data, rows=rows)) == []
            continue
        found = rows_of(columns.records(data, rows=rows))
        seen |= {row["kind"] for row in found}
        entries = 0 if file.name.startswith("journal") else 8
        lines = [" ".join(line.split()) for line in lines_of(data)]
        expected = [line for line in lines if line.split()[1] in KINDS]
        expected = [
            line.partition(" purge")[0] + " purge" if " purge" in line else line
            for line in expected
        ]
        assert [as_dumped(row, entries) for row in found] == expected
    assert seen >= {*range(lib.QI_ROW_PURGE + 1)} - {lib.QI_ROW_ACK}


@pytest.mark.parametrize("rows", [1, 7, 65536])
@pytest.mark.parametrize("with_bodies", [False, True])
def test_messages_are_those_that_get_hands_out(store: Path, rows: int, with_bodies: bool) -> None:
    with qindex.open(store, read_only=True) as opened:
        queue = opened.queue("orders")
        walk = columns.Messages(queue._handle, rows=rows, with_bodies=with_bodies)
        found = rows_of(walk)
        browsed = list(queue.browse())
    assert [row["req_id"] for row in found] == [message.req_id for message in browsed]
    assert [row["priority"] for row in found] == [message.priority for message in browsed]
    assert [bool(row["due_us"]) for row in found] == [bool(m.due) for m in browsed]
    assert [row["size"] for row in found] == [len(message.body) for message in browsed]
    if with_bodies:
        assert [row["body"] for row in found] == [message.body for message in browsed]
        assert [bool(row["headers"]) for row in found] == [bool(m.headers) for m in browsed]
    assert walk.unreadable == []


def test_payloads_that_need_more_room_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "BODIES_BYTES", 64)
    with qindex.open(tmp_path / "store", embed_below=100, sync="never") as store:
        queue = store.queue("orders")
        for number in range(100):
            headers = {"k": "h" * number * 3} if number % 3 == 0 else None
            queue.publish(b"x" * (number * 7 % 200), headers=headers)
        queue.publish(b"y" * 100_000)
        found = rows_of(columns.Messages(queue._handle, with_bodies=True))
        browsed = list(queue.browse())
    assert [row["body"] for row in found] == [message.body for message in browsed]
    assert [bool(row["headers"]) for row in found] == [bool(m.headers) for m in browsed]


@pytest.mark.parametrize("rows", [1, 7, 65536])
def test_records_of_many_files_share_batches(store: Path, rows: int) -> None:
    room = bytearray(1 << 20)  # the files may share their memory, too
    files = files_of(store)
    assert len(files) > 3

    def contents() -> Iterator[tuple[str, memoryview]]:
        for file in files:
            data = file.read_bytes()
            room[: len(data)] = data
            yield str(file), memoryview(room)[: len(data)]

    found, whose = [], []
    for batch, parts in columns.records_of(contents(), columns.RECORDS, rows):
        batch.validate(full=True)
        assert batch.num_rows == sum(count for _, count in parts) <= rows
        found += batch.to_pylist()
        whose += [name for name, count in parts for _ in range(count)]
    alone = [(str(f), row) for f in files for row in rows_of(columns.records(f.read_bytes()))]
    assert list(zip(whose, found, strict=True)) == alone


def test_a_column_that_is_not_wanted_is_left_out(store: Path) -> None:
    for file in files_of(store):
        data = file.read_bytes()
        whole = rows_of(columns.records(data))
        for name in columns.RECORDS:
            assert rows_of(columns.records(data, [name])) == [{name: row[name]} for row in whole]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_bytes_are_passed_over(store: Path, data: st.DataObject) -> None:
    """Whatever is damaged, what is found was there before, and the columns are sound."""
    file = data.draw(st.sampled_from([f for f in files_of(store) if any(f.read_bytes()[:64])]))
    whole = file.read_bytes().rstrip(b"\0")
    harmed = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 4)) if harmed else 0):
        harmed[data.draw(st.integers(0, len(harmed) - 1))] = data.draw(st.integers(0, 255))
    before = {row["offset"]: row for row in rows_of(columns.records(whole))}
    for batch in columns.records(bytes(harmed), rows=5):
        batch.validate(full=True)
        if harmed[:64] == whole[:64]:
            assert all(before[row["offset"]] == row for row in batch.to_pylist())


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_bodies_are_told_from_sound_ones(store: Path, data: st.DataObject) -> None:
    file = store / "messages/0.qms"
    identity = (store / "store.meta").read_bytes()[16:32]
    whole = file.read_bytes().rstrip(b"\0")
    before = rows_of(columns.bodies(identity, 0, whole))
    assert len(before) > 10
    assert {row["kind"] for row in before} == {lib.QI_ROW_SOUND}
    start = data.draw(st.integers(64, len(whole) - 1))
    length = data.draw(st.integers(1, 300))
    harmed = bytearray(whole)
    harmed[start : start + length] = bytes(len(harmed[start : start + length]))
    sound = [
        row
        for row in rows_of(columns.bodies(identity, 0, bytes(harmed), rows=3))
        if row["kind"] == lib.QI_ROW_SOUND
    ]
    untouched = [
        row
        for row in before
        if row["offset"] + row["size"] + 25 <= start or row["offset"] >= start + length
    ]
    assert [row for row in untouched if row not in sound] == []
    assert all(row in before for row in sound)
