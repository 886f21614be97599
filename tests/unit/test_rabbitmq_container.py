"""Messages of RabbitMQ 3.13 and later, of all protocols, and what the broker noted about them."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qindex.brokers import amqp10
from qindex.brokers.amqp import AmqpError, decode_properties
from qindex.brokers.rabbitmq import write as rabbitmq_write
from qindex.brokers.rabbitmq.amqp10_messages import to_field
from qindex.brokers.rabbitmq.container import annotate, read_container
from qindex.brokers.rabbitmq.directory import open_node
from qindex.brokers.rabbitmq.message import MessageError, read_message
from qindex.brokers.rabbitmq.properties import encode_basic, flat, split_properties, split_table

# Made by the modules of RabbitMQ 4.3.5: tools/make_containers.escript says how.
SAMPLES = Path(__file__).parents[1] / "compat" / "data" / "rabbitmq_containers.tsv"
ROWS = [line.split("\t") for line in SAMPLES.read_text(encoding="utf-8").splitlines()]
NOTES = {"x": b"ex", "rk": [b"key"]}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_container_gives_what_rabbitmq_gives_a_consumer(row: list[str]) -> None:
    _, term, properties, body, exchange, keys, index_bytes = row
    message = read_message(bytes.fromhex(term))
    assert decode_properties(message.properties) == decode_properties(bytes.fromhex(properties))
    assert message.body.hex() == body
    assert message.index_bytes == int(index_bytes)
    assert (message.exchange, ",".join(message.routing_keys)) == (exchange, keys)
    assert message.msg_id == bytes(15) + b"\1"
    if row[0] != "amqpl_plain":  # its headers are as they were sent, not sorted
        assert message.properties.hex() == properties


@pytest.mark.parametrize("embed_below", [0, 1 << 20])
def test_a_queue_of_containers_is_recovered_without_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embed_below: int
) -> None:
    """As a node of 3.13 keeps it, in the index or in the message store."""
    messages = [read_message(bytes.fromhex(row[1])) for row in ROWS]
    monkeypatch.setattr(rabbitmq_write, "EMBED_BYTES_MAX", embed_below - 1)
    monkeypatch.setattr(rabbitmq_write, "encode_message", lambda content, _: content.body)
    writer = rabbitmq_write.VhostWriter(tmp_path / "node", b"/")
    for number, (row, message) in enumerate(zip(ROWS, messages, strict=True)):
        head, _, tail = bytes.fromhex(row[1]).rpartition(bytes(15) + b"\1")
        term = head + number.to_bytes(16, "big") + tail
        stored = replace(message, body=term, msg_id=number.to_bytes(16, "big"))
        writer.queue(b"q").publish(stored)
    writer.close()
    set_sizes(tmp_path / "node", [int(row[6]) for row in ROWS])
    with open_node(tmp_path / "node") as node:
        (queue,) = node.queues
        found = list(queue.messages())
        assert not [f for f in node.findings if f.severity == "damage"]
    assert [(m.body, m.properties) for m in found] == [(m.body, m.properties) for m in messages]


def set_sizes(node: Path, sizes: list[int]) -> None:
    """In the index, which has them of the term now."""
    (file,) = node.rglob("0.idx")
    data, pos = bytearray(file.read_bytes()), 0
    while pos < len(data):
        slot, embedded = struct.unpack_from(">H", data, pos)[0] & 0x3FFF, pos + 30
        struct.pack_into(">I", data, pos + 26, sizes[slot])
        pos = embedded + 4 + struct.unpack_from(">I", data, embedded)[0] + 2
    file.write_bytes(data)


def test_persistent_is_what_the_broker_noted() -> None:
    found = {row[0]: read_message(bytes.fromhex(row[1])).persistent for row in ROWS}
    assert found["amqp10_full"] is found["mqtt_qos1"] is True
    assert found["amqp10_two_keys_transient"] is found["mqtt_plain"] is False


@given(st.sampled_from(ROWS), st.data())
def test_damage_is_a_message_error_or_another_message(row: list[str], data: st.DataObject) -> None:
    raw = bytearray.fromhex(row[1])
    at = data.draw(st.integers(1, len(raw) - 1))
    if data.draw(st.booleans()):
        raw[at] ^= data.draw(st.integers(1, 255))
    else:
        del raw[at : at + data.draw(st.integers(1, 9))]
    try:
        message = read_message(bytes(raw))
    except MessageError:
        return
    assert len(message.body) <= len(raw)
    try:
        split_properties(message.properties)
    except AmqpError:  # the publisher's own bytes, handed on as they are: who reads them tells
        assert row[0].startswith("amqpl")


TERMS = st.recursive(
    st.one_of(
        st.integers(),
        st.floats(),
        st.binary(max_size=4),
        st.sampled_from(["true", "undefined", "utf8", "timestamp", "array", "map", "deaths"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.sampled_from(["a", b"x-b", "ttl", b"x-opt-deaths"]), inner, max_size=3),
    ),
    max_leaves=10,
)
KEYS = st.sampled_from([b"x-opt-deaths", b"x-basic-priority", b"x-cc", b"x-basic-expiration"])
PAIRS = st.lists(st.tuples(st.tuples(st.just("symbol"), KEYS), TERMS), max_size=3)
DEATH = st.lists(st.tuples(st.tuples(st.just("symbol"), st.sampled_from([
    b"queue", b"reason", b"count", b"first-time", b"exchange", b"routing-keys", b"ttl",
])), TERMS), min_size=5, max_size=12)  # fmt: skip
DEATHS = st.tuples(
    st.just(("symbol", b"x-opt-deaths")),
    st.tuples(st.just("array"), st.just("map"), st.lists(st.tuples(st.just("map"), DEATH))),
)
NOTED = st.dictionaries(
    st.sampled_from(["ts", "ttl", "p", "d", "deaths", b"x-a", b"timestamp_in_ms"]), TERMS
)


@pytest.mark.slow
@given(
    st.one_of(
        st.tuples(st.just("mc_amqp"), st.tuples(st.just("msg"), TERMS | st.tuples(*[TERMS] * 6),
                  TERMS, PAIRS | st.lists(DEATHS, max_size=2), st.tuples(*[TERMS] * 14), PAIRS,
                  TERMS | st.lists(st.tuples(st.just("v1_0.data"), TERMS)), TERMS)),
        st.tuples(st.just("mc_mqtt"), st.tuples(st.just("mqtt_msg"), TERMS, st.integers(0, 2),
                  TERMS, TERMS, TERMS, TERMS, st.dictionaries(st.sampled_from([
                      "User-Property", "Content-Type", "Correlation-Data", "Response-Topic",
                      "Message-Expiry-Interval"]), TERMS), TERMS)),
    ),
    NOTED,
)  # fmt: skip
def test_any_terms_are_a_message_error_or_a_message(
    found: tuple[str, Any], notes: dict[Any, Any]
) -> None:
    try:
        properties, _, _ = read_container(*found, notes)
    except MessageError:
        return
    split_properties(properties)


@pytest.mark.parametrize(
    ("protocol", "data", "text"),
    [
        ("mc_stomp", (), "protocol mc_stomp cannot be read yet"),
        ("mc_amqp", (), "amqp in an unknown shape"),
        ("mc_amqp", ("v1", [], b"", [], [], 1, 0x75), "a body at byte 1 of 0"),
        ("mc_amqp", ("v1", [], b"\0\x53", [], [], 0, 0x75), "amqp: a value is cut at byte 2"),
        ("mc_amqp", ("v1", [], b"\x40", [], [], 0, 0x75), "a section without a descriptor"),
        ("mc_amqp", ("msg", "undefined", [], [], "undefined", [], [7], []), "a body of amqp"),
        (
            "mc_amqp",
            ("msg", "undefined", [], [], "undefined", [], ("v1_0.amqp_value", ("array", "int", [])),
             []),
            "a value of an unknown type",
        ),
        ("mc_mqtt", ("mqtt_msg",), "mqtt in an unknown shape"),
        ("mc_mqtt", ("mqtt_msg", "false", 0, b"", "false", 1, [[256]], {}, 0), "else than bytes"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(protocol: str, data: Any, text: str) -> None:
    with pytest.raises(MessageError, match=text):
        read_container(protocol, data, NOTES)


def headers(pairs: list[Any]) -> dict[str, Any]:
    """What application properties become."""
    data = ("msg", "undefined", [], [], "undefined", pairs, [("v1_0.data", b"")], [])
    properties, _, _ = read_container("mc_amqp", data, NOTES)
    return decode_properties(properties).headers or {}


def test_values_that_rabbitmq_would_crash_on_become_the_nearest() -> None:
    told = [
        (("utf8", b"uuid"), ("uuid", bytes(range(16)))),
        (("utf8", b"char"), ("char", ord("я"))),
        (("utf8", b"ulongs"), ("array", "ulong", [("ulong", 1 << 63)])),
        (("utf8", b"described"), ("described", ("symbol", b"d"), ("utf8", b"content"))),
        (("utf8", b"numbers as keys"), ("map", [(("int", 1), "true"), (("utf8", b"k"), "null")])),
        (("utf8", b"lone surrogate"), ("char", 0xD800)),
        (("utf8", b"decimal"), ("as_is", 0x74, bytes(4))),
        ("no pair", 7, 8),
    ]
    assert headers(told) == {
        "uuid": "urn:uuid:00010203-0405-0607-0809-0a0b0c0d0e0f",
        "char": "я",
        "ulongs": [-(1 << 63)],
        "described": "content",
        "numbers as keys": {"k": None},
    }


def test_values_that_are_too_deep_are_left_out() -> None:
    deep: Any = ("utf8", b"bottom")
    for _ in range(500):
        deep = ("list", [deep])
    assert to_field(deep) is not None
    assert len(headers([(("utf8", b"deep"), deep)])) == 1


def test_a_header_that_the_broker_added_stands_for_the_own_one() -> None:
    own = [*["undefined"] * 2, [(b"x-a", "long", 1), (b"b", "long", 2)], *["undefined"] * 11]
    parts = split_properties(annotate(encode_basic(own), {b"x-a": b"new", b"y": b"no header"}))
    assert list(split_table(parts[2] or b"")) == [b"b", b"x-a"]
    assert b"\x03x-aS\0\0\0\x03new" in (parts[2] or b"")


@pytest.mark.parametrize("raw", [b"", b"\x80\0", b"\x20\0\0\0\0\x02\1k?", b"\x20\0\0\0\0\x02\5k"])
def test_properties_that_cannot_be_split_are_a_message_error(raw: bytes) -> None:
    with pytest.raises(MessageError, match="properties that cannot be read"):
        annotate(raw, {b"x-a": b"new"})


@pytest.mark.parametrize("deaths", [7, [7], [((b"q", "expired"), ("death", b"x", [1], 1, {}))]])
def test_deaths_in_an_unknown_shape_are_a_message_error(deaths: Any) -> None:
    with pytest.raises(MessageError, match="death"):
        annotate(b"\0\0", {"deaths": deaths})


def test_iodata_nested_ten_thousand_deep_needs_no_recursion() -> None:
    data: Any = [b"body"]
    for _ in range(10_000):
        data = [0x61, data]
    assert flat(data) == b"a" * 10_000 + b"body"


# --- values of AMQP 1.0 ---------------------------------------------------------------------------

SCALARS = st.one_of(
    st.sampled_from(["null", "true", "false"]),
    st.tuples(st.sampled_from(["utf8", "symbol", "binary"]), st.binary(max_size=300)),
    st.tuples(st.sampled_from(["uint", "ulong"]), st.integers(0, (1 << 32) - 1)),
    st.tuples(st.sampled_from(["int", "long"]), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.tuples(st.just("timestamp"), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.tuples(st.just("double"), st.floats(allow_nan=False, allow_infinity=False)),
    st.tuples(st.just("uuid"), st.binary(min_size=16, max_size=16)),
    st.tuples(st.just("ubyte"), st.integers(0, 255)),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.tuples(st.just("list"), st.lists(inner, max_size=5)),
        st.tuples(st.just("map"), st.lists(st.tuples(SCALARS, inner), max_size=5)),
        st.tuples(st.just("described"), SCALARS, inner),
    ),
    max_leaves=30,
)


@given(VALUES)
def test_what_is_encoded_is_read_again(value: Any) -> None:
    data = amqp10.encode(value)
    assert amqp10.parse(b"ahead" + data + b"behind", 5, 5 + len(data)) == (value, 5 + len(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_an_amqp_error(data: bytes) -> None:
    try:
        _, end = amqp10.parse(data, 0, len(data))
    except AmqpError:
        return
    assert 0 < end <= len(data)


def test_arrays_are_read() -> None:
    shorts = b"\xe0\x08\x03\x60\0\1\0\2\0\3"
    told = ("array", "ushort", [("ushort", 1), ("ushort", 2), ("ushort", 3)])
    assert amqp10.parse(shorts, 0, len(shorts))[0] == told
    one = struct.pack(">II", 4 + 4, 2) + b"\xa3\x01k\x41"
    maps = b"\xf0" + struct.pack(">II", 4 + 1 + 2 * len(one), 2) + b"\xd1" + 2 * one
    told = ("array", "map", 2 * [("map", [(("symbol", b"k"), "true")])])
    assert amqp10.parse(maps, 0, len(maps))[0] == told


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xd0\xff\xff\xff\xff\0\0\0\0", "4294967295 bytes at byte 5, 4 are left"),
        (b"\xf0\0\0\0\6\xff\xff\xff\xff\x50\0", "an array of 4294967295 values in 1 bytes"),
        (b"\xe0\4\1\x50\1\2", "an array ends at 6, its values at 5"),
        (b"\xe0\3\1\x17\0", "an array of the type 0x17"),
        (b"\xc1\2\1\x40", "a map with a key that has no value"),
        (b"\x17", "unknown type 0x17 at byte 0"),
        (b"\x70\0\0", "a value is cut at byte 1"),
        (b"\0" * 200, "nested deeper than 64"),
        (b"\xd0\0\x03\0\0\0\0\0\0" + b"\x40" * ((3 << 16) - 4), "more than 100000 values"),
    ],
)
def test_counts_and_depths_that_cannot_be_are_told(data: bytes, text: str) -> None:
    with pytest.raises(AmqpError, match=text):
        amqp10.parse(data, 0, len(data))


def test_an_array_of_a_billion_nothings_costs_nothing() -> None:
    data = b"\xf0\0\0\0\5" + struct.pack(">I", 1 << 30) + b"\x40"
    assert amqp10.parse(data, 0, len(data)) == (("as_is", 0xF0, data[1:]), len(data))
