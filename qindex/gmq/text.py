"""JSON as Go writes it, numbers as gmq's clients send them, and ids."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from qindex import strict_json

# 41 bits of milliseconds since 2017, 10 bits of a node's number, 12 bits of a sequence.
_EPOCH_MS: Final = 1_483_228_800_000
_SEQUENCE_BITS: Final = 12
_NODE_BITS: Final = 10
_NODE: Final = 1  # gmq's default
_DIGITS_MAX: Final = 12  # more are slow to read
_SURROGATES: Final = dict.fromkeys(range(0xD800, 0xE000), "\\ufffd")
_ESCAPED: Final = {
    **{ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"},
    **_SURROGATES,
}


def go_json(value: Any) -> bytes:
    """`value` in the bytes that Go's encoding/json writes; keys keep their order.

    Go writes U+FFFD as it is, and as an escape where bytes were no UTF-8 (see told()).
    """
    text = strict_json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPED).encode()


def told(body: bytes) -> str:
    """A body for go_json(): each byte that is no UTF-8 stays apart from an U+FFFD."""
    return body.decode("utf-8", "surrogateescape")


def shown(body: bytes) -> str:
    """A body as JSON can have it: bytes that are no UTF-8 become U+FFFD, as in Go."""
    return body.decode("utf-8", "replace")


def to_bytes(text: str) -> bytes:
    """A text of JSON as a body. Half of a surrogate pair becomes U+FFFD, as in Go."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        halves = text.encode("utf-16-le", "surrogatepass")
        return halves.decode("utf-16-le", "replace").encode()


def whole_number(value: Any, what: str, most: int) -> int:
    """A number from 0 to `most`, as JSON has it or as text; "" and None are 0. ValueError."""
    if value is None or value == "":
        return 0
    text = str(value)
    is_whole = isinstance(value, (int, str)) and not isinstance(value, bool)
    if not is_whole or not text.isascii() or not text.isdigit():
        shown = repr(value[:40]) if isinstance(value, str) else strict_json.dumps(value)[:40]
        raise ValueError(f"{what} must be a whole number that is not negative, not {shown}")
    if len(text) > _DIGITS_MAX or int(text) > most:
        raise ValueError(f"{what} must be at most {most}, not {text[:40]}")
    return int(text)


class Snowflakes:
    """Ids that grow: no two are the same, also if the clock goes back while this process runs."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._last = 0

    def next(self) -> int:
        since = int(self._now() * 1000) - _EPOCH_MS
        first = (since << _NODE_BITS | _NODE) << _SEQUENCE_BITS
        if first <= self._last:
            first = self._last + 1
            if not first & ((1 << _SEQUENCE_BITS) - 1):  # the sequence is full: the next moment
                since = (first >> (_NODE_BITS + _SEQUENCE_BITS)) + 1
                first = (since << _NODE_BITS | _NODE) << _SEQUENCE_BITS
        self._last = first
        return first
