"""Erlang terms: every tag, and every way a hostile term can be wrong."""

from __future__ import annotations

import contextlib
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qindex.brokers.rabbitmq import erlang
from qindex.brokers.rabbitmq.erlang import (
    Atom,
    BitString,
    ErlangError,
    ImproperList,
    Opaque,
    decode,
)


def term(body: bytes) -> bytes:
    return b"\x83" + body


def sized(small: bytes, large: bytes, layout: str, size: int) -> bytes:
    return small + bytes([size]) if size < 256 else large + struct.pack(layout, size)


def encode_integer(value: int) -> bytes:
    if 0 <= value <= 255:
        return b"a" + bytes([value])
    if -(2**31) <= value < 2**31:
        return b"b" + struct.pack(">i", value)
    raw = abs(value).to_bytes((value.bit_length() + 7) // 8, "little")
    return sized(b"n", b"o", ">I", len(raw)) + bytes([value < 0]) + raw


def encode(value: erlang.Term) -> bytes:
    """The way term_to_binary of OTP 26 writes it: the model to decode against."""
    match value:
        case Atom():
            raw = value.encode()
            return sized(b"w", b"v", ">H", len(raw)) + raw
        case int():
            return encode_integer(value)
        case float():
            return b"F" + struct.pack(">d", value)
        case bytes():
            return b"m" + struct.pack(">I", len(value)) + value
        case tuple():
            return sized(b"h", b"i", ">I", len(value)) + b"".join(map(encode, value))
        case list():
            if not value:
                return b"j"
            if len(value) < 65536 and all(type(v) is int and 0 <= v <= 255 for v in value):
                return b"k" + struct.pack(">H", len(value)) + bytes(value)  # type: ignore[arg-type]
            return b"l" + struct.pack(">I", len(value)) + b"".join(map(encode, value)) + b"j"
        case dict():
            pairs = b"".join(encode(k) + encode(v) for k, v in value.items())
            return b"t" + struct.pack(">I", len(value)) + pairs
    raise AssertionError(value)


atoms = st.text(max_size=300).map(Atom)
scalars = (
    st.integers()
    | st.integers(min_value=-(2**2100), max_value=2**2100)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.binary()
    | atoms
)
terms = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.integers() | atoms | st.binary(), inner)
    ),
    max_leaves=30,
)


@given(terms)
def test_a_term_comes_back_as_it_was_written(value: erlang.Term) -> None:
    assert decode(term(encode(value))) == value


@given(terms)
def test_a_compressed_term_reads_like_a_plain_one(value: erlang.Term) -> None:
    plain = encode(value)
    packed = b"P" + struct.pack(">I", len(plain)) + zlib.compress(plain)
    assert decode(term(packed)) == value


@given(st.binary())
def test_any_bytes_give_a_term_or_an_erlang_error(data: bytes) -> None:
    for raw in (data, term(data)):
        with contextlib.suppress(ErlangError):
            decode(raw)


@given(terms, st.data())
def test_every_cut_of_a_term_is_an_error(value: erlang.Term, data: st.DataObject) -> None:
    raw = term(encode(value))
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(ErlangError):
        decode(raw[:cut])


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"d\x00\x04none", Atom("none")),
        (b"d\x00\x01\xe4", Atom("ä")),
        (b"s\x04none", Atom("none")),
        (b"w\x02\xc3\xa4", Atom("ä")),
        (b"v\x00\x02\xc3\xa4", Atom("ä")),
        (b"c1.50000000000000000000e+00\0\0\0\0\0", 1.5),
        (b"k\x00\x03abc", [97, 98, 99]),
        (b"i\x00\x00\x00\x01a\x07", (7,)),
        (b"l\x00\x00\x00\x01a\x01a\x02", ImproperList([1], 2)),
        (b"M\x00\x00\x00\x01\x03\xe0", BitString(b"\xe0", 3)),
        (b"t\x00\x00\x00\x01k\x00\x01aa\x01", {(97,): 1}),
        (b"gd\x00\x01n" + bytes(9), Opaque(103, b"d\x00\x01n" + bytes(9))),
        (b"Xw\x01n" + bytes(12), Opaque(88, b"w\x01n" + bytes(12))),
        (b"fd\x00\x01n" + bytes(5), Opaque(102, b"d\x00\x01n" + bytes(5))),
        (b"Yw\x01n" + bytes(8), Opaque(89, b"w\x01n" + bytes(8))),
        (b"xw\x01n" + bytes(12), Opaque(120, b"w\x01n" + bytes(12))),
        (b"ed\x00\x01n" + bytes(5), Opaque(101, b"d\x00\x01n" + bytes(5))),
        (b"r\x00\x03d\x00\x01n" + bytes(13), Opaque(114, b"\x00\x03d\x00\x01n" + bytes(13))),
        (b"Z\x00\x03w\x01n" + bytes(16), Opaque(90, b"\x00\x03w\x01n" + bytes(16))),
        (b"qw\x01mw\x01fa\x02", Opaque(113, b"w\x01mw\x01fa\x02")),
        (b"p\x00\x00\x00\x06xy", Opaque(112, b"\x00\x00\x00\x06xy")),
    ],
)
def test_the_rarer_tags_are_read(raw: bytes, value: erlang.Term) -> None:
    assert decode(term(raw)) == value
    assert decode(term(b"h\x02" + raw + b"a\x01")) == (value, 1)


