"""The data of a chunk as entries: messages one by one, or batches that a client compressed.

::

    0:1 length:31 body                                              one message
    1:1 compression:3 0:4 records:u16 size:u32 length:u32 data      a batch; `size` when unpacked

The broker never unpacks a batch, so what is in it is whatever the client wrote. Gzip is read with
the standard library; snappy (framing format), LZ4 (frame format) and zstd need cramjam, which
``pip install 'qindex[streams]'`` brings.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from qindex.brokers.tree import BODY_BYTES_MAX

_U32: Final = Struct(">I").unpack_from
_BATCH: Final = Struct(">BHII")
COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class EntryError(ValueError):
    """The bytes are no entry. `records` is how many messages are lost with it, if it says so."""

    def __init__(self, text: str, position: int, records: int | None = None) -> None:
        super().__init__(text)
        self.position = position
        self.records = records


class Entry(NamedTuple):
    """One message: where its entry begins within the chunk's data, and its bytes."""

    position: int
    data: bytes


def entries_of(data: bytes) -> Iterator[Entry | EntryError]:
    """The messages in a chunk's data, in the order of their offsets.

    Of a batch that cannot be unpacked an EntryError is given in its place, and reading goes on
    behind it; one that has no `records` is the last thing given. Nothing is allocated because a
    size in the data says so, but for an unpacked batch, of which BODY_BYTES_MAX is the limit.
    """
    pos = 0
    while pos < len(data):
        try:
            if data[pos] & 0x80:
                flags, records, size, length = _BATCH.unpack_from(data, pos)
                start = pos + _BATCH.size
                if length > len(data) - start:
                    text = f"a batch of {length} bytes where {len(data) - start} are left"
                    yield EntryError(text, pos)
                    return
                packed = data[start : start + length]
                yield from _batch(packed, flags >> 4 & 7, records, size, pos)
                pos = start + length
            else:
                (length,) = _U32(data, pos)
                start = pos + 4
                if length > len(data) - start:
                    text = f"a message of {length} bytes where {len(data) - start} are left"
                    yield EntryError(text, pos)
                    return
                yield Entry(pos, data[start : start + length])
                pos = start + length
        except struct_error:
            yield EntryError("an entry is cut", pos)
            return


def count_records(data: bytes) -> int:
    """How many messages the entries in a chunk's data say they are. Unpacks nothing."""
    pos = total = 0
    while pos < len(data):
        try:
            if data[pos] & 0x80:
                _, records, _, length = _BATCH.unpack_from(data, pos)
                total, pos = total + records, pos + _BATCH.size + length
            else:
                (length,) = _U32(data, pos)
                total, pos = total + 1, pos + 4 + length
        except struct_error:
            break
    return total


def _batch(
    packed: bytes, compression: int, records: int, size: int, pos: int
) -> Iterator[Entry | EntryError]:
    name = COMPRESSIONS[compression] if compression < len(COMPRESSIONS) else str(compression)
    try:
        data = _unpacked(packed, compression, name, size)
    except EntryError as error:
        yield EntryError(f"a batch of {records} messages: {error}", pos, records)
        return
    at, given = 0, 0
    while at + 4 <= len(data) and given < records:
        (length,) = _U32(data, at)
        if length > len(data) - at - 4:
            break
        yield Entry(pos, data[at + 4 : at + 4 + length])
        at += 4 + length
        given += 1
    if given < records or at < len(data):
        text = f"a batch ({name}) holds {given} messages where it says {records}"
        yield EntryError(text, pos, records - given)


def _unpacked(packed: bytes, compression: int, name: str, size: int) -> bytes:
    if compression == 0:
        return packed
    if size > BODY_BYTES_MAX:
        raise EntryError(f"{size} bytes when unpacked, the limit is {BODY_BYTES_MAX}", 0)
    unpack = _UNPACKERS.get(name)
    if unpack is None:
        raise EntryError(f"packed in a way that is not known (number {name})", 0)
    data = unpack(packed, size)
    if len(data) != size:
        raise EntryError(f"{name} gives {len(data)} bytes where the batch says {size}", 0)
    return data


def _gunzip(packed: bytes, size: int) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    try:
        return inflater.decompress(packed, size + 1)
    except zlib.error as error:
        raise EntryError(f"damaged gzip: {error}", 0) from None


def _cramjam(name: str) -> Callable[[bytes, int], bytes]:
    def unpack(packed: bytes, size: int) -> bytes:
        try:
            import cramjam
        except ImportError:
            text = f"packed with {name}, which needs: pip install 'qindex[streams]'"
            raise EntryError(text, 0) from None
        # Untouched pages of the buffer take no memory, so a size that lies costs nothing.
        buffer = bytearray(size)
        try:
            count: int = getattr(cramjam, name).decompress_into(packed, buffer)
        except cramjam.DecompressionError as error:
            raise EntryError(f"damaged {name}: {error}", 0) from None
        return bytes(buffer[:count])

    return unpack


_UNPACKERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "gzip": _gunzip,
    **{name: _cramjam(name) for name in COMPRESSIONS[2:]},
}
