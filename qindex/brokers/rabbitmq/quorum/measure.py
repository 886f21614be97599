"""What the machine itself looks at in a message: its size, its time to live, its priority."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from qindex.brokers.amqp import AmqpError, decode_properties
from qindex.brokers.rabbitmq.erlang import is_long
from qindex.brokers.rabbitmq.quorum.held import DEFAULT_PRIORITY

_EXPIRATION: Final = 8  # in a tuple of decoded properties, which begins with its name
_PRIORITY: Final = 5


class Measured(NamedTuple):
    body_size: int
    meta_size: int = 0
    ttl_ms: int | None = None
    priority: int = DEFAULT_PRIORITY
    deliveries: int | None = None


def measure(message: Any, version: int) -> Measured:
    """Of a message as it stands in the command that published it."""
    match message:
        case ("mc", _, data, dict(notes)):
            body, meta = _data_size(data)
            return Measured(
                body,
                meta,
                _whole(notes.get("ttl")),
                _priority(notes.get("p")),
                _whole(notes.get("delivery_count")),
            )
        case ("basic_message", _, _, ("content", _, properties, raw, _, fragments), *_):
            ttl, priority = _of_properties(properties, raw, version)
            meta = len(raw) if isinstance(raw, bytes) else 0
            return Measured(_bytes(fragments), meta, ttl, priority)
        case bytes(body):
            return Measured(len(body))
    return Measured(0)


def _whole(value: Any) -> int | None:
    return value if is_long(value) and value >= 0 else None


def _priority(value: Any) -> int:
    return value if isinstance(value, int) else DEFAULT_PRIORITY


def _data_size(data: Any) -> tuple[int, int]:
    """Of body and metadata, as far as they can be told without reading the message."""
    match data:
        case ("content", _, _, raw, _, fragments):
            return _bytes(fragments), len(raw) if isinstance(raw, bytes) else 0
        case ("v1", _, bytes(sections), _, _, int(body), *_) if 0 <= body <= len(sections):
            return len(sections) - body, body
    return 0, 0


def _bytes(fragments: Any) -> int:
    """The size of an iolist."""
    size, stack = 0, [fragments]
    while stack:
        each = stack.pop()
        if isinstance(each, bytes):
            size += len(each)
        elif isinstance(each, list):
            stack.extend(each)
        elif isinstance(each, int):
            size += 1
    return size


def _of_properties(properties: Any, raw: Any, version: int) -> tuple[int | None, int]:
    """Up to version 3 a message has decoded properties if and only if it expires."""
    expiration: Any = None
    priority: Any = None
    if isinstance(properties, tuple) and len(properties) > _EXPIRATION:
        expiration, priority = properties[_EXPIRATION], properties[_PRIORITY]
    elif version >= 4 and isinstance(raw, bytes):
        try:
            decoded = decode_properties(raw)
        except AmqpError:
            return None, DEFAULT_PRIORITY
        expiration, priority = decoded.expiration, decoded.priority
    if isinstance(expiration, str):
        expiration = expiration.encode()
    ttl = int(expiration) if isinstance(expiration, bytes) and expiration.isdigit() else None
    return ttl, _priority(priority)
