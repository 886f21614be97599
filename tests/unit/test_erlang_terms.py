"""Erlang terms as C reads them, beside two other decoders: one in Python, and erlang_py."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import erlang_reference
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qindex._core import ffi, lib
from qindex.brokers.amqp import decode_properties
from qindex.brokers.rabbitmq import erlang
from qindex.brokers.rabbitmq.erlang import Atom, BitString, ErlangError, ImproperList
from qindex.brokers.rabbitmq.message import Content, read_message
from qindex.brokers.rabbitmq.write import encode_message

SAMPLES = Path(__file__).resolve().parents[3] / "shared/fixtures/rabbitmq/mc_samples.tsv"


def binary(data: bytes) -> bytes:
    return b"m" + struct.pack(">I", len(data)) + data


def small(tag: bytes, data: bytes) -> bytes:
    return tag + bytes([len(data)]) + data


# Encoded scalars of every tag, with values at the edges; then containers of them.
SCALARS = (
    st.sampled_from([0, 1, 127, 128, 255]).map(lambda n: b"a" + bytes([n]))
    | st.integers(-(2**31), 2**31 - 1).map(lambda n: b"b" + struct.pack(">i", n))
    | st.binary(max_size=12).map(lambda digits: b"n" + bytes([len(digits), 1]) + digits)
    | st.binary(max_size=12).map(lambda d: b"o" + struct.pack(">IB", len(d), 0) + d)
    | st.floats(allow_nan=False, allow_infinity=False).map(lambda x: b"F" + struct.pack(">d", x))
    | st.floats(-1e9, 1e9).map(lambda x: b"c" + (b"%.20e" % x).ljust(31, b"\0"))
    | st.text(max_size=20).map(lambda t: small(b"w", t.encode()))
    | st.text(max_size=20).map(lambda t: b"v" + struct.pack(">H", len(t.encode())) + t.encode())
    | st.binary(max_size=20).map(lambda t: b"d" + struct.pack(">H", len(t)) + t)
    | st.binary(max_size=20).map(lambda t: small(b"s", t))
    | st.binary(max_size=40).map(binary)
    | st.binary(max_size=40).map(lambda t: b"k" + struct.pack(">H", len(t)) + t)
    | st.just(b"j")
)
OPAQUE = st.sampled_from(
    [
        b"Xw\x01n" + bytes(12), b"Yw\x01n" + bytes(8), b"Z\x00\x02w\x01n" + bytes(12),
        b"ed\x00\x01n" + bytes(5), b"fd\x00\x01n" + bytes(5), b"gd\x00\x01n" + bytes(9),
        b"r\x00\x01d\x00\x01n" + bytes(5), b"xw\x01n" + bytes(12), b"qw\x01mw\x01fa\x02",
        b"p\x00\x00\x00\x06xy", b"M\x00\x00\x00\x02\x03a\xe0",
    ]
)  # fmt: skip
TERMS = st.recursive(
    SCALARS | OPAQUE,
    lambda inner: (
        st.lists(inner, max_size=5).map(lambda each: b"h" + bytes([len(each)]) + b"".join(each))
        | st.lists(inner, max_size=5).map(
            lambda each: b"i" + struct.pack(">I", len(each)) + b"".join(each)
        )
        | st.tuples(st.lists(inner, min_size=1, max_size=5), st.just(b"j") | inner).map(
            lambda pair: b"l" + struct.pack(">I", len(pair[0])) + b"".join(pair[0]) + pair[1]
        )
        | st.lists(st.tuples(SCALARS, inner), max_size=4).map(
            lambda pairs: (
                b"t" + struct.pack(">I", len(pairs)) + b"".join(key + value for key, value in pairs)
            )
        )
    ),
    max_leaves=20,
)


def outcome(decode: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return repr(decode(data))
    except ErlangError:
        return ErlangError


@given(TERMS)
def test_a_term_is_what_the_decoder_in_python_says(raw: bytes) -> None:
    data = b"\x83" + raw
    told = outcome(erlang_reference.decode, data)
    assert outcome(erlang.decode, data) == told
    if told is not ErlangError:
        assert erlang.end_of(data + b"behind") == len(data)


@given(TERMS, st.data())
def test_a_damaged_term_is_what_the_decoder_in_python_says(raw: bytes, data: st.DataObject) -> None:
    damaged = bytearray(b"\x83" + raw)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(1, len(damaged)))])
    for each in (bytes(damaged), cut):
        assert outcome(erlang.decode, each) == outcome(erlang_reference.decode, each)


@given(st.binary(min_size=1, max_size=60))
def test_any_bytes_are_what_the_decoder_in_python_says(raw: bytes) -> None:
    data = b"\x83" + raw
    assert outcome(erlang.decode, data) == outcome(erlang_reference.decode, data)


def text(data: bytes) -> bytes:
    return b"v" + struct.pack(">H", len(data)) + data


# The first and last of what is a character, and of what is none; what a printed float may be;
# lengths that are not there.
EDGES = [
    *map(
        text, [b"\xe0\xa0\x80", b"\xe0\x9f\x80", b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xef\xbf\xbf"]
    ),
    *map(
        text, [b"\xf0\x90\x80\x80", b"\xf0\x8f\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80"]
    ),
    *map(
        text, [b"\xf1\x80\x80\x80", b"\xf5\x80\x80\x80", b"\xc1\x80", b"\xc2\x80", b"\xc2", b"\x80"]
    ),
    *(
        b"c" + number.ljust(31, fill)
        for number in (
            b"1.5e+2",
            b"-1.5e-2",
            b"+1.5E2",
            b"  7.25",
            b"1.5e",
            b"1.",
            b".5",
            b"1",
            b"",
            b"1.5x",
            b"-",
        )
        for fill in (b"\0", b" ", b"9", b".", b"e")
    ),
    *(b"c" + b" " * spaces + b"1.5" for spaces in (28, 29)),
    b"c" + b"7" * 31,
    b"c" + b"1." + b"3" * 29,
    b"c" + b"1.5e" + b"3" * 27,
    b"c" + b"1.5" + b"0" * 27 + b"e",
    b"c" + b"+".rjust(31),
    b"c" + b" " * 31,
    b"c" + b"1." + b"5" * 27 + b"e+",
    b"c" + b"1." + b"5" * 28 + b"e",
    b"F\x7f\xf0" + bytes(6),
    b"F\x7f\xf8" + bytes(6),
    b"F" + bytes(7),
    b"M\0\0\0\1\0x",
    b"M\0\0\0\1\x08x",
    b"M\0\0\0\1\x09x",
    b"M\0\0\0\1",
    b"M\0\0",
    b"M\0\0\0\2\1x",
    b"p\0\0",
    b"p\0\0\0\3",
    b"p\0\0\0\4",
    b"p\0\0\0\6xy",
    b"p\0\0\0\6x",
    b"r\0",
    b"r\0\1",
    b"Z",
    b"Z\0\1w\1n" + bytes(7),
    b"Z\0\1w\1n" + bytes(8),
]


@pytest.mark.parametrize("raw", EDGES)
def test_what_is_at_the_edge_of_its_kind_is_what_the_decoder_in_python_says(raw: bytes) -> None:
    data = b"\x83" + raw
    assert outcome(erlang.decode, data) == outcome(erlang_reference.decode, data)


# What erlang_py makes of these atoms.
PLAIN = {"true": True, "false": False, "undefined": None}


def as_erlang_py(term: Any) -> Any:
    """Our value as one that can be compared with erlang_py's, which has no lists of bytes."""
    match term:
        case Atom():
            return PLAIN.get(term, ("atom", str(term)))
        case BitString():
            return ("bits", term.data, term.bits)
        case ImproperList():
            return [*map(as_erlang_py, term.items), as_erlang_py(term.tail), "improper"]
        case tuple():
            return tuple(map(as_erlang_py, term))
        case list():
            return [as_erlang_py(each) for each in term]
        case dict():
            return [(as_erlang_py(key), as_erlang_py(value)) for key, value in term.items()]
    return term


