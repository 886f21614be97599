"""AMQP 1.0 values and message sections: bytes to values, and back.

Values are what RabbitMQ makes of them in Erlang, so that those from bytes and those from a decoded
term are the same: ("utf8", b"text"), ("uint", 7), "true", "null", ("list", [...]),
("map", [(key, value), ...]), ("array", "utf8", [...]), ("described", descriptor, value), and
("as_is", code, bytes) for what Erlang has no value for (NaN, decimals, arrays of nothing), and for
arrays of described values.

Reading does not recurse, counts in the data allocate nothing, and bad bytes give `AmqpError`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, TypeAlias

from qindex.field_table import AmqpError

Value: TypeAlias = Any  # as above

DEPTH_MAX: Final = 64
VALUES_MAX: Final = 100_000

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION = range(0x70, 0x75)
DATA, SEQUENCE, VALUE, FOOTER = range(0x75, 0x79)
_SYMBOLS: Final = {
    b"amqp:header:list": HEADER,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": ANNOTATIONS,
    b"amqp:properties:list": PROPERTIES,
    b"amqp:application-properties:map": APPLICATION,
    b"amqp:data:binary": DATA,
    b"amqp:amqp-sequence:list": SEQUENCE,
    b"amqp:amqp-value:*": VALUE,
    b"amqp:footer:map": FOOTER,
}

_DESCRIBED: Final = 0x00
_EMPTY: Final[dict[int, Value]] = {
    0x40: "null", 0x41: "true", 0x42: "false",
    0x43: ("uint", 0), 0x44: ("ulong", 0), 0x45: ("list", []),
}  # fmt: skip
_FIXED: Final = {
    0x50: ("ubyte", Struct(">B")), 0x51: ("byte", Struct(">b")),
    0x52: ("uint", Struct(">B")), 0x53: ("ulong", Struct(">B")),
    0x54: ("int", Struct(">b")), 0x55: ("long", Struct(">b")), 0x56: ("boolean", Struct(">?")),
    0x60: ("ushort", Struct(">H")), 0x61: ("short", Struct(">h")),
    0x70: ("uint", Struct(">I")), 0x71: ("int", Struct(">i")),
    0x72: ("float", Struct(">f")), 0x73: ("char", Struct(">I")),
    0x80: ("ulong", Struct(">Q")), 0x81: ("long", Struct(">q")),
    0x82: ("double", Struct(">d")), 0x83: ("timestamp", Struct(">q")),
    0x98: ("uuid", Struct(">16s")),
    0x74: ("as_is", Struct(">4s")), 0x84: ("as_is", Struct(">8s")), 0x94: ("as_is", Struct(">16s")),
}  # fmt: skip
_BYTES: Final = {
    0xA0: "binary", 0xA1: "utf8", 0xA3: "symbol",
    0xB0: "binary", 0xB1: "utf8", 0xB3: "symbol",
}  # fmt: skip
_CONTAINERS: Final = {
    0xC0: "list", 0xC1: "map", 0xD0: "list", 0xD1: "map", 0xE0: "array", 0xF0: "array",
}  # fmt: skip
_U32: Final = Struct(">I")


@dataclass(slots=True)
class _Open:
    """A container whose values are being read."""

    kind: str
    end: int
    wanted: int = -1  # how many values; -1: until `end`
    code: int = -1  # of an array's values
    items: list[Value] = field(default_factory=list)

    def is_full(self, pos: int) -> bool:
        return pos == self.end if self.wanted < 0 else len(self.items) == self.wanted

    def close(self, pos: int) -> Value:
        items = self.items
        if self.kind == "described":
            return ("described", items[0], items[1])
        if pos != self.end:
            raise AmqpError(f"an array ends at {self.end}, its values at {pos}")
        if self.kind == "list":
            return ("list", items)
        if self.kind == "array":
            return ("array", _kind_of(self.code), items)
        if len(items) % 2:
            raise AmqpError("a map with a key that has no value")
        return ("map", list(zip(items[0::2], items[1::2], strict=True)))


def _kind_of(code: int) -> str:
    return _CONTAINERS.get(code) or _BYTES.get(code) or _FIXED[code][0]


def parse(data: bytes, pos: int, end: int) -> tuple[Value, int]:
    """The value at `pos`, which ends at `end` at the latest, and the offset behind it. Linear."""
    stack: list[_Open] = []
    for _ in range(VALUES_MAX):
        bound, code = end, -1
        if stack:
            bound, code = stack[-1].end, stack[-1].code
        if code < 0:
            code, pos = _byte(data, pos, bound)
        value, pos = _read(data, pos, bound, code)
        if isinstance(value, _Open):
            if len(stack) == DEPTH_MAX:
                raise AmqpError(f"values nested deeper than {DEPTH_MAX}")
            stack.append(value)
            if not value.is_full(pos):
                continue
            value = stack.pop().close(pos)
        while stack:
            stack[-1].items.append(value)
            if not stack[-1].is_full(pos):
                break
            value = stack.pop().close(pos)
        if not stack:
            return value, pos
    raise AmqpError(f"more than {VALUES_MAX} values in one section")


def _byte(data: bytes, pos: int, end: int) -> tuple[int, int]:
    if pos >= end:
        raise AmqpError(f"a value is cut at byte {pos}")
    return data[pos], pos + 1


def _read(data: bytes, pos: int, end: int, code: int) -> tuple[Value | _Open, int]:
    """What a constructor begins: a value and the offset behind it, or a container and its first."""
    if code in _EMPTY:
        return _EMPTY[code], pos
    if code == _DESCRIBED:
        return _Open("described", end, 2), pos
    if code in _FIXED:
        return _read_fixed(data, pos, end, code)
    if code not in _BYTES and code not in _CONTAINERS:
        raise AmqpError(f"unknown type {code:#04x} at byte {pos - 1}")
    size, pos = _size(data, pos, end, code)
    if size > end - pos:
        raise AmqpError(f"{size} bytes at byte {pos}, {end - pos} are left")
    if code in _BYTES:
        return (_BYTES[code], data[pos : pos + size]), pos + size
    end = pos + size
    count, pos = _size(data, pos, end, code)
    if _CONTAINERS[code] == "array":
        return _open_array(data, pos, end, count, code)
    return _Open(_CONTAINERS[code], end), pos  # as RabbitMQ, which ignores the count of these


def _size(data: bytes, pos: int, end: int, code: int) -> tuple[int, int]:
    """A size or a count, in one byte or in four."""
    if code & 0x10 == 0:
        return _byte(data, pos, end)
    if end - pos < 4:
        raise AmqpError(f"a size is cut at byte {pos}")
    return _U32.unpack_from(data, pos)[0], pos + 4


def _read_fixed(data: bytes, pos: int, end: int, code: int) -> tuple[Value, int]:
    kind, layout = _FIXED[code]
    if end - pos < layout.size:
        raise AmqpError(f"a value is cut at byte {pos}")
    (value,) = layout.unpack_from(data, pos)
    behind = pos + layout.size
    if kind == "boolean":
        return "true" if value else "false", behind
    if kind == "as_is" or (isinstance(value, float) and not isfinite(value)):
        return ("as_is", code, data[pos:behind]), behind
    return (kind, value), behind


def _open_array(
    data: bytes, pos: int, end: int, count: int, code: int
) -> tuple[Value | _Open, int]:
    start = pos
    each, pos = _byte(data, pos, end)
    if each in _EMPTY or each == _DESCRIBED:  # any number of values without a byte, or with a name
        size = _U32.pack(end - start + 4) + _U32.pack(count)
        return ("as_is", 0xF0, size + data[start:end]), end
    if each not in _FIXED and each not in _BYTES and each not in _CONTAINERS:
        raise AmqpError(f"an array of the type {each:#04x}")
    if count > end - pos:
        raise AmqpError(f"an array of {count} values in {end - pos} bytes")
    return _Open("array", end, count, each), pos


def sections(data: bytes, pos: int, end: int) -> list[tuple[int, Value]]:
    """(descriptor, value) of the sections of a message."""
    found = []
    while pos < end:
        code, content, pos = section_at(data, pos, end)
        found.append((code, content))
        if len(found) > VALUES_MAX:
            raise AmqpError(f"more than {VALUES_MAX} sections")
    return found


def section_at(data: bytes, pos: int, end: int) -> tuple[int, Value, int]:
    """(descriptor, value) of the section at `pos`, and the offset behind it."""
    value, pos = parse(data, pos, end)
    match value:
        case ("described", ("ulong", int(number)), content):
            return number, content, pos
        case ("described", ("symbol", bytes(name)), content) if name in _SYMBOLS:
            return _SYMBOLS[name], content, pos
    raise AmqpError("a section without a descriptor")


# --- the way back, for what RabbitMQ 3.13 keeps decoded ------------------------------------------

_WHOLE: Final = {
    "ubyte": 0x50, "byte": 0x51, "ushort": 0x60, "short": 0x61, "float": 0x72, "char": 0x73,
    "double": 0x82, "timestamp": 0x83, "uuid": 0x98,
}  # fmt: skip
_NUMBERS: Final = {  # where it is, in a byte, whole
    "uint": (0, 256, 0x52, 0x70), "ulong": (0, 256, 0x53, 0x80),
    "int": (-128, 128, 0x54, 0x71), "long": (-128, 128, 0x55, 0x81),
}  # fmt: skip
_NAMES: Final = {"null": b"\x40", "undefined": b"\x40", "true": b"\x41", "false": b"\x42"}
_SHORT_CODES: Final = {"binary": 0xA0, "utf8": 0xA1, "symbol": 0xA3, "list": 0xC0, "map": 0xC1}


def encode(value: Value) -> bytes:
    """The bytes of a value that is no array, as RabbitMQ writes them. Iterative."""
    # The container whose values are written: its kind, what is left of it, what it has so far.
    stack: list[tuple[str, list[Value], list[bytes]]] = []
    while True:
        kind, left = _inside(value)
        if left is not None and len(stack) < DEPTH_MAX:
            stack.append((kind, left, []))
        elif left is not None:
            raise AmqpError(f"values nested deeper than {DEPTH_MAX}")
        else:
            done = _encode_scalar(value)
            if not stack:
                return done
            stack[-1][2].append(done)
        while not stack[-1][1]:
            kind, _, parts = stack.pop()
            done = _encode_container(kind, parts)
            if not stack:
                return done
            stack[-1][2].append(done)
        value = stack[-1][1].pop()


def _inside(value: Value) -> tuple[str, list[Value] | None]:
    """The values of a container, the last one first; None: it is no container."""
    match value:
        case ("list", [*items]):
            return "list", items[::-1]
        case ("map", [*pairs]) if all(type(pair) is tuple and len(pair) == 2 for pair in pairs):
            return "map", [each for pair in pairs for each in pair][::-1]
        case ("described", descriptor, content):
            return "described", [content, descriptor]
    return "", None


def _encode_container(kind: str, parts: list[bytes]) -> bytes:
    content = b"".join(parts)
    if kind == "described":
        return bytes([_DESCRIBED]) + content
    if kind == "list" and not parts:
        return b"\x45"
    code = _SHORT_CODES[kind]
    if len(parts) < 255 and len(content) + 1 < 256:
        return bytes([code, len(content) + 1, len(parts)]) + content
    return bytes([code | 0x10]) + _U32.pack(len(content) + 4) + _U32.pack(len(parts)) + content


def _encode_scalar(value: Value) -> bytes:
    try:
        match value:
            case str(name) if name in _NAMES:
                return _NAMES[name]
            case ("boolean", "true" | "false" as name):
                return b"\x56\x01" if name == "true" else b"\x56\x00"
            case ("as_is", int(code), bytes(raw)):
                return bytes([code]) + raw
            case (str(kind), bytes(raw)) if kind in _SHORT_CODES:
                if len(raw) < 256:
                    return bytes([_SHORT_CODES[kind], len(raw)]) + raw
                return bytes([_SHORT_CODES[kind] | 0x10]) + _U32.pack(len(raw)) + raw
            case (str(kind), int(number)) if kind in _NUMBERS:
                low, high, short, code = _NUMBERS[kind]
                if number == 0 and low == 0:
                    return b"\x43" if kind == "uint" else b"\x44"
                code = short if low <= number < high else code
                return bytes([code]) + _FIXED[code][1].pack(number)
            case (str(kind), plain) if kind in _WHOLE:
                return bytes([_WHOLE[kind]]) + _FIXED[_WHOLE[kind]][1].pack(plain)
    except (struct_error, ValueError, OverflowError) as error:
        raise AmqpError(f"a value that cannot be: {error}") from None
    raise AmqpError("a value of an unknown type")
