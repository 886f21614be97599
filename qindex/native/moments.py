"""When messages were published: MOMENT and MOMENTS frames, and what a move takes along.

FORMAT.rst, sections 3 and 4; by other code than the engine's.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from qindex.native.frames import (
    KIND_BYTES,
    MOMENT,
    MOMENTS,
    PUBLISHED,
    SIDE,
    SIDE_BYTES,
    kind_of,
    records_of,
)

_U64: Final = Struct(">Q")
_PUBLISHED_WORD: Final = _U64.pack(2 << 62 | 1023 << 52 | PUBLISHED << 36 | 8)
_MOMENTS_ROW: Final = Struct(">HQ")
_TIME_MASK: Final = (1 << 56) - 1


def published_by(payload: bytes) -> dict[int, int]:
    """In RECORDS: of messages that were moved, by their ReqId, when they were published."""
    if _PUBLISHED_WORD not in payload:
        return {}
    return {
        req_id: _U64.unpack_from(payload, at + SIDE_BYTES)[0] & _TIME_MASK
        for at, kind, req_id in records_of(payload)
        if kind == SIDE and payload[at : at + 8] == _PUBLISHED_WORD
    }


def moment_of(payload: bytes) -> int | None:
    """The time of a MOMENT; None: the EXTENDED frame is none."""
    if kind_of(payload) != MOMENT or len(payload) < KIND_BYTES + 8:
        return None
    moment: int = _U64.unpack_from(payload, KIND_BYTES)[0] & _TIME_MASK
    return moment


def moments_of(payload: bytes) -> list[tuple[int, int]]:
    """(first slot, time) of the rows of a MOMENTS; none if the EXTENDED frame is none."""
    if kind_of(payload) != MOMENTS:
        return []
    rows = payload[KIND_BYTES:]
    whole = rows[: len(rows) // _MOMENTS_ROW.size * _MOMENTS_ROW.size]
    return [(slot, us & _TIME_MASK) for slot, us in _MOMENTS_ROW.iter_unpack(whole)]
