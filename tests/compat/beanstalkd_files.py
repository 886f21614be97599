"""beanstalkd's binlog files, small."""

from __future__ import annotations

import struct
from pathlib import Path

DELETED, READY, RESERVED, BURIED, DELAYED = range(5)
CREATED_NS = 1_700_000_000 * 10**9
SECOND_NS = 10**9


def bodies(count: int) -> list[bytes]:
    return [b"%06d " % n + bytes(range(n % 90)) * (n % 3) for n in range(count)]


def job(number: int, size: int, state: int, pri: int = 0, due_ns: int = 0) -> bytes:
    times = (0, 60 * SECOND_NS, size, 0, CREATED_NS + number, due_ns)
    return struct.pack("<QIIqqiIqqIIIIIB3x", number, pri, 0, *times, 1, 0, 0, 0, 0, state)


def put(
    body: bytes, number: int, state: int = READY, pri: int = 0, due_ns: int = 0, tube: bytes = b"t"
) -> bytes:
    head = struct.pack("<I", len(tube)) + tube
    return head + job(number, len(body) + 2, state, pri, due_ns) + body + b"\r\n"


def change(body: bytes, number: int, state: int, pri: int = 0) -> bytes:
    return bytes(4) + job(number, len(body) + 2, state, pri)


def binlog(*records: bytes, size: int = 0) -> bytes:
    return (struct.pack("<I", 7) + b"".join(records)).ljust(size, b"\0")


def write_files(folder: Path, count: int = 300) -> None:
    """Two files; of ten jobs each: three deleted, one buried, one delayed, five ready."""
    folder.mkdir(exist_ok=True)
    puts, changes = [], []
    for n, body in enumerate(bodies(count), 1):
        delayed = n % 10 == 5
        due = CREATED_NS + (count - n) * SECOND_NS if delayed else 0
        puts.append(put(body, n, DELAYED if delayed else READY, 0, due))
        if n % 10 < 3:
            changes.append(change(body, n, DELETED))
        elif n % 10 == 4:
            changes.append(change(body, n, BURIED))
    half = len(puts) // 2
    (folder / "binlog.1").write_bytes(binlog(*puts[:half], *changes[: half // 3]))
    rest = binlog(*puts[half:], *changes[half // 3 :], size=65536)
    (folder / "binlog.2").write_bytes(rest)


def ready(count: int = 300) -> list[bytes]:
    return [body for n, body in enumerate(bodies(count), 1) if n % 10 in (3, 6, 7, 8, 9)]
