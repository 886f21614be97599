"""native/records.py, which the core reads for, against frames.py, which FORMAT.rst was read for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qindex
from qindex.brokers.tree import Findings, Tree
from qindex.native import records as module
from qindex.native.folders import is_index_file, read_meta, segment_number
from qindex.native.frames import (
    ENTRIES,
    FIELDS_BYTES,
    FRAME_BYTES,
    JOURNAL_START,
    NAMES,
    PURGE,
    RECORDS,
    SEGMENT_START,
    TIME,
    Frames,
    entries_of,
    fields_of,
    journal_header,
    records_of,
    segment_header,
)
from qindex.native.records import clock_of, journals_in, purge_of, records

VERBS = ("publish", "publish", "deliver", "ack", "time")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Queues with segments and journals that are not flushed; all kinds of records and frames."""
    path = tmp_path_factory.mktemp("records") / "store"
    with qindex.open(path, segment_entries=64, embed_below=64, sync="never", format=1) as store:
        queue = store.queue("orders", dead_letters=True)
        for number in range(40):
            queue.publish(b"x" * (number * 5), ttl=1e6 if number % 3 else None)
            queue.publish(b"later", delay=1e6, priority=3, persistent=number % 2 > 0)
        queue.nack(queue.get(), requeue=False)
        queue.ack_many(queue.get_many(10)[3:])
        queue.flush()
        for _ in range(3):
            queue.nack_many(queue.get_many(5))
        queue.flush()
        queue.nack_many(queue.get_many(5))
        queue.get()
        queue.publish(b"first", priority=9)
        queue.publish(b"y" * 100, headers={"k": 1}, delay=5.0)
        purged = store.queue("purged")
        purged.publish_many([b"x"] * 9)
        purged.get()
        purged.purge()
        purged.publish(b"z")
        store.sync()
        purged.publish(b"behind a mark")
        crashed = shutil.copytree(path, path.with_name("crashed"))
    with qindex.open(crashed, sync="never") as store:  # which begins a session
        queue = store.queue("orders")
        queue.ack_many(queue.get_many(3))
        return Path(shutil.copytree(crashed, path.with_name("crashed again")))


def files_of(store: Path) -> list[Path]:
    found = [f for f in store.glob("queues/*/*") if f.suffix in (".idx", ".alt", ".jif")]
    return sorted(f for f in found if any(f.read_bytes()[:64]))


def by_the_document(data: bytes) -> Iterator[tuple[Any, ...]]:
    """(verb, ReqId or slot, offset, more) of what FORMAT.rst says is there."""
    header = journal_header(data)
    at, is_journal = (JOURNAL_START, True) if header else (SEGMENT_START, False)
    header = header or segment_header(data[:SEGMENT_START])
    assert header is not None
    frames = Frames(data, header)
    while at + FRAME_BYTES <= len(data):
        if is_journal and not any(data[at : at + FRAME_BYTES]):
            return
        frame = frames.at(at)
        if frame is None:
            frame = frames.find(at + 1)
            end = frame.offset if frame else len(data)
            yield "bad" if frame else "tail", 0, at, (end - at,)
            at = end
            continue
        payload, start, at = frames.payload(frame), frame.offset + FRAME_BYTES, frame.end
        if frame.type == RECORDS:
            for inside, kind, req_id in records_of(payload):
                fields = payload[inside + 8 : inside + 8 + FIELDS_BYTES] if kind < 2 else b""
                time = payload[inside + 16 : inside + 24] if kind == TIME else b""
                yield VERBS[kind], req_id, start + inside, more_of(fields, kind == 1, time)
        elif frame.type == ENTRIES:
            for entry in entries_of(payload):
                fields = payload[entry.fields_at :][:FIELDS_BYTES] if entry.fields_at >= 0 else b""
                if fields:
                    more = more_of(fields, not entry.persistent, b"")
                    yield "publish", entry.slot, start + entry.fields_at - 2, more
                else:
                    yield "event" if entry.times < 0 else "count", entry.slot, -1, (entry.times,)
        else:
            below = int.from_bytes(payload[:8], "big") if frame.type == PURGE else 0
            yield NAMES[frame.type], below, frame.offset, (frame.length,)


def more_of(fields: bytes, transient: bool, time: bytes) -> tuple[Any, ...]:
    if time:
        return int.from_bytes(time[1:], "big"), time[0]
    if not fields:
        return ()
    each = fields_of(fields)
    return transient, each.size, each.embedded, each.expiry_us, each.msg_id.strip(b"\0")


