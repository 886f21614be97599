"""Findings of a store say one message where it is one."""

from __future__ import annotations

import itertools
import re
from contextlib import closing
from pathlib import Path

import pytest
from helpers import crash, queue_directory

import qindex
from qindex.brokers.nsq import file as nsq_file
from qindex.brokers.tree import Findings, Tree
from qindex.native.records import records
from qindex.testing import SimulatedDisk, abandon, tick


@pytest.mark.parametrize(("count", "text"), [(1, "1 message should"), (2, "2 messages should")])
def test_a_lost_segment_is_told_in_good_english(tmp_path: Path, count: int, text: str) -> None:
    path = tmp_path / "data"
    with qindex.open(path) as store:
        queue = store.queue("q")
        queue.publish_many([b"a"] * count)
        queue.flush()
    (Path(queue_directory(path, "q")) / "0.idx").unlink()
    with qindex.open(path) as store:
        store.queue("q")
        texts = [finding.text for finding in store.findings]
    assert any(found.startswith(f"{text} be here, 0 were found") for found in texts), texts


@pytest.mark.parametrize(("size", "text"), [(1, "the last 1 byte is"), (2, "the last 2 bytes are")])
def test_the_end_of_a_foreign_file_is_told_in_good_english(
    tmp_path: Path, size: int, text: str
) -> None:
    (tmp_path / "q.diskqueue.000000.dat").write_bytes(b"\0\0\0\3abc" + b"x" * size)
    findings = Findings()
    with closing(Tree(tmp_path, findings)) as tree:
        source = tree.try_open("q.diskqueue.000000.dat")
        assert source is not None
        assert [length for _, length in nsq_file.read_records(source, findings, 0)] == [3]
    assert [finding.text for finding in findings.kept] == [f"{text} no record"]


@pytest.mark.parametrize(("messages", "text"), [(1, "1 message,"), (2, "2 messages,")])
def test_a_full_queue_says_so_in_good_english(tmp_path: Path, messages: int, text: str) -> None:
    with qindex.open(tmp_path / "data") as store:
        queue = store.queue("q", max_messages=messages, overflow="reject")
        queue.publish_many([b"a"] * messages)
        with pytest.raises(qindex.QueueFull, match=f"has {text} and may have {messages}"):
            queue.publish(b"b")


@pytest.mark.parametrize(
    ("count", "text"),
    [(1, "1 delivery or ack without a publish was"), (3, "3 deliveries or acks without a publish")],
)
def test_records_without_a_publish_are_counted_as_a_figure_too(
    tmp_path: Path, count: int, text: str
) -> None:
    """A program takes the figure from Finding.orphans, not from the sentence."""
    path = tmp_path / "data"
    store = qindex.open(path, idle=3600)
    queue = store.queue("q")
    queue.publish_many([b"x" * 50] * 3)
    store.sync()
    queue.get_many(count)
    store.sync()
    crash(store)
    journal = queue_directory(path, "q") / "journal.jif"
    raw = bytearray(journal.read_bytes())
    first = next(record for record in records(raw) if record.verb == "publish")
    raw[first.offset + 20] ^= 0xFF
    journal.write_bytes(raw)
    with qindex.open(path, read_only=True) as store:
        store.queue("q").peek()
        found = [each for each in store.findings if each.orphans]
    assert [(each.orphans, each.severity) for each in found] == [(count, "damage")]
    assert found[0].text.startswith(text)


@pytest.mark.parametrize("mapping", [True, False])
def test_an_error_of_the_disk_names_the_queue_and_no_hash(mapping: bool) -> None:
    """Each call of the disk fails in turn; what is raised has the name, as users know it."""
    named: set[str] = set()
    for call in itertools.count(1):
        disk = SimulatedDisk(seed=call, mapping=mapping)
        store = qindex.open("/", disk=disk, idle=1.0)
        queue = store.queue("orders")
        queue.publish_many([b"x" * 100] * 20)
        store.sync()
        disk.fault(call, "eio")
        before = disk.calls
        try:
            queue.publish(b"y" * 5000)
            queue.flush()
            queue.ack(0) if queue.get() else None
            disk.advance(3)
            for _ in range(3):
                tick(store)
            queue.publish(b"z")
            store.close()
        except qindex.QindexError as error:
            text = str(error)
            assert not re.search("[0-9a-f]{32}", text), text
            named |= {text.split(":")[0]} if "orders" in text else set()
        used = disk.calls - before
        abandon(store)
        if used < call:
            break
    assert len(named) >= 3, named


@pytest.mark.parametrize(("name", "shown"), [("orders", "orders"), ("", '""'), ("a\0b", r"a\x00b")])
def test_errors_and_findings_of_an_open_name_the_queue_and_no_hash(name: str, shown: str) -> None:
    """Each call of the disk fails in turn while a store is read and checked."""
    of_queue = re.compile(r"\b(journal\.|journals|segment|directory|queue\.meta|\d\.idx|\d\.alt)")
    named: set[str] = set()
    for call in itertools.count(1):
        first = SimulatedDisk(seed=call)
        store = qindex.open("/", disk=first, segment_entries=8, idle=1.0)
        queue = store.queue(name)
        queue.publish_many([b"x" * 100] * 20)
        queue.flush()
        queue.publish(b"y")
        store.sync()
        disk = first.kill()
        abandon(store)
        disk.fault(call, "eio")
        before, used, texts = disk.calls, call, []
        try:
            store = qindex.open("/", disk=disk, segment_entries=8, idle=1.0)
            try:
                queue = store.queue(name)
                queue.publish(b"z")
                assert queue.get() is not None
                store.check()
                queue.flush()
                texts = [finding.text for finding in store.findings]
            finally:
                used = disk.calls - before
                abandon(store)
        except qindex.QindexError as error:
            texts.append(str(error))
        for text in texts:
            assert not re.search("[0-9a-f]{32}|queue :|of :", text), text
            if of_queue.search(text) and "queues:" not in text:
                assert f"of queue {shown}" in text, text
                named.add(text.split(" of queue ")[0])
        if used < call:
            break
    assert len(named) >= 5, named


@pytest.mark.parametrize(("size", "text"), [(1, "1 more does not fit"), (7, "7 more do not fit")])
def test_a_queue_that_is_full_by_bytes_says_how_many_did_not_fit(
    tmp_path: Path, size: int, text: str
) -> None:
    with qindex.open(tmp_path / "data") as store:
        queue = store.queue("q", max_bytes=100)
        queue.publish(b"x" * 100)
        with pytest.raises(qindex.QueueFull, match=f"has 100 bytes, and may have 100: {text}; "):
            queue.publish(b"x" * size)
