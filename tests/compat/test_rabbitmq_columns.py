"""Messages in columns (C) are those that Queue.messages() gives one by one, of sound and of damaged
nodes, whatever becomes of their expiries; and what is found on the way is the same.
"""

from __future__ import annotations

import errno
import os
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from helpers import unpack

import qindex
from qindex.brokers import recover, tree
from qindex.brokers.amqp import Properties, encode_properties
from qindex.brokers.columns import Columns, Wish
from qindex.brokers.rabbitmq.columns import BLOCK_BYTES
from qindex.brokers.rabbitmq.directory import open_node
from qindex.brokers.rabbitmq.message import Content
from qindex.brokers.rabbitmq.write import FRAGMENT_BYTES_MAX, VhostWriter, encode_message
from qindex.brokers.recover import recover_into

from .conftest import DEMO, DeadNode
from .rabbitmq_columns import PLAIN, WISHES, compare, seen, seen_in_columns
from .rabbitmq_files import Node, write_node
from .rabbitmq_sweep import boundaries_of, damages, files_of

# --- sound nodes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", WISHES, ids=lambda wish: f"{wish.expired}-{wish.expiry}")
@pytest.mark.sample(3)
def test_a_sound_node_comes_in_columns(tmp_path: Path, demo_node: DeadNode, wish: Wish) -> None:
    changed = 3  # of the demo node: the broker changed their properties
    for path, alone in (write_node(tmp_path / "node"), 0), (demo_node.path, changed):
        count, singles = compare(path, wish)
        assert count > 250
        with open_node(path) as node:
            decided = sum(
                0 < (message.expiry_us or 0) <= wish.now_us
                for queue in node.queues
                for message in queue.messages()
            )
        assert singles == alone + (decided if wish.expired == "tell" else 0)


@pytest.mark.parametrize(
    "name", ["b_v1_kill9", "c_v1_seg2048_kill9", "d_store_gc_kill9", "e_v2_clean"]
)
@pytest.mark.parametrize("wish", [PLAIN, WISHES[4]], ids=["plain", "dies"])
def test_what_real_nodes_wrote_comes_in_columns(
    shared_node: Callable[[str], DeadNode], name: str, wish: Wish
) -> None:
    count, singles = compare(shared_node(name).path, wish)
    assert count > 300
    assert singles < 20  # dead letters


@pytest.mark.parametrize(("first", "last"), [(0, 1 << 48), (90, 90), (100, 170), (500, 400)])
def test_a_range_of_numbers_comes_as_it_is_shown(tmp_path: Path, first: int, last: int) -> None:
    with open_node(write_node(tmp_path / "node")) as node:
        for queue in node.vhosts[0].queues:
            told = [seen(each) for each in queue.messages() if first <= each.seq <= last]
            assert seen_in_columns(queue, first, last) == told


# --- damaged nodes --------------------------------------------------------------------------------


def check_damages(path: Path, dice: Random, few: int) -> int:
    count = 0
    for file in files_of(path):
        data = file.read_bytes()
        for damage in damages(data, boundaries_of(file, data), dice, few):
            if damage.data is None:
                file.unlink()
            else:
                file.write_bytes(damage.data)
            compare(path, dice.choice(WISHES))
            count += 1
        file.write_bytes(data)
    return count


@pytest.mark.slow
def test_a_damaged_node_says_the_same_in_columns(tmp_path: Path) -> None:
    assert check_damages(write_node(tmp_path / "node"), Random(1), 1) > 100


@pytest.mark.long
def test_a_very_damaged_node_says_the_same_in_columns(tmp_path: Path) -> None:
    assert check_damages(write_node(tmp_path / "node"), Random(), 100) > 10_000


# --- what is not usual ----------------------------------------------------------------------------


def term(**changed: Any) -> bytes:
    told = {
        "exchange": "e",
        "routing_keys": ["k"],
        "properties": b"\0\0",
        "body": b"body",
        **changed,
    }
    return encode_message(Content(**told, msg_id=bytes([7] * 16), persistent=True), b"/")


LIST = encode_properties(Properties(headers={"a": 1}, priority=9, timestamp=5, expiration="60"))
# Terms, and whether they come in columns.
TERMS: dict[str, tuple[bytes, bool]] = {
    "empty body": (term(body=b""), True),
    "no keys": (term(routing_keys=[]), True),
    "many keys": (term(routing_keys=["a", "", "c" * 300]), True),
    "keys in Unicode": (term(exchange="\u00fc", routing_keys=["\u20ac", "\U0001f600"]), True),
    "an exchange that is no text": (term(exchange="\udcff"), False),
    "a key that is no text": (term(routing_keys=["a", "\udced\udca0\udc80"]), False),
    "all properties": (term(properties=LIST), True),
    "two frames": (term(body=bytes(range(250)) * 600), False),
    "zeros of no sector": (term(body=b"a" * 100 + bytes(1200) + b"b"), True),
    "something behind it": (term() + b"j", False),
    "no term": (b"\x83h\0", False),
}


