"""JSON as its standard has it: without NaN and Infinity, which Python reads and writes."""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

_WORDS: Final = (  # a part of what the module json says, and what we say
    ("BOM", "a byte order mark, which JSON does not have"),
    ("',' delimiter", "a comma or the end of what was begun is missing"),
    ("':' delimiter", "a colon is missing"),
    ("property name", "a name in double quotes is missing"),
    ("Expecting value", "a value is missing"),
    ("Extra data", "something follows the end"),
    ("Unterminated string", "a text that has no end"),
    ("control character", "a control character, which a text has as an escape only"),
    ("escape", "an escape that JSON does not have"),
    ("trailing comma", "a comma that nothing follows"),
)


class _Wrong(ValueError):
    """In our words already."""


def loads(text: str | bytes) -> Any:
    """The value. ValueError: it is no JSON, is nested too deeply, or has a number that is none.

    Whoever has sent the text reads the error: it is in words that do not speak of Python.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("it is no UTF-8") from None
    except json.JSONDecodeError as error:
        words = next((mine for theirs, mine in _WORDS if theirs in error.msg), "it cannot be read")
        raise ValueError(f"line {error.lineno}, column {error.colno}: {words}") from None
    except _Wrong:
        raise
    except ValueError:  # Python reads no whole number that is longer
        raise ValueError("a whole number has too many digits") from None


def dumps(value: Any, **options: Any) -> str:
    """Its text; `options` as json.dumps has them. ValueError: it has a number that is none."""
    return json.dumps(value, allow_nan=False, **options)


def _refuse(name: str) -> NoReturn:
    raise _Wrong(f"{name} is no JSON")


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise _Wrong(f"{text[:40]} is beyond what a number can be")
    return found
