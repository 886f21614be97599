"""A stream's files, cut, zeroed, flipped and mixed: it is read on, and what is lost is counted."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import pytest
from stream_files import HEADER, chunk, entry, file_name, message, write_stream

from qindex.brokers.rabbitmq.streams.stream import Stream

from .test_rabbitmq_damage import damages
from .test_rabbitmq_streams import read_stream

PER_CHUNK, PER_SEGMENT = 5, 8
BODIES = [b"body %d " % number * (number % 7 + 1) for number in range(200)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_stream(tmp_path, BODIES, PER_CHUNK, PER_SEGMENT)


def kinds(stream: Stream) -> list[str]:
    return [finding.kind for finding in stream.log.kept]


def has_damage(stream: Stream) -> bool:
    return any(finding.severity != "note" for finding in stream.log.kept)


@pytest.mark.parametrize("number", [0, 80, 160])
@pytest.mark.sample(3)
def test_a_damaged_segment_costs_what_was_damaged_and_says_so(path: Path, number: int) -> None:
    file = path / file_name(number)
    data = file.read_bytes()
    for what, affected, damaged in damages(data):
        file.write_bytes(damaged)
        stream = read_stream(path)
        given = [(each.stream_offset, each.body) for each in stream.messages()]
        assert len(given) == stream.account.live, what
        assert stream.account.adds_up, what
        certain = {
            (each.stream_offset, each.body) for each in stream.messages() if not each.is_uncertain
        }
        if what in ("cut", "zeroed", "flipped", "inserted", "removed"):
            wrong = certain - set(enumerate(BODIES))
            assert not wrong, what  # only a damaged header's offset could do that
        if set(given) != set(enumerate(BODIES)):
            assert has_damage(stream), what
        if what != "cut":
            chunks_hit = affected // 200 + 2
            assert len(certain & set(enumerate(BODIES))) >= 200 - PER_CHUNK * chunks_hit, what
    file.write_bytes(data)
    assert not has_damage(read_stream(path))


def test_an_undamaged_stream_has_no_finding(path: Path) -> None:
    stream = read_stream(path)
    assert [each.body for each in stream.messages()] == BODIES
    assert stream.log.kept == []


def test_one_flipped_bit_loses_no_message_and_marks_those_of_its_chunk(path: Path) -> None:
    """RabbitMQ's own consumer of AMQP 0-9-1 gets nothing at all of such a stream."""
    file = path / file_name(40)
    data = bytearray(file.read_bytes())
    data[data.index(b"body 47")] ^= 0x20
    file.write_bytes(data)
    stream = read_stream(path)
    found = list(stream.messages())
    assert [each.stream_offset for each in found] == list(range(200))
    assert [each.stream_offset for each in found if each.is_uncertain] == [45, 46, 47, 48, 49]
    assert [each.body for each in found if not each.is_uncertain] == BODIES[:45] + BODIES[50:]


def test_a_damaged_chunk_is_told_with_the_message_id_of_its_first_message(path: Path) -> None:
    properties = b"\x00\x53\x73\xc0\x07\x01\xa1\x04m-77"
    plain = message(b"body")
    one = plain[: plain.index(b"\x00\x53\x75")] + properties + plain[-9 - len(b"body") + 1 :]
    data = bytearray(HEADER + chunk(0, [entry(one)]))
    data[-1] ^= 0x20
    for file in path.glob("*.segment"):
        file.unlink()
    (path / file_name(0)).write_bytes(data)
    stream = read_stream(path)
    told = "of its 1 messages (offsets 0 (message_id m-77) to 0) 1 are given"
    assert any(told in finding.text for finding in stream.log.kept)


