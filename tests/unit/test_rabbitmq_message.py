"""RabbitMQ's message terms: the records of 3.x and 4.x, and properties that the broker decoded."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qindex.brokers.amqp import Properties, decode_properties, encode_properties
from qindex.brokers.rabbitmq import message as rabbitmq_message
from qindex.brokers.rabbitmq.message import Content, MessageError, read_message
from qindex.brokers.rabbitmq.properties import encode_basic


def atom(name: str, utf8: bool) -> bytes:
    raw = name.encode()
    return (b"w" + bytes([len(raw)]) if utf8 else b"d" + struct.pack(">H", len(raw))) + raw


def binary(data: bytes) -> bytes:
    return b"m" + struct.pack(">I", len(data)) + data


def proper_list(items: list[bytes]) -> bytes:
    return b"l" + struct.pack(">I", len(items)) + b"".join(items) + b"j" if items else b"j"


def content(properties: bytes, fragments: list[bytes], utf8: bool) -> bytes:
    return (
        b"h\x06" + atom("content", utf8) + b"a\x3c" + atom("none", utf8) + binary(properties)
        + atom("rabbit_framing_amqp_0_9_1", utf8) + proper_list([*map(binary, fragments)][::-1])
    )  # fmt: skip


def basic_message(message: Content, fragments: list[bytes], utf8: bool) -> bytes:
    return (
        b"\x83h\x06" + atom("basic_message", utf8)
        + b"h\x04" + atom("resource", utf8) + binary(b"/") + atom("exchange", utf8)
        + binary(message.exchange.encode())
        + proper_list([binary(key.encode()) for key in message.routing_keys])
        + content(message.properties, fragments, utf8)
        + binary(message.msg_id) + atom("true" if message.persistent else "false", utf8)
    )  # fmt: skip


MESSAGES = st.builds(
    Content,
    exchange=st.text(max_size=20),
    routing_keys=st.lists(st.text(max_size=20), min_size=1, max_size=3),
    properties=st.binary(max_size=30),
    body=st.just(b""),
    msg_id=st.binary(min_size=16, max_size=16),
    persistent=st.booleans(),
)


@given(MESSAGES, st.lists(st.binary(max_size=20), max_size=3), st.booleans())
def test_a_message_is_read_whatever_its_fragments_and_its_erlang(
    message: Content, fragments: list[bytes], utf8: bool
) -> None:
    message.body = b"".join(fragments)
    data = basic_message(message, fragments, utf8)
    assert read_message(data) == message
    assert rabbitmq_message._read_term(data) == message


@given(MESSAGES, st.booleans(), st.data())
def test_the_fast_way_and_the_decoder_agree_on_damaged_terms(
    message: Content, utf8: bool, data: st.DataObject
) -> None:
    raw = bytearray(basic_message(message, [b"body"], utf8))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))

    def outcome(read: Any) -> Any:
        try:
            return read(bytes(raw))
        except MessageError:
            return None

    assert outcome(read_message) == outcome(rabbitmq_message._read_term)


@pytest.mark.parametrize("utf8", [False, True])
def test_a_message_container_is_read(utf8: bool) -> None:
    raw = (
        b"\x83h\x04" + atom("mc", utf8) + atom("mc_amqpl", utf8)
        + content(b"\x00\x00", [b"hi ", b"there"], utf8)
        + b"t\x00\x00\x00\x04" + atom("x", utf8) + binary(b"ex")
        + atom("rk", utf8) + proper_list([binary(b"a"), binary(b"b")])
        + atom("id", utf8) + binary(bytes(16)) + atom("d", utf8) + atom("false", utf8)
    )  # fmt: skip
    told = Content("ex", ["a", "b"], b"\x00\x00", b"hi there", bytes(16), False)
    assert read_message(raw) == told


def mutations(raw: bytes) -> Iterator[bytes]:
    """Each cut; each byte as each tag that may stand in a message, and at its limits."""
    for place in range(len(raw)):
        yield raw[:place]
        for value in b"\x00\x01\x02\x7f\x80\xffadhijlmnostvw":
            yield raw[:place] + bytes([value]) + raw[place + 1 :]


def wide(raw: bytes) -> bytes:
    """The same with tuples whose size has four bytes."""
    return raw.replace(b"h\x06", b"i\0\0\0\x06").replace(b"h\x04", b"i\0\0\0\x04")


def old_atoms(raw: bytes) -> bytes:
    """The same with atoms of one byte's length in Latin-1, and with long ones in UTF-8."""
    return raw.replace(b"w\x07content", b"s\x07content").replace(b"w\x02mc", b"v\0\x02mc")


