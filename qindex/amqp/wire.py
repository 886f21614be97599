"""Frames and methods of AMQP 0-9-1 as bytes. No state but the scanner's rest of a frame.

What comes by the million is in C (qindex._wire, c_ext/amqp): its Scanner gives what the one
here gives, and publishes in bulk. This one is what that one is compared with.

A frame is: type (1 byte), channel (2), size (4), that many bytes, 0xCE. Bad bytes raise WireError
and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple, NoReturn

from qindex import _wire
from qindex.amqp.layouts import CODES, LAYOUTS
from qindex.amqp.methods import BasicPublish
from qindex.field_table import AmqpError, decode_table_at, encode_shortstr, encode_table

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
ACKS: Final = 0x100  # no frame's kind: several basic.acks, which the scanner in C gives together
FRAME_END: Final = 0xCE
FRAME_EXTRA: Final = 8  # bytes of a frame around its payload
HEARTBEAT_FRAME: Final = b"\x08\0\0\0\0\0\0\xce"
PROTOCOL_HEADER: Final = b"AMQP\0\0\x09\x01"

_FRAME: Final = Struct(">BHI")
_CODE: Final = Struct(">I")
_HEADER: Final = Struct(">HHQ")  # class, weight (0), size of the body; then the properties
_ACK: Final = Struct(">BHIHHQ?B")
_NUMBERS: Final = {letter: Struct(">" + letter) for letter in "BHIQ"}
_BASIC: Final = 60


class WireError(Exception):
    """The bytes are no frames of AMQP 0-9-1; `code` is the reply code that says so."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Frame(NamedTuple):
    kind: int
    channel: int
    payload: bytes


