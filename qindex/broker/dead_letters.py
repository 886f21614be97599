"""Dead letters: the message that a dead one becomes, with its x-death header.

The header is a list of tables, the newest first: one for each queue and reason, with how often. A
message that would go around in a circle without anybody having rejected it is dropped, as RabbitMQ
does it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from qindex.broker.message import Message

_DEATHS: Final = "x-death"


def dead_letter(message: Message, queue: str, why: str, exchange: str, key: str | None) -> Message:
    """The message as it goes to the dead-letter exchange; why: expired, rejected, maxlen ..."""
    headers = dict(message.headers)
    keys = list(message.routing_keys) if key is None else [key]
    shown = _keys_shown(message.routing_keys, headers)
    if key is not None:
        headers.pop("CC", None)
    deaths = _deaths(headers)
    death = _take_death(deaths, queue, why)
    if death is None:
        death = {
            "count": 0,
            "reason": why,
            "queue": queue,
            "time": datetime.now(UTC).replace(microsecond=0),
            "exchange": message.exchange,
            "routing-keys": shown,
        }
        if message.decoded.expiration is not None:
            death["original-expiration"] = message.decoded.expiration
    count = death.get("count")
    death["count"] = (count if isinstance(count, int) else 0) + 1
    headers[_DEATHS] = [death, *deaths]
    headers.setdefault("x-first-death-reason", why)
    headers.setdefault("x-first-death-queue", queue)
    headers.setdefault("x-first-death-exchange", message.exchange)
    headers["x-last-death-reason"] = why
    headers["x-last-death-queue"] = queue
    headers["x-last-death-exchange"] = message.exchange
    return Message(
        exchange,
        keys,
        message.with_headers(headers, expiration=None),
        message.body,
        persistent=message.persistent,
        priority=message.priority,
    )


def _keys_shown(keys: list[str], headers: dict[str, Any]) -> list[str]:
    """Without those of BCC, which a publisher gives so that no receiver sees them."""
    copies = headers.get("CC")
    copies = copies if isinstance(copies, list) else []
    return [*keys[:1], *(key for key in keys[1:] if key in copies)]


def _deaths(headers: dict[str, Any]) -> list[dict[str, Any]]:
    found = headers.get(_DEATHS)
    if not isinstance(found, list):
        return []
    return [dict(death) for death in found if isinstance(death, dict)]


def _take_death(deaths: list[dict[str, Any]], queue: str, why: str) -> dict[str, Any] | None:
    for at, death in enumerate(deaths):
        if death.get("queue") == queue and death.get("reason") == why:
            return deaths.pop(at)
    return None


def is_in_a_circle(message: Message, queue: str) -> bool:
    """True if the message died in this queue, and nobody has rejected it since."""
    for death in _deaths(message.headers):
        if death.get("reason") == "rejected":
            return False
        if death.get("queue") == queue:
            return True
    return False
