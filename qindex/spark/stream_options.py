"""Options of streams and sinks that are numbers, or true or false. Names come in lower case."""

from __future__ import annotations

from collections.abc import Mapping


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


def truth(given: Mapping[str, str], name: str, default: bool) -> bool:
    """An option that is true or false; ValueError for anything else."""
    told = str(given.get(name.lower(), default))
    if told.lower() not in ("true", "false"):
        raise ValueError(f"{name} is true or false, not {told!r}")
    return told.lower() == "true"
