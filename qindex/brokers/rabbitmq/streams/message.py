"""An entry of a stream as a message: AMQP 1.0 sections to what an AMQP 0-9-1 consumer gets.

Publishers of the stream protocol may send any bytes, and the broker does not look. What is no AMQP
1.0 message is given as it is, as a body without properties.

Two writers of the sections are known: RabbitMQ 3.9 to 3.12 (rabbit_msg_record), which keeps type
and app-id as application properties, and 3.13 and later (mc_amqpl).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from qindex.brokers import amqp10
from qindex.brokers.amqp import PROPERTY_NAMES, AmqpError, join_properties
from qindex.brokers.rabbitmq.amqp10_messages import (
    Sections,
    named_properties,
    properties_of,
)
from qindex.brokers.rabbitmq.message import text
from qindex.brokers.rabbitmq.properties import (
    Header,
    MessageError,
    encode_basic,
    join_table,
    seconds_of,
    split_properties,
    split_table,
    without_copies,
)

TIMESTAMP: Final = b"x-stream-timestamp-ms"
_HEADERS_AT: Final = PROPERTY_NAMES.index("headers")
_SECTIONS_MAX: Final = 10_000
_LISTS: Final = {0x45: 0, 0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4}  # constructor: bytes of its size
_BINARIES: Final = {0xA0: 1, 0xB0: 4}
_OF_3_12: Final = {b"x-basic-type": "type", b"x-basic-app-id": "app_id"}


class StreamContent(NamedTuple):
    exchange: str
    routing_keys: list[str]
    properties: bytes  # a raw AMQP 0-9-1 property list
    body: bytes


def read_entry(data: bytes, offset: int) -> StreamContent:
    """The message of an entry; its headers tell its offset in the stream, as a broker's do."""
    mark: Header = (b"x-stream-offset", "long", offset)
    try:
        sections = _sections_of(data)
        values = properties_of(sections)
    except (AmqpError, MessageError):
        return StreamContent("", [], _encoded({"headers": [mark]}), data)
    headers: list[Header] = []
    for header in values["headers"] or []:
        name = _OF_3_12.get(header[0])
        if name is None:
            headers.append(header)
        elif values[name] is None:
            values[name] = header[2]
    values["headers"] = without_copies([mark, *headers])
    match sections.properties.get("creation_time"):
        case ("timestamp", int(created_ms)):
            values["timestamp"] = seconds_of(created_ms)
    noted = {key[1]: content for key, content in sections.annotations}
    keys = [noted.get(b"x-routing-key"), *_listed(noted.get(b"x-cc"))]
    return StreamContent(
        _as_text(noted.get(b"x-exchange")),
        [_as_text(key) for key in keys if key is not None],
        _encoded(values),
        sections.body,
    )


def with_timestamp(properties: bytes, timestamp_ms: int) -> bytes:
    """A message's property list with one more header: when its chunk was written.

    A header of that name that its publisher set stays. AmqpError: `properties` are no such list.
    """
    parts = split_properties(properties)
    headers = split_table(parts[_HEADERS_AT] or bytes(4))
    entry = bytes([len(TIMESTAMP)]) + TIMESTAMP + b"l" + timestamp_ms.to_bytes(8, "big")
    headers.setdefault(TIMESTAMP, entry)
    parts[_HEADERS_AT] = join_table(headers)
    return join_properties(parts)


def _encoded(values: dict[str, Any]) -> bytes:
    listed = [values.get(name) for name in PROPERTY_NAMES]
    return encode_basic(["undefined" if value is None else value for value in listed])


def _as_text(value: Any) -> str:
    match value:
        case (_, bytes(raw)):
            return text(raw)
    return ""


def _listed(value: Any) -> list[Any]:
    match value:
        case ("list", [*items]) | ("array", _, [*items]):
            return items
    return []


def _sections_of(data: bytes) -> Sections:
    found = Sections()
    body: list[bytes] = []
    body_at = pos = 0
    for _ in range(_SECTIONS_MAX):
        if pos == len(data):
            break
        start = pos
        code, content, pos = amqp10.section_at(data, pos, len(data))
        match content:
            case ("list", [*values]) if code == amqp10.HEADER:
                padded = [*values, None, None, None][:3]
                found.durable, found.priority, found.ttl = (_given(value) for value in padded)
            case ("map", [*pairs]) if code == amqp10.ANNOTATIONS:
                found.annotations = [pair for pair in pairs if _is_symbol(pair[0])]
            case ("list", [*values]) if code == amqp10.PROPERTIES:
                found.properties = named_properties(values)
            case ("map", [*pairs]) if code == amqp10.APPLICATION:
                found.application = pairs
            case ("binary", bytes(part)) if code == amqp10.DATA:
                body.append(part)
            case _ if code in (amqp10.SEQUENCE, amqp10.VALUE) and found.is_data:
                found.is_data, body_at = False, start
            case _ if not amqp10.HEADER <= code <= amqp10.FOOTER:
                raise AmqpError(f"a section of the unknown kind {code:#x}")
    if pos != len(data) or not data:
        raise AmqpError("no message of AMQP 1.0")
    found.body = b"".join(body) if found.is_data else data[body_at:]
    return found


def _given(value: Any) -> Any:
    return None if value == "null" else value


def _is_symbol(key: Any) -> bool:
    return isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], bytes)


def body_bytes(data: bytes) -> int:
    """How long read_entry(data).body is. Looks at the sizes of the sections only."""
    total = pos = 0
    while pos + 4 <= len(data):
        if data[pos] != 0 or data[pos + 1] != 0x53:
            break
        code, constructor = data[pos + 2], data[pos + 3]
        width = (_BINARIES if code == amqp10.DATA else _LISTS).get(constructor)
        if width is None or code in (amqp10.SEQUENCE, amqp10.VALUE):
            break
        size = int.from_bytes(data[pos + 4 : pos + 4 + width], "big")
        pos += 4 + width + size
        if code == amqp10.DATA:
            total += size
    return total if pos == len(data) and pos else len(read_entry(data, 0).body)
