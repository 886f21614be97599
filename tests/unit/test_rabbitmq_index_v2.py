"""RabbitMQ's version 2 index: slots, the queue's own store, conversions, and damage."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from qindex.brokers.rabbitmq.doubts import Doubts, Slots
from qindex.brokers.rabbitmq.index_v2 import acked_seqs, read_stored_term
from qindex.brokers.rabbitmq.message import MessageError
from qindex.brokers.rabbitmq.queue import Counts, scan_queue
from qindex.brokers.tree import Findings, Tree

ID = bytes(range(16))
TERM = b"\x83h\x01m\x00\x00\x00\x04body"


def header(magic: bytes, first: int, last: int) -> bytes:
    return struct.pack(">4sBQQ43x", magic, 2, first, last)


def in_store(persistent: bool = True) -> bytes:
    return struct.pack(">BBBB16sIQ", 1, persistent, 0, 1, ID, 7, 0)


def in_queue(offset: int, size: int = len(TERM)) -> bytes:
    return struct.pack(">BBBBQIIIQ", 1, 1, 0, 2, offset, size, 0, 7, 0)


ACKED = struct.pack(">BBBB16sIQ", 0, 1, 0, 1, ID, 7, 0)
NOTHING = bytes(32)


def stored(term: bytes, crc: int | None = None, size: int | None = None) -> bytes:
    crc = zlib.crc32(term) & 0xFFFF if crc is None else crc
    return struct.pack(">IBHB", len(term) if size is None else size, 1, crc, 0) + term


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "q").mkdir()
    return tmp_path / "q"


def scan(folder: Path) -> tuple[list[int], Counts, list[str]]:
    findings, counts = Findings(), Counts()
    tree = Tree(folder.parent, findings)
    batches = scan_queue(tree, "q", 8, findings, counts)
    live = [seq for batch in batches for seq, *_ in batch.rows()]
    tree.close()
    return live, counts, [finding.kind for finding in findings.kept]


def test_slots_in_use_are_live_and_the_others_are_not(folder: Path) -> None:
    slots = [NOTHING, in_store(), ACKED, NOTHING, in_store(False), in_queue(64)]
    (folder / "1.qi").write_bytes(header(b"RCQI", 100, 200) + b"".join(slots))
    (folder / "1.qs").write_bytes(header(b"RCQS", 100, 200) + stored(TERM))
    live, counts, kinds = scan(folder)
    assert live == [101, 104, 105]
    assert (counts.published, counts.acked, counts.segments) == (4, 1, 1)
    assert kinds == []


def test_a_file_with_holes_is_read_to_its_end(folder: Path) -> None:
    with (folder / "0.qi").open("wb") as file:
        file.write(header(b"RCQI", 0, 4096))
        file.seek(64 + 32 * 4095)
        file.write(in_store())
    assert scan(folder)[0] == [4095]


def test_an_entry_that_is_cut_is_a_note(folder: Path) -> None:
    data = header(b"RCQI", 0, 10) + in_store() * 3
    (folder / "0.qi").write_bytes(data[:-10])
    live, _, kinds = scan(folder)
    assert (live, kinds) == ([0, 1], ["torn tail"])


def test_a_damaged_header_hides_no_entry(folder: Path) -> None:
    data = header(b"RCQX", 4096, 8192) + in_store() * 3
    (folder / "1.qi").write_bytes(data)
    live, _, kinds = scan(folder)
    assert (live, kinds) == ([4096, 4097, 4098], ["header"])


@pytest.mark.parametrize(
    "entry",
    [b"\x02" + in_store()[1:], b"\x01\x01\x01" + in_store()[3:], b"\x01\x01\x00\x03" + bytes(28)],
)
def test_an_entry_that_makes_no_sense_is_left_out(folder: Path, entry: bytes) -> None:
    (folder / "0.qi").write_bytes(header(b"RCQI", 0, 10) + in_store() + entry + in_store())
    live, _, kinds = scan(folder)
    assert (live, kinds) == ([0, 2], ["records lost"])


def test_a_place_beyond_the_queues_store_is_nowhere(folder: Path) -> None:
    (folder / "0.qi").write_bytes(header(b"RCQI", 0, 10) + in_queue(64) + in_queue(10_000))
    (folder / "0.qs").write_bytes(header(b"RCQS", 0, 10) + stored(TERM))
    findings = Findings()
    tree = Tree(folder.parent, findings)
    batches = scan_queue(tree, "q", 8, findings, Counts())
    entries = [entry for batch in batches for *_, entry in batch.rows()]
    tree.close()
    assert [(msg_id, term_bytes) for msg_id, _, _, term_bytes, *_ in entries] == [
        (b"", len(TERM)),
        (b"", 0),
    ]


def test_an_interrupted_conversion_gives_each_message_once(folder: Path) -> None:
    def publish(slot: int) -> bytes:
        return struct.pack(">H16sQII", 0xC000 | slot, ID, 0, 7, 0)

    (folder / "journal.jif").write_bytes(b"")
    (folder / "1.idx").write_bytes(publish(0) + publish(1) + publish(5))
    (folder / "0.qi").write_bytes(header(b"RCQI", 0, 10) + in_store() * 10)
    live, counts, kinds = scan(folder)
    assert live == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13]
    assert counts.published == 11
    assert kinds == []


def read_term(folder: Path, entry: bytes, size: int) -> bytes:
    (folder / "0.qs").write_bytes(header(b"RCQS", 0, 10) + entry)
    tree = Tree(folder, Findings())
    try:
        with tree.open("0.qs") as source:
            return read_stored_term(source, 64 + 8, size)
    finally:
        tree.close()


def test_a_stored_term_is_checked(folder: Path) -> None:
    assert read_term(folder, stored(TERM), len(TERM)) == TERM
    with pytest.raises(MessageError, match="checksum"):
        read_term(folder, stored(TERM, crc=zlib.crc32(TERM) + 1 & 0xFFFF), len(TERM))
    with pytest.raises(MessageError, match="says 7 bytes"):
        read_term(folder, stored(TERM), 7)
    with pytest.raises(MessageError, match="cut"):
        read_term(folder, b"\0\0\0", len(TERM))


def test_zeros_behind_a_stored_term_are_no_part_of_it(folder: Path) -> None:
    size = len(TERM) + 5
    crc = zlib.crc32(TERM) & 0xFFFF
    assert read_term(folder, stored(TERM + bytes(5), crc, size), size) == TERM
    body_of_zeros = b"\x83h\x01m\x00\x00\x00\x04" + bytes(4)
    assert read_term(folder, stored(body_of_zeros), len(body_of_zeros)) == body_of_zeros


def acked(folder: Path, data: bytes) -> list[int]:
    (folder / "1.qi").write_bytes(data)
    tree = Tree(folder.parent, Findings())
    found = list(acked_seqs(tree, "q", 1, Findings()))
    tree.close()
    return found


def test_acked_messages_are_those_whose_entries_were_written_before(folder: Path) -> None:
    slots = [NOTHING, in_store(), ACKED, NOTHING, ACKED]
    assert acked(folder, header(b"RCQI", 100, 200) + b"".join(slots)) == [102, 104]
    many = [NOTHING] * 20_000 + [ACKED, NOTHING, ACKED[:31]]
    assert acked(folder, header(b"RCQI", 30_000, 60_000) + b"".join(many)) == [50_000]


def test_a_header_that_promises_more_entries_than_there_are_costs_nothing(folder: Path) -> None:
    assert acked(folder, header(b"RCQI", 1 << 46, 1 << 47) + ACKED) == [1 << 46]
    assert acked(folder, b"RCQI") == []


def test_the_gaps_of_a_file_whose_header_promises_more_than_32_bits_are_counted(
    folder: Path,
) -> None:
    (folder / "0.qi").write_bytes(header(b"RCQI", 0, 1 << 45) + in_store() + NOTHING + in_store())
    findings, counts = Findings(), Counts()
    tree = Tree(folder.parent, findings)
    doubts = Doubts(tree, "q", findings, Slots())
    numbers = list(scan_queue(tree, "q", 8, findings, counts, doubts))
    tree.close()
    assert (len(numbers), doubts.gaps.missing) == (1, 1)
