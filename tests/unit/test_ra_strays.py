"""Records that stand under a wrong server, because a bit of the server's number or name flipped."""

from __future__ import annotations

from pathlib import Path

import pytest
from ra_files import Wal, flip, put, segment, term

from qindex.brokers.rabbitmq.erlang import decode
from qindex.brokers.rabbitmq.ra.system import System, open_system
from qindex.brokers.tree import Findings, Tree

A, B, C = NAMES = ["2F_A0000", "2F_B1111", "2F_C2222"]


@pytest.fixture
def wal() -> Wal:
    """Of three servers entries 0 to 9 of term 1, 10 to 19 of term 2; C has one more."""
    wal = Wal()
    for index in range(20):
        for name in NAMES:
            wal.add(name, index, term(f"{name} {index}".encode()), 1 if index < 10 else 2)
    wal.add(C, 20, term(f"{C} 20".encode()), 2)
    return wal


def opened(path: Path, data: bytes, more: dict[str, bytes] | None = None) -> System:
    for name in NAMES:
        (path / name).mkdir(exist_ok=True)
    findings = Findings()
    files = {"00000001.wal": data, **(more or {})}
    return open_system(Tree(put(path, files), findings), "", findings)


def entries(system: System, name: str) -> list[int]:
    """The indexes; the data says that it is this server's, or a finding that it may not be."""
    found = []
    twice = [int(f.text.split()[1]) for f in system.findings.kept if "stands here twice" in f.text]
    for entry in system.servers[name].log.entries():
        if name.encode() in entry.data or entry.index not in twice:
            assert decode(entry.data) == f"{name} {entry.index}".encode()
        found.append(entry.index)
    return found


def test_a_flipped_bit_of_the_server_s_number_moves_no_entry(tmp_path: Path, wal: Wal) -> None:
    """Every bit of the 22 that tell whose a record is, of each record."""
    for number, place in enumerate(wal.places):
        for bit in [0, 1, 2, 7, 8, 21]:
            at = place + 2 - bit // 8
            system = opened(tmp_path, flip(wal.data, at, bit % 8))
            if number == 60 and bit == 1:
                continue  # it is A's next one now, as far as anything tells
            whole = sum(len(entries(system, name)) for name in NAMES)
            damage = [f for f in system.findings.kept if f.severity == "damage"]
            holes = any(system.servers[name].log.holes(0, 19) for name in NAMES)
            assert damage or holes, (number, bit)
            assert whole >= 60, (number, bit)
            system.tree.close()


def test_records_without_their_server_s_name_go_to_the_one_that_has_none(
    tmp_path: Path, wal: Wal
) -> None:
    start, end = wal.places[1], wal.places[2]
    data = wal.data[:start] + b"\xff" * (end - start) + wal.data[end:]
    system = opened(tmp_path, data)
    assert entries(system, B) == list(range(1, 20))
    assert entries(system, A) == list(range(20))


def test_a_name_with_a_flipped_bit_is_known_by_the_directory(tmp_path: Path, wal: Wal) -> None:
    for place in range(8):
        system = opened(tmp_path, flip(wal.data, wal.places[1] + 5 + place))
        assert entries(system, B) == list(range(20))
        assert "damage" in {finding.severity for finding in system.findings.kept}
        system.tree.close()


def test_two_servers_without_names_are_told_apart_by_their_segments(tmp_path: Path) -> None:
    wal = Wal()
    for index in range(5):
        for name, first in zip(NAMES, (100, 200, 300), strict=True):
            wal.add(name, first + index, term(f"{name} {first + index}".encode()))
    data = wal.data
    for number in (0, 1):
        start, end = wal.places[number], wal.places[number + 1]
        data = data[:start] + b"\xff" * (end - start) + data[end:]
    more = {
        f"{name}/00000001.segment": segment(
            [(first + n, 1, term(f"{name} {first + n}".encode())) for n in range(-3, 0)]
        )
        for name, first in zip(NAMES, (100, 200, 300), strict=True)
    }
    system = opened(tmp_path, data, more)
    assert entries(system, A) == [97, 98, 99, 101, 102, 103, 104]
    assert entries(system, B) == [197, 198, 199, 201, 202, 203, 204]
    assert entries(system, C) == [297, 298, 299, *range(300, 305)]


def test_what_cannot_be_told_stays_apart(tmp_path: Path, wal: Wal) -> None:
    """Two servers without names and without segments: neither gets the other's entries."""
    data = wal.data
    for number in (0, 1):
        start, end = wal.places[number], wal.places[number + 1]
        data = data[:start] + b"\xff" * (end - start) + data[end:]
    system = opened(tmp_path, data)
    assert entries(system, C) == list(range(21))
    assert {"?0", "?1"} <= set(system.servers)


def test_strays_next_to_each_other_are_all_looked_at(tmp_path: Path) -> None:
    """Indexes that make no sense at all: found by a fuzzer."""
    wal = Wal()
    for index in (5, 1, 6, 2, 7, 3, 4, 9, 8, 10):
        wal.add(A, index, term(f"{A} {index}".encode()))
        wal.add(B, 20 - index, term(f"{B} {20 - index}".encode()))
    system = opened(tmp_path, wal.data)
    assert entries(system, A)


def test_a_record_under_a_wrong_server_goes_where_its_index_is_missing(tmp_path: Path) -> None:
    """Bits 0 and 1 of a server's number: B's record is A's, or of a server that is not there."""
    wal = Wal()
    for index in range(12):
        for name, first in zip(NAMES, (0, 100, 200), strict=True):
            wal.add(name, first + index, term(f"{name} {first + index}".encode()))
    for bit in (0, 1):
        system = opened(tmp_path, flip(wal.data, wal.places[3 * 5 + 1] + 2, bit))
        assert entries(system, A) == list(range(12))
        assert entries(system, C) == list(range(200, 212))
        assert entries(system, B) == list(range(100, 112)), bit
        assert [f.severity for f in system.findings.kept if f.kind == "wal"] == ["damage"]
        system.tree.close()