def write_v1(folder: Path, terms: list[bytes], told_bytes: int | None = None) -> None:
    """One segment; the index says the length of each body, or what it is told to say."""
    node = Node(folder)
    where = node.queue("q", 1)
    rows = [
        struct.pack(
            ">H16sQII",
            0xC000 | slot,
            bytes([7] * 16),
            0,
            body_bytes(raw) if told_bytes is None else told_bytes,
            len(raw),
        )
        for slot, raw in enumerate(terms)
    ]
    data = [row + raw for row, raw in zip(rows, terms, strict=True)]
    (where / "0.idx").write_bytes(b"".join(reversed(data)))
    (where / "journal.jif").write_bytes(b"")
    node.close()


def body_bytes(raw: bytes) -> int:
    from qindex.brokers.rabbitmq.message import MessageError, read_message

    try:
        return len(read_message(raw).body)
    except MessageError:
        return 0


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("wish", [PLAIN, Wish(0, "keep", priority_max=5)], ids=["plain", "apart"])
def test_an_unusual_message_between_others(tmp_path: Path, name: str, wish: Wish) -> None:
    raw, in_columns = TERMS[name]
    write_v1(tmp_path / "node", [term(), raw, term(), term(), raw, raw])
    count, singles = compare(tmp_path / "node", wish)
    lost = 3 if name in ("no term", "something behind it") else 0
    assert count == 6 - lost
    is_counted = not in_columns and not lost and name != "two frames"
    assert singles == (3 if is_counted else 0)


def test_a_body_whose_last_frame_is_as_long_as_the_index_says(tmp_path: Path) -> None:
    """Its other frame is no part of that: it is not the body that the index names."""
    body = bytes(range(250)) * 600
    write_v1(tmp_path / "node", [term(body=body), term(body=body)], len(body) - FRAGMENT_BYTES_MAX)
    assert compare(tmp_path / "node", PLAIN) == (2, 0)
    with open_node(tmp_path / "node") as node:
        assert len(list(node.queues[0].messages())) == 2
        assert [finding.kind for finding in node.findings].count("mismatch") == 2


def write_v2(folder: Path, stored: list[bytes]) -> None:
    """One segment of version 2; what is in N.qs is given, each with its head."""
    node = Node(folder)
    where = node.queue("q", 2)
    data, entries = bytearray(struct.pack(">4sBQQ43x", b"RCQS", 2, 0, 64)), b""
    for each in stored:
        raw = each[8:]
        place = struct.pack(">BQII", 2, len(data), len(raw), 0)
        entries += b"\1\1\0" + place + struct.pack(">IQ", 4, 0)
        data += each
    (where / "0.qi").write_bytes(struct.pack(">4sBQQ43x", b"RCQI", 2, 0, 64) + entries)
    (where / "0.qs").write_bytes(data)
    node.close()


def kept(raw: bytes, size: int, flags: int, crc: int) -> bytes:
    return struct.pack(">IBHB", size, flags, crc & 0xFFFF, 0) + raw


def test_checksums_of_version_2_and_zeros_behind_its_terms(tmp_path: Path) -> None:
    raw = term()
    padded = raw + bytes(9)
    size, crc = len(raw), zlib.crc32(raw)
    stored = [
        kept(raw, size, 1, crc),
        kept(raw, size, 1, crc + 1),
        kept(raw, size, 0, crc + 1),  # it has none
        kept(raw, size + 1, 1, crc),
        kept(padded, size + 9, 1, crc),
        kept(padded, size + 9, 1, zlib.crc32(padded)),
        kept(padded, size + 9, 1, crc + 1),
        kept(raw + b"\0\1", size + 2, 1, zlib.crc32(raw + b"\0\1")),
    ]
    write_v2(tmp_path / "node", stored)
    assert compare(tmp_path / "node", PLAIN) == (4, 0)
    with open_node(tmp_path / "node") as node:
        (queue,) = node.vhosts[0].queues
        assert sum(each.count for each in queue.columns(PLAIN) if isinstance(each, Columns)) == 4
        assert queue.unreadable == 4


