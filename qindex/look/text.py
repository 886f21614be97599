"""Values as a person reads them; foreign names made safe for a terminal. Does no I/O."""

from __future__ import annotations

import re
import shlex
import time
import unicodedata
from argparse import ArgumentTypeError
from datetime import datetime
from typing import overload

from qindex.names import written

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def count(number: int, singular: str, plural: str = "") -> str:
    """`1 queue`, `1,204 queues`."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


@overload
def written_id(req_id: int) -> str: ...
@overload
def written_id(req_id: None) -> None: ...
def written_id(req_id: int | None) -> str | None:
    """The written form of a ReqId, in text and in JSON: its decimal digits, as a string.

    A ReqId with a priority from 2 on, or with a delay, exceeds 2^53. JavaScript and jq would round
    it if it were a number in JSON. Every command takes the same digits as an argument.
    """
    return None if req_id is None else str(req_id)


def is_written_id(text: str) -> bool:
    """True for what written_id() returns, and for nothing else."""
    return re.fullmatch("[0-9]{1,20}", text) is not None


def read_id(text: str) -> int:
    """A ReqId from its written form, for argparse."""
    if not is_written_id(text):
        raise ArgumentTypeError(f"{text!r} is no ReqId: those are whole numbers from 0 on")
    return int(text)


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
    """Foreign text for a terminal, in one line: every character that could steer it is escaped.

    That is for the eye; what programs read has `names.written`. Calling it twice changes nothing.
    """
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else _escaped(c) for c in name)


def queue_text(name: str) -> str:
    """A queue's name for a terminal. The empty one can be seen: it is a pair of quotes."""
    return printable(name) or '""'


def _escaped(character: str) -> str:
    text = written(character)
    return text if text != character else character.encode("unicode_escape").decode()


def quoted(path: str) -> str:
    """A path as a shell takes it; one with characters that cannot be shown is DIR."""
    return shlex.quote(path) if path.isprintable() else "DIR"


def moment(told: str) -> float:
    """A time as an option has it, in seconds since 1970: a date and time, or the seconds.

    One without a time zone is in that of this machine. ArgumentTypeError: it is neither.
    """
    try:
        seconds = float(told) if told[:1].isdigit() and "-" not in told else None
        if seconds is None:
            seconds = datetime.fromisoformat(told).timestamp()
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1 << 40:
        raise ArgumentTypeError(f"{told!r} is no time: give 2026-11-23T05:00Z, or seconds")
    return seconds


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
