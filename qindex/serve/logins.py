"""What a client says to log in: the mechanisms PLAIN and AMQPLAIN."""

from __future__ import annotations

from typing import Any

from qindex.field_table import AmqpError, decode_table


def credentials(mechanism: str, response: bytes) -> tuple[str, str] | None:
    """User and password; None: an unknown mechanism. Damaged bytes are a user without a name."""
    if mechanism == "PLAIN":
        parts = response.split(b"\0")
        if len(parts) != 3:
            return "", ""
        return _decoded(parts[1]), _decoded(parts[2])
    if mechanism == "AMQPLAIN":
        try:
            table: dict[str, Any] = decode_table(len(response).to_bytes(4, "big") + response)
        except AmqpError:
            return "", ""
        return str(table.get("LOGIN", "")), str(table.get("PASSWORD", ""))
    return None


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
