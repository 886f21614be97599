"""A diskqueue's files as NSQ writes them, small."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

NAME = "orders:chan"


def bodies(count: int) -> list[bytes]:
    """No two alike, some binary, one empty now and then."""
    return [
        b"" if n % 13 == 7 else b"%06d " % n + bytes(range(n % 200)) * (n % 3) for n in range(count)
    ]


def record(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def write_files(folder: Path, messages: Sequence[bytes], read: int, file_bytes: int = 4096) -> None:
    """`messages` put, `read` of them read, closed."""
    folder.mkdir(exist_ok=True)
    files, places = [bytearray()], []
    for body in messages:
        if files[-1] and len(files[-1]) + 4 + len(body) > file_bytes:
            files.append(bytearray())
        places.append((len(files) - 1, len(files[-1])))
        files[-1] += record(body)
    places.append((len(files) - 1, len(files[-1])))
    for number, data in enumerate(files):
        if number >= places[read][0]:
            (folder / f"{NAME}.diskqueue.{number:06}.dat").write_bytes(data)
    write_meta(folder, len(messages) - read, places[read], places[-1])


def write_meta(folder: Path, depth: int, read: tuple[int, int], write: tuple[int, int]) -> None:
    text = f"{depth}\n{read[0]},{read[1]}\n{write[0]},{write[1]}\n"
    (folder / f"{NAME}.diskqueue.meta.dat").write_text(text)
