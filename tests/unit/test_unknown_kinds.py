"""Frames of kinds that only a newer version knows: skipped and told, or refused."""

import contextlib
import shutil
import struct

import pytest
from helpers import SMALL, crash, queue_directory

import qindex
from qindex.brokers.tree import Findings, Tree
from qindex.native.frames import (
    EXTENDED,
    FRAME_BYTES,
    JOURNAL_START,
    RECORDS,
    CannotReplay,
    Frames,
    crc,
    journal_header,
)
from qindex.native.journals import NativeJournals

UNKNOWN = 77
OPTIONAL = 0x8000 + UNKNOWN


def append_frame(file, kind):
    """An EXTENDED frame of that kind behind the last frame of a journal."""
    append(file, EXTENDED, struct.pack(">H", kind) + b"what only a newer version understands")


def append_side(file, kind, req_id, value):
    """A side record of a message."""
    what = 2 << 62 | 1023 << 52 | kind << 36 | len(value)
    append(file, RECORDS, struct.pack(">QQ", what, req_id) + value)


def append(file, frame_type, payload):
    data = bytearray(file.read_bytes())
    header = journal_header(bytes(data))
    frames, end = Frames(bytes(data), header), JOURNAL_START
    while (frame := frames.at(end)) is not None:
        end = frame.end
    word = struct.pack(">I", frame_type << 28 | len(payload))
    seed = crc(0, header.identity + struct.pack(">QQ", 0, header.epoch))
    checksum = crc(seed, struct.pack(">Q", end) + word + payload)
    new = word + struct.pack(">I", checksum) + payload
    data[end : end + len(new)] = new
    data[end + len(new) : end + len(new) + FRAME_BYTES] = bytes(FRAME_BYTES)
    file.write_bytes(data)


def journals_of(path, name="orders"):
    """Those with a header, the newest first."""
    folder = queue_directory(path, name)
    files = [f for f in folder.glob("journal.*") if journal_header(f.read_bytes())]
    return sorted(files, key=lambda f: -journal_header(f.read_bytes()).epoch)


@pytest.fixture
def path(tmp_path):
    """Two queues with 30 messages each; the end was clean."""
    path = tmp_path / "data"
    with qindex.open(path, **SMALL, format=2) as store:
        for name in ("orders", "mails"):
            queue = store.queue(name)
            for number in range(30):
                queue.publish(b"%d" % number)
    return path


def files_of(path):
    return {file: file.read_bytes() for file in queue_directory(path, "orders").iterdir()}


def bodies(store, name="orders"):
    return [int(message.body) for message in store.queue(name, create=False).browse()]


@pytest.mark.parametrize("read_only", [True, False])
def test_a_kind_that_may_be_skipped_is_skipped_counted_and_told(path, read_only):
    file = journals_of(path)[0]
    append_frame(file, OPTIONAL)
    append_frame(file, OPTIONAL + 1)
    with qindex.open(path, read_only=read_only, **SMALL) as store:
        assert bodies(store) == list(range(30))
        (found,) = store.findings
        assert found.severity == "note"
        assert found.where.endswith(file.name)
        assert found.text.startswith("2 frames that only a newer version of qindex understands")
        store.check()
        assert len(store.findings) == 1
    with qindex.open(path, **SMALL) as store:
        store.queue("orders").publish(b"30")
        assert bodies(store) == list(range(31))


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("kind", [UNKNOWN, 0, 0x7FFF])
def test_any_other_kind_refuses_the_queue_and_changes_nothing(path, kind, read_only):
    append_frame(journals_of(path)[0], kind)
    before = files_of(path)
    for _ in range(2):
        with qindex.open(path, read_only=read_only, **SMALL) as store:
            with pytest.raises(
                qindex.NewerFormat, match=f"a frame of kind {kind} at byte .* newer"
            ):
                store.queue("orders", create=False)
            assert store.findings == []
            assert bodies(store, "mails") == list(range(30)), "the others are served"
            if not read_only:
                store.queue("mails").publish(b"30")
                store.queue("mails").ack(store.queue("mails").get_newest())
        assert files_of(path) == before


def test_the_journal_of_the_epoch_before_is_looked_at_too(tmp_path):
    """A flush that was cut off needs it."""
    path = tmp_path / "data"
    store = qindex.open(path, **{**SMALL, "max_journal_entries": 1 << 20}, format=2)
    queue = store.queue("orders")
    for number in range(30):
        queue.publish(b"%d" % number)
    store.sync()
    shutil.copytree(queue_directory(path, "orders"), tmp_path / "before")
    queue.flush()
    queue.publish(b"30")
    store.sync()
    crash(store)
    new, folder = journals_of(path)[0], queue_directory(path, "orders")
    old = next(f for f in (tmp_path / "before").glob("journal.*") if f.name != new.name)
    shutil.copy(old, folder / old.name)
    data = bytearray(new.read_bytes())  # the MANIFEST that says that the old one was flushed goes
    frames, at = Frames(bytes(data), journal_header(bytes(data))), JOURNAL_START
    data[frames.at(at).end :] = bytes(len(data) - frames.at(at).end)
    new.write_bytes(data)
    for segment in folder.glob("*.idx"):
        segment.unlink()
    with qindex.open(path, read_only=True) as store:
        assert bodies(store) == list(range(30))
    append_frame(folder / old.name, UNKNOWN)
    refused = pytest.raises(qindex.NewerFormat, match=f"{old.name} has a frame of kind {UNKNOWN}")
    with qindex.open(path, read_only=True) as store, refused:
        store.queue("orders", create=False)


