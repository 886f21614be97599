"""A moment as text: one format for every command, for JSON and for people."""

from __future__ import annotations

from datetime import UTC, datetime


def utc(seconds: float) -> str:
    """Seconds since 1970 as `2026-11-23T05:00:00Z`, with fractions only if there are any.

    ISO 8601 in UTC. What is beyond the year 9999 stays a number: `@253402300800`.
    """
    try:
        return utc_of(datetime.fromtimestamp(seconds, UTC))
    except (OverflowError, ValueError, OSError):
        return f"@{seconds:.0f}"


def utc_of(moment: datetime) -> str:
    """The same for a date; one without a time zone counts as UTC."""
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    text = moment.replace(tzinfo=None).isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"
