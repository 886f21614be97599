"""JSON as its standard has it: without NaN and Infinity, which Python reads and writes."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


def loads(text: str | bytes) -> Any:
    """The value. ValueError: it is no JSON, is nested too deeply, or has a number that is none."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def dumps(value: Any, **options: Any) -> str:
    """Its text; `options` as json.dumps has them. ValueError: it has a number that is none."""
    return json.dumps(value, allow_nan=False, **options)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:40]} is beyond what a number can be")
    return found