def test_without_index_files_everything_is_there(path: Path) -> None:
    """RabbitMQ 3.10 takes such a stream for an empty one."""
    for index in path.glob("*.index"):
        index.unlink()
    stream = read_stream(path)
    assert [each.body for each in stream.messages()] == BODIES


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_what_the_newest_index_does_not_name_is_given_and_noted(path: Path, missing: int) -> None:
    """A killed 3.10.8 node cuts that off when it starts. It had confirmed none of it."""
    index = path / file_name(160, "index")
    index.write_bytes(index.read_bytes()[: len(index.read_bytes()) - 29 * missing])
    older = path / file_name(120, "index")
    older.write_bytes(older.read_bytes()[:-29])  # not looked at when a node starts
    stream = read_stream(path)
    assert [each.body for each in stream.messages()] == BODIES
    assert stream.unindexed == stream.facts()["unindexed"] == missing * PER_CHUNK
    assert kinds(stream) == ["not in the index"] * bool(missing)
    assert not has_damage(stream)


def test_a_node_that_went_on_without_its_index_files_leaves_two_generations(path: Path) -> None:
    file = path / file_name(0)
    again = [b"new %d" % number for number in range(3)]
    data = file.read_bytes() + b"".join(
        chunk(number, [entry(message(body))]) for number, body in enumerate(again)
    )
    file.write_bytes(data)
    stream = read_stream(path)
    bodies = [each.body for each in stream.messages()]
    assert bodies == BODIES[:40] + again + BODIES[40:]
    assert "offsets again" in kinds(stream)


def test_a_missing_segment_in_the_middle_is_counted(path: Path) -> None:
    (path / file_name(80)).unlink()
    stream = read_stream(path)
    assert [each.body for each in stream.messages()] == BODIES[:80] + BODIES[120:]
    assert stream.account.lost == {"in missing chunks": 40}
    assert kinds(stream) == ["segment missing", "offsets missing"]
    (path / file_name(80, "index")).unlink()
    assert read_stream(path).account.lost == {"in missing chunks": 40}


def test_a_missing_last_segment_is_known_by_its_index(path: Path) -> None:
    (path / file_name(160)).unlink()
    stream = read_stream(path)
    assert kinds(stream) == ["segment missing", "offsets missing"]
    assert stream.account.lost["in missing chunks"] > 0
    assert not stream.account.lost_is_known
    assert has_damage(stream)


def test_a_chunk_cut_in_its_data_gives_the_messages_that_are_whole(path: Path) -> None:
    file = path / file_name(160)
    data = file.read_bytes()
    last = data.rindex(b"body 198")
    file.write_bytes(data[: last + 3])
    stream = read_stream(path)
    found = list(stream.messages())
    assert [each.body for each in found] == BODIES[:198]
    assert [each.stream_offset for each in found if each.is_uncertain] == [195, 196, 197]
    assert stream.account.lost == {"in damaged chunks": 2}


def test_a_chunk_cut_in_its_trailer_is_whole_and_its_tracking_is_not_believed(
    tmp_path: Path,
) -> None:
    trailer = b"".join(b"\x00\x02w%d" % each + struct.pack(">Q", 9) for each in range(3))
    path = tmp_path / "__t_1"
    path.mkdir()
    whole = HEADER + chunk(0, [entry(message(b"one"))], trailer=trailer)
    for cut in (whole[:-5], whole[:-5] + bytes(5), whole[: -len(trailer)] + bytes(len(trailer))):
        (path / file_name(0)).write_bytes(cut)
        stream = read_stream(path)
        assert [each.body for each in stream.messages()] == [b"one"]
        assert set(stream.tracking.sequences) <= {"w0", "w1", "w2"}
        assert "w2" not in stream.tracking.sequences or cut == whole[:-5] + bytes(5)


@pytest.mark.parametrize("size", [0, 1, 5, 12, 14, 40, 1 << 31])
@pytest.mark.parametrize("is_last", [False, True])
def test_a_wrong_length_of_the_last_trailer_in_a_file_is_told(
    tmp_path: Path, size: int, is_last: bool
) -> None:
    """All messages are there. A kill may have cut the last file of a stream, but no other one."""
    path = tmp_path / "__t_1"
    path.mkdir()
    trailer = b"\x00\x02w1" + struct.pack(">Q", 9)
    first = chunk(0, [entry(message(b"one"))], trailer=trailer)
    second = chunk(1, [entry(message(b"two"))], trailer=trailer)
    damaged = bytearray(second if is_last else first)
    assert struct.unpack_from(">I", damaged, 40) == (len(trailer),)
    struct.pack_into(">I", damaged, 40, size)
    chunks = (first, bytes(damaged)) if is_last else (bytes(damaged), second)
    for offset, each in enumerate(chunks):
        (path / file_name(offset)).write_bytes(HEADER + each)
    stream = read_stream(path)
    assert [each.body for each in stream.messages()] == [b"one", b"two"]
    told = {"trailer", "chunk lost"} & set(kinds(stream))
    assert bool(told) == (size != len(trailer))
    may_be_a_kill = is_last and size > len(trailer)
    assert has_damage(stream) == (size != len(trailer) and not may_be_a_kill)


