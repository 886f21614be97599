"""AMQP 1.0 messages in RabbitMQ's containers, as what an AMQP 0-9-1 consumer gets of them.

::

    {v1, Annotations, Sections, PropsAt, AppPropsAt, BodyAt, BodyCode}           4.x
    {msg, Header, _, Annotations, Props, AppProps, Body, Footer}                 3.13

Application properties and annotations become headers (mc_amqpl:convert_from/3). Where RabbitMQ
would crash on a value that AMQP 0-9-1 does not have, the value is written in the nearest type, or,
if there is none, left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote_to_bytes
from uuid import UUID

from qindex.brokers import amqp10
from qindex.brokers.rabbitmq.properties import (
    Header,
    MessageError,
    flat,
    is_short,
    is_valid,
    seconds_of,
    without_copies,
)
from qindex.field_table import TABLE_DEPTH_MAX

AMQP10_TYPE: Final = b"amqp-1.0"  # a body that is no plain bytes, and the footer behind it
_DEPTH_MAX: Final = TABLE_DEPTH_MAX - 2  # in the table of headers
_KINDS: Final = {
    "byte": "byte", "ubyte": "unsignedbyte", "short": "short", "ushort": "unsignedshort",
    "int": "signedint", "uint": "unsignedint", "long": "long", "ulong": "long",
    "float": "float", "double": "double",
}  # fmt: skip
_PROPERTIES: Final = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type",
    "content_encoding", "absolute_expiry_time", "creation_time", "group_id", "group_sequence",
    "reply_to_group_id",
)  # fmt: skip


@dataclass(slots=True)
class Sections:
    """An AMQP 1.0 message, in the values of amqp10; named_properties() makes `properties`."""

    durable: Any = None
    priority: Any = None
    ttl: Any = None
    annotations: list[Any] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)
    application: list[Any] = field(default_factory=list)
    body: bytes = b""
    is_data: bool = True  # else `body` is sections, as they were sent
    counted: int = 0  # bytes of the body as RabbitMQ counts them


def read_amqp10(data: Any) -> tuple[dict[str, Any], bytes, int]:
    """Values of P_basic by name, the body, and its bytes as RabbitMQ counts them."""
    sections = _sections_of(data)
    return properties_of(sections), sections.body, sections.counted


def properties_of(sections: Sections) -> dict[str, Any]:
    """Values of P_basic by name, as an AMQP 0-9-1 consumer gets them."""
    noted = {
        key: _unwrapped(value)
        for key, value in map(_pair, sections.annotations)
        if key.startswith(b"x-basic-")
    }
    own = sections.properties
    headers = _headers_of_annotations(sections.annotations)
    values: dict[str, Any] = {
        "delivery_mode": _delivery_mode(sections.durable, noted.get(b"x-basic-delivery-mode")),
        "priority": _number(sections.priority, noted.get(b"x-basic-priority")),
        "expiration": noted.get(b"x-basic-expiration"),
        "type": noted.get(b"x-basic-type") if sections.is_data else AMQP10_TYPE,
        "content_type": _unwrapped(own.get("content_type")),
        "content_encoding": _unwrapped(own.get("content_encoding")),
        "user_id": _unwrapped(own.get("user_id")),
        "app_id": _utf8(own.get("group_id")),
        "reply_to": _queue_name(_utf8(own.get("reply_to"))),
    }
    if (ttl := _number(sections.ttl, None)) is not None:
        values["expiration"] = b"%d" % ttl
    for name, key in (("correlation_id", b"x-correlation-id"), ("message_id", b"x-message-id")):
        values[name], header = _as_id(own.get(name), key)
        headers += [header] if header else []
    headers += _headers_of_map(sections.application)
    values["headers"] = without_copies(headers) or None
    for name, value in values.items():
        if name not in ("headers", "delivery_mode", "priority") and not is_short(value):
            values[name] = None
    if not is_valid(values["user_id"]):
        values["user_id"] = None
    return values


def _sections_of(data: Any) -> Sections:
    match data:
        case ("v1", [*annotations], bytes(bare), _, _, int(body_at), int(code)):
            return _sections_of_bytes(annotations, bare, body_at, code == amqp10.DATA)
        case ("msg", header, _, [*annotations], properties, [*application], body, _):
            pass
        case _:
            raise MessageError("a message of amqp in an unknown shape")
    found = Sections(annotations=annotations, application=application)
    if isinstance(header, tuple) and len(header) == 6:
        _, found.durable, found.priority, found.ttl, _, _ = header
    if isinstance(properties, tuple) and len(properties) == 1 + len(_PROPERTIES):
        found.properties = dict(zip(_PROPERTIES, properties[1:], strict=True))
    found.body, found.is_data = _body_of_3_13(body)
    found.counted = len(found.body) if found.is_data else 0
    return found


def _body_of_3_13(body: Any) -> tuple[bytes, bool]:
    sections = body if isinstance(body, list) else [body]
    is_data, parts = True, []
    for section in sections:
        match section:
            case ("v1_0.data", content):
                parts.append(flat(content))
            case ("v1_0.amqp_value", value):
                is_data = False
                parts.append(amqp10.encode(("described", ("ulong", amqp10.VALUE), value)))
            case ("v1_0.amqp_sequence", [*values]):
                is_data = False
                listed = ("list", values)
                parts.append(amqp10.encode(("described", ("ulong", amqp10.SEQUENCE), listed)))
            case _:
                raise MessageError("a body of amqp in an unknown shape")
    return b"".join(parts), is_data


def _sections_of_bytes(
    annotations: list[Any], bare: bytes, body_at: int, is_data: bool
) -> Sections:
    found = Sections(annotations=annotations, is_data=is_data, counted=len(bare))
    if not 0 <= body_at <= len(bare):
        raise MessageError(f"a body at byte {body_at} of {len(bare)}")
    parts = []
    for code, content in amqp10.sections(bare, 0, len(bare) if is_data else body_at):
        match content:
            case ("list", [*values]) if code == amqp10.PROPERTIES:
                found.properties = named_properties(values)
            case ("map", [*pairs]) if code == amqp10.APPLICATION:
                found.application = pairs
            case ("binary", bytes(part)) if code == amqp10.DATA:
                parts.append(part)
    found.body = b"".join(parts) if is_data else bare[body_at:]
    return found


def named_properties(values: list[Any]) -> dict[str, Any]:
    """The values of a properties section by their names; those at the end may be missing."""
    return dict(zip(_PROPERTIES, values, strict=False))


def _headers_of_annotations(annotations: list[Any]) -> list[Header]:
    found: list[Header] = []
    for key, value in map(_pair, annotations):
        match key, value:
            case b"x-cc", _:
                found += _headers_of_map([(("utf8", b"CC"), value)])
            case b"x-opt-rabbitmq-received-time", ("timestamp", int(time)):
                found.append((b"timestamp_in_ms", "long", time))
            case b"x-opt-deaths", ("array", "map", [*deaths]):
                found.append((b"x-death", "array", [_told_death(death) for death in deaths]))
            case b"x-routing-key" | b"x-exchange" | b"x-death", _:
                pass
            case _ if key.startswith(b"x-") and not key.startswith(b"x-basic-"):
                found += _headers_of_map([(("symbol", key), value)])
    return found


def _told_death(death: Any) -> Any:
    """A death that another broker told, in the shape of an own one."""
    match death:
        case ("map", [*pairs]):
            told = {key: _unwrapped(value) for key, value in map(_pair, pairs)}
        case _:
            told = {}
    match told:
        case {
            b"queue": queue,
            b"reason": bytes(reason),
            b"count": count,
            b"first-time": int(first),
            b"exchange": exchange,
            b"routing-keys": [*keys],
        }:
            times = {"first_time": 1000 * first, "ttl": told.get(b"ttl")}
            name = (queue, reason.decode("utf-8", "replace"))
            keys = [_unwrapped(key) for key in keys]
            return ("table", death_table((name, ("death", exchange, keys, count, times))))
    raise MessageError("a death that cannot be read")


def _pair(pair: Any) -> tuple[bytes, Any]:
    """Key and value; the key without its type, empty if it is no text."""
    match pair:
        case ((_, bytes(key)), value):
            return key, value
    return b"", None


def _headers_of_map(pairs: list[Any], depth: int = 0) -> list[Header]:
    """The pairs of a map that have a place in a field table."""
    found: list[Header] = []
    for pair in pairs:
        key, value = _pair(pair)
        typed = to_field(value, depth) if key and is_short(key) else None
        if typed is not None:
            found.append((key, *typed))
    return found


def to_field(value: Any, depth: int = 0) -> tuple[str, Any] | None:
    """(type, value) for encode_typed_table(); None: there is no such type, or it is too deep."""
    if depth >= _DEPTH_MAX:
        return None
    match value:
        case ("list", [*items]) | ("array", _, [*items]):
            fields = [to_field(item, depth + 1) for item in items]
            return "array", [each for each in fields if each is not None]
        case ("map", [*pairs]):
            return "table", _headers_of_map(pairs, depth + 1)
        case ("described", _, content):
            return to_field(content, depth + 1)
    return _to_scalar(value)


def _to_scalar(value: Any) -> tuple[str, Any] | None:
    match value:
        case ("utf8" | "symbol" | "binary", bytes(raw)):
            return "longstr", raw
        case "true" | "false" as name:
            return "bool", name
        case ("boolean", "true" | "false" as name):
            return "bool", name
        case "null" | "undefined":
            return "void", "undefined"
        case ("timestamp", int(time)):
            return "timestamp", seconds_of(time)
        case ("uuid", bytes(raw)) if len(raw) == 16:
            return "longstr", _urn(raw)
        case ("char", int(code)) if 0 <= code < 0xD800 or 0xDFFF < code < 0x110000:
            return "longstr", chr(code).encode()
        case ("ulong", int(number)) if number >= 1 << 63:
            return "long", number - (1 << 64)  # its bits, as RabbitMQ writes them
        case (str(kind), int(number) | float(number)) if kind in _KINDS:
            return _KINDS[kind], number
    return None


def _as_id(value: Any, key: bytes) -> tuple[bytes | None, Header | None]:
    """A message's or correlation's id as a property, or where that cannot be, as a header."""
    match value:
        case ("uuid", bytes(raw)) if len(raw) == 16:
            return _urn(raw), None
        case ("ulong", int(number)):
            return b"%d" % number, None
        case ("binary", bytes(raw)):
            return None, (key, "binary", raw)
        case ("utf8", bytes(raw)):
            return (raw, None) if is_short(raw) else (None, (key, "longstr", raw))
    return None, None


def _queue_name(address: bytes | None) -> bytes | None:
    if address is None or not address.startswith(b"/queues/"):
        return address
    return unquote_to_bytes(address.removeprefix(b"/queues/"))


def death_table(death: Any) -> list[Header]:
    match death:
        case (
            (bytes(queue), str(reason)),
            ("death", bytes(exchange), [*keys], int(count), {"first_time": int(first), **rest}),
        ) if all(isinstance(key, bytes) for key in keys):
            pass
        case _:
            raise MessageError("a death that cannot be read")
    fields: list[Header] = [
        (b"count", "long", count),
        (b"reason", "longstr", reason.encode()),
        (b"queue", "longstr", queue),
        (b"time", "timestamp", seconds_of(first)),
        (b"exchange", "longstr", exchange),
        (b"routing-keys", "array", [("longstr", key) for key in keys]),
    ]
    ttl = rest.get("ttl")
    if isinstance(ttl, int):
        fields.insert(0, (b"original-expiration", "longstr", b"%d" % ttl))
    return fields


def _unwrapped(value: Any) -> Any:
    match value:
        case ("timestamp", int(time)):
            return seconds_of(time)
        case ("array", _, content) | (_, content):
            return content
    return None


def _utf8(value: Any) -> bytes | None:
    return value[1] if isinstance(value, tuple) and value[:1] == ("utf8",) else None


def _delivery_mode(durable: Any, otherwise: Any) -> Any:
    match durable:
        case "true" | "false":
            return 2 if durable == "true" else 1
    return otherwise


def _number(value: Any, otherwise: Any) -> Any:
    match value:
        case (_, int(number)):
            return number
    return otherwise


def _urn(raw: bytes) -> bytes:
    return f"urn:uuid:{UUID(bytes=raw)}".encode()