def test_the_reader_in_python_does_the_same(path):
    folder = f"queues/{queue_directory(path, 'orders').name}"
    file = journals_of(path)[0]
    append_frame(file, OPTIONAL)
    with contextlib.closing(Tree(path, Findings())) as tree:
        NativeJournals(tree, folder)
        (found,) = tree.findings.kept
        assert (found.severity, f"kind {OPTIONAL}" in found.text) == ("note", True)
    append_frame(file, UNKNOWN)
    refused = pytest.raises(CannotReplay, match=f"kind {UNKNOWN} .* newer version")
    with contextlib.closing(Tree(path, Findings())) as tree, refused:
        NativeJournals(tree, folder)


COMMANDS = ["ls {}", "check {}", "stats {}", "du {}", "cat {} orders", "replay {} --verify"]
COMMANDS += ["peek {} orders", "export {} --out {}/../out.jsonl", "dump {}", "trace {} orders:1"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_it_and_none_calls_it_fine(run, path, command):
    words = [word.format(path) for word in command.split()]
    append_frame(journals_of(path)[0], OPTIONAL)
    assert run(*(word.replace("/out", "/before") for word in words)).code == 0
    append_frame(journals_of(path)[0], UNKNOWN)
    ran = run(*words)
    assert ran.code in (1, 2), ran
    assert f"kind {UNKNOWN}" in ran.out + ran.err, ran


def test_salvage_takes_what_can_be_read(run, path, tmp_path):
    append_frame(journals_of(path)[0], UNKNOWN)
    ran = run("salvage", path, "--out", tmp_path / "new")
    assert ran.code == 1
    assert f"kind {UNKNOWN}" in ran.out + ran.err
    with qindex.open(tmp_path / "new") as store:
        assert bodies(store) == list(range(30))
        assert bodies(store, "mails") == list(range(30))


def test_columns_refuse_it(path):
    columns = pytest.importorskip("qindex.spark.columns")
    file = journals_of(path)[0]
    append_frame(file, OPTIONAL)
    rows = sum(len(batch) for batch in columns.records(file.read_bytes()))
    append_frame(file, UNKNOWN)
    assert rows > 0
    with pytest.raises(qindex.NewerFormat, match=f"kind {UNKNOWN}"):
        list(columns.records(file.read_bytes()))


# --- side records ---------------------------------------------------------------------------------


def side_entries(path):
    """(kind, bytes) of the side records in the queue's segments, as FORMAT.rst says they stand."""
    found = []
    for file in queue_directory(path, "orders").glob("[0-9]*.*"):
        data = file.read_bytes()
        for value in (b"one", b"two", b"three"):
            at = data.find(value)
            if at >= 0:
                marker, kind, size = struct.unpack(">HHI", data[at - 8 : at])
                assert (marker, size) == (1, len(value))
                found.append((kind, value))
    return found


def test_a_side_record_that_may_be_skipped_is_kept_by_flush_and_rewrite(path):
    with qindex.open(path, **SMALL) as store:
        store.queue("orders").publish(b"30")
        last = 30
    file = journals_of(path)[0]
    append_side(file, OPTIONAL, last, b"one")
    append_side(file, OPTIONAL + 1, last, b"two")
    append_side(file, OPTIONAL, last, b"three")  # the last one of its kind counts
    wanted = [(OPTIONAL, b"three"), (OPTIONAL + 1, b"two")]
    with qindex.open(path, **SMALL) as store:
        queue = store.queue("orders")
        assert bodies(store) == list(range(31))
        queue.flush()
        assert sorted(side_entries(path)) == wanted
        for message in queue.get_many(30):
            queue.ack(message)
        queue.flush()
        store.compact()
        assert sorted(side_entries(path)) == wanted, "the file was written anew"
    with qindex.open(path, **SMALL) as store:
        queue = store.queue("orders")
        queue.ack(queue.get())
        queue.flush()
    assert side_entries(path) == [], "they go with their message"


@pytest.mark.parametrize("read_only", [True, False])
def test_any_other_side_record_refuses_the_queue_and_changes_nothing(path, read_only):
    append_side(journals_of(path)[0], UNKNOWN, 29, b"one")
    before = files_of(path)
    for _ in range(2):
        with qindex.open(path, read_only=read_only, **SMALL) as store:
            with pytest.raises(qindex.NewerFormat, match=f"a side record of kind {UNKNOWN}"):
                store.queue("orders", create=False)
            assert store.findings == []
        assert files_of(path) == before


def test_one_without_a_message_is_an_orphan_and_one_that_does_not_fit_is_told(path):
    append_side(journals_of(path)[0], OPTIONAL, 1 << 30, b"one")
    with qindex.open(path, read_only=True) as store:
        assert bodies(store) == list(range(30))
        assert any("without a publish" in finding.text for finding in store.findings)
    append(journals_of(path)[0], RECORDS, struct.pack(">QQ", 2 << 62 | 1023 << 52 | 1, 29) + b"1")
    with qindex.open(path, read_only=True) as store:
        assert bodies(store) == list(range(30))
        assert any("does not fit into its frame" in finding.text for finding in store.findings)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_tells_of_a_side_record_that_it_must_not_skip(run, path, command):
    words = [word.format(path) for word in command.split()]
    append_side(journals_of(path)[0], UNKNOWN, 29, b"one")
    ran = run(*words)
    assert ran.code in (1, 2), ran
    assert f"kind {UNKNOWN}" in ran.out + ran.err, ran