def from_erlang_py(erlang_py: Any, term: Any) -> Any:
    def convert(each: Any) -> Any:
        return from_erlang_py(erlang_py, each)

    match term:
        case erlang_py.OtpErlangAtom():
            name = term.value
            return ("atom", name.decode("latin-1") if isinstance(name, bytes) else name)
        case erlang_py.OtpErlangBinary():
            return term.value if term.bits == 8 else ("bits", term.value, term.bits)
        case erlang_py.OtpErlangList():
            return [*map(convert, term.value), *["improper"] * term.improper]
        case bytes():
            return list(term)  # a string
        case tuple():
            return tuple(map(convert, term))
        case list():
            return [convert(each) for each in term]
        case dict():
            return [(convert(key), convert(value)) for key, value in term.items()]
    return term


KEYS = st.integers(0, 255).map(lambda n: b"a" + bytes([n])) | st.binary(max_size=9).map(binary)
# Without pids and the like, which erlang_py keeps decoded, and strings of nothing, which it leaves.
THEIRS = st.recursive(
    st.integers(-(2**31), 2**31 - 1).map(lambda n: b"b" + struct.pack(">i", n))
    | st.binary(max_size=12).map(lambda digits: b"n" + bytes([len(digits), 1]) + digits)
    | st.floats(allow_nan=False, allow_infinity=False).map(lambda x: b"F" + struct.pack(">d", x))
    | st.sampled_from(["true", "undefined", "none", "ä", "mc"]).map(
        lambda name: small(b"w", name.encode())
    )
    | st.binary(min_size=1, max_size=30).map(lambda t: b"d" + struct.pack(">H", len(t)) + t)
    | st.binary(max_size=40).map(binary)
    | st.binary(min_size=1, max_size=40).map(lambda t: b"k" + struct.pack(">H", len(t)) + t)
    | st.just(b"M\x00\x00\x00\x02\x03a\xe0"),
    lambda inner: (
        st.lists(inner, max_size=5).map(lambda each: b"h" + bytes([len(each)]) + b"".join(each))
        | st.lists(inner, min_size=1, max_size=5).map(
            lambda each: b"l" + struct.pack(">I", len(each)) + b"".join(each) + b"j"
        )
        | st.lists(inner, min_size=1, max_size=5).map(
            lambda each: b"l" + struct.pack(">I", len(each)) + b"".join(each) + b"a\x01"
        )
        | st.dictionaries(KEYS, inner, max_size=4).map(
            lambda each: (
                b"t" + struct.pack(">I", len(each)) + b"".join(k + v for k, v in each.items())
            )
        )
    ),
    max_leaves=20,
)


