"""Headers as JSON, for the column `headers`, and back: nothing is lost on the way.

JSON has no bytes, times or decimals. Such a value becomes an object with one key:

    bytes        {"$bytes": "/v8="}                       base64
    datetime     {"$time": "2026-11-23T05:00:00+00:00"}   ISO 8601
    Decimal      {"$decimal": "1.50"}
    nan, inf     {"$float": "nan"}
    an object that looks like one of these, or like this one   {"$object": {...}}

Everything else is JSON's own. A string that is no UTF-8 has JSON's escapes (\\udcff).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

_TAGS: Final = ("$bytes", "$time", "$decimal", "$float", "$object")


def headers_as_json(headers: Mapping[str, Any]) -> str | None:
    """None for no headers."""
    if not headers:
        return None
    value = _tagged(dict(headers))
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False)
    return text


def headers_of_json(text: str) -> dict[str, Any]:
    """The headers that such a text was made of; ValueError if it is no such text."""
    try:
        found = _untagged(json.loads(text))
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"headers are a JSON object, not {text!r}: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"headers are a JSON object, or a map column, not {text!r}")
    return found


def _tagged(value: Any) -> Any:
    if isinstance(value, dict):
        inner = {str(key): _tagged(each) for key, each in value.items()}
        return {"$object": inner} if _has_tag(inner) else inner
    if isinstance(value, (list, tuple)):
        return [_tagged(each) for each in value]
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        return {"$time": value.isoformat()}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _has_tag(value: dict[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)) in _TAGS


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(each) for each in value]
    if not isinstance(value, dict):
        return value
    if not _has_tag(value):
        return {key: _untagged(each) for key, each in value.items()}
    ((tag, inner),) = value.items()
    if tag == "$object":
        if not isinstance(inner, dict):
            raise ValueError(f"{tag} has an object, not {inner!r}")
        return {key: _untagged(each) for key, each in inner.items()}
    if not isinstance(inner, str):
        raise ValueError(f"{tag} has a string, not {inner!r}")
    if tag == "$bytes":
        return base64.b64decode(inner, validate=True)
    if tag == "$time":
        return datetime.fromisoformat(inner)
    return Decimal(inner) if tag == "$decimal" else float(inner)
