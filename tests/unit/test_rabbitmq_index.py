"""RabbitMQ's version 1 index: any order of records, and what is left of damaged files."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qindex.brokers.rabbitmq.queue import Counts, Live, scan_queue
from qindex.brokers.tree import FINDINGS_PER_FILE_MAX, Findings, Source, Tree

SLOTS = 8


@dataclass(frozen=True)
class Publish:
    seq: int
    persistent: bool = True
    term: bytes = b""
    expiry_us: int = 0

    def tail(self) -> bytes:
        msg_id = struct.pack(">QQ", 0x0123456789ABCDEF, ~self.seq & 0xFFFFFFFFFFFFFFFF)
        return msg_id + struct.pack(">QII", self.expiry_us, 7, len(self.term)) + self.term

    def in_journal(self) -> bytes:
        return struct.pack(">Q", (not self.persistent) << 62 | self.seq) + self.tail()

    def in_segment(self) -> bytes:
        return struct.pack(">H", 0x8000 | self.persistent << 14 | self.seq % SLOTS) + self.tail()


def deliver(seq: int) -> bytes:
    return struct.pack(">Q", 1 << 63 | seq)


def ack(seq: int) -> bytes:
    return struct.pack(">Q", 3 << 62 | seq)


def mark(seq: int) -> bytes:
    return struct.pack(">H", 0x4000 | seq % SLOTS)


def embedded(payload: bytes) -> bytes:
    """A term, as they are embedded: it begins with 131, 'h'."""
    return b"\x83h\x01m" + struct.pack(">I", len(payload)) + payload


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path)


def made(path: Path) -> Path:
    (path / "q").mkdir()
    return path / "q"


def scan(folder: Path) -> tuple[list[int], Counts, Findings]:
    findings = Findings()
    counts = Counts()
    tree = Tree(folder.parent, findings)
    live = [seq for seq, *_ in live_of(tree, findings, counts)]
    tree.close()
    return live, counts, findings


def live_of(tree: Tree, findings: Findings, counts: Counts) -> Iterator[Live]:
    for batch in scan_queue(tree, "q", SLOTS, findings, counts):
        yield from batch.rows()


def fill(folder: Path, journal: bytes, segments: dict[int, bytes]) -> None:
    (folder / "journal.jif").write_bytes(journal)
    for number, data in segments.items():
        (folder / f"{number}.idx").write_bytes(data)


def kinds(findings: Findings) -> list[str]:
    return [finding.kind for finding in findings.kept]


PUBLISHES = st.builds(
    Publish,
    seq=st.integers(0, 3 * SLOTS - 1),
    persistent=st.booleans(),
    term=st.sampled_from([b"", embedded(b""), embedded(b"x" * 300)]),
    expiry_us=st.sampled_from([0, 1_795_235_856_000_000]),
)


@given(st.data())
def test_a_message_is_live_if_published_anywhere_and_acked_nowhere(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    publishes = data.draw(st.lists(PUBLISHES, unique_by=lambda p: p.seq))
    journal: list[bytes] = []
    segments: dict[int, list[bytes]] = {}
    live, transient, delivered_seqs = [], 0, set()
    for publish in publishes:
        seq = publish.seq
        delivered, acked = data.draw(st.sampled_from([(0, 0), (1, 0), (1, 1)]))
        places = data.draw(st.sampled_from(["journal", "segment", "both", "split"]))
        if places in ("journal", "both"):
            journal += [publish.in_journal(), *[deliver(seq)] * delivered, *[ack(seq)] * acked]
        if places in ("segment", "both"):
            run = [publish.in_segment(), *[mark(seq)] * (delivered + acked)]
            segments.setdefault(seq // SLOTS, []).append(b"".join(run))
        if places == "split":
            segments.setdefault(seq // SLOTS, []).append(publish.in_segment())
            journal += [*[deliver(seq)] * delivered, *[ack(seq)] * acked]
        if not acked:
            live.append(seq)
            delivered_seqs.update([seq] * delivered)
    folder = made(tmp_path_factory.mktemp("queue"))
    runs = {n: b"".join(data.draw(st.permutations(each))) for n, each in segments.items()}
    fill(folder, b"".join(data.draw(st.permutations(journal))), runs)

    findings = Findings()
    tree = Tree(folder.parent, findings)
    counts = Counts()
    found = list(live_of(tree, findings, counts))
    tree.close()
    assert [seq for seq, *_ in found] == sorted(live)
    assert {seq for seq, delivered, *_ in found if delivered} == delivered_seqs
    by_seq = {publish.seq: publish for publish in publishes}
    for seq, _, file, (_, expiry_us, body_bytes, term_bytes, offset, persistent) in found:
        publish = by_seq[seq]
        assert (expiry_us, body_bytes, persistent) == (publish.expiry_us, 7, publish.persistent)
        assert (folder.parent / file).read_bytes()[offset : offset + term_bytes] == publish.term
    assert counts.published == len(publishes)
    assert counts.acked == len(publishes) - len(live)
    assert not findings.kept
    assert transient == 0


def test_deliver_and_ack_without_a_publish_are_counted_and_ignored(folder: Path) -> None:
    fill(folder, Publish(3).in_journal() + deliver(4) + ack(4) + ack(900), {})
    live, counts, findings = scan(folder)
    assert live == [3]
    assert counts.orphan_marks == 2
    assert not findings.kept


@given(st.integers(0, 500))
def test_a_torn_last_record_of_a_journal_is_suspected(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = made(tmp_path_factory.mktemp("queue"))
    whole = [Publish(seq, term=embedded(b"y" * 60)).in_journal() for seq in range(4)]
    data = b"".join(whole)
    fill(folder, data[: max(0, len(data) - cut)], {})
    live, _, findings = scan(folder)
    kept = max(0, len(data) - cut) // len(whole[0])
    assert live == list(range(kept))
    torn = (len(data) - min(cut, len(data))) % len(whole[0])
    # The start of a record can be nothing but zeros.
    assert kinds(findings) in ([["torn tail"], ["zero tail"]] if torn else [[]])
    assert all(finding.severity == "suspected" for finding in findings.kept)


def test_zeros_at_the_end_of_a_journal_are_suspected(folder: Path) -> None:
    fill(folder, Publish(0).in_journal() + bytes(10_000), {})
    live, _, findings = scan(folder)
    assert live == [0]
    assert kinds(findings) == ["zero tail"]
    assert findings.kept[0].severity == "suspected"


def test_a_file_of_zeros_is_damaged(folder: Path) -> None:
    fill(folder, b"", {0: bytes(5000)})
    live, counts, findings = scan(folder)
    assert (live, counts.published) == ([], 0)
    assert [(finding.kind, finding.severity) for finding in findings.kept] == [
        ("zero tail", "damage")
    ]


@pytest.mark.parametrize("wrong", [-20, -1, 1, 3, 40, 5000, 1 << 30])
def test_a_wrong_length_in_a_journal_costs_no_message(folder: Path, wrong: int) -> None:
    records = [Publish(seq, term=embedded(bytes([65 + seq]) * 80)).in_journal() for seq in range(5)]
    records.insert(3, ack(0))
    data = bytearray(b"".join(records))
    at = len(records[0]) * 2 + 36
    (length,) = struct.unpack_from(">I", data, at)
    struct.pack_into(">I", data, at, length + wrong)
    fill(folder, bytes(data), {})
    live, _, findings = scan(folder)
    assert live == [1, 2, 3, 4]
    assert kinds(findings) == ["length"]


@pytest.mark.parametrize("wrong", [-20, -1, 1, 3, 40, 5000, 1 << 30])
def test_a_wrong_length_in_a_segment_costs_no_message(folder: Path, wrong: int) -> None:
    records = []
    for seq in range(5):
        body = b"ABCDEFG@" * 12  # reads as marks of slots, once the length is wrong
        marks = mark(seq) * (2 if seq == 1 else 1)
        records.append(Publish(seq, term=embedded(body)).in_segment() + marks)
    data = bytearray(b"".join(records))
    at = len(records[0]) + len(records[1]) + 30
    (length,) = struct.unpack_from(">I", data, at)
    struct.pack_into(">I", data, at, length + wrong)
    fill(folder, b"", {0: bytes(data)})
    live, _, findings = scan(folder)
    assert live == [0, 2, 3, 4]
    assert kinds(findings) == ["length"]


@pytest.mark.parametrize("where", ["journal", "segment"])
def test_a_length_where_no_term_is_costs_no_message(folder: Path, where: str) -> None:
    """A publish whose body is in the message store, with a bit flipped in its embedded length."""
    records, head = [], 40
    for seq in range(5):
        if where == "journal":
            records.append(Publish(seq).in_journal() + deliver(seq))
        else:
            records.append(Publish(seq).in_segment() + mark(seq))
            head = 34
    data = bytearray(b"".join(records))
    data[len(records[0]) * 2 + head - 2] ^= 0x04
    fill(folder, bytes(data) if where == "journal" else b"", {0: bytes(data)})
    if where == "journal":
        (folder / "0.idx").unlink()
    live, counts, findings = scan(folder)
    assert live == [0, 1, 2, 3, 4]
    assert kinds(findings) == ["length"]
    assert counts.stored == 0


@pytest.mark.parametrize("where", ["journal", "segment"])
@pytest.mark.parametrize("hole", [1, 16, 40, 100, 1000])
def test_behind_a_hole_of_zeros_the_next_publish_is_found(
    folder: Path, where: str, hole: int
) -> None:
    publishes = [Publish(seq, term=embedded(b"z" * 100)) for seq in range(8)]
    if where == "journal":
        records = [publish.in_journal() for publish in publishes]
    else:
        records = [publish.in_segment() for publish in publishes]
    data = bytearray(b"".join(records))
    start = len(records[0]) * 2 + 10
    data[start : start + hole] = bytes(hole)
    fill(folder, bytes(data) if where == "journal" else b"", {0: bytes(data)})
    if where == "journal":
        (folder / "0.idx").unlink()
    live, _, findings = scan(folder)
    first_untouched = -(-(start + hole) // len(records[0]))
    assert set(live) >= {0, 1, *range(min(first_untouched, 8), 8)}
    assert findings.kept or hole <= 16  # an id that became zero in part is not to be noticed


def test_marks_whose_publish_was_lost_do_not_stop_a_damaged_segment(folder: Path) -> None:
    publishes = [Publish(seq, term=embedded(b"z" * 50)).in_segment() for seq in range(8)]
    marks = b"".join(mark(seq) for seq in range(8)) + mark(5)
    data = bytearray(b"".join(publishes) + marks)
    data[len(publishes[0]) : len(publishes[0]) * 3] = bytes(len(publishes[0]) * 2)
    fill(folder, b"", {0: bytes(data)})
    live, counts, findings = scan(folder)
    assert live == [0, 3, 4, 6, 7]
    assert counts.orphan_marks == 2
    assert kinds(findings) == ["records lost"]


def test_acks_behind_a_damaged_record_still_count(folder: Path) -> None:
    data = bytearray(b"".join(Publish(seq).in_journal() for seq in range(6)))
    data += b"".join(ack(seq) for seq in (0, 2, 4, 5))
    data[40 * 5] ^= 0xA0  # the publish of 5 becomes a mark with a seq beyond any queue
    fill(folder, bytes(data), {})
    live, _, findings = scan(folder)
    assert live == [1, 3]
    assert kinds(findings) == ["records lost"]


@given(st.binary(max_size=400), st.booleans())
def test_garbage_never_raises(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes, behind: bool
) -> None:
    folder = made(tmp_path_factory.mktemp("queue"))
    good = Publish(1, term=embedded(b"q")).in_journal()
    good_segment = Publish(1, term=embedded(b"q")).in_segment()
    fill(
        folder,
        good + garbage if behind else garbage + good,
        {0: good_segment + garbage if behind else garbage + good_segment},
    )
    scan(folder)


def flipped(data: bytes) -> Iterator[bytes]:
    for offset in range(0, len(data), 3):
        changed = bytearray(data)
        changed[offset] ^= 1 << (offset % 8)
        yield bytes(changed)


@pytest.mark.parametrize("where", ["journal", "segment"])
def test_one_flipped_bit_costs_two_messages_at_most(folder: Path, where: str) -> None:
    publishes = [Publish(seq, term=embedded(b"body" * 10) * (seq % 2)) for seq in range(6)]
    if where == "journal":
        data = b"".join(publish.in_journal() + deliver(publish.seq) for publish in publishes)
    else:
        data = b"".join(publish.in_segment() + mark(publish.seq) for publish in publishes)
    for changed in flipped(data):
        if where == "journal":
            fill(folder, changed, {})
        else:
            fill(folder, b"", {0: changed})
        live, _, _ = scan(folder)
        assert len({0, 1, 2, 3, 4, 5} - set(live)) <= 2


@pytest.mark.parametrize("name", ["journal.jif", "0.idx"])
def test_many_bad_records_cost_what_the_size_of_the_file_allows(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = Publish(1, term=embedded(b"q" * 9))
    good = publish.in_journal() if name == "journal.jif" else publish.in_segment()
    bad = b"\xff" * 9 if name == "journal.jif" else b"\x01" * 9
    read, sizes = Source.read, []

    def counted(source: Source, offset: int, count: int) -> bytes:
        data = read(source, offset, count)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(Source, "read", counted)
    bytes_read = []
    for records in (2500, 5000):
        (folder / name).write_bytes((good + bad) * records)
        sizes.clear()
        _, counts, findings = scan(folder)
        bytes_read.append(sum(sizes))
        assert counts.journal_records + counts.segment_records == records
        assert len(findings.kept) == FINDINGS_PER_FILE_MAX + 1
        assert findings.kept[-1].kind == "too many"
    assert bytes_read[1] < 2.1 * bytes_read[0]