class Scanner:
    """Bytes in, whole frames out. It stops and goes on in the middle of any frame."""

    body_max = 0  # the scanner in C goes by it

    def __init__(self, frame_max: int) -> None:
        self.frame_max = frame_max  # bytes of a whole frame
        self._rest = bytearray()

    def open(self, channel: int, is_open: bool) -> None:
        """The scanner in C takes publishes and acks of open channels."""

    def keep(self) -> None:
        """The bytes may change: the scanner in C copies what it has not used up."""

    def frames(self, data: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete. Linear in what they hold.

        What is left of `data` is kept when the iterator ends, so it has to be used up. The caller
        may change `frame_max` between two frames.
        """
        if self._rest:
            self._rest += data
            data = bytes(self._rest)
            self._rest.clear()
        position, length, unpack = 0, len(data), _FRAME.unpack_from
        while length - position >= 7:
            kind, channel, size = unpack(data, position)
            if size > self.frame_max - FRAME_EXTRA:
                raise WireError(501, _too_large(kind, data[position + 7 :], size, self.frame_max))
            end = position + 7 + size
            if end >= length:
                break
            if data[end] != FRAME_END:
                raise WireError(501, _bad_end(kind, data[position + 7 : end], data[end]))
            yield Frame(kind, channel, data[position + 7 : end])
            position = end + 1
        if position < length:
            self._rest += data[position:]


def scanner_in_c(frame_max: int) -> _wire.Scanner:
    """The same in C. Of open channels it gives Publishes instead of the frames of publishes, and
    one frame of the kind ACKS for basic.acks that stand one behind the other.
    """
    return _wire.Scanner(frame_max, Frame, _bad_frame)


def _bad_frame(kind: int, begin: bytes, end: int, size: int, frame_max: int) -> NoReturn:
    if end < 0:
        raise WireError(501, _too_large(kind, begin, size, frame_max))
    raise WireError(501, _bad_end(kind, begin, end))


def _too_large(kind: int, payload: bytes, size: int, frame_max: int) -> str:
    return (
        f"type {kind}, first 16 octets = {_erlang(payload[:16])}: "
        f"{{frame_too_large,{size},{frame_max - FRAME_EXTRA}}}"
    )


def _bad_end(kind: int, payload: bytes, end: int) -> str:
    return (
        f"type {kind}, first 16 octets = {_erlang(payload[:16])}: "
        f"{{invalid_frame_end_marker,{end}}}"
    )


def _erlang(raw: bytes) -> str:
    """Bytes as RabbitMQ shows them."""
    if raw and all(32 <= byte < 127 for byte in raw):
        return f'<<"{raw.decode()}">>'
    return f"<<{','.join(map(str, raw))}>>"


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + b"\xce"


# --- methods ---------------------------------------------------------------------------------

_KEPT_MAX: Final = 4096
_publishes: dict[bytes, BasicPublish] = {}  # clients send few of them, again and again


def decode_publish(payload: bytes) -> BasicPublish:
    """decode_method() of a basic.publish that a scanner has taken."""
    found = _publishes.get(payload)
    if found is None:
        if len(_publishes) >= _KEPT_MAX:
            _publishes.clear()
        found = _publishes[payload] = decode_method(payload)
    return found


def decode_method(payload: bytes) -> Any:
    """The method of a method frame, as a tuple of methods.py."""
    try:
        (code,) = _CODE.unpack_from(payload)
        kind, layout = LAYOUTS[code]
    except struct_error:
        raise WireError(501, "cannot decode <<>>") from None
    except KeyError:
        name = f"{{unknown_method,{{{code >> 16},{code & 0xFFFF}}}}}"
        if code >> 16 == 90:
            raise WireError(540, "transactions (tx) are not implemented") from None
        raise WireError(503, f"unimplemented method {name}") from None
    try:
        return kind(*_fields(payload, layout))
    except (struct_error, IndexError, AmqpError) as error:
        raise WireError(502, f"cannot decode {_erlang(payload[4:])}: {error}") from None


def _fields(payload: bytes, layout: str) -> list[Any]:
    values: list[Any] = []
    position, bit = 4, 8
    for letter in layout:
        if letter == "b":
            if bit == 8:
                bits, position, bit = payload[position], position + 1, 0
            values.append(bool(bits >> bit & 1))
            bit += 1
            continue
        bit = 8
        value: Any
        if letter == "s":
            start = position + 1
            position = start + payload[position]
            if position > len(payload):
                raise IndexError("a short string crosses the end")
            value = payload[start:position].decode("utf-8", "surrogateescape")
        elif letter == "S":
            start = position + 4
            position = start + _CODE.unpack_from(payload, position)[0]
            if position > len(payload):
                raise IndexError("a long string crosses the end")
            value = payload[start:position]
        elif letter == "F":
            value, position = decode_table_at(payload, position)
        else:
            number = _NUMBERS[letter]
            (value,) = number.unpack_from(payload, position)
            position += number.size
        values.append(value)
    return values


def encode_ack(channel: int, tag: int, multiple: bool) -> bytes:
    """The frame of a basic.ack: a confirm. The same as encode_method(), for less."""
    return _ACK.pack(METHOD, channel, _ACK.size - _FRAME.size - 1, 60, 80, tag, multiple, FRAME_END)


def encode_method(channel: int, method: Any) -> bytes:
    """A method frame."""
    code = CODES[type(method)]
    parts = [_CODE.pack(code)]
    bits = count = 0
    for letter, value in zip(LAYOUTS[code][1], method, strict=True):
        if letter == "b":
            bits |= bool(value) << count
            count += 1
            continue
        if count:
            parts.append(bytes([bits]))
            bits = count = 0
        if letter == "s":
            parts.append(encode_shortstr(value))
        elif letter == "S":
            parts += (_CODE.pack(len(value)), value)
        elif letter == "F":
            parts.append(encode_table(value))
        else:
            parts.append(_NUMBERS[letter].pack(value))
    if count:
        parts.append(bytes([bits]))
    return frame(METHOD, channel, b"".join(parts))


# --- content ---------------------------------------------------------------------------------


NO_HEADER: Final = (
    f"expected content header for class {_BASIC}, got non content header frame instead"
)


def decode_header(payload: bytes) -> tuple[int, bytes]:
    """The size of the body, and the properties as they are. WireError, as RabbitMQ says it."""
    try:
        kind, weight, size = _HEADER.unpack_from(payload)
    except struct_error:
        raise WireError(501, f"cannot decode {_erlang(payload)}") from None
    if kind != _BASIC:
        raise WireError(
            505, f"expected content header for class {_BASIC}, got one for class {kind} instead"
        )
    if weight:
        raise WireError(505, NO_HEADER)
    return size, payload[_HEADER.size :]


def encode_content(channel: int, properties: bytes, body: bytes, frame_max: int) -> list[bytes]:
    """The header frame and the body frames."""
    size = len(body)
    parts = [
        _FRAME.pack(HEADER, channel, _HEADER.size + len(properties)),
        _HEADER.pack(_BASIC, 0, size),
        properties,
        b"\xce",
    ]
    most = frame_max - FRAME_EXTRA
    if size <= most:
        if size:
            parts += (_FRAME.pack(BODY, channel, size), body, b"\xce")
        return parts
    view = memoryview(body)
    for start in range(0, size, most):
        piece = view[start : start + most]
        parts += (_FRAME.pack(BODY, channel, len(piece)), bytes(piece), b"\xce")
    return parts
