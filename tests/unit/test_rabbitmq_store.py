"""RabbitMQ's message store: entries, copies, holes, and what stands behind damage."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qindex.brokers.rabbitmq.store import MessageStore, Place, read_copies, read_store
from qindex.brokers.tree import Findings, Tree


def msg_id(number: int) -> bytes:
    return struct.pack(">QQ", 0x0123456789ABCDEF, number)


def term(body: bytes) -> bytes:
    return b"\x83h\x01m" + struct.pack(">I", len(body)) + body


def entry(number: int, body: bytes) -> bytes:
    inside = msg_id(number) + term(body)
    return struct.pack(">Q", len(inside)) + inside + b"\xff"


Read = Callable[..., tuple[MessageStore, list[str]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(**files: bytes) -> tuple[MessageStore, list[str]]:
        for name, data in files.items():
            (tmp_path / f"{name[1:]}.{'rdt' if name[0] == 't' else 'rdq'}").write_bytes(data)
        findings = Findings()
        tree = Tree(tmp_path, findings)
        store = read_store(tree, "", findings)
        check_places(store, tmp_path)
        tree.close()
        return store, [finding.kind for finding in findings.kept]

    return read


def check_places(store: MessageStore, path: Path) -> None:
    for number in range(30):
        place = store.find(msg_id(number))
        if place is None:
            continue
        data = (path / place.file.lstrip("/")).read_bytes()
        assert data[place.offset :][: place.size].startswith(b"\x83h\x01m")


def place_of(store: MessageStore, wanted: bytes) -> Place:
    place = store.find(wanted)
    assert place is not None
    return place


SIZES = [0, 1, 100, 3000, 4096, 5000, 300_000]


def test_every_entry_is_found_whatever_its_size(read: Read) -> None:
    data = b"".join(entry(n, b"b" * size) for n, size in enumerate(SIZES * 3))
    store, kinds = read(f0=data)
    assert len(store) == len(SIZES) * 3
    assert kinds == []
    assert place_of(store, msg_id(5)).size == len(term(b"b" * 5000))


def test_copies_are_counted_and_the_first_is_taken(read: Read) -> None:
    store, kinds = read(
        f0=entry(1, b"x") + entry(2, b"y"), f1=entry(2, b"y"), t0=entry(1, b"x") + entry(3, b"z")
    )
    assert (len(store), store.copies) == (3, 2)
    assert place_of(store, msg_id(1)).file.endswith("0.rdq")
    assert place_of(store, msg_id(3)).file.endswith("0.rdt")
    assert kinds == ["compaction"]


def test_files_are_read_in_the_order_of_their_numbers(read: Read) -> None:
    store, _ = read(f10=entry(1, b"new"), f9=entry(1, b"old"))
    assert place_of(store, msg_id(1)).file.endswith("9.rdq")


@pytest.mark.parametrize("hole", [8, 27, 500, 10_000])
def test_holes_of_zeros_are_passed(read: Read, hole: int) -> None:
    store, kinds = read(f0=bytes(hole) + entry(1, b"x") + bytes(hole) + entry(2, b"y"))
    assert len(store) == 2
    assert kinds == ["hole", "hole"]


def test_zeros_at_the_end_are_a_note(read: Read) -> None:
    store, kinds = read(f0=entry(1, b"x") + bytes(5))
    assert len(store) == 1
    assert kinds == ["hole"]


@given(st.integers(0, 400))
def test_a_torn_last_entry_is_a_note(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("store")
    whole = entry(1, b"x" * 50)
    data = (whole * 4)[: max(0, 4 * len(whole) - cut)]
    (path / "0.rdq").write_bytes(data)
    findings = Findings()
    tree = Tree(path, findings)
    store = read_store(tree, "", findings)
    tree.close()
    assert len(store) + store.copies == len(data) // len(whole)
    assert len(findings.kept) == (len(data) % len(whole) > 0)
    assert all(finding.severity == "note" for finding in findings.kept)


@pytest.mark.parametrize("wrong", [-40, -1, 3, 9, 5000, 1 << 40])
def test_a_wrong_size_costs_nothing(read: Read, wrong: int) -> None:
    entries = [entry(n, b"x" * 100) for n in range(4)]
    data = bytearray(b"".join(entries))
    at = len(entries[0])
    (size,) = struct.unpack_from(">Q", data, at)
    struct.pack_into(">Q", data, at, size + wrong)
    store, kinds = read(f0=bytes(data))
    assert len(store) == 4
    assert kinds == ["entry"]


@pytest.mark.parametrize("hole", [1, 8, 30, 130, 1000])
def test_entries_behind_a_zeroed_piece_are_found(read: Read, hole: int) -> None:
    entries = [entry(n, b"x" * 100) for n in range(20)]
    data = bytearray(b"".join(entries))
    start = len(entries[0]) * 2 + 7
    data[start : start + hole] = bytes(hole)
    store, kinds = read(f0=bytes(data))
    untouched = -(-(start + hole) // len(entries[0]))
    assert all(store.find(msg_id(n)) for n in (0, 1, *range(untouched, 20)))
    assert kinds


def test_a_lost_end_mark_costs_nothing_while_the_term_is_whole(read: Read) -> None:
    entries = [entry(n, b"x" * 100) for n in range(4)]
    data = bytearray(b"".join(entries))
    data[len(entries[0]) * 2 - 1] = 0xFE
    store, kinds = read(f0=bytes(data))
    assert len(store) == 4
    assert kinds == ["entry"]


@given(st.binary(max_size=500), st.booleans())
def test_garbage_never_raises(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes, behind: bool
) -> None:
    path = tmp_path_factory.mktemp("store")
    good = entry(1, b"x")
    (path / "0.rdq").write_bytes(good + garbage if behind else garbage + good)
    findings = Findings()
    tree = Tree(path, findings)
    store = read_store(tree, "", findings)
    tree.close()
    assert not behind or store.find(msg_id(1))


def test_other_files_and_a_missing_folder_are_left_alone(read: Read, tmp_path: Path) -> None:
    (tmp_path / "clean.dot").write_bytes(b"x")
    (tmp_path / "00.rdq").write_bytes(b"x")
    (tmp_path / "1.rdq").symlink_to(tmp_path / "0.rdq")
    store, kinds = read(f0=entry(1, b"x"))
    assert (store.files, kinds) == (["/0.rdq"], [])
    findings = Findings()
    tree = Tree(tmp_path, findings)
    assert not read_store(tree, "nothing", findings).files
    assert [finding.kind for finding in findings.kept] == ["missing"]
    tree.close()


def test_every_message_of_many_is_found_and_no_other(read: Read) -> None:
    numbers = range(20_000)
    files = {f"f{k}": b"".join(entry(n, b"x" * (n % 50)) for n in numbers[k::4]) for k in range(4)}
    store, kinds = read(**files)
    assert (len(store), store.copies, kinds) == (20_000, 0, [])
    for number in numbers:
        place = place_of(store, msg_id(number))
        assert place.file == f"/{number % 4}.rdq"
        assert place.size == len(term(b"x" * (number % 50)))
    assert not any(store.find(msg_id(number)) for number in range(20_000, 40_000))
    assert store.find(b"") is None


def test_a_thousand_copies_of_one_message_are_one(read: Read, tmp_path: Path) -> None:
    others = [entry(n, b"y") for n in range(2, 500)]
    store, _ = read(f0=b"".join(others), f1=entry(1, b"x") * 1000, f2=entry(1, b"x"))
    assert (len(store), store.copies) == (499, 1000)
    assert place_of(store, msg_id(1)) == Place("/1.rdq", 24, len(term(b"x")))
    findings = Findings()
    tree = Tree(tmp_path, findings)
    copies = read_copies(tree, "", msg_id(1), findings)
    tree.close()
    length = len(entry(1, b"x"))
    first = [Place("/1.rdq", 24 + n * length, len(term(b"x"))) for n in range(1000)]
    assert copies == [*first, Place("/2.rdq", 24, len(term(b"x")))]
