"""c_ext/FORMAT.rst's worked example: compared with what an encoder makes, read by the engine."""

import re
import struct
import time
from pathlib import Path

import pytest

import qindex

from .format_encoder import (
    COMMIT_LOG,
    COMMIT_LOG_2,
    DELAYED,
    DIRECTORY,
    DUE_US,
    EXAMPLES,
    EXTENDED,
    FILES,
    JOURNAL,
    JOURNAL_FRAMES,
    MOMENTS,
    NOW_US,
    QUEUE,
    RECORDS,
    STORE_META_2,
    STORED,
    SYNCED,
    frame,
    publish_fields,
    record,
    seed,
    twice,
    with_crc,
)

FORMAT = Path(__file__).parents[2] / "c_ext/FORMAT.rst"


def blocks_of(text):
    """The document's blocks: name -> bytes. A line is hex bytes, then perhaps `;` and a comment."""
    found = {}
    for match in re.finditer(r"^\*\*(.+?)\*\*, (\d+) bytes::\n\n((?:    .+\n)+)", text, re.M):
        hexes = [line.partition(";")[0] for line in match[3].splitlines()]
        found[match[1]] = bytes.fromhex("".join(hexes))
        assert len(found[match[1]]) == int(match[2])
    return found


@pytest.fixture
def store_path(tmp_path):
    for name, content in FILES.items():
        path = tmp_path / "store" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "store"


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_document_shows_the_bytes_that_the_encoder_makes(name):
    shown = blocks_of(FORMAT.read_text(encoding="utf-8"))
    assert shown[name] == b"".join(part for part, _ in EXAMPLES[name])


def test_the_document_shows_nothing_else():
    assert sorted(blocks_of(FORMAT.read_text(encoding="utf-8"))) == sorted(EXAMPLES)


@pytest.mark.parametrize("read_only", [True, False])
def test_the_engine_reads_the_example(store_path, read_only):
    with qindex.open(store_path, read_only=read_only) as store:
        queue = store.queue(QUEUE, create=False)
        *seen, later = [(m.req_id, m.body, m.redelivered, m.delivery_count) for m in queue.browse()]
        assert seen == [(0, b"a", False, 0), (1, b"b", True, 2), (3, STORED, False, 0)]
        assert later == (DELAYED, b"later", False, 0)
        assert queue.peek().body == b"later"
        assert (queue.peek().priority, queue.peek().due) == (3, DUE_US / 1e6)
        assert queue.stats().next_req_id == 4
        assert store.check() == []


def test_the_engine_goes_on_where_the_example_ends(store_path):
    with qindex.open(store_path) as store:
        queue = store.queue(QUEUE)
        assert queue.publish(b"more") == 4
        assert [m.body for m in queue.get_many(9)] == [b"later", b"a", b"b", STORED, b"more"]


def test_one_flipped_bit_anywhere_in_the_journal_is_not_accepted(store_path):
    path = store_path / f"queues/{DIRECTORY}/journal.alt"
    offset = 8192
    for _, header, payload in JOURNAL_FRAMES:
        damaged = bytearray(JOURNAL)
        damaged[offset + 8 + len(payload) // 2] ^= 1
        offset += len(header) + len(payload)
        path.write_bytes(damaged)
        with qindex.open(store_path, read_only=True) as store:
            try:
                store.queue(QUEUE)
            except qindex.StoreCorrupt:
                continue
            assert store.findings != []


def test_what_the_engine_writes_is_what_the_encoder_makes(tmp_path):
    with qindex.open(tmp_path / "store", embed_below=16, format=1) as store:
        queue = store.queue(QUEUE)
        queue.publish(b"hello")
        queue.ack(queue.get())
        queue.publish(STORED)
        path = tmp_path / f"store/queues/{DIRECTORY}/journal.jif"
        live = path.read_bytes()
        stored = (tmp_path / "store/messages/0.qms").read_bytes()
    identity, (epoch, created) = live[16:32], struct.unpack(">QQ", live[32:48])
    assert live[:64] == live[4096:4160]
    assert live[:64] == with_crc(
        struct.pack(">8sI4x", b"QIJRNL\r\n", 1) + identity + struct.pack(">QQ12x", epoch, created)
    )
    msg_id = stored[72:88]
    records = [
        record(0, 0, publish_fields(b"hello")),
        record(2, 0),
        record(3, 0),
        record(0, 1, publish_fields(STORED, msg_id, embedded=b"")),
    ]
    offset, found = 8192, []
    while live[offset : offset + 8] != bytes(8):
        (word,) = struct.unpack_from(">I", live, offset)
        payload = live[offset + 8 : offset + 8 + (word & 0xFFFFFFF)]
        expected = frame(seed(identity, 0, epoch), offset, word >> 28, payload)
        assert live[offset : offset + 8] == expected
        if word >> 28 == RECORDS:
            found.append(payload)
        offset += 8 + len(payload)
    assert found == records
    assert msg_id[:12] == struct.pack(">III", 0, 64, len(STORED))


@pytest.mark.parametrize("read_only", [True, False])
def test_the_engine_reads_what_only_the_commit_log_has(store_path, read_only):
    (store_path / "store.meta").write_bytes(twice(STORE_META_2))
    (store_path / "commits").mkdir()
    (store_path / "commits/1.log").write_bytes(COMMIT_LOG)
    journal = store_path / f"queues/{DIRECTORY}/journal.alt"
    journal.write_bytes(JOURNAL[:SYNCED].ljust(12288, b"\0"))
    with qindex.open(store_path, read_only=read_only) as store:
        stats = store.queue(QUEUE, create=False).stats()
        assert stats.next_req_id == 4  # the CLOSE says so; without it the next one is far above
        assert not store.check()
        assert store.data.copy() == {b"road": b"north"}
    assert (JOURNAL in journal.read_bytes()) == (not read_only)


@pytest.mark.parametrize("read_only", [True, False])
def test_the_transaction_of_the_example_is_there(store_path, read_only):
    (store_path / "store.meta").write_bytes(twice(STORE_META_2))
    (store_path / "commits").mkdir()
    (store_path / "commits/1.log").write_bytes(COMMIT_LOG_2)
    with qindex.open(store_path, read_only=read_only) as store:
        paid = store.queue(QUEUE, create=False).peek(4)
        assert (paid.body, paid.published_at) == (b"paid", NOW_US / 1e6)
        assert not store.check()


def test_the_engine_writes_when_a_batch_was_published_as_the_encoder_does(tmp_path):
    """Of two messages the second one was published later: a row for each in front of the batch."""
    with qindex.open(tmp_path / "store", format=2) as store:
        queue = store.queue(QUEUE)
        queue.publish(b"a")
        time.sleep(0.03)
        queue.publish(b"b")
        first, second = (round(message.published_at * 1e6) for message in queue.browse())
        queue.flush()
        written = (tmp_path / f"store/queues/{DIRECTORY}/0.idx").read_bytes()
    identity, (number, epoch) = written[16:32], struct.unpack(">QQ", written[32:48])
    assert second - first > 20_000
    payload = struct.pack(">HHQHQ", MOMENTS, 0, first, 1, second)
    expected = frame(seed(identity, number, epoch), 64, EXTENDED, payload) + payload
    assert written[64 : 64 + len(expected)] == expected
