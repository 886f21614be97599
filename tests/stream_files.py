"""A stream's segment files as RabbitMQ writes them, made from messages, for tests to damage."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

HEADER = b"OSIL\x00\x00\x00\x01"
NAME = "__orders_1700000000000000000"


def message(body: bytes, exchange: str = "", key: str = "orders") -> bytes:
    """An AMQP 1.0 message: annotations as the broker writes them, and one data section."""
    pairs = b"".join(
        b"\xa3" + bytes([len(name)]) + name + b"\xa1" + bytes([len(value)]) + value
        for name, value in ((b"x-exchange", exchange.encode()), (b"x-routing-key", key.encode()))
    )
    annotations = b"\x00\x53\x72\xc1" + bytes([len(pairs) + 1, 4]) + pairs
    return annotations + b"\x00\x53\x75\xb0" + struct.pack(">I", len(body)) + body


def entry(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def batch(records: Sequence[bytes], compression: int = 0, packed: bytes | None = None) -> bytes:
    """A batch of a client. `packed` is what stands for the records, if they are compressed."""
    plain = b"".join(entry(record) for record in records)
    data = plain if packed is None else packed
    head = struct.pack(">BHII", 0x80 | compression << 4, len(records), len(plain), len(data))
    return head + data


def chunk(
    first_offset: int,
    entries: Sequence[bytes],
    *,
    records: int | None = None,
    kind: int = 0,
    trailer: bytes = b"",
    bloom: bytes = b"",
    timestamp_ms: int = 1_700_000_000_000,
) -> bytes:
    data = b"".join(entries)
    head = struct.pack(
        ">BBHIqQQIIIB3x",
        0x50, kind, len(entries), len(entries) if records is None else records, timestamp_ms, 1,
        first_offset, zlib.crc32(data), len(data), len(trailer), len(bloom),
    )  # fmt: skip
    return head + bloom + data + trailer


def file_name(first_offset: int, ending: str = "segment") -> str:
    return f"{first_offset:020d}.{ending}"


def write_stream(folder: Path, bodies: Sequence[bytes], per_chunk: int, per_segment: int) -> Path:
    """A stream's directory below `folder`: chunks of so many messages, segments of so many chunks.

    An index file stands beside each segment, with a record for each chunk.
    """
    path = folder / NAME
    path.mkdir()
    step = per_chunk * per_segment
    for start in range(0, len(bodies), step):
        end = min(start + step, len(bodies))
        segment, index = HEADER, b"OSII\x00\x00\x00\x01"
        for at in range(start, end, per_chunk):
            index += struct.pack(">QqQIB", at, 1_700_000_000_000, 1, len(segment), 0)
            chosen = bodies[at : min(at + per_chunk, end)]
            segment += chunk(at, [entry(message(body)) for body in chosen])
        (path / file_name(start)).write_bytes(segment)
        (path / file_name(start, "index")).write_bytes(index)
    return path