@given(THEIRS)
def test_a_term_is_what_erlang_py_says(raw: bytes) -> None:
    erlang_py = pytest.importorskip("erlang", reason="erlang_py is not installed")
    data = b"\x83" + raw
    told = from_erlang_py(erlang_py, erlang_py.binary_to_term(data))
    assert as_erlang_py(erlang.decode(data)) == told


@given(
    st.builds(
        Content,
        exchange=st.text(max_size=20),
        routing_keys=st.lists(st.text(max_size=20), max_size=3),
        properties=st.just(b"\0\0"),
        body=st.binary(max_size=30),
        msg_id=st.binary(min_size=16, max_size=16),
        persistent=st.booleans(),
    )
)
def test_erlang_py_reads_the_messages_that_are_written(message: Content) -> None:
    erlang_py = pytest.importorskip("erlang", reason="erlang_py is not installed")
    data = encode_message(message, b"/")
    told = from_erlang_py(erlang_py, erlang_py.binary_to_term(data))
    assert told[0] == ("atom", "basic_message")
    assert told[1] == (
        ("atom", "resource"), b"/", ("atom", "exchange"), message.exchange.encode()
    )  # fmt: skip
    assert told[2] == [key.encode() for key in message.routing_keys]
    assert told[3][:4] == (("atom", "content"), 60, ("atom", "none"), message.properties)
    assert told[3][5] == [message.body] * bool(message.body)
    assert told[4:] == (message.msg_id, message.persistent)
    assert read_message(data) == message
    assert lib.qi_rabbit_read_message(data, len(data), ffi.new("qi_rabbit_message *"))


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_term_of_a_gigabyte_that_is_not_there_costs_nothing(is_cut: bool) -> None:
    counted = b"l\x3f\xff\xff\xff" if is_cut else b"m\x3f\xff\xff\xff"
    with pytest.raises(erlang.TermCut):
        erlang.decode(b"\x83" + counted * 1000)


def samples() -> dict[str, bytes]:
    """Message containers that RabbitMQ's own modules wrote, by name."""
    if not SAMPLES.exists():
        pytest.skip("what real brokers wrote, ../shared/fixtures, is not here")
    rows = [line.split("\t") for line in SAMPLES.read_text(encoding="utf-8").splitlines()]
    return {row[1]: bytes.fromhex(row[2]) for row in rows}


def test_the_message_containers_of_later_nodes_are_read() -> None:
    found = samples()
    full = read_message(found["amqpl_full"])
    assert (full.exchange, full.routing_keys, full.persistent) == ("ex.a", ["rk.1", "cc1"], True)
    assert full.body == b"part1-part2"
    properties = decode_properties(full.properties)
    assert (properties.content_type, properties.priority) == ("text/plain", 5)
    assert (properties.headers or {})["k"] == "v"
    least = read_message(found["amqpl_min_transient"])
    assert (least.body, least.persistent, least.properties) == (b"hi", False, b"\0\0")
    assert read_message(found["amqpl_empty_body"]).body == b""
    assert full.msg_id == least.msg_id == bytes(15) + b"\1"


def test_the_containers_of_amqp_1_0_are_read() -> None:
    found = samples()
    full = read_message(found["amqp10_full"])
    properties = decode_properties(full.properties)
    assert full.body == read_message(found["amqp10_body_only"]).body == b"amqp 1.0 payload"
    assert (properties.content_type, properties.message_id) == ("text/plain", "mid")
    assert properties.headers == {"k": "v", "x-opt-a": "b"}
    assert (properties.delivery_mode, properties.priority, properties.expiration) == (2, 4, "30000")
