"""The files in which Erlang keeps terms: a log that is torn, a table that is read by its marks."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from qindex.brokers.rabbitmq.erlang import Term
from qindex.brokers.rabbitmq.erlang_files import dets_objects, log_terms
from qindex.brokers.tree import Findings, Tree

HEAD = b"\x01\x02\x03\x04\x06\x07\x08\x09"
SMALL = b"\x83a\x07"


def item(data: bytes) -> bytes:
    size = struct.pack(">I", len(data))
    digest = hashlib.md5(size, usedforsecurity=False).digest() if len(data) >= 65528 else b""
    return size + b"bWLA" + digest + data


def big(size: int) -> bytes:
    return b"\x83m" + struct.pack(">I", size) + bytes(size)


def read(path: Path, data: bytes, *, dets: bool = False) -> tuple[list[Term], list[str]]:
    (path / "file").write_bytes(data)
    findings = Findings()
    tree = Tree(path, findings)
    with tree.open("file") as source:
        terms = list((dets_objects if dets else log_terms)(source, findings))
    tree.close()
    return terms, [finding.kind for finding in findings.kept]


def test_a_log_is_read_to_its_end(tmp_path: Path) -> None:
    data = HEAD + item(SMALL) + item(big(70_000)) + item(big(65_522)) + item(SMALL)
    terms, kinds = read(tmp_path, data)
    assert terms == [7, bytes(70_000), bytes(65_522), 7]
    assert kinds == []


def test_a_torn_log_gives_what_is_whole(tmp_path: Path) -> None:
    whole = HEAD + item(SMALL) * 3
    for cut in range(1, len(item(SMALL))):
        assert read(tmp_path, whole[:-cut]) == ([7, 7], ["torn tail"])


def test_a_bad_item_does_not_hide_the_next(tmp_path: Path) -> None:
    assert read(tmp_path, HEAD + item(b"\x83?") + item(SMALL)) == ([7], ["bad item"])


def test_bytes_that_are_no_item_hide_none_that_follows(tmp_path: Path) -> None:
    size = struct.pack(">I", 1 << 31)  # of an item that reaches beyond the file, or none's
    for bad in (b"x", bytes(5000), size + b"bWLA" + SMALL, size, b"bWLA"):
        read_on = read(tmp_path, HEAD + item(SMALL) + bad + item(big(70_000)) + item(SMALL))
        assert read_on == ([7, bytes(70_000), 7], ["bad item"]), bad
    assert read(tmp_path, HEAD + item(SMALL) + bytes(5000)) == ([7], ["torn tail"])


def test_another_file_is_no_log(tmp_path: Path) -> None:
    assert read(tmp_path, b"something") == ([], ["no log"])
    assert read(tmp_path, b"") == ([], [])


def dets(*collections: list[bytes]) -> bytes:
    data = bytes(100)
    for collection in collections:
        objects = b"".join(struct.pack(">I", len(each) + 4) + each for each in collection)
        data += struct.pack(">I", len(objects)) + b"\x12\x34\x56\x78" + objects + bytes(13)
    return data


def test_the_objects_of_a_table_are_found_by_their_marks(tmp_path: Path) -> None:
    data = dets([SMALL], [b"\x83a\x08", b"\x83a\x09"], [])
    assert read(tmp_path, data, dets=True) == ([7, 8, 9], [])


def test_a_damaged_object_hides_only_its_own_collection(tmp_path: Path) -> None:
    data = dets([b"\x83?", SMALL], [b"\x83a\x08"])
    assert read(tmp_path, data, dets=True) == ([8], ["bad object"])


@given(st.binary(max_size=300))
def test_garbage_never_raises(tmp_path_factory: object, garbage: bytes) -> None:
    path = tmp_path_factory.mktemp("garbage")  # type: ignore[attr-defined]
    read(path, HEAD + garbage)
    read(path, b"\x12\x34\x56\x78" + garbage, dets=True)
