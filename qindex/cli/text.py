"""Values as a person reads them; foreign names made safe for a terminal. Does no I/O."""

from __future__ import annotations

import time
import unicodedata

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def count(number: int, singular: str, plural: str = "") -> str:
    """`1 queue`, `1,204 queues`."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def size(byte_count: float) -> str:
    """Bytes with a decimal unit: `812 B`, `4.6 MB`."""
    unit = 0
    while byte_count >= 999.5 and unit < len(_UNITS) - 1:
        byte_count /= 1000
        unit += 1
    return f"{byte_count:.0f} B" if unit == 0 else f"{byte_count:.3g} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """`0.42 ms`, `85 ms`, `1.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d 7 h`."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.2g} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def due_in(moment: float) -> str:
    """Of seconds since 1970: `in 59 min 10 s`, or `now`."""
    left = moment - time.time()
    return f"in {duration(left)}" if left > 0 else "now"


def rate(number: float, seconds: float) -> str:
    """How many a second, to three digits: `412`, `38.1 k`, `1.92 M`; a dash if no time passed."""
    if seconds <= 0:
        return "-"
    per_second = number / seconds
    for unit in ("", " k"):
        if per_second < 999.5:
            return f"{per_second:.3g}{unit}"
        per_second /= 1000
    return f"{per_second:.3g} M"


def printable(name: str) -> str:
    """The name with all that could steer a terminal, or be no character, as backslash escapes."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def width(line: str) -> int:
    """Columns that a terminal needs for it."""
    if line.isascii():
        return len(line)
    return sum(_columns(c) for c in line)


def shorten(line: str, columns_max: int) -> str:
    """The line, cut in the middle with an ellipsis if it is too wide."""
    if width(line) <= columns_max:
        return line
    head, tail = "", ""
    front, back = iter(line), iter(reversed(line))
    left = columns_max - 1
    while left > 0:
        c = next(front)
        left -= _columns(c)
        if left >= 0:
            head += c
        c = next(back)
        left -= _columns(c)
        if left >= 0:
            tail = c + tail
    return f"{head}…{tail}"


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
