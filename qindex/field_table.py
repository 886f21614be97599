"""AMQP 0-9-1 field tables: Python values to bytes and back. The engine stores headers this way.

Rules of this file: no I/O and no recursion. Bad bytes raise `AmqpError` (a ValueError) and nothing
else. The tags are as RabbitMQ reads the standard, so `l` and `L` are both signed.

A table is a u32 length and then, until that length is used up: shortstr key, tag, value.

=============  ============================  ================================================
Python         written as                    read from
=============  ============================  ================================================
None           V                             V
bool           t                             t
int            I (32 bits), else l (64)      b B s u I i l L; T when it is no date
float          d                             d f
str            S                             S when it is UTF-8
bytes          x                             x; S when it is not UTF-8
datetime       T (whole seconds, UTC)        T
Decimal        D (scale u8, value i32)       D
list           A                             A
dict           F                             F
=============  ============================  ================================================
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from struct import Struct
from typing import Any, Final, TypeAlias

from qindex.words import many

FieldValue: TypeAlias = (
    "bool | int | float | str | bytes | datetime | Decimal"
    " | list[FieldValue] | dict[str, FieldValue] | None"
)

TABLE_DEPTH_MAX: Final = 64
TABLE_BYTES_MAX: Final = 16 * 1024 * 1024
SHORTSTR_BYTES_MAX: Final = 255
HALF: Final = "a text has half of a surrogate pair, which is no character"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_U32: Final = Struct(">I")


class AmqpError(ValueError):
    """The bytes are not what AMQP 0-9-1 allows, or exceed the limits of this module."""


# --- writing ---------------------------------------------------------------------------------


def encode_table(table: Mapping[str, Any], *, name: str = "headers") -> bytes:
    """The table as bytes, with its length in front. Linear in the size of the result.

    A value that has no place in a table raises TypeError, one that is out of range ValueError. Both
    say where the value stands, as in ``headers['a'][3]``; `name` is the first word of that.

    >>> encode_table({"k": "v"})
    b'\\x00\\x00\\x00\\x08\\x01kS\\x00\\x00\\x00\\x01v'
    """
    if not isinstance(table, Mapping):
        raise TypeError(f"{name}: a dict is needed, not {type(table).__name__}")
    out = bytearray(4)
    # Of the container that is being written: the entries that are left, as (key, value); whether
    # its keys are written; and where its length belongs. The containers around it wait on `stack`,
    # each with the key that it has reached.
    pairs: Iterator[tuple[Any, Any]] = iter(table.items())
    keyed, length_at, key = True, 0, None
    stack: list[tuple[Iterator[tuple[Any, Any]], bool, int, Any]] = []
    try:
        while True:
            for key, value in pairs:
                if keyed:
                    out += encode_shortstr(key)
                try:
                    encoder = _ENCODERS[type(value)]
                except KeyError:
                    encoder = _encoder_of_subclass(value)
                if encoder is not None:
                    out += encoder(value)
                    continue
                if len(stack) + 1 >= TABLE_DEPTH_MAX:
                    raise ValueError(f"nested deeper than {TABLE_DEPTH_MAX}")
                _check_size(out)
                stack.append((pairs, keyed, length_at, key))
                keyed, key = isinstance(value, dict), None
                pairs = iter(value.items()) if keyed else enumerate(value)
                out += b"F" if keyed else b"A"
                length_at = len(out)
                out += b"\0\0\0\0"
                break
            else:
                _U32.pack_into(out, length_at, len(out) - length_at - 4)
                if not stack:
                    break
                pairs, keyed, length_at, key = stack.pop()
        key = None
        _check_size(out)
    except (TypeError, ValueError) as error:
        place = [repr(k) for k in [*(frame[3] for frame in stack), key] if k is not None]
        text = f"{name}{''.join(f'[{k}]' for k in place)}: {error}"
        raise (TypeError if isinstance(error, TypeError) else ValueError)(text) from None
    return bytes(out)


def _check_size(out: bytearray) -> None:
    # Also checked at every container: a list that contains itself would grow for ever.
    if len(out) > TABLE_BYTES_MAX:
        raise ValueError(f"more than {TABLE_BYTES_MAX} bytes")


def encode_shortstr(text: Any) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"a str is needed, not {type(text).__name__}")
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError(HALF) from None
    if len(raw) > SHORTSTR_BYTES_MAX:
        raise ValueError(f"a short string of {len(raw)} bytes, {SHORTSTR_BYTES_MAX} are allowed")
    return _BYTE[len(raw)] + raw


_BYTE: Final = tuple(bytes([n]) for n in range(256))
_TAGGED_I32: Final = Struct(">ci").pack
_TAGGED_I64: Final = Struct(">cq").pack
_TAGGED_F64: Final = Struct(">cd").pack
_TAGGED_U32: Final = Struct(">cI").pack
_TAGGED_DECIMAL: Final = Struct(">cBi").pack


def _encode_none(value: None) -> bytes:
    return b"V"


def _encode_bool(value: bool) -> bytes:
    return b"t\x01" if value else b"t\x00"


def _encode_int(value: int) -> bytes:
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return _TAGGED_I32(b"I", value)
    if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        return _TAGGED_I64(b"l", value)
    raise ValueError("a whole number must fit into 64 bits")


def _encode_float(value: float) -> bytes:
    return _TAGGED_F64(b"d", value)


def _encode_str(value: str) -> bytes:
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise ValueError(HALF) from None
    return _TAGGED_U32(b"S", len(raw)) + raw


def _encode_bytes(value: bytes) -> bytes:
    return _TAGGED_U32(b"x", len(value)) + value


def encode_datetime(value: datetime) -> bytes:
    if value.tzinfo is None:
        raise ValueError("a datetime needs a time zone, e.g. datetime.now(UTC)")
    seconds, rest = divmod(value - _EPOCH, _SECOND)
    if rest:
        raise ValueError("a datetime is stored in whole seconds: use .replace(microsecond=0)")
    return _TAGGED_I64(b"T", seconds)


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    # Ten digits hold every 32-bit value. More would be refused in any case, after more work.
    if isinstance(exponent, int) and -255 <= exponent <= 10 and len(digits) <= 10:
        number = int("".join(map(str, digits))) * 10 ** max(exponent, 0) * (-1 if sign else 1)
        if -0x80000000 <= number <= 0x7FFFFFFF:
            return _TAGGED_DECIMAL(b"D", max(-exponent, 0), number)
    raise ValueError("a Decimal must fit into 32 bits, with at most 255 digits behind the point")


_Encoder: TypeAlias = "Callable[[Any], bytes] | None"

# None stands for containers: encode_table() writes their values one by one.
_ENCODERS: Final[dict[type, _Encoder]] = {
    str: _encode_str,
    int: _encode_int,
    bytes: _encode_bytes,
    bool: _encode_bool,
    float: _encode_float,
    type(None): _encode_none,
    datetime: encode_datetime,
    Decimal: _encode_decimal,
    bytearray: _encode_bytes,
    list: None,
    dict: None,
}


def _encoder_of_subclass(value: Any) -> _Encoder:
    for kind, encoder in _ENCODERS.items():
        if isinstance(value, kind):
            return encoder
    instead = "make it a list" if isinstance(value, (tuple, set, frozenset)) else "encode it first"
    raise TypeError(
        f"a value of type {type(value).__name__} has no place in a field table: {instead}"
    )


# --- reading ---------------------------------------------------------------------------------


def decode_table(data: bytes) -> dict[str, FieldValue]:
    """The table in `data`, which begins with the table's length. Linear in len(data).

    >>> decode_table(b"\\x00\\x00\\x00\\x08\\x01kS\\x00\\x00\\x00\\x01v")
    {'k': 'v'}
    """
    data = bytes(data)
    table, end = decode_table_at(data, 0)
    if end != len(data):
        raise AmqpError(f"{many(len(data) - end, 'byte follows', 'bytes follow')} the table")
    return table


def decode_table_at(data: bytes, pos: int) -> tuple[dict[str, FieldValue], int]:
    """The table whose length stands at `pos`, and the offset behind it."""
    try:
        end = pos + 4 + _read_u32(data, pos)[0]
        if end > len(data):
            raise AmqpError(f"table of {end - pos} bytes at {pos}, {len(data) - pos} are left")
        return _fill_table(data, pos + 4, end), end
    except (struct.error, IndexError):
        raise AmqpError("table is cut") from None


def _fill_table(data: bytes, pos: int, end: int) -> dict[str, FieldValue]:
    # The container that is being filled, and where it ends. Those around it wait on `stack`.
    table: dict[str, FieldValue] = {}
    into: dict[str, FieldValue] | list[FieldValue] = table
    stack: list[tuple[dict[str, FieldValue] | list[FieldValue], int]] = []
    key = ""
    while True:
        while pos < end:
            if type(into) is dict:
                start = pos + 1
                pos = start + data[pos]
                key = data[start:pos].decode("utf-8", "surrogateescape")
            tag = data[pos]
            decoder = _DECODERS.get(tag)
            if decoder is not None:
                value, pos = decoder(data, pos + 1)
                if type(into) is dict:
                    into[key] = value
                else:
                    into.append(value)  # type: ignore[union-attr]
                continue
            inner_end = _container_end(data, pos, end, len(stack))
            inner: dict[str, FieldValue] | list[FieldValue] = {} if tag == _TABLE else []
            if type(into) is dict:
                into[key] = inner
            else:
                into.append(inner)  # type: ignore[union-attr]
            stack.append((into, end))
            into, pos, end = inner, pos + 5, inner_end
        if pos > end:
            raise AmqpError(f"a value crosses the end of its table at {end}")
        if not stack:
            return table
        into, end = stack.pop()


_TABLE: Final = ord("F")
_ARRAY: Final = ord("A")


def _container_end(data: bytes, pos: int, end: int, depth: int) -> int:
    """Where the table or array whose tag is at `pos` ends. AmqpError if that is too far."""
    if data[pos] != _TABLE and data[pos] != _ARRAY:
        raise AmqpError(f"unknown tag {data[pos]} at {pos}")
    inner_end: int = pos + 5 + _read_u32(data, pos + 1)[0]
    if inner_end > end:
        raise AmqpError(f"container at {pos} is longer than the one it stands in")
    if depth + 1 >= TABLE_DEPTH_MAX:
        raise AmqpError(f"nested deeper than {TABLE_DEPTH_MAX}")
    return inner_end


_read_u32: Final = _U32.unpack_from

_Decoder: TypeAlias = Callable[[bytes, int], tuple[FieldValue, int]]


def _decode_none(data: bytes, pos: int) -> tuple[FieldValue, int]:
    return None, pos


def _decode_bool(data: bytes, pos: int) -> tuple[FieldValue, int]:
    return data[pos] != 0, pos + 1


def _number(layout: str) -> _Decoder:
    unpack, size = Struct(layout).unpack_from, Struct(layout).size

    def decode(data: bytes, pos: int) -> tuple[FieldValue, int]:
        return unpack(data, pos)[0], pos + size

    return decode


def _decode_str(data: bytes, pos: int) -> tuple[FieldValue, int]:
    end = pos + 4 + _read_u32(data, pos)[0]
    raw = data[pos + 4 : end]
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        return raw, end


def _decode_bytes(data: bytes, pos: int) -> tuple[FieldValue, int]:
    end = pos + 4 + _read_u32(data, pos)[0]
    return data[pos + 4 : end], end


def decode_timestamp(data: bytes, pos: int) -> tuple[FieldValue, int]:
    seconds = int.from_bytes(data[pos : pos + 8], "big", signed=True)
    try:
        return _EPOCH + timedelta(seconds=seconds), pos + 8
    except OverflowError:  # often milliseconds by mistake: a date 50,000 years from now
        return seconds, pos + 8


def _decode_decimal(data: bytes, pos: int) -> tuple[FieldValue, int]:
    number = int.from_bytes(data[pos + 1 : pos + 5], "big", signed=True)
    return Decimal(f"{number}E-{data[pos]}"), pos + 5


_DECODERS: Final[dict[int, _Decoder]] = {
    ord("S"): _decode_str,
    ord("I"): _number(">i"),
    ord("l"): _number(">q"),
    ord("t"): _decode_bool,
    ord("d"): _number(">d"),
    ord("T"): decode_timestamp,
    ord("x"): _decode_bytes,
    ord("V"): _decode_none,
    ord("D"): _decode_decimal,
    ord("L"): _number(">q"),
    ord("i"): _number(">I"),
    ord("s"): _number(">h"),
    ord("u"): _number(">H"),
    ord("b"): _number(">b"),
    ord("B"): _number(">B"),
    ord("f"): _number(">f"),
}
