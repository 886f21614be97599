"""RabbitMQ's message terms: from the Erlang record to exchange, routing keys, properties, body.

::

    {basic_message, {resource, VHost, exchange, Exchange}, [RoutingKey], Content, Id, Persistent}
    {mc, mc_amqpl, Content, #{x => Exchange, rk => [RoutingKey], id => Id, d => false if transient}}
    Content = {content, 60, Decoded | none, Raw | none, Protocol, [Fragment]}   last fragment first

The properties are raw as the publisher sent them, or decoded if the broker changed them (a message
that was dead-lettered). Decoded ones are encoded again here, by the types that stand beside each
value, so that every message has its properties raw and exactly as a consumer would get them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

from qindex._core import ffi, lib
from qindex.formats import erlang
from qindex.formats.amqp import PROPERTY_NAMES, join_properties
from qindex.formats.erlang import Atom

_U32: Final = Struct(">I")


class MessageError(ValueError):
    """The term is not a message that this module knows."""


@dataclass(slots=True)
class Content:
    """What a message term says. Text that is not UTF-8 keeps its bytes as lone surrogates."""

    exchange: str
    routing_keys: list[str]
    properties: bytes
    body: bytes
    msg_id: bytes
    persistent: bool


def read_message(data: bytes) -> Content:
    """The message that the term `data` holds. MessageError says what else it is.

    The usual shapes are found in C (c_ext/formats/rabbitmq_message.c); the decoder reads the rest.
    """
    found = _new_message()
    if not _read(data, len(data), found):
        return _read_term(data)
    (
        exchange, exchange_size, start, size, decoded, msg_id, msg_id_size,
        key, key_size, key_count, fragment, fragment_size, fragment_count, persistent,
    ) = _unpack(ffi.buffer(found))  # fmt: skip
    if decoded:
        properties = _encode_decoded(erlang.decode_at(data, decoded)[0])
    else:
        properties = data[start : start + size]
    if key_count == 1:
        keys = [text(data[key : key + key_size])]
    else:
        keys = [text(each) for each in _binaries(data, key, key_count)]
    if fragment_count == 1:
        body = data[fragment : fragment + fragment_size]
    else:
        body = b"".join(reversed(_binaries(data, fragment, fragment_count)))
    msg_id_bytes = data[msg_id : msg_id + msg_id_size]
    exchange_text = text(data[exchange : exchange + exchange_size])
    return Content(exchange_text, keys, properties, body, msg_id_bytes, persistent == 1)


_read: Final = lib.qi_rabbit_read_message
_new_message: Final = partial(ffi.new, ffi.typeof("qi_rabbit_message *"))
_unpack: Final = Struct("=14I").unpack


def _binaries(data: bytes, start: int, count: int) -> list[bytes]:
    """So many binaries that follow each other, the first at `start`, its size before it."""
    found = []
    for _ in range(count):
        end = start + _U32.unpack_from(data, start - 4)[0]
        found.append(data[start:end])
        start = end + 5
    return found


def _read_term(data: bytes) -> Content:
    try:
        term: Any = erlang.decode(data)
    except erlang.ErlangError as error:
        raise MessageError(f"no Erlang term: {error}") from None
    match term:
        case ("basic_message", ("resource", _, "exchange", bytes(exchange)), [*keys], content,
              bytes(msg_id), persistent):  # fmt: skip
            durable = persistent == "true"
        case ("mc", "mc_amqpl", content, {"x": bytes(exchange), "rk": [*keys], **rest}):
            msg_id = rest.get("id", b"")  # type: ignore[assignment]
            durable = rest.get("d", "true") == "true"
        case ("mc", str(protocol), _, _):
            raise MessageError(f"a message of the protocol {protocol} cannot be read yet")
        case _:
            raise MessageError("a term that is no message")
    if not all(isinstance(key, bytes) for key in keys) or not isinstance(msg_id, bytes):
        raise MessageError("a message whose routing keys or id are no binaries")
    properties, body = _read_content(content)
    routing_keys = [text(key) for key in keys if isinstance(key, bytes)]
    return Content(text(exchange), routing_keys, properties, body, msg_id, durable)


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _read_content(content: Any) -> tuple[bytes, bytes]:
    match content:
        case ("content", 60, decoded, raw, _, [*fragments]):
            pass
        case _:
            raise MessageError("a message without content")
    if not all(isinstance(fragment, bytes) for fragment in fragments):
        raise MessageError("a body of something else than binaries")
    body = b"".join(f for f in reversed(fragments) if isinstance(f, bytes))
    return raw if isinstance(raw, bytes) else _encode_decoded(decoded), body


def _encode_decoded(decoded: Any) -> bytes:
    match decoded:
        case ("P_basic", *values) if len(values) == len(PROPERTY_NAMES):
            return encode_basic(values)
    raise MessageError("a message without properties")


# --- properties that the broker decoded --------------------------------------------------------


def encode_basic(values: list[Any]) -> bytes:
    """The raw property list of a P_basic record's fourteen values."""
    parts: list[bytes | None] = []
    for name, value in zip(PROPERTY_NAMES, values, strict=True):
        try:
            parts.append(None if value == "undefined" else _encode_basic_value(name, value))
        except (struct_error, TypeError, ValueError, OverflowError) as error:
            raise MessageError(f"the property {name} cannot be written: {error}") from None
    return join_properties(parts)


