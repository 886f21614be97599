"""How messages became dead letters, as the core hands it out: FORMAT.rst, section 4, DEATHS."""

from __future__ import annotations

from struct import Struct
from typing import Final

from qindex.buffers import REASONS
from qindex.message import Death

_NAME: Final = Struct(">H")
_NUMBERS: Final = Struct(">BQQQ")


def read_deaths(data: bytes) -> list[Death]:
    """All entries; it ends early at one that is not whole, or whose reason is not known."""
    deaths = []
    at = 0
    while at + _NAME.size + _NUMBERS.size <= len(data):
        (size,) = _NAME.unpack_from(data, at)
        end = at + _NAME.size + size
        if end + _NUMBERS.size > len(data):
            break
        why, times, first_us, last_us = _NUMBERS.unpack_from(data, end)
        reason = REASONS[why] if why < len(REASONS) else None
        if reason is None:
            break
        name = data[at + _NAME.size : end].decode("utf-8", "surrogatepass")
        deaths.append(Death(name, reason, times, first_us / 1e6, last_us / 1e6))
        at = end + _NUMBERS.size
    return deaths