def by_the_core(data: bytes) -> Iterator[tuple[Any, ...]]:
    """The same of what records() says, but times of segments, which entries_of() leaves out."""
    is_segment = segment_header(data[:SEGMENT_START]) is not None
    for r in records(data):
        if r.verb == "publish":
            more: Any = r.transient, r.size, r.embedded, r.expiry_us, r.msg_id.strip(b"\0")
        elif r.verb == "time":
            if is_segment:
                continue
            more = r.due_us, r.priority
        elif r.verb in ("event", "count"):
            yield r.verb, r.req_id, -1, (r.deliveries if r.verb == "count" else -1,)
            continue
        else:
            more = () if r.verb in ("deliver", "ack") else (r.size,)
        yield r.verb, r.req_id, r.offset, more


@pytest.mark.parametrize("rows", [1, 3, 4096])
def test_records_are_what_the_document_says(
    store: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS", rows)
    seen = set()
    for file in files_of(store):
        data = file.read_bytes()
        found = list(by_the_core(data))
        assert found == list(by_the_document(data))
        seen |= {verb for verb, *_ in found}
    wanted = {"publish", "deliver", "ack", "time", "event", "count", "purge", *NAMES[2:]}
    assert wanted - seen <= {"entries", "close", "lanes"}


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_so_are_those_of_a_damaged_file(store: Path, data: st.DataObject) -> None:
    """What is damaged is said, with its size, and all that stands behind it is found."""
    file = data.draw(st.sampled_from(files_of(store)))
    harmed = bytearray(file.read_bytes().rstrip(b"\0"))
    start = SEGMENT_START if segment_header(bytes(harmed[:64])) else JOURNAL_START
    harmed = harmed[: data.draw(st.integers(start, len(harmed)))]
    for _ in range(data.draw(st.integers(0, 4)) if len(harmed) > start else 0):
        harmed[data.draw(st.integers(start, len(harmed) - 1))] ^= data.draw(st.integers(1, 255))
    assert list(by_the_core(bytes(harmed))) == list(by_the_document(bytes(harmed)))


def test_the_records_are_there_though_the_header_is_damaged(store: Path) -> None:
    for file in files_of(store):
        data = bytearray(file.read_bytes())
        whole = list(records(data))
        for copy in (0, 4096) if file.stem == "journal" else (0,):
            data[copy : copy + 40] = b"\x11" * 40
        first, *others = records(data)
        assert (first.verb, first.offset) == ("headless", 0)
        assert "the header is damaged" in first.damage
        assert others == whole


def test_a_purge_and_a_clock_are_read_from_the_bytes(store: Path) -> None:
    with qindex.open(store, read_only=True) as opened:
        folder = opened.queue_directory("purged")
    data = (store / folder / "journal.jif").read_bytes()
    found = list(records(data))
    purges = [purge_of(data, record) for record in found if record.verb == "purge"]
    assert [(purge.below, purge.kept) for purge in purges] == [(9, {0})]
    clocks = [clock_of(data, record) for record in found if record.verb == "mark"]
    assert clocks[-1] > 0
    assert all(clock == 0 or 1.7e15 < clock < 4e15 for clock in clocks)


def test_a_live_journal_is_read_on_where_the_reading_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS", 2)
    with qindex.open(tmp_path / "s", sync="never") as store:
        queue = store.queue("q")
        folder = store.queue_directory("q")
        tree = Tree(tmp_path / "s", Findings())
        (journal,) = journals_in(tree, folder)
        seen: list[int] = []
        for batch in range(4):
            queue.publish_many([bytes(batch)] * 5)
            found = journal.read()[1]
            seen += [record.req_id for record in found if record.verb == "publish"]
        assert seen == list(range(20))
        assert list(journal.read()[1]) == []
        tree.close()


def test_a_file_of_something_else_is_refused() -> None:
    for data in (b"", os.urandom(9000), bytes(20000)):
        with pytest.raises(qindex.FormatError):
            list(records(data))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("0.idx", 0),
        ("queues/0123/12.alt", 12),
        ("007.idx", None),
        ("٣.idx", None),
        ("1.idx.new", None),
        ("journal.alt", None),
        ("past.5.0.idx", None),
        (f"{'9' * 20}.idx", None),
    ],
)
def test_a_segment_is_told_by_its_name_as_the_engine_does(name: str, number: int | None) -> None:
    assert segment_number(name) == number
    assert is_index_file(name) is (number is not None or name == "journal.alt")


@pytest.mark.parametrize("damaged", [(), (0,), (1,), (0, 1)])
def test_a_queue_is_named_by_either_copy(tmp_path: Path, damaged: tuple[int, ...]) -> None:
    with qindex.open(tmp_path / "s") as store:
        store.queue("name \udcff")
        folder = store.queue_directory("name \udcff")
    file = tmp_path / "s" / folder / "queue.meta"
    data = bytearray(file.read_bytes())
    for copy in damaged:
        data[copy * len(data) // 2 + 20] ^= 1
    file.write_bytes(data)
    tree = Tree(tmp_path / "s", Findings())
    meta = read_meta(tree, folder)
    tree.close()
    assert (meta and meta.name) == (None if len(damaged) == 2 else "name \udcff")
