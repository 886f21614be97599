"""A RabbitMQ message's properties: from values with their types to the bytes that consumers get.

The broker keeps the list that the publisher sent, or values ``{Key, Type, Value}`` that it decoded
and changed. Types stay as they are: a field table of Python's values would forget whether an int
was sent in 16 or in 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, TypeAlias

from qindex.brokers.amqp import PROPERTY_NAMES, AmqpError, join_properties
from qindex.brokers.rabbitmq.erlang import Atom

Header: TypeAlias = tuple[bytes, str, Any]  # key, type, value

SHORTSTR_BYTES_MAX: Final = 255

_BODY_PARTS_MAX: Final = 1_000_000
_U32: Final = Struct(">I")


class MessageError(ValueError):
    """The term is not a message that these modules know."""


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
    """A field table from ``[{Key, Type, Value}]``, its length in front.

    ValueError: a key or a value does not fit its type.
    """
    try:
        return _encode_typed(table)
    except (struct_error, TypeError, OverflowError) as error:
        raise ValueError(f"a header that is none: {error}") from None


def _encode_typed(table: list[Any]) -> bytes:
    """Iterative."""
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
        raw = _raw(value)
        return tag + _U32.pack(len(raw)) + raw

    return encode


def _raw(value: Any) -> bytes:
    """Of a binary, or a list of its bytes. (Of a number, bytes() would make as many zeros.)"""
    if not isinstance(value, (bytes, list)):
        raise TypeError(f"a text that is {type(value).__name__}")
    return bytes(value)


def _shortstr(value: Any) -> bytes:
    raw = _raw(value)
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


# --- without decoding values ----------------------------------------------------------------------

_VALUE_BYTES: Final = {
    **dict.fromkeys(b"lLdT", 8),
    **dict.fromkeys(b"V", 0),
    **dict.fromkeys(b"tbB", 1),
    **dict.fromkeys(b"su", 2),
    **dict.fromkeys(b"Iif", 4),
    **dict.fromkeys(b"D", 5),
}
_LONG: Final = b"SxAF"  # a length of four bytes before it


def split_properties(raw: bytes) -> list[bytes | None]:
    """What join_properties() joined: the bytes of each of the fourteen, None for one not set."""
    flags, pos = int.from_bytes(raw[:2], "big"), 2
    parts: list[bytes | None] = []
    for bit, name in enumerate(PROPERTY_NAMES):
        if not flags & 0x8000 >> bit:
            parts.append(None)
            continue
        if name in ("delivery_mode", "priority"):
            end = pos + 1
        elif name == "timestamp":
            end = pos + 8
        elif name == "headers":
            end = pos + 4 + int.from_bytes(raw[pos : pos + 4], "big")
        else:
            end = pos + 1 + int.from_bytes(raw[pos : pos + 1], "big")
        parts.append(raw[pos:end])
        pos = end
    if len(raw) < 2 or flags & 3 or pos != len(raw):
        raise AmqpError(f"property list of {len(raw)} bytes whose values end at {pos}")
    return parts


def split_table(raw: bytes) -> dict[bytes, bytes]:
    """Keys and their bytes (key, tag and value) of a field table with its length in front.

    Of two equal keys it is the first that counts.
    """
    found: dict[bytes, bytes] = {}
    pos = 4
    while pos < len(raw):
        start = pos
        key = raw[pos + 1 : pos + 1 + raw[pos]]
        pos = _value_end(raw, pos + 1 + raw[pos])
        found.setdefault(key, raw[start:pos])
    if pos != len(raw):
        raise AmqpError(f"field table of {len(raw)} bytes whose last value ends at {pos}")
    return found


def split_array(value: bytes) -> list[bytes] | None:
    """The items (tag and value) of an array, given with its tag; None of anything else."""
    if value[:1] != b"A":
        return None
    items, pos = [], 5
    while pos < len(value):
        end = _value_end(value, pos)
        items.append(value[pos:end])
        pos = end
    if pos != len(value):
        raise AmqpError(f"array of {len(value)} bytes whose last item ends at {pos}")
    return items


def _value_end(raw: bytes, pos: int) -> int:
    """Behind the value whose tag is at `pos`."""
    if pos >= len(raw):
        raise AmqpError("a field table that ends within a key")
    tag = raw[pos]
    if tag in _LONG:
        size = 4 + int.from_bytes(raw[pos + 1 : pos + 5], "big")
    elif tag in _VALUE_BYTES:
        size = _VALUE_BYTES[tag]
    else:
        raise AmqpError(f"a field of the unknown type {tag}")
    return pos + 1 + size


def join_table(entries: dict[bytes, bytes]) -> bytes:
    """What split_table() split, sorted by keys as the broker sorts them."""
    fields = b"".join(entries[key] for key in sorted(entries))
    return _U32.pack(len(fields)) + fields


# --- what values become ---------------------------------------------------------------------------


def flat(data: Any) -> bytes:
    """Erlang's iodata as bytes: binaries, bytes, and lists of these. Iterative."""
    parts: list[bytes] = []
    left = [data]
    while left:
        match left.pop():
            case bytes(part):
                parts.append(part)
            case int(byte) if 0 <= byte < 256:
                parts.append(bytes([byte]))
            case [*items] if len(parts) < _BODY_PARTS_MAX:
                left += reversed(items)
            case _:
                raise MessageError("a body of something else than bytes")
    return b"".join(parts)


def without_copies(headers: list[Header]) -> list[Header]:
    """Sorted by key; of equal keys the first one counts."""
    return [header for _, header in sorted({h[0]: h for h in reversed(headers)}.items())]


def seconds_of(milliseconds: int) -> int:
    """As an unsigned number of 64 bits, rounded towards 1970 as Erlang does."""
    whole = abs(milliseconds) // 1000
    return (whole if milliseconds >= 0 else -whole) & 0xFFFF_FFFF_FFFF_FFFF


def is_short(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) <= SHORTSTR_BYTES_MAX


def is_valid(value: Any) -> bool:
    """A short string: UTF-8 without zeros."""
    if not is_short(value) or b"\0" in value:
        return False
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
