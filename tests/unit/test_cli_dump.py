"""dump: journals and segments, record by record."""

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from helpers import queue_directory

import qindex
from qindex.brokers.rabbitmq.directory import open_node


@pytest.fixture
def queue_path(store_path):
    return queue_directory(store_path, "orders")


def test_a_store_is_dumped_queue_by_queue(run, store_path):
    code, out, _ = run("dump", store_path)
    assert code == 0
    headings = [line.split()[1] for line in out.splitlines() if line.startswith("queue ")]
    assert sorted(headings) == ["mails", "orders"]
    assert out.count("  publish  ") == 2 * 305
    assert out.count("  deliver  ") == out.count("  ack  ") == 2 * 70
    assert "2 queues; 1 message file with bodies" in out


def test_a_queue_shows_its_journals_then_its_segments_in_order(run, queue_path):
    out = run("dump", queue_path).out
    names = [
        line.split()[0] for line in out.splitlines() if line.startswith("  ") and line[2] != " "
    ]
    assert names == ["journal.jif", "journal.alt", "0.idx", "1.idx", "2.idx", "3.idx", "4.idx"]


def test_a_flushed_journal_without_a_header_is_explained(run, queue_path):
    out = run("dump", queue_path / "journal.jif").out
    assert "what it held is in the segments" in out


def test_one_segment_has_one_line_per_entry(run, queue_path):
    code, out, _ = run("dump", queue_path / "1.idx")
    assert code == 0
    lines = [line for line in out.splitlines() if " publish " in line]
    assert [int(line.split()[3]) for line in lines] == list(range(64))


def test_damaged_bytes_are_shown_as_bad(run, queue_path):
    data = bytearray((queue_path / "2.idx").read_bytes())
    data[500] ^= 1
    (queue_path / "2.idx").write_bytes(data)
    code, out, _ = run("dump", queue_path / "2.idx")
    assert code == 1
    assert " BAD " in out


def test_a_damaged_header_does_not_hide_the_other_files(run, queue_path):
    (queue_path / "1.idx").write_bytes(b"nothing like a segment" * 10)
    code, out, _ = run("dump", queue_path)
    assert code == 1
    assert "1.idx is neither a journal nor a segment" in out
    assert " 2.idx  " in out
    code, _, err = run("dump", queue_path / "1.idx")
    assert code == 2
    assert "1.idx" in err


@pytest.mark.parametrize("lost", [range(1), range(16, 17), range(64), range(512)])
def test_a_segment_is_dumped_without_its_header(run, tmp_path, lost):
    """The checksums of two frames in a row say what those of all begin with."""
    with qindex.open(tmp_path / "s", format=1) as store:
        queue = store.queue("q")
        for _ in range(2):  # two batches: the first ends behind the first sector
            queue.publish_many([b"x" * 100] * 10)
            queue.flush()
    (path,) = tmp_path.glob("s/queues/*/0.idx")
    whole = run("dump", path).out.splitlines()
    data = bytearray(path.read_bytes())
    for at in lost:
        data[at] = 0xFF - data[at] if len(lost) == 1 else 0
    path.write_bytes(data)
    code, out, _ = run("dump", path)
    title, first, *lines = out.splitlines()
    assert code == 1
    assert title == whole[0]
    assert first.split()[:2] == ["0", "BAD"]
    assert "the header is damaged" in first
    if len(lost) < 512:
        assert lines == whole[1:]
    else:  # and the frame behind it, which lies in that sector too
        assert lines[0].split()[:2] == ["64", "BAD"]
        assert lines[1:] == whole[11:]
        assert sum("publish" in line for line in lines) == 10


def test_a_journal_is_dumped_without_both_copies_of_its_header(run, queue_path):
    journal = max(queue_path.glob("journal.*"), key=lambda file: any(file.read_bytes()[:64]))
    whole = run("dump", journal).out.splitlines()
    data = bytearray(journal.read_bytes())
    data[20] ^= 1
    data[4096 + 20] ^= 1
    journal.write_bytes(data)
    code, out, _ = run("dump", journal)
    assert code == 1
    assert "the header is damaged" in out.splitlines()[1]
    assert out.splitlines()[2:] == whole[1:]


def test_a_file_that_goes_while_it_is_dumped_is_no_error(run, queue_path, monkeypatch):
    read_bytes = Path.read_bytes

    def gone(path):
        if path.name == "1.idx":
            raise FileNotFoundError(path)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", gone)
    code, out, _ = run("dump", queue_path)
    assert code == 0
    assert "1.idx: gone" in out


def test_a_store_without_its_meta_file_is_dumped_too(run, store_path):
    (store_path / "store.meta").unlink()
    code, out, _ = run("dump", store_path)
    assert code == 0
    assert "a queue whose name is not known" in out
    assert out.count("  publish  ") == 2 * 305


def test_a_file_of_something_else_is_refused(run, tmp_path):
    (tmp_path / "journal.jif").write_bytes(os.urandom(100))
    code, out, err = run("dump", tmp_path / "journal.jif")
    assert (code, out) == (2, "")
    assert "neither a journal nor a segment" in err


@pytest.mark.parametrize("how", ["zeros", "one bit"])
def test_a_journal_is_dumped_by_the_second_copy_of_its_header(run, queue_path, how):
    journal = max(queue_path.glob("journal.*"), key=lambda file: any(file.read_bytes()[:64]))
    code, whole, _ = run("dump", journal)
    assert code == 0
    data = bytearray(journal.read_bytes())
    if how == "zeros":
        data[:4096] = bytes(4096)
    else:
        data[20] ^= 1  # in the identity: all checksums would be wrong
    journal.write_bytes(data)
    assert run("dump", journal)[:2] == (0, whole)


def test_the_queues_of_a_rabbitmq_node_are_dumped(run, dead_node):
    code, out, err = run("dump", dead_node)
    assert (code, err) == (0, "")
    with open_node(dead_node) as node:
        counts = node.counts
    verbs = Counter(line.split()[1] for line in out.splitlines() if line[:10].strip().isdecimal())
    assert verbs["publish"] == counts.published == 344
    assert sum(verbs.values()) == counts.segment_records + counts.journal_records
    assert "queue q.small  (msg_stores/vhosts/628WB79CIFDYO9LJI6DKMI09L/queues/" in out
    assert out.endswith("19 queues; bodies: see qindex peek\n")


def test_bytes_that_are_no_record_of_rabbitmq_are_bad(run, dead_node, tmp_path):
    (folder,) = dead_node.rglob("8HKCHMCHLHJ9DDASIPO7XLLO6")
    shutil.copytree(folder, tmp_path / "queue")
    file = tmp_path / "queue" / "0.idx"
    whole = run("dump", file).out.splitlines()
    data = bytearray(file.read_bytes())
    place = int(whole[5].split()[0])
    data[place : place + 2] = b"\0\0"
    file.write_bytes(data)
    code, out, _ = run("dump", file)
    assert code == 1
    (bad,) = (line for line in out.splitlines() if "BAD" in line)
    assert "bytes make no sense" in bad
    assert len(whole) - 3 <= len(out.splitlines()) <= len(whole)


def test_what_has_no_index_is_not_dumped(run, tmp_path):
    (tmp_path / "nsq").mkdir()
    with qindex.DiskQueue("t", tmp_path / "nsq", format="nsq") as queue:
        queue.put(b"x")
    code, _, err = run("dump", tmp_path / "nsq")
    assert code == 2
    assert "NSQ data directory, which has no index: qindex cat reads it" in err