CONTAINER = (
    b"\x83h\x04" + atom("mc", True) + atom("mc_amqpl", True)
    + content(b"\x00\x00", [b"hi"], True)
    + b"t\x00\x00\x00\x06" + atom("x", True) + binary(b"e")
    + atom("rk", True) + proper_list([binary(b"a"), binary(b"b")])
    + atom("id", True) + binary(bytes(16)) + atom("d", True) + atom("true", True)
    + atom("p", True) + b"a\x05" + atom("other", True) + b"j"
)  # fmt: skip
BASIC = basic_message(Content("ex", ["k"], b"\0\0", b"", bytes(16), True), [b"b"], True)


@pytest.mark.parametrize("shape", [wide, old_atoms, bytes])
@pytest.mark.parametrize("raw", [BASIC, CONTAINER], ids=["basic_message", "container"])
def test_the_fast_way_and_the_decoder_agree_on_each_damaged_byte_and_each_cut(
    raw: bytes, shape: Callable[[bytes], bytes]
) -> None:
    """The fast way may read less than the decoder, never something else."""
    whole = shape(raw)
    assert read_message(whole).body in (b"hi", b"b")
    for damaged in mutations(whole):
        told: list[Content | None] = []
        for read in (read_message, rabbitmq_message._read_term):
            try:
                told.append(read(damaged))
            except MessageError:
                told.append(None)
        assert told[0] == told[1], damaged


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "no Erlang term"),
        (b"\x83j", "no message"),
        (b"\x83h\x04w\x02mcw\x07mc_amqpjj", "no message"),
        (
            b"\x83h\x04w\x02mcw\x08mc_amqplj" + b"t\0\0\0\2w\x01xm\0\0\0\0w\x02rkj",
            "without content",
        ),
    ],
)
def test_what_is_no_message_is_named(raw: bytes, text: str) -> None:
    with pytest.raises(MessageError, match=text):
        read_message(raw)


UNDEFINED = ["undefined"] * 14


def test_decoded_properties_are_encoded_as_the_broker_would() -> None:
    headers = [
        (b"longstr", "longstr", b"v"),
        (b"signedint", "signedint", -5),
        (b"decimal", "decimal", (2, 1234)),
        (b"timestamp", "timestamp", 1709208000),
        (b"byte", "byte", -1),
        (b"double", "double", 1.5),
        (b"float", "float", 0.5),
        (b"long", "long", 1 << 40),
        (b"short", "short", -300),
        (b"bool", "bool", "true"),
        (b"binary", "binary", b"\x00\xff"),
        (b"unsignedbyte", "unsignedbyte", 200),
        (b"unsignedshort", "unsignedshort", 60_000),
        (b"unsignedint", "unsignedint", 1 << 31),
        (b"void", "void", "undefined"),
        (b"table", "table", [(b"in", "table", [(b"a", "array", [("long", 1), ("array", [])])])]),
    ]
    values = [
        b"text/plain", b"", headers, 2, 9, b"corr", b"reply", b"60000", b"id", 1709208000,
        b"type", b"guest", b"app", b"",
    ]  # fmt: skip
    properties = decode_properties(encode_basic(values))
    assert properties.headers is not None
    assert properties.headers["table"] == {"in": {"a": [1, []]}}
    assert properties.headers["unsignedint"] == 1 << 31
    assert properties.headers["float"] == 0.5
    assert list(properties.headers) == [key.decode() for key, _, _ in headers]
    assert (properties.priority, properties.delivery_mode, properties.cluster_id) == (9, 2, "")


def test_properties_that_are_not_set_take_no_place() -> None:
    assert encode_basic([*UNDEFINED]) == b"\x00\x00"
    only_id = [*UNDEFINED]
    only_id[8] = b"m1"
    assert encode_basic(only_id) == encode_properties(Properties(message_id="m1"))


@pytest.mark.parametrize(
    ("index", "value"),
    [(0, b"x" * 256), (2, [(b"k", "unheard", 1)]), (2, [(b"k",)]), (2, 7), (3, 256), (9, "soon")],
)
def test_properties_that_cannot_be_encoded_are_a_message_error(index: int, value: Any) -> None:
    values: list[Any] = [*UNDEFINED]
    values[index] = value
    with pytest.raises(MessageError, match="the property"):
        encode_basic(values)


def test_headers_nested_ten_thousand_deep_need_no_recursion() -> None:
    headers: list[Any] = []
    for _ in range(10_000):
        headers = [(b"k", "table", headers)]
    values: list[Any] = [*UNDEFINED]
    values[2] = headers
    assert len(encode_basic(values)) == 6 + 7 * 10_000
