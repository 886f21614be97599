"""A small client of RabbitMQ's stream protocol: publish, also in batches; store offsets; read."""

from __future__ import annotations

import contextlib
import socket
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import cramjam

DECLARE_PUBLISHER, PUBLISH, CONFIRM, QUERY_PUBLISHER, DELETE_PUBLISHER = 1, 2, 3, 5, 6
SUBSCRIBE, DELIVER, CREDIT, STORE_OFFSET, QUERY_OFFSET, CREATE = 7, 8, 9, 10, 11, 13
PROPERTIES, HANDSHAKE, AUTHENTICATE, TUNE, OPEN, HEARTBEAT = 17, 18, 19, 20, 21, 23
FROM_FIRST = 1
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_CHUNK = struct.Struct(">BBHIqQQiIII")  # magic and version, type, entries ... up to the data


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">H", len(raw)) + raw


def message(body: bytes) -> bytes:
    """As clients send it: one data section of AMQP 1.0."""
    head = (
        b"\xa0" + bytes([len(body)]) if len(body) < 256 else b"\xb0" + struct.pack(">I", len(body))
    )
    return b"\0Su" + head + body


def body_of(raw: bytes) -> bytes:
    return raw[5:] if raw[3] == 0xA0 else raw[8:]


class StreamClient:
    """One connection. Answers are waited for at most `seconds`."""

    def __init__(self, port: int, seconds: float = 60) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        self._answers = 0
        self._buffer = b""
        self.confirmed: dict[int, set[int]] = {}  # publishing ids by publisher
        self.read: list[tuple[int, bytes]] = []
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self._ask(PROPERTIES, struct.pack(">I", 0))
        self._ask(HANDSHAKE)
        secret = b"\0guest\0guest"
        self._ask(AUTHENTICATE, text("PLAIN") + struct.pack(">I", len(secret)) + secret)
        tuned = self._wait_for(TUNE)
        self._send(struct.pack(">HH", TUNE, 1) + tuned)
        self._ask(OPEN, text("/"))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    # --- commands ---------------------------------------------------------------------------------

    def create(self, stream: str) -> None:
        arguments = {"max-segment-size-bytes": "50000"}
        pairs = b"".join(text(key) + text(value) for key, value in arguments.items())
        self._ask(CREATE, text(stream) + struct.pack(">I", len(arguments)) + pairs)

    def declare_publisher(self, number: int, name: str, stream: str) -> None:
        self.confirmed[number] = set()
        self._ask(DECLARE_PUBLISHER, bytes([number]) + text(name) + text(stream))

    def delete_publisher(self, number: int) -> None:
        self._ask(DELETE_PUBLISHER, bytes([number]))

    def publish(self, number: int, messages: list[tuple[int, bytes]]) -> None:
        """Bodies with their publishing ids, which have to go up."""
        rows = [
            struct.pack(">QI", each, len(raw)) + raw
            for each, raw in ((n, message(body)) for n, body in messages)
        ]
        self._publish(number, rows)

    def publish_batch(self, number: int, each: int, bodies: list[bytes], how: str) -> None:
        """Under one publishing id, packed together."""
        raw = b"".join(struct.pack(">I", len(message(b))) + message(b) for b in bodies)
        packed = raw
        if how == "gzip":
            packer = zlib.compressobj(wbits=31)
            packed = packer.compress(raw) + packer.flush()
        elif how != "none":
            packed = bytes(getattr(cramjam, how).compress(raw))
        kind = 0x80 | COMPRESSIONS.index(how) << 4
        head = struct.pack(">QBHII", each, kind, len(bodies), len(raw), len(packed))
        self._publish(number, [head + packed])

    def _publish(self, number: int, rows: list[bytes]) -> None:
        head = struct.pack(">HHBI", PUBLISH, 1, number, len(rows))
        self._send(head + b"".join(rows))

    def wait_for_confirms(self, number: int, ids: set[int]) -> None:
        while not ids <= self.confirmed[number]:
            self._take(*self._frame())

    def store_offset(self, name: str, stream: str, offset: int) -> None:
        """Nobody answers; whoever asks for it later sees it."""
        told = text(name) + text(stream) + struct.pack(">Q", offset)
        self._send(struct.pack(">HH", STORE_OFFSET, 1) + told)

    def query_offset(self, name: str, stream: str) -> int:
        return self._number(QUERY_OFFSET, name, stream)

    def query_publisher(self, name: str, stream: str) -> int:
        return self._number(QUERY_PUBLISHER, name, stream)

    def read_until(self, stream: str, last: bytes) -> list[tuple[int, bytes]]:
        """(offset, body) from the first one to the one with this body."""
        self.read.clear()
        first = struct.pack(">HH", FROM_FIRST, 10) + struct.pack(">I", 0)
        self._ask(SUBSCRIBE, b"\1" + text(stream) + first)
        while not self.read or self.read[-1][1] != last:
            self._take(*self._frame())
        return list(self.read)

    # --- frames -----------------------------------------------------------------------------------

    def _number(self, key: int, name: str, stream: str) -> int:
        told: int = struct.unpack(">Q", self._ask(key, text(name) + text(stream)))[0]
        return told

    def _send(self, frame: bytes) -> None:
        self._socket.sendall(struct.pack(">I", len(frame)) + frame)

    def _ask(self, key: int, told: bytes = b"") -> bytes:
        """What follows the answer's code; an AssertionError if that is not 1: fine."""
        self._answers += 1
        self._send(struct.pack(">HHI", key, 1, self._answers) + told)
        answer = self._wait_for(key | 0x8000)
        number, code = struct.unpack_from(">IH", answer)
        assert (number, code) == (self._answers, 1), (key, code)
        return answer[6:]

    def _wait_for(self, wanted: int) -> bytes:
        while True:
            key, rest = self._frame()
            if key == wanted:
                return rest
            self._take(key, rest)

    def _frame(self) -> tuple[int, bytes]:
        while len(self._buffer) < 4 or len(self._buffer) - 4 < self._length():
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the node has closed the connection")
            self._buffer += data
        end = 4 + self._length()
        frame, self._buffer = self._buffer[4:end], self._buffer[end:]
        return struct.unpack_from(">H", frame)[0], frame[4:]

    def _length(self) -> int:
        told: int = struct.unpack_from(">I", self._buffer)[0]
        return told

    def _take(self, key: int, rest: bytes) -> None:
        if key == CONFIRM:
            number, count = struct.unpack_from(">BI", rest)
            self.confirmed[number].update(struct.unpack_from(f">{count}Q", rest, 5))
        elif key == DELIVER:
            self.read.extend(chunk_messages(rest[1:]))
            self._send(struct.pack(">HHBH", CREDIT, 1, 1, 1))
        elif key == HEARTBEAT:
            self._send(struct.pack(">HH", HEARTBEAT, 1))