def _encode_basic_value(name: str, value: Any) -> bytes:
    if name == "headers":
        return encode_typed_table(value)
    if name in ("delivery_mode", "priority"):
        return _packer("B")(value)
    if name == "timestamp":
        return _packer("Q")(value)
    return _shortstr(value)


def encode_typed_table(table: list[Any]) -> bytes:
    """A field table from ``[{Key, Type, Value}]``, its length in front. Iterative."""
    out = bytearray(4)
    # As in field_table.encode_table: the container being written, its parents on `stack`.
    items: Iterator[Any] = iter(table)
    keyed, length_at = True, 0
    stack: list[tuple[Iterator[Any], bool, int]] = []
    while True:
        for item in items:
            if keyed:
                key, kind, value = item
                out += _shortstr(key)
            else:
                kind, value = item
            if kind in ("table", "array"):
                out += b"F" if kind == "table" else b"A"
                stack.append((items, keyed, length_at))
                items, keyed, length_at = iter(value), kind == "table", len(out)
                out += bytes(4)
                break
            encoder = _TYPED.get(kind)
            if encoder is None:
                raise ValueError(f"a header of the unknown type {kind}")
            out += encoder(value)
        else:
            _U32.pack_into(out, length_at, len(out) - length_at - 4)
            if not stack:
                return bytes(out)
            items, keyed, length_at = stack.pop()


def _packer(layout: str, tag: bytes = b"") -> Callable[[Any], bytes]:
    pack = Struct(">" + layout).pack
    return lambda value: tag + pack(value)


def _string(tag: bytes) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        raw = bytes(value)  # a binary, or a list of its bytes
        return tag + _U32.pack(len(raw)) + raw

    return encode


def _shortstr(value: Any) -> bytes:
    raw = bytes(value)
    return bytes([len(raw)]) + raw


def _decimal(value: Any) -> bytes:
    scale, number = value
    return b"D" + Struct(">BI").pack(scale, number)


_TYPED: Final[dict[str, Callable[[Any], bytes]]] = {
    "longstr": _string(b"S"),
    "signedint": _packer("i", b"I"),
    "decimal": _decimal,
    "timestamp": _packer("Q", b"T"),
    "byte": _packer("b", b"b"),
    "double": _packer("d", b"d"),
    "float": _packer("f", b"f"),
    "long": _packer("q", b"l"),
    "short": _packer("h", b"s"),
    "bool": lambda value: b"t\x01" if value == Atom("true") else b"t\x00",
    "binary": _string(b"x"),
    "unsignedbyte": _packer("B", b"B"),
    "unsignedshort": _packer("H", b"u"),
    "unsignedint": _packer("I", b"i"),
    "void": lambda _: b"V",
}
