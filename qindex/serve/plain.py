"""Values of AMQP's tables as JSON can have them."""

from __future__ import annotations

import base64
import math
from datetime import UTC, datetime
from typing import Any


def plain(value: Any) -> Any:
    """A value of AMQP's tables as JSON can have it: base64 of bytes that are no text, "nan" ..."""
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return int(value.replace(tzinfo=value.tzinfo or UTC).timestamp())
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # JSON has no number for it
    return str(value).encode("utf-8", "replace").decode()
