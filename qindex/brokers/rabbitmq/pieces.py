"""Feeding files to the scanners in C, piece by piece, through one buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from qindex._core import ffi
from qindex.brokers.tree import Source

PIECE_BYTES_MAX: Final = 1 << 18  # what the processor's cache holds while it is copied and read
_PIECE_FIRST: Final = 1 << 12  # small, since damage may be near; see Source.blocks


def check(code: int) -> None:
    if code:
        raise MemoryError


class Pieces:
    """A file as a row of qi_rabbit_piece, each of which begins where the one before made sense."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.offset = 0
        self._room = _PIECE_FIRST
        self._bytes = bytearray(min(PIECE_BYTES_MAX, max(_PIECE_FIRST, source.size)))
        self._buffer = memoryview(self._bytes)
        self._piece = ffi.new("qi_rabbit_piece *")
        self._piece.data = self._data = ffi.from_buffer("uint8_t[]", self._bytes)

    def walk(self, offset: int) -> Iterator[Any]:
        """Pieces from there to the end of the file, or to where one is `bad`; self.offset tells.

        Whoever gets one sets its `pos`: 0 if it made no sense for want of bytes, and grow() is
        called.
        """
        piece = self._piece
        self.offset = offset
        self._room = _PIECE_FIRST
        while self.offset < self.source.size:
            piece.size = self.source.read_into(self.offset, self._buffer[: self._room])
            if not piece.size:  # it became shorter while it was read
                return
            piece.offset = self.offset
            piece.left = self.source.size - self.offset
            piece.pos, piece.bad = 0, False
            yield piece
            self.offset += piece.pos
            if piece.bad:
                return
            self._room = min(2 * self._room, len(self._buffer))

    def head(self, count: int) -> memoryview:
        return self._buffer[:count]

    def grow(self, wanted: int) -> bool:
        """The next piece has so many bytes; False: they are too many."""
        if wanted > len(self._buffer):
            return False
        self._room = max(self._room, wanted)
        return True
