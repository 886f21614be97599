"""RabbitMQ's message terms: from the Erlang record to exchange, routing keys, properties, body.

::

    {basic_message, {resource, VHost, exchange, Exchange}, [RoutingKey], Content, Id, Persistent}
    {mc, Protocol, Data, #{x => Exchange, rk => [RoutingKey], id => Id, d => false if transient}}
    Data    = Content for mc_amqpl; container.py reads those of other protocols
    Content = {content, 60, Decoded | none, Raw | none, Protocol, [Fragment]}   last fragment first

The properties are raw as the publisher sent them, or decoded if the broker changed them (in 3.x a
message that was dead-lettered). Decoded ones are encoded again here, by the types that stand beside
each value, so that every message has its properties raw and exactly as a consumer would get them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any, Final

from qindex._core import ffi, lib
from qindex.brokers.amqp import PROPERTY_NAMES
from qindex.brokers.rabbitmq import erlang
from qindex.brokers.rabbitmq.container import annotate, changes, read_container
from qindex.brokers.rabbitmq.properties import MessageError, encode_basic

__all__ = [
    "Content",
    "MessageError",
    "is_stranger",
    "read_message",
    "received_ms",
    "storable",
    "text",
]

_U32: Final = Struct(">I")


@dataclass(slots=True)
class Content:
    """What a message term says. Text that is not UTF-8 keeps its bytes as lone surrogates."""

    exchange: str
    routing_keys: list[str]
    properties: bytes
    body: bytes
    msg_id: bytes
    persistent: bool
    counted: int | None = None  # bytes of the body in RabbitMQ's count, if they are others

    @property
    def index_bytes(self) -> int:
        """The size that an index has beside it."""
        return len(self.body) if self.counted is None else self.counted


def read_message(data: bytes) -> Content:
    """The message that the term `data` holds. MessageError says what else it is.

    The usual shapes are found in C (c_ext/foreign/rabbitmq_message.c); the decoder reads the rest.
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
            durable, counted = persistent == "true", None
            properties, body = _read_content(content)
        case ("mc", str(protocol), data, {"x": bytes(exchange), "rk": [*keys], **rest} as notes):
            msg_id = rest.get("id", b"")  # type: ignore[assignment]
            durable = rest.get("d", "true") == "true"
            properties, body, counted = _read_data(protocol, data, notes)
        case _:
            raise MessageError("a term that is no message")
    if not all(isinstance(key, bytes) for key in keys) or not isinstance(msg_id, bytes):
        raise MessageError("a message whose routing keys or id are no binaries")
    routing_keys = [text(key) for key in keys if isinstance(key, bytes)]
    return Content(text(exchange), routing_keys, properties, body, msg_id, durable, counted)


def _read_data(protocol: str, data: Any, notes: dict[Any, Any]) -> tuple[bytes, bytes, int | None]:
    """Properties and body of a container, as RabbitMQ gives them to an AMQP 0-9-1 consumer."""
    if protocol != "mc_amqpl":
        properties, body, counted = read_container(protocol, data, notes)
        return properties, body, None if counted == len(body) else counted
    properties, body = _read_content(data)
    return annotate(properties, notes) if changes(notes) else properties, body, None


def received_ms(data: bytes) -> int | None:
    """When the broker received a message, as 3.13 and later note it: milliseconds since 1970."""
    try:
        match erlang.decode(data):
            case ("mc", _, _, {"rts": int(received)}):
                return received
    except erlang.ErlangError:
        pass
    return None


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


def is_stranger(exchange: str, routing_keys: list[str], queue: str) -> bool:
    """Whether the default exchange, whose keys are queues' names, cannot have brought it here."""
    return not exchange and bool(routing_keys) and queue not in routing_keys


def storable(text: str) -> str | bytes:
    """Text as a header may hold it: what is not UTF-8 as bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
    return text
