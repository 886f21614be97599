"""The arguments of a queue: which there are, what they may be, and what RabbitMQ says if not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, Literal

from qindex.broker.errors import NotThere, Precondition
from qindex.broker.message import Message

Overflow = Literal["drop-head", "reject-publish", "reject-publish-dlx"]
_OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
_MS_MAX: Final = 0xFFFFFFFF * 1000
_DIGITS_MAX: Final = 19  # of a delay; more say no more than that it is too long
_EXPIRATION: Final = 1  # its bit in the first byte of a message's properties
# About replication and memory: they promise nothing that a single durable store does not keep.
_IGNORED: Final = frozenset(
    [
        "x-queue-mode",
        "x-queue-version",
        "x-ha-policy",
        "x-queue-master-locator",
        "x-queue-leader-locator",
        "x-quorum-initial-group-size",
        "x-initial-cluster-size",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-dead-letter-strategy",
    ]
)


@dataclass(slots=True)
class Limits:
    """What the arguments of a queue ask for; None: nothing."""

    ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: Overflow = "drop-head"
    max_priority: int = 0
    dead_exchange: str | None = None
    dead_key: str | None = None
    delivery_limit: int | None = None
    single_active: bool = False
    is_quorum: bool = False

    @property
    def has_length(self) -> bool:
        return self.max_length is not None or self.max_bytes is not None

    def is_over(self, count: int, size: int) -> bool:
        """So many messages, or bytes of bodies, are more than the queue may have."""
        if self.max_length is not None and count > self.max_length:
            return True
        return self.max_bytes is not None and size > self.max_bytes


def _whole(value: Any, least: int, most: int) -> str | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return f'"expected integer, got {type_name(value)}"'
    if value < least:
        return f"{{value_negative,{value}}}" if least == 0 else f"{{value_zero,{value}}}"
    return f"{{value_too_large,{value}}}" if value > most else None


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else f"{{unacceptable_type,{type_name(value)}}}"


def _priority(value: Any) -> str | None:
    wrong = _whole(value, 0, 255)
    return f"{{max_value_exceeded,{value}}}" if wrong and "too_large" in wrong else wrong


def _overflow(value: Any) -> str | None:
    return _text(value) or (None if value in _OVERFLOWS else "invalid_overflow")


def _bool(value: Any) -> str | None:
    return None if isinstance(value, bool) else f"{{unacceptable_type,{type_name(value)}}}"


def _no_limit(value: Any) -> str | None:
    return _whole(value, 0, 2**63 - 1)


# Argument -> the field that it sets, and what is wrong with a value.
_KNOWN: Final[dict[str, tuple[str, Callable[[Any], str | None]]]] = {
    "x-message-ttl": ("ttl_ms", lambda value: _whole(value, 0, _MS_MAX)),
    "x-expires": ("expires_ms", lambda value: _whole(value, 1, _MS_MAX)),
    "x-max-length": ("max_length", _no_limit),
    "x-max-length-bytes": ("max_bytes", _no_limit),
    "x-overflow": ("overflow", _overflow),
    "x-max-priority": ("max_priority", _priority),
    "x-dead-letter-exchange": ("dead_exchange", _text),
    "x-dead-letter-routing-key": ("dead_key", _text),
    "x-delivery-limit": ("delivery_limit", lambda value: _whole(value, -1, 2**31)),
    "x-single-active-consumer": ("single_active", _bool),
}


def limits_of(arguments: dict[str, Any], what: str) -> Limits:
    """The limits that these arguments of a queue ask for; `what` names the queue in errors."""
    limits = Limits()
    for name, value in arguments.items():
        if name == "x-queue-type":
            limits.is_quorum = _queue_type(value, what)
        elif name == "x-dead-letter-exchange" and not isinstance(value, str):
            raise Precondition(f"invalid type '{type_name(value)}' for arg '{name}' in {what}")
        elif name in _KNOWN:
            field, check = _KNOWN[name]
            wrong = check(value)
            if wrong is not None:
                raise Precondition(f"invalid arg '{name}' for {what}: {wrong}")
            setattr(limits, field, value)
        elif name.startswith("x-stream-") or name == "x-max-age":
            raise Precondition(f"invalid arg '{name}' for {what}: qindex has no streams")
    if limits.is_quorum and "x-max-priority" in arguments:
        kind = "of queue type rabbit_quorum_queue"
        raise Precondition(f"invalid arg 'x-max-priority' for {what} {kind}")
    if limits.dead_key is not None and limits.dead_exchange is None:
        raise Precondition(
            f"invalid arg 'x-dead-letter-routing-key' for {what}: routing_key_but_no_dlx_defined"
        )
    if limits.delivery_limit is not None and limits.delivery_limit < 0:
        limits.delivery_limit = None  # as in RabbitMQ: -1 is no limit
    return limits


def _queue_type(value: Any, what: str) -> bool:
    """True: quorum, which means "durable" here."""
    if value == "stream":
        raise NotThere(
            f"{what}: x-queue-type=stream: qindex has no streams, only queues; leave x-queue-type "
            "out, or name classic or quorum"
        )
    if value not in ("classic", "quorum"):
        wrong = _text(value) or f"\"unsupported queue type '{value}'\""
        raise Precondition(f"invalid arg 'x-queue-type' for {what}: {wrong}")
    return bool(value == "quorum")


def type_name(value: Any) -> str:
    """RabbitMQ's name of a value's type in a table."""
    if value is None:
        return "void"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -(2**31) <= value < 2**31 else "long"
    names = {str: "longstr", bytes: "binary", float: "double", dict: "table", list: "array"}
    return names.get(type(value), type(value).__name__)


def inequivalent(name: str, what: str, received: Any, current: Any) -> Precondition:
    """The error of a second declaration with another argument."""
    if received is not None and current is not None:
        return inequivalent_flag(name, what, received, current)
    return Precondition(
        f"inequivalent arg '{name}' for {what}: "
        f"received {_shown(received)} but current is {_shown(current)}"
    )


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return f"the value '{_plain(value)}' of type '{type_name(value)}'"


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def inequivalent_flag(name: str, what: str, received: Any, current: Any) -> Precondition:
    """The same about a flag or a name."""
    return Precondition(
        f"inequivalent arg '{name}' for {what}: "
        f"received '{_plain(received)}' but current is '{_plain(current)}'"
    )


def check_same_arguments(
    received: dict[str, Any], current: dict[str, Any], what: str, names: list[str]
) -> None:
    """Raise Precondition if one of these arguments is not as it was declared."""
    for name in names:
        usual = "classic" if name == "x-queue-type" else None
        one, other = received.get(name), current.get(name)
        if usual is not None and {one, other} <= {usual, None}:
            continue
        if one != other or isinstance(one, bool) != isinstance(other, bool):
            raise inequivalent(name, what, one, other)


QUEUE_ARGUMENTS: Final = [*_KNOWN, "x-queue-type"]


def in_queue(message: Message, limits: Limits, now: int) -> Message:
    """The message as it stands in a queue of these limits: its end there, and its priority."""
    may_expire = message.properties[:1] and message.properties[0] & _EXPIRATION
    expiration = message.decoded.expiration if may_expire else None
    times = [int(expiration)] if expiration is not None else []
    if limits.ttl_ms is not None:
        times.append(limits.ttl_ms)
    expires_us = now + min(times) * 1000 if times else 0
    priority = min(message.priority, limits.max_priority)
    if not expires_us and priority == message.priority:
        return message
    copy = message.copy(expires_us=expires_us)
    copy.priority = priority
    return copy


def delayed(message: Message, now: int) -> tuple[int, Message]:
    """When a message is ready that went to an exchange which delays, and what it is then.

    0: at once; its header x-delay is not above 0, or above what check_delay() lets in: a dead
    letter may have such a one. The header is turned into its negative, as RabbitMQ's plugin does
    it, so that no other such exchange delays it again.
    """
    ms = _delay_ms(message)
    if not 0 < ms <= _MS_MAX:
        return 0, message
    later = message.copy(expires_us=0)
    later.properties = message.with_headers({**message.headers, "x-delay": -ms})
    later._decoded = None
    return now + ms * 1000, later


def check_delay(message: Message) -> None:
    """Raise Precondition if a publisher asks for a longer delay than there is."""
    ms = _delay_ms(message)
    if ms > _MS_MAX:
        raise Precondition(f"invalid header 'x-delay': {{value_too_large,{ms}}}")


def _delay_ms(message: Message) -> int:
    """The header x-delay in whole milliseconds: a number, or its digits. 0: none, or no number."""
    found = message.headers.get("x-delay")
    if isinstance(found, str):
        is_number = found.isascii() and found.isdigit()
        return int(found.lstrip("0")[:_DIGITS_MAX] or "0") if is_number else 0
    if isinstance(found, float):
        return int(min(found, 10.0**_DIGITS_MAX)) if isfinite(found) else 0
    return found if isinstance(found, int) and not isinstance(found, bool) else 0