def test_lists_and_maps_within_a_key_become_tuples_however_deep() -> None:
    one = b"a\x01"
    listed = b"l\x00\x00\x00\x01" + one + b"j"
    nested = b"h\x02" + listed + b"t\x00\x00\x00\x01" + one + listed  # {[1], #{1 => [1]}}
    raw = b"t\x00\x00\x00\x02" + nested + b"j" + listed + one
    assert decode(term(raw)) == {((1,), ((1, (1,)),)): [], (1,): 1}
    deep = b"h\x01" * 200 + listed
    (key,) = decode(term(b"t\x00\x00\x00\x01" + deep + one))
    for _ in range(200):
        (key,) = key
    assert key == (1,)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "cut"),
        (b"\xff", "unknown tag 255"),
        (b"m\xff\xff\xff\xffab", "cut"),
        (b"l\xff\xff\xff\xffa\x01", "cut"),
        (b"h\xffa\x01", "cut"),
        (b"n\x01\x02\x01", "number that is none"),
        (b"F\x7f\xf0\x00\x00\x00\x00\x00\x00", "number that is none"),
        (b"c" + b"nan".ljust(31, b"\0"), "number that is none"),
        (b"w\x01\xff", "not UTF-8"),
        (b"M\x00\x00\x00\x01\x09\xff", "size that cannot be"),
        (b"t\x00\x00\x00\x02a\x01a\x02a\x01a\x02", "the same key twice"),
        (b"l\x00\x00\x00\x01a\x01k\x00\x01a", "tail is a list"),
        (b"ga\x01" + bytes(9), "something else in its place"),
        (b"p\x00\x00\x00\x03", "size that cannot be"),
        (b"a\x01a", "1 byte follows"),
        (b"P\xff\xff\xff\xff" + zlib.compress(b"j"), "allowed"),
        (b"P\x00\x00\x00\x02" + zlib.compress(b"j"), "not the 2 bytes"),
        (b"P\x00\x00\x00\x01" + zlib.compress(b"j" * 1000), "not the 1 bytes"),
        (b"P\x00\x00\x00\x01x", "damaged|not the"),
        (b"P\x00\x00\x00\x02" + zlib.compress(b"jj"), "longer than its content"),
    ],
)
def test_a_broken_term_says_what_is_wrong(raw: bytes, reason: str) -> None:
    with pytest.raises(ErlangError, match=reason):
        decode(term(raw))


def test_a_term_nested_deeper_than_allowed_is_refused() -> None:
    decode(term(b"h\x01" * 10 + b"j"), depth_max=10)
    with pytest.raises(ErlangError, match="deeper"):
        decode(term(b"h\x01" * 11 + b"j"), depth_max=10)
    with pytest.raises(ErlangError, match="deeper"):
        decode(term(b"h\x01" * 1_000_000 + b"j"))


def test_a_term_with_more_values_than_allowed_is_refused() -> None:
    raw = term(b"l\x00\x00\x00\x64" + b"a\x01" * 100 + b"j")
    decode(raw, nodes_max=102)
    with pytest.raises(ErlangError, match="more than 101 values"):
        decode(raw, nodes_max=101)
