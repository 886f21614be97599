"""Each file of a dead node, cut, zeroed and flipped all over: it is read on and accounted for."""

from __future__ import annotations

import hashlib
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qindex.brokers.rabbitmq.directory import Node, open_node

if TYPE_CHECKING:
    from .conftest import DeadNode

PIECES = 8  # where a file is damaged
SMALLEST_RECORD = 36  # a publish without a term, and its deliver


def account(path: Path) -> tuple[set[tuple[str, str]], Node]:
    """(queue, digest) of every message that is intact, after checking that the counts add up."""
    intact = set()
    with open_node(path) as node:
        for vhost in node.vhosts:
            for queue in vhost.queues:
                counts = queue.counts
                parts = counts.acked + counts.transient + counts.body_missing + counts.live
                assert counts.published == parts
                given = 0
                for message in queue.messages():
                    given += 1
                    digest = hashlib.sha256(message.body).hexdigest()[:32]
                    intact.add((f"{vhost.name} {queue.name}", digest))
                assert counts.live == given + queue.unreadable
    return intact, node


def damages(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """(what, how many bytes are affected, the damaged bytes)"""
    for piece in range(PIECES):
        start = len(data) * piece // PIECES
        yield "cut", len(data) - start, data[:start]
        for size in (1, 200, 4096):
            zeroed = data[:start] + bytes(len(data[start : start + size])) + data[start + size :]
            yield "zeroed", size, zeroed
        flipped = bytearray(data)
        flipped[start] ^= 1 << piece % 8
        yield "flipped", 1, bytes(flipped)
        yield "inserted", 1, data[:start] + b"\x00" + data[start:]
        yield "removed", 1, data[:start] + data[start + 1 :]
    yield "a byte behind", 0, data + b"\x00"
    yield "zeros behind", 0, data + bytes(10_000)
    yield "noise behind", 0, data + b"\xa5" * 1000


FOLDERS = {
    "q.small": "8HKCHMCHLHJ9DDASIPO7XLLO6",
    "q.mixed": "434QJ29PS1F7KJO6A26YZF1Z8",
    "q.fan3": "49RJBDC8EH0RTYLNTYFZRJNDO",
    "q.edge": "DWGOAJKJZOM8G8QXIIXQML6FH",
}


OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in FOLDERS if name != "q.small"]


@pytest.fixture(params=["q.small", *OTHERS])
def index_file(request: pytest.FixtureRequest, demo_copy: DeadNode) -> Path:
    return next(demo_copy.path.glob(f"**/{FOLDERS[request.param]}")) / "0.idx"


def check(
    path: Path, file: Path, whole: set[tuple[str, str]], *, by_position: bool = False
) -> None:
    """Damages the file in every way; what the damage did not touch must be there.

    Where things are found `by_position`, a byte more or less in the file is no use to try.
    """
    data = file.read_bytes()
    for what, affected, damaged in damages(data):
        if by_position and what in ("inserted", "removed"):
            continue
        file.write_bytes(damaged)
        intact, node = account(path)
        lost = whole - intact
        assert node.counts.live == 339 or node.findings, what
        if what != "cut":
            assert len(lost) <= affected // SMALLEST_RECORD + 3, what
        if not affected:
            assert not lost, what
        if lost and what in ("cut", "inserted", "removed"):
            assert node.findings, what
    file.write_bytes(data)


@pytest.mark.slow
def test_a_damaged_segment_costs_what_was_damaged(demo_copy: DeadNode, index_file: Path) -> None:
    whole, node = account(demo_copy.path)
    assert not node.findings
    check(demo_copy.path, index_file, whole)


def as_journal(segment: bytes) -> bytes:
    """The same records as a journal has them, by slot; all seqs are in the first segment."""
    records: dict[int, bytes] = {}
    pos, seen = 0, set()
    while pos < len(segment):
        (head,) = struct.unpack_from(">H", segment, pos)
        slot = head & 0x3FFF
        record = records.get(slot, b"")
        if head >= 0x8000:
            size = 34 + struct.unpack_from(">I", segment, pos + 30)[0]
            record += struct.pack(">Q", (head < 0xC000) << 62 | slot)
            record += segment[pos + 2 : pos + size]
            pos += size
        else:
            record += struct.pack(">Q", (3 if slot in seen else 2) << 62 | slot)
            seen.add(slot)
            pos += 2
        records[slot] = record
    return b"".join(records[slot] for slot in sorted(records))


