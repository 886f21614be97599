"""Frames and methods of AMQP 0-9-1: any split of the bytes gives the same, bad bytes say why."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qindex.amqp import methods as m
from qindex.amqp.layouts import CODES, LAYOUTS
from qindex.amqp.wire import (
    BODY,
    HEADER,
    METHOD,
    Scanner,
    WireError,
    decode_header,
    decode_method,
    encode_ack,
    encode_content,
    encode_method,
    frame,
)

SHORT = st.text(max_size=40)
VALUES = {
    "s": SHORT,
    "S": st.binary(max_size=40),
    "B": st.integers(0, 255),
    "H": st.integers(0, 65535),
    "I": st.integers(0, 2**32 - 1),
    "Q": st.integers(0, 2**64 - 1),
    "b": st.booleans(),
    "F": st.dictionaries(SHORT, st.one_of(SHORT, st.integers(-(2**31), 2**31 - 1), st.booleans())),
}


@st.composite
def methods(draw):
    kind, layout = LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))]
    return kind(*(draw(VALUES[letter]) for letter in layout))


@given(methods(), st.integers(0, 65535))
def test_a_method_is_the_same_after_encoding_and_decoding(method, channel):
    (found,) = Scanner(1 << 20).frames(encode_method(channel, method))
    assert (found.kind, found.channel) == (METHOD, channel)
    assert decode_method(found.payload) == method


@given(
    st.lists(st.tuples(st.sampled_from([METHOD, HEADER, BODY]), st.binary(max_size=30))), st.data()
)
def test_any_split_of_the_bytes_gives_the_same_frames(pieces, data):
    raw = b"".join(frame(kind, 7, payload) for kind, payload in pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20)))
    scanner = Scanner(4096)
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        found += scanner.frames(raw[start:end])
    assert [(kind, payload) for kind, _, payload in found] == pieces


def test_the_bits_of_a_method_share_a_byte():
    declare = m.QueueDeclare(0, "q", False, True, False, True, False, {})
    raw = encode_method(1, declare)
    assert (
        raw
        == b"\x01\x00\x01\x00\x00\x00\x0d" + b"\0\x32\0\x0a" + b"\0\0\x01q\x0a\0\0\0\0" + b"\xce"
    )


def test_a_body_is_cut_into_frames_of_the_negotiated_size():
    raw = b"".join(encode_content(3, b"\0\0", b"x" * 10_000, 4096))
    header, *bodies = Scanner(4096).frames(raw)
    assert decode_header(header.payload) == (10_000, b"\0\0")
    assert [len(body.payload) for body in bodies] == [4088, 4088, 1824]


@pytest.mark.parametrize(
    ("raw", "code", "text"),
    [
        (b"\x01\0\0\0\0\0\x02ab\0", 501, "invalid_frame_end_marker,0"),
        (b"\x01\0\0\0\1\0\0", 501, "frame_too_large,65536,4088"),
    ],
)
def test_bytes_that_are_no_frame_are_refused(raw, code, text):
    with pytest.raises(WireError, match=text) as caught:
        list(Scanner(4096).frames(raw))
    assert caught.value.code == code


@given(st.binary(max_size=60))
def test_bytes_that_are_no_method_raise_nothing_but_wire_errors(raw):
    for code in CODES.values():
        payload = code.to_bytes(4, "big") + raw
        with contextlib.suppress(WireError):
            decode_method(payload)


def test_a_transaction_is_refused_with_its_name():
    with pytest.raises(WireError, match="transactions") as caught:
        decode_method(b"\0\x5a\0\x0a")
    assert caught.value.code == 540


@pytest.mark.parametrize("multiple", [False, True])
@pytest.mark.parametrize(("channel", "tag"), [(1, 1), (2047, 2**40 + 3), (65535, 2**64 - 1)])
def test_the_frame_of_a_confirm_is_that_of_the_method(channel, tag, multiple):
    frame = encode_method(channel, m.BasicAck(tag, multiple))
    assert encode_ack(channel, tag, multiple) == frame