def test_a_segment_whose_header_is_destroyed_gives_its_chunks(path: Path) -> None:
    file = path / file_name(40)
    data = file.read_bytes()
    file.write_bytes(bytes(8) + data[8:])
    stream = read_stream(path)
    assert [each.body for each in stream.messages()] == BODIES
    assert kinds(stream)[0] == "segment header"


def test_a_wrong_length_in_a_chunk_header_costs_that_chunk(path: Path) -> None:
    file = path / file_name(40)
    data = file.read_bytes()
    second = data.index(b"\x50\x00", 9)
    for size in (0, 1, 50, 5000, 0xFFFF_FFFF):
        damaged = bytearray(data)
        damaged[second + 36 : second + 40] = size.to_bytes(4, "big")
        file.write_bytes(damaged)
        stream = read_stream(path)
        given = {each.stream_offset for each in stream.messages() if not each.is_uncertain}
        assert given >= set(range(200)) - set(range(45, 50)), size
        assert has_damage(stream), size


def test_a_page_of_zeros_costs_the_chunks_in_it(tmp_path: Path) -> None:
    bodies = [random.Random(number).randbytes(700) for number in range(200)]
    path = write_stream(tmp_path, bodies, PER_CHUNK, 40)
    file = path / file_name(0)
    data = bytearray(file.read_bytes())
    data[40_000:44_096] = bytes(4096)
    file.write_bytes(data)
    stream = read_stream(path)
    certain = [each for each in stream.messages() if not each.is_uncertain]
    assert len(certain) >= 200 - 3 * PER_CHUNK
    assert all(each.body == bodies[each.stream_offset] for each in certain)
    assert stream.account.found == 200
    assert has_damage(stream)


@pytest.mark.slow
def test_every_bit_of_a_header_may_flip_and_nothing_is_lost_in_silence(tmp_path: Path) -> None:
    """A header has no checksum. What the reader does not use may flip without a word."""
    bodies = BODIES[:45]
    path = write_stream(tmp_path, bodies, PER_CHUNK, 3)  # small: it is read for each bit
    file = path / file_name(15)
    data = file.read_bytes()
    at = data.index(b"\x50\x00", 9)
    for bit in range(8 * 48):
        damaged = bytearray(data)
        damaged[at + bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        stream = read_stream(path)
        given = [(each.stream_offset, each.body) for each in stream.messages()]
        is_quiet = bit // 8 in (2, 3) or 8 <= bit // 8 < 24  # entries, time and epoch
        assert given == list(enumerate(bodies)), bit
        assert has_damage(stream) or is_quiet, bit


def test_a_missing_directory_or_unreadable_file_is_a_finding(path: Path) -> None:
    (path / file_name(40)).unlink()
    (path / file_name(40)).symlink_to(path / file_name(80))
    stream = read_stream(path)
    assert "segment missing" in kinds(stream)
    assert stream.account.lost == {"in missing chunks": 40}


def test_hostile_headers_cost_time_in_proportion_to_the_file(tmp_path: Path) -> None:
    """Every 48 bytes something that looks like a chunk of the whole file: no quadratic search."""
    head = chunk(0, [entry(b"")])[:48]
    size = 1 << 20
    lying = head[:36] + (size // 2).to_bytes(4, "big") + head[40:]
    path = tmp_path / "__h_1"
    path.mkdir()
    (path / file_name(0)).write_bytes(HEADER + b"\xff" + lying * (size // 48))
    begin = time.process_time()
    stream = read_stream(path)
    assert time.process_time() - begin < 2
    assert has_damage(stream)
    assert stream.account.live == 0
