"""Streams that real brokers wrote, compared with what these gave back; and each part of a chunk."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from helpers import unpack
from stream_files import HEADER, batch, chunk, entry, file_name, message, write_stream

from qindex.brokers.amqp import decode_properties
from qindex.brokers.rabbitmq.streams.entries import Entry, EntryError, entries_of
from qindex.brokers.rabbitmq.streams.stream import Stream, StreamMessage
from qindex.brokers.tree import Findings, Tree

from .conftest import SHARED
from .test_rabbitmq_fixtures import header_value

DATA = Path(__file__).parent / "data"
BODIES = [b"one", b"", b"three" * 100]


def read_stream(path: Path) -> Stream:
    findings = Findings()
    stream = Stream(path.name, "/", path.name, Tree(path.parent, findings), findings)
    stream.read()
    return stream


def shared_stream(name: str, directory: str, folder: Path) -> tuple[Stream, dict[str, Any]]:
    archive = SHARED / "rabbitmq_quorum" / f"{name}.tar.xz"
    if not archive.exists():
        pytest.skip("what real brokers wrote, ../shared/fixtures, is not here")
    (found,) = unpack(archive, folder).glob(f"**/stream/{directory}_*")
    truth = json.loads(archive.with_name(f"{name}.json").read_text(encoding="utf-8"))
    return read_stream(found), truth


def test_a_stream_of_osiris_1_10_with_all_compressions_is_read_whole(tmp_path: Path) -> None:
    folder = unpack(DATA / "stream_osiris_1_10.tar.xz", tmp_path)
    (path,) = folder.glob("**/stream/*")
    truth = json.loads(gzip.decompress((DATA / "stream_osiris_1_10.json.gz").read_bytes()))
    stream = read_stream(path)
    found = [
        [each.stream_offset, hashlib.sha256(each.body).hexdigest()[:16]]
        for each in stream.messages()
    ]
    assert found == truth["messages"]
    assert stream.account.live == stream.account.found == len(found)
    assert stream.log.kept == []
    assert stream.tracking.offsets == truth["offsets"]
    assert stream.tracking.sequences == truth["writers"]


@pytest.mark.parametrize(
    ("name", "directory", "vhost", "queue"),
    [
        ("s1", "__st", "/", "st"),
        ("s1", "____________", "/", "поток"),
        ("s1", "sv_st", "sv", "st"),
        ("m1", "__st", "/", "st"),
    ],
)
def test_messages_are_what_a_consumer_of_the_node_got(
    name: str, directory: str, vhost: str, queue: str, tmp_path: Path
) -> None:
    stream, truth = shared_stream(name, directory, tmp_path)
    (told,) = [q for q in truth["queues"] if (q["vhost"], q["name"]) == (vhost, queue)]
    stream.name = queue
    found = list(stream.messages())
    assert [each.stream_offset for each in found] == [each["offset"] for each in told["messages"]]
    for each, wanted in zip(found, told["messages"], strict=True):
        assert hashlib.sha256(each.body).hexdigest() == wanted["sha256"]
        assert each.exchange == wanted["exchange"]
        assert each.routing_keys == [wanted["routing_key"]]
        assert each.redelivered == wanted["redelivered"]
        properties = decode_properties(each.properties)
        headers = {key: header_value(value) for key, value in wanted["headers"].items()}
        assert properties.headers == headers
        told_properties = dict(wanted["props"])
        if "timestamp" in told_properties:
            told_properties["timestamp"] = datetime.fromtimestamp(told_properties["timestamp"], UTC)
        set_here = {key: value for key, value in asdict(properties).items() if value is not None}
        del set_here["headers"]
        assert set_here == told_properties
    assert stream.log.kept == []


def test_offsets_that_consumers_stored_are_known(tmp_path: Path) -> None:
    stream, truth = shared_stream("s1", "__st", tmp_path)
    readers = {key: value for key, value in truth["extra"].items() if key.startswith("reader")}
    assert stream.tracking.offsets == readers


def test_batches_of_a_real_client_are_unpacked(tmp_path: Path) -> None:
    """A consumer of RabbitMQ 3.10's AMQP 0-9-1 cannot read these at all."""
    stream, truth = shared_stream("s2", "__sub", tmp_path)
    found = [
        [each.stream_offset, hashlib.sha256(each.body).hexdigest(), each.timestamp_ms]
        for each in stream.messages()
    ]
    assert found == truth["extra"]["rstream"]


# ---- made here ----


def test_messages_come_in_order_over_segments(tmp_path: Path) -> None:
    bodies = [b"%d" % number for number in range(50)]
    stream = read_stream(write_stream(tmp_path, bodies, per_chunk=4, per_segment=3))
    found = list(stream.messages())
    assert [each.body for each in found] == bodies
    assert [each.stream_offset for each in found] == list(range(50))
    assert stream.account.live_body_bytes == sum(map(len, bodies))
    assert (stream.segments, stream.first_offset, stream.next_offset) == (5, 0, 50)
    assert [each.stream_offset for each in stream.messages_between(11, 13)] == [11, 12, 13]


