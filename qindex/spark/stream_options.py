"""Options of streams and sinks: numbers, words, true or false. Names come in lower case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def number(given: Mapping[str, str], name: str, default: float, low: float) -> float:
    """An option that is a number, `low` or more; ValueError for anything else."""
    told = given.get(name.lower(), default)
    try:
        value = float(told)
    except ValueError:
        value = low - 1
    if not low <= value < float("inf"):
        raise ValueError(f"{name} is a number from {low} on, not {told!r}")
    return value


def lower_keys(given: Mapping[str, str]) -> dict[str, str]:
    """Options have names in any case."""
    return {key.lower(): value for key, value in given.items()}


def choice(given: Mapping[str, str], name: str, words: Sequence[str]) -> str:
    """An option that is one of these words, the first of them if it is not given."""
    told = str(given.get(name.lower(), words[0]))
    if told.lower() not in words:
        raise ValueError(f"{name} is {', '.join(words[:-1])} or {words[-1]}, not {told!r}")
    return told.lower()


def truth(given: Mapping[str, str], name: str, default: bool) -> bool:
    """An option that is true or false; ValueError for anything else."""
    words = ("true", "false") if default else ("false", "true")
    return choice(given, name, words) == "true"
