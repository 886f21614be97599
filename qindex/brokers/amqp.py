"""AMQP 0-9-1 basic properties: bytes to Python values and back, with the field tables they hold.

A property list is 16 flags, the highest for content_type, then the values of those that are set.
The two lowest flags belong to no property. Messages keep their list raw, since a decoded one
forgets whether an int was written in 16 or in 64 bits; decode it to look inside.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from qindex.field_table import (
    AmqpError,
    FieldValue,
    decode_table,
    decode_table_at,
    decode_timestamp,
    encode_datetime,
    encode_shortstr,
    encode_table,
)

__all__ = [
    "AmqpError",
    "FieldValue",
    "Properties",
    "decode_properties",
    "decode_table",
    "encode_properties",
    "encode_table",
    "join_properties",
]


@dataclass(slots=True)
class Properties:
    """The properties of a message, in the order of their flags; None where one is not set."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: dict[str, FieldValue] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: datetime | int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


PROPERTY_NAMES: Final = tuple(field.name for field in fields(Properties))
_OCTETS: Final = frozenset(["delivery_mode", "priority"])


def decode_properties(raw: bytes) -> Properties:
    """A raw property list: 16 flags, the highest for content_type, then the values that are set."""
    raw = bytes(raw)
    properties = Properties()
    try:
        flags, pos = int.from_bytes(raw[:2], "big"), 2
        if len(raw) < 2 or flags & 3:
            raise AmqpError("property flags are cut or beyond the fourteen that exist")
        for bit, name in enumerate(PROPERTY_NAMES):
            if not flags & 0x8000 >> bit:
                continue
            value: FieldValue
            if name == "headers":
                value, pos = decode_table_at(raw, pos)
            elif name in _OCTETS:
                value, pos = raw[pos], pos + 1
            elif name == "timestamp":
                value, pos = decode_timestamp(raw, pos)
            else:
                start, pos = pos + 1, pos + 1 + raw[pos]
                value = raw[start:pos].decode("utf-8", "surrogateescape")
            setattr(properties, name, value)
    except IndexError:
        raise AmqpError("property list is cut") from None
    if pos != len(raw):
        raise AmqpError(f"property list of {len(raw)} bytes whose values end at {pos}")
    return properties


def called(place: str, properties: bytes) -> str:
    """A message's place, and its message_id if it has one that can be read."""
    with suppress(AmqpError):
        if message_id := decode_properties(properties).message_id:
            return f"{place} (message_id {message_id})"
    return place


def encode_properties(properties: Properties) -> bytes:
    """The raw property list. Same errors as `encode_table`."""
    parts: list[bytes | None] = []
    for name in PROPERTY_NAMES:
        value = getattr(properties, name)
        try:
            parts.append(None if value is None else _encode_property(name, value))
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{name}: {error}") from None
    return join_properties(parts)


def _encode_property(name: str, value: Any) -> bytes:
    if name == "headers":
        return encode_table(value, name="table")
    if name == "timestamp":
        if isinstance(value, datetime):
            return encode_datetime(value)[1:]
        return int(value).to_bytes(8, "big", signed=True)
    if name in _OCTETS:
        return int(value).to_bytes(1, "big")
    return encode_shortstr(value)


def join_properties(parts: list[bytes | None]) -> bytes:
    """The flags and then the encoded values; None where a property is not set."""
    flags = sum(0x8000 >> bit for bit, part in enumerate(parts) if part is not None)
    return flags.to_bytes(2, "big") + b"".join(part for part in parts if part is not None)