def chunk_messages(chunk: bytes) -> Iterator[tuple[int, bytes]]:
    """(offset, body) of what is in a chunk that the node sent."""
    head: tuple[Any, ...] = _CHUNK.unpack_from(chunk)
    offset, pos, end = head[6], _CHUNK.size, _CHUNK.size + head[8]
    while pos < end:
        if chunk[pos] & 0x80:
            kind, count, _, length = struct.unpack_from(">BHII", chunk, pos)
            packed = chunk[pos + 11 : pos + 11 + length]
            raw, at = _unpacked(packed, COMPRESSIONS[kind >> 4 & 7]), 0
            for _ in range(count):
                (size,) = struct.unpack_from(">I", raw, at)
                yield offset, body_of(raw[at + 4 : at + 4 + size])
                at, offset = at + 4 + size, offset + 1
            pos += 11 + length
        else:
            (size,) = struct.unpack_from(">I", chunk, pos)
            yield offset, body_of(chunk[pos + 4 : pos + 4 + size])
            pos, offset = pos + 4 + size, offset + 1


def _unpacked(packed: bytes, how: str) -> bytes:
    if how == "none":
        return packed
    if how == "gzip":
        return zlib.decompress(packed, wbits=31)
    return bytes(getattr(cramjam, how).decompress(packed))