@pytest.mark.slow
def test_a_damaged_journal_costs_what_was_damaged(demo_copy: DeadNode, index_file: Path) -> None:
    whole, _ = account(demo_copy.path)
    journal = index_file.with_name("journal.jif")
    journal.write_bytes(as_journal(index_file.read_bytes()))
    index_file.unlink()
    again, node = account(demo_copy.path)
    assert again == whole
    assert not node.findings
    check(demo_copy.path, journal, whole)


@pytest.mark.slow
def test_a_damaged_message_file_costs_what_was_damaged(demo_copy: DeadNode) -> None:
    whole, _ = account(demo_copy.path)
    check(demo_copy.path, message_file(demo_copy), whole)


@pytest.mark.slow
def test_a_damaged_leftover_of_a_compaction_costs_what_was_damaged(demo_copy: DeadNode) -> None:
    """Killed between cutting N.rdq and writing it anew: all bodies are in N.rdt, and only there."""
    whole, _ = account(demo_copy.path)
    file = message_file(demo_copy)
    leftover = file.rename(file.with_suffix(".rdt"))
    file.write_bytes(b"")
    again, node = account(demo_copy.path)
    assert again == whole
    assert [finding.kind for finding in node.findings] == ["compaction"]
    check(demo_copy.path, leftover, whole)
    leftover.write_bytes(leftover.read_bytes()[:100_000])
    lost, node = account(demo_copy.path)
    assert whole - lost
    assert {finding.kind for finding in node.findings} >= {"compaction", "body missing"}


def message_file(dead: DeadNode) -> Path:
    (file,) = dead.path.glob("**/628WB79CIFDYO9LJI6DKMI09L/msg_store_persistent/0.rdq")
    return file


def test_a_missing_message_file_is_reported_with_what_it_cost(demo_copy: DeadNode) -> None:
    message_file(demo_copy).unlink()
    _, node = account(demo_copy.path)
    assert node.counts.body_missing == 141 - 5
    missing = [finding for finding in node.findings if finding.kind == "body missing"]
    assert len(missing) == len({finding.where for finding in missing}) > 5


def test_a_body_that_changed_its_size_is_reported(demo_copy: DeadNode) -> None:
    with open_node(demo_copy.path) as node:
        queue = next(q for q in node.vhosts[0].queues if q.name == "q.large")
        message = next(queue.messages())
    index = next(demo_copy.path.glob("**/AZE8MP3RZC1NL5N8FF1IDMTMV")) / "0.idx"
    entry = bytearray(index.read_bytes())
    at = entry.index(message.msg_id) + 16 + 8
    struct.pack_into(">I", entry, at, len(message.body) + 1)
    index.write_bytes(entry)
    _, node = account(demo_copy.path)
    assert [finding.kind for finding in node.findings] == ["mismatch"]


def test_a_term_that_makes_no_sense_is_left_out_and_reported(demo_copy: DeadNode) -> None:
    file = message_file(demo_copy)
    data = bytearray(file.read_bytes())
    data[24 + 2] = 5  # a tuple of five instead of six
    file.write_bytes(data)
    _, node = account(demo_copy.path)
    (finding,) = (finding for finding in node.findings if finding.kind == "message lost")
    assert finding.where.endswith("0.rdq")


@pytest.mark.parametrize(
    "name", [".queue_name", ".vhost", ".config", "recovery.dets", "LATEST.LOG"]
)
@pytest.mark.sample(5)
def test_damaged_names_and_terms_cost_no_message(demo_copy: DeadNode, name: str) -> None:
    whole, _ = account(demo_copy.path)
    digests = {digest for _, digest in whole}
    for file in list(demo_copy.path.glob(f"**/{name}"))[:3]:
        data = file.read_bytes()
        for _, _, damaged in list(damages(data))[::5]:
            file.write_bytes(damaged)
            intact, _ = account(demo_copy.path)
            assert {digest for _, digest in intact} == digests
        file.write_bytes(data)


@pytest.mark.parametrize("kind", ["qi", "qs"])
@pytest.mark.parametrize("name", ["q.small", pytest.param("q.edge", marks=pytest.mark.slow)])
def test_a_damaged_queue_of_version_2_costs_what_was_damaged(
    shared_node: Callable[[str], DeadNode], tmp_path: Path, name: str, kind: str
) -> None:
    path = tmp_path / "copy"
    shutil.copytree(shared_node("e_v2_clean").path, path)
    whole, node = account(path)
    assert not node.findings
    check(path, next(path.glob(f"**/{FOLDERS[name]}")) / f"0.{kind}", whole, by_position=True)
