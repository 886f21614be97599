"""Ra's write-ahead log: what is read of it, and what is found behind damage."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from ra_files import Wal, flip, term

from qindex.brokers.rabbitmq.ra.wal import Record, WalFile
from qindex.brokers.tree import Findings, Tree


def read(path: Path, data: bytes) -> tuple[list[Record], Findings]:
    (path / "1.wal").write_bytes(data)
    findings = Findings()
    tree = Tree(path, findings)
    with tree.open("1.wal") as source:
        records = list(WalFile(source, findings).records())
    tree.close()
    return records, findings


def heads(records: list[Record]) -> list[tuple[bytes, int]]:
    return [(record.uid, record.index) for record in records]


def body(number: int) -> bytes:
    return term(b"message %d" % number * 9)


@pytest.fixture
def wal() -> Wal:
    """Entries 0 to 9 of A and of B, in turn."""
    wal = Wal()
    for index in range(10):
        wal.add("A", index, body(index))
        wal.add("QUEUE_B", index, body(100 + index))
    return wal


def expected(*missing: tuple[bytes, int]) -> list[tuple[bytes, int]]:
    every = [(uid, index) for index in range(10) for uid in (b"A", b"QUEUE_B")]
    return [each for each in every if each not in missing]


def test_every_record_is_read_with_the_place_of_its_data(tmp_path: Path, wal: Wal) -> None:
    records, findings = read(tmp_path, wal.data)
    assert heads(records) == expected()
    assert [wal.data[r.offset : r.offset + r.size] for r in records][1::2] == [
        body(100 + index) for index in range(10)
    ]
    assert all(record.sound and record.term == 1 for record in records)
    assert findings.kept == []


def test_zeros_behind_the_last_record_are_the_end(tmp_path: Path, wal: Wal) -> None:
    records, findings = read(tmp_path, wal.data + bytes(50_000))
    assert heads(records) == expected()
    assert findings.kept == []


def test_a_torn_record_is_told_with_its_index(tmp_path: Path, wal: Wal) -> None:
    for cut in range(1, len(wal.data) - wal.places[-1]):
        records, findings = read(tmp_path, wal.data[:-cut])
        assert heads(records) == expected((b"QUEUE_B", 9))
        (finding,) = findings.kept
        assert finding.severity == "damage"
        if cut <= len(body(9)):
            assert "entry 9 of QUEUE_B" in finding.text


def test_a_flipped_bit_costs_no_more_than_its_record(tmp_path: Path, wal: Wal) -> None:
    """Each bit of a record in the middle: its neighbours stay, and it is never called sound."""
    start, end = wal.places[9], wal.places[10]
    for place in range(start, end):
        for bit in (0, 6, 7):
            records, findings = read(tmp_path, flip(wal.data, place, bit))
            got = heads(records)
            missing = set(expected()) - set(got)
            if place - start < 3 and not findings.kept:
                continue  # No checksum covers whose it is: see test_ra_strays.
            assert missing <= {(b"QUEUE_B", 4)}, (place - start, bit, missing)
            assert findings.kept, (place - start, bit)
            assert len(got) == 20 - len(missing)
            for record in records:
                if not record.sound:
                    assert (record.uid, record.index) == (b"QUEUE_B", 4)


def test_an_index_or_term_with_a_flipped_bit_is_put_right(tmp_path: Path, wal: Wal) -> None:
    start = wal.places[9]
    for place in range(start + 11, start + 27):
        records, findings = read(tmp_path, flip(wal.data, place, 1))
        assert heads(records) == expected()
        assert all(record.sound and record.term == 1 for record in records)
        assert [finding.kind for finding in findings.kept] == ["wal"]


def test_a_record_with_damaged_data_is_doubtful(tmp_path: Path, wal: Wal) -> None:
    records, _ = read(tmp_path, flip(wal.data, wal.places[10] - 5))
    assert heads(records) == expected()
    assert [record.sound for record in records].count(False) == 1


def test_records_behind_a_page_of_zeros_are_found(tmp_path: Path) -> None:
    wal = Wal()
    for index in range(2000):
        wal.add("A", index, body(index))
    start = wal.places[700] + 5
    data = wal.data[:start] + bytes(4096) + wal.data[start + 4096 :]
    records, findings = read(tmp_path, data)
    lost = {index for index in range(2000) if start - 200 < wal.places[index] < start + 4096}
    found = {record.index for record in records if record.sound}
    assert found >= set(range(2000)) - lost
    assert len(records) < 2000
    assert "damage" in {finding.severity for finding in findings.kept}


def test_zeros_that_begin_where_a_record_does_are_not_the_end(tmp_path: Path, wal: Wal) -> None:
    start, end = wal.places[6], wal.places[9]
    data = wal.data[:start] + bytes(end - start) + wal.data[end:]
    records, findings = read(tmp_path, data)
    lost = expected()[6:9]
    assert heads(records) == expected(*lost)
    assert "where RabbitMQ takes the log to end" in findings.kept[0].text


def test_without_the_record_that_names_a_server_the_others_get_a_stand_in(
    tmp_path: Path, wal: Wal
) -> None:
    start, end = wal.places[1], wal.places[2]
    data = wal.data[:start] + b"\xff" * (end - start) + wal.data[end:]
    records, _ = read(tmp_path, data)
    assert [record.index for record in records if record.uid == b"?1"] == list(range(1, 10))
    assert [record.index for record in records if record.uid == b"A"] == list(range(10))


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    records, findings = read(tmp_path, b"")
    assert records == []
    assert [finding.severity for finding in findings.kept] == ["damage"]


def test_a_damaged_header_costs_nothing(tmp_path: Path, wal: Wal) -> None:
    for place in range(5):
        records, findings = read(tmp_path, flip(wal.data, place))
        assert heads(records) == expected()
        assert findings.kept


def test_records_without_checksums_are_taken_only_if_none_has_one(tmp_path: Path, wal: Wal) -> None:
    data = wal.data
    for place, uid_bytes in zip(wal.places, [2 + 1, 2 + 7] + [0] * 18, strict=True):
        at = place + 3 + uid_bytes
        data = data[:at] + bytes(4) + data[at + 4 :]
    records, findings = read(tmp_path, data)
    assert heads(records) == expected()
    assert findings.kept == []
    at = wal.places[10] + 3
    records, findings = read(tmp_path, wal.data[:at] + bytes(4) + wal.data[at + 4 :])
    assert [record.sound for record in records].count(False) == 1
    assert findings.kept


def test_a_record_longer_than_a_block_is_read(tmp_path: Path) -> None:
    wal = Wal()
    wal.add("A", 1, term(bytes(3 << 20)))
    wal.add("A", 2, term(bytes(3 << 20)))
    wal.add("A", 3, body(3))
    records, findings = read(tmp_path, wal.data)
    assert heads(records) == [(b"A", 1), (b"A", 2), (b"A", 3)]
    assert findings.kept == []


def test_a_hostile_file_ends_in_time(tmp_path: Path) -> None:
    """Every byte looks like a record that reaches to the end of the file."""
    one = b"\x40\0\0" + b"abcd" + (900_000).to_bytes(4, "big") + bytes(16) + b"\x83"
    records, findings = read(tmp_path, b"RAWA\x01" + one * 35_000)
    assert records == []
    assert findings.kept
    assert zlib.adler32(b"") == 1