def test_messages_far_apart_and_messages_larger_than_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues that share the message store, in another order than its files."""
    writer = VhostWriter(tmp_path / "node", b"/")
    queues = [writer.queue(name) for name in (b"a", b"b")]
    dice = Random(3)
    sizes = [dice.choice([5000, 40_000, 90_000]) for _ in range(300)] + [BLOCK_BYTES + 1, 4999]
    for number, size in enumerate(sizes):
        body = dice.randbytes(8) * (size // 8)
        content = Content(
            "", ["a"], b"\0\0", body, struct.pack(">QQ", dice.getrandbits(64), number), True
        )
        queues[number % 7 == 3].publish(content)
        if number % 5 == 2:  # shared with the other queue: its body comes out of the row
            queues[number % 7 != 3].publish(content)
    writer.close()
    assert compare(tmp_path / "node", PLAIN) == (362, 0)
    reads, fill = [], tree.Source.fill

    def counting(source: tree.Source, offset: int, buffer: memoryview) -> bool:
        reads.append(len(buffer))
        return fill(source, offset, buffer)

    monkeypatch.setattr(tree.Source, "fill", counting)
    with open_node(tmp_path / "node") as node:
        assert next(iter(node.vhosts[0].queues[0].columns(PLAIN)))
        assert sum(reads) <= 1 << 18  # who wants the first message waits for no whole block
        assert sum(1 for _ in node.vhosts[0].queues[0].columns(PLAIN)) < 12


def test_what_cannot_be_read_at_once_comes_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad sector, or a file that became shorter: each message says for itself what it misses."""
    bad = range(8192, 12288)
    read, preadv = os.pread, os.preadv

    def dying(fd: int, count: int, offset: int) -> bytes:
        if offset < bad.stop and offset + count > bad.start:
            raise OSError(errno.EIO, "Input/output error")
        return read(fd, count, offset)

    def dying_at_once(fd: int, buffers: Any, offset: int) -> int:
        if offset < bad.stop and offset + len(buffers[0]) > bad.start:
            raise OSError(errno.EIO, "Input/output error")
        return preadv(fd, buffers, offset)

    path = write_node(tmp_path / "node")
    whole, _ = compare(path, PLAIN)
    monkeypatch.setattr(tree.os, "pread", dying)
    monkeypatch.setattr(tree.os, "preadv", dying_at_once)
    count, singles = compare(path, PLAIN)
    assert 0 < singles < count < whole
    with open_node(path) as node:
        assert "unreadable" in {finding.kind for finding in node.findings}


# --- a whole recovery -----------------------------------------------------------------------------


class OneByOne:
    """A store as recover_into() needs it, whose queues take no columns."""

    def __init__(self, store: qindex.Store) -> None:
        self.queues, self.sync, self._store = store.queues, store.sync, store

    def queue(self, name: str) -> Any:
        queue = self._store.queue(name)
        return type("Target", (), {"publish_many": staticmethod(queue.publish_many)})


def all_of(store: qindex.Store) -> dict[str, list[tuple[Any, ...]]]:
    return {
        name: [
            (m.body, m.headers, m.redelivered, m.persistent, m.priority, m.expires_at)
            for m in store.queue(name).browse()
        ]
        for name in store.queues()
    }


@pytest.mark.parametrize("keep_expired", [False, True])
@pytest.mark.parametrize("days", [-9000, -400, 0, 100])
@pytest.mark.parametrize("name", ["demo", "written", "damaged"])
@pytest.mark.sample(3)
def test_a_recovery_is_the_same_in_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, days: int, keep_expired: bool
) -> None:
    called = time.time()
    monkeypatch.setattr(recover.time, "time", lambda: called)
    path = tmp_path / "node"
    if name == "demo":
        path = unpack(DEMO.with_suffix(".tar.xz"), path)
    else:
        write_node(path)
    if name == "damaged":
        for file in files_of(path)[::2]:
            data = bytearray(file.read_bytes())
            for place in range(500, len(data), 4000):
                data[place] ^= 16
            file.write_bytes(data)
    now = called + 86_400 * days
    told = []
    for number, wrap in enumerate((lambda store: store, OneByOne)):
        with (
            open_node(path) as node,
            qindex.open(tmp_path / f"store{number}", expire=False) as store,
        ):
            report = recover_into(node, wrap(store), keep_expired=keep_expired, now=now)
            report.seconds = 0
            told.append((all_of(store), report, node.findings))
    (rows, quick, findings), (others, slow, others_findings) = told
    assert findings == others_findings
    assert rows.keys() == others.keys()
    for queue, mine in rows.items():
        assert [row[:-1] for row in mine] == [row[:-1] for row in others[queue]]
        for row, other in zip(mine, others[queue], strict=True):
            assert row[-1] == pytest.approx(other[-1], abs=2e-6)  # a float in between rounds it
    assert quick.queues == slow.queues
    assert (quick.messages, quick.reasons, quick.changes) == (
        slow.messages,
        slow.reasons,
        slow.changes,
    )
    assert quick.messages > 100
