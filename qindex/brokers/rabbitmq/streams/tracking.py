"""What a stream remembers about its clients: consumers' offsets and publishers' sequences.

::

    type:u8 id_length:u8 id value       type 0 a publisher's sequence, 1 a consumer's offset,
                                        2 a timestamp in ms

A value has 8 bytes; in a tracking snapshot a publisher's is chunk id and sequence, 16 bytes. A user
chunk has such a list in its trailer, a tracking chunk in its data, behind a length of four bytes.
No checksum covers a trailer. RabbitMQ fills one that was cut with zeros, so a list ends where it
makes no sense any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from qindex.brokers.rabbitmq.streams.chunks import SNAPSHOT, USER, Chunk
from qindex.brokers.tree import Source

TRACKING_BYTES_MAX: Final = 1 << 20
_SEQUENCE, _OFFSET, _TIMESTAMP = 0, 1, 2
_U64: Final = Struct(">Q").unpack_from
_U32: Final = Struct(">I").unpack_from


@dataclass(slots=True)
class Tracking:
    """The last known value of each client, by its name."""

    offsets: dict[str, int] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)

    def read(self, source: Source, chunk: Chunk) -> None:
        """Take over what `chunk` says. A snapshot replaces everything before it."""
        if chunk.kind == USER:
            size = min(chunk.trailer_bytes, TRACKING_BYTES_MAX)
            self._apply(source.read(chunk.data_end, size), is_snapshot=False)
            return
        raw = _wrapped(source, chunk)
        if chunk.kind == SNAPSHOT:
            self.offsets.clear()
            self.sequences.clear()
        self._apply(raw, is_snapshot=chunk.kind == SNAPSHOT)

    def _apply(self, raw: bytes, *, is_snapshot: bool) -> bool:
        """Whether `raw` is such a list to its end."""
        pos = 0
        while pos + 2 <= len(raw):
            kind, length = raw[pos], raw[pos + 1]
            value_at = pos + 2 + length
            if is_snapshot and kind == _SEQUENCE:
                value_at += 8
            if length == 0 or kind > _TIMESTAMP or value_at + 8 > len(raw):
                return False
            name = raw[pos + 2 : pos + 2 + length].decode("utf-8", "surrogateescape")
            (value,) = _U64(raw, value_at)
            if kind == _OFFSET:
                self.offsets[name] = value
            elif kind == _SEQUENCE:
                self.sequences[name] = value
            pos = value_at + 8
        return pos == len(raw)


def is_tracking(source: Source, chunk: Chunk) -> bool:
    """Whether the data of a chunk that calls itself a tracking chunk are a list of values."""
    raw = _wrapped(source, chunk)
    return Tracking()._apply(raw, is_snapshot=chunk.kind == SNAPSHOT)


def _wrapped(source: Source, chunk: Chunk) -> bytes:
    """What the one entry of a tracking chunk holds."""
    raw = source.read(chunk.data_at, min(chunk.data_bytes, TRACKING_BYTES_MAX))
    return raw[4 : 4 + _U32(raw)[0]] if len(raw) >= 4 else b""