def test_a_message_has_its_offset_and_time_in_its_headers(tmp_path: Path) -> None:
    path = write_stream(tmp_path, BODIES, per_chunk=3, per_segment=1)
    (*_, last) = read_stream(path).messages()
    assert last.headers["stream_offset"] == 2
    assert last.headers["timestamp_ms"] == 1_700_000_000_000
    assert last.headers["routing_keys"] == ["orders"]
    assert decode_properties(last.properties).headers == {"x-stream-offset": 2}
    raw = (path / file_name(0)).read_bytes()
    assert raw[last.offset + 4 :].startswith(message(last.body))


def test_tracking_chunks_take_an_offset_and_hold_no_message(tmp_path: Path) -> None:
    tracking = entry(b"\x01\x02me" + (41).to_bytes(8, "big"))
    path = tmp_path / "__t_1"
    path.mkdir()
    chunks = [
        chunk(0, [entry(message(b"first"))]),
        chunk(1, [tracking], kind=1),
        chunk(2, [entry(message(b"second"))], trailer=b"\x00\x01w" + (7).to_bytes(8, "big")),
    ]
    (path / file_name(0)).write_bytes(HEADER + b"".join(chunks))
    stream = read_stream(path)
    assert [(each.stream_offset, each.body) for each in stream.messages()] == [
        (0, b"first"),
        (2, b"second"),
    ]
    assert stream.account.found == 2
    assert stream.tracking.offsets == {"me": 41}
    assert stream.tracking.sequences == {"w": 7}
    assert stream.log.kept == []


def test_a_stream_whose_first_segments_went_by_retention_has_lost_nothing(tmp_path: Path) -> None:
    path = write_stream(tmp_path, [b"x"] * 40, per_chunk=4, per_segment=2)
    for ending in ("segment", "index"):
        (path / file_name(0, ending)).unlink()
    stream = read_stream(path)
    assert (stream.account.found, stream.first_offset, stream.log.kept) == (32, 8, [])


def test_an_entry_that_is_no_amqp_message_is_a_body_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "__raw_1"
    path.mkdir()
    raws = [b"", b"plain text", b"\x00\x53\x75\xa0\x09short", bytes(range(256))]
    (path / file_name(0)).write_bytes(HEADER + chunk(0, [entry(raw) for raw in raws]))
    stream = read_stream(path)
    assert [each.body for each in stream.messages()] == raws
    assert stream.account.live_body_bytes == sum(map(len, raws))


def test_bodies_that_are_not_data_come_as_their_sections(tmp_path: Path) -> None:
    value = b"\x00\x53\x77\xa1\x05hello"
    path = tmp_path / "__v_1"
    path.mkdir()
    (path / file_name(0)).write_bytes(HEADER + chunk(0, [entry(value)]))
    (only,) = read_stream(path).messages()
    assert only.body == value
    assert decode_properties(only.properties).type == "amqp-1.0"


def packed_with(name: str, data: bytes) -> bytes:
    if name == "gzip":
        packer = zlib.compressobj(wbits=31)
        return packer.compress(data) + packer.flush()
    cramjam = pytest.importorskip("cramjam")
    return bytes(getattr(cramjam, name).compress(data))


@pytest.mark.parametrize(("number", "name"), [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")])
def test_a_batch_that_lies_about_its_size_is_refused(number: int, name: str) -> None:
    records = [b"a" * 1000] * 10
    plain = b"".join(map(entry, records))
    packed = packed_with(name, plain)
    whole = batch(records, number, packed)
    assert [each.data for each in entries_of(whole) if isinstance(each, Entry)] == records
    for size in (len(plain) - 1, len(plain) + 1, 0xFFFF_FFFF):
        lying = bytearray(whole)
        lying[3:7] = size.to_bytes(4, "big")
        (only,) = entries_of(bytes(lying))
        assert isinstance(only, EntryError)
        assert only.records == 10
    (only,) = entries_of(batch(records, number, packed[: len(packed) // 2]))
    assert isinstance(only, EntryError)


def test_an_unknown_compression_costs_its_batch_only() -> None:
    data = entry(b"before") + batch([b"x", b"y"], 6, b"???") + entry(b"behind")
    first, error, last = entries_of(data)
    assert isinstance(error, EntryError)
    assert (first, error.records, last) == (Entry(0, b"before"), 2, Entry(24, b"behind"))


def test_without_the_library_the_batch_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cramjam", None)
    (only,) = entries_of(batch([b"x"], 4, b"..."))
    assert isinstance(only, EntryError)
    assert "pip install 'qindex[streams]'" in str(only)
    assert only.records == 1


def test_a_batch_with_fewer_messages_than_it_says_gives_these() -> None:
    data = batch([b"x", b"y"])
    lying = data[:1] + (5).to_bytes(2, "big") + data[3:]
    *given, error = entries_of(lying)
    assert [each.data for each in given if isinstance(each, Entry)] == [b"x", b"y"]
    assert isinstance(error, EntryError)
    assert error.records == 3


def test_uncertain_messages_say_so_in_their_headers(tmp_path: Path) -> None:
    path = write_stream(tmp_path, BODIES, per_chunk=3, per_segment=1)
    file = path / file_name(0)
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    stream = read_stream(path)
    found: list[StreamMessage] = list(stream.messages())
    assert [each.headers.get("uncertain") for each in found] == ["checksum of its chunk"] * 3
    assert stream.account.marks == {"uncertain": 3}
    assert [finding.kind for finding in stream.log.kept] == ["chunk damaged"]
