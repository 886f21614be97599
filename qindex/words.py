"""Words that agree with a number, for findings."""

from __future__ import annotations


def many(number: int, one: str, more: str = "") -> str:
    """`1 byte`, `2 bytes`; `more` where an `s` does not do, or where a verb follows."""
    return f"{number} {one if number == 1 else more or one + 's'}"
