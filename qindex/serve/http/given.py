"""What a request says, as values. What cannot be is an error in the words of the request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

PAGE_MAX: Final = 500  # rows
PAGES_MAX: Final = 1_000_000_000
SINCE_MAX: Final = 1e12  # seconds since 1970
_DIGITS: Final = re.compile(r"-?[0-9]{1,20}")


def whole(value: Any, name: str, most: int, least: int = 0) -> int:
    """A number of a request. Those of messages are texts: JavaScript's numbers are too small."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{name} is a whole number from {least} to {most}")
    return value


def number(value: Any, name: str, most: float, least: float = 0) -> float:
    """The same of one that may have a fraction."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:
        raise ValueError(f"{name} is a number from {least:g} to {most:g}")
    return float(value)


def text(given: Mapping[str, Any], name: str) -> str:
    """One that has to be there."""
    value = given.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is a text" if name in given else f"{name} is missing")
    return value


def one_of(given: Mapping[str, Any], name: str, known: Sequence[str], default: str) -> str:
    """One of these words, in this spelling; the default one only if nothing is said."""
    value = given.get(name, default)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} is {' or '.join(map(repr, known))}")
    return value


def check_known(given: Iterable[str], known: Sequence[str], where: str) -> None:
    """What is not known may be a typo, and then the rest of a request is not what is meant."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        there = f"what is known there: {', '.join(known)}" if known else "nothing is known there"
        raise ValueError(f"not known in the {where}: {', '.join(unknown)[:200]}; {there}")
