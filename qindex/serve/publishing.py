"""basic.publish: what the properties ask for, and what the publisher hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from qindex.amqp import methods as m
from qindex.amqp.wire import WireError
from qindex.broker.errors import AccessRefused, NotThere, Precondition
from qindex.broker.limits import type_name
from qindex.broker.message import AmqpError, Message
from qindex.broker.posting import Outcome
from qindex.brokers.amqp import Properties, decode_properties
from qindex.errors import DiskFull, StoreFull

if TYPE_CHECKING:
    from qindex.serve.channel import Channel

REPLY_TO: Final = "amq.rabbitmq.reply-to"
_KEPT_MAX: Final = 1024
_KEPT_BYTES_MAX: Final = 256
_PERSISTENT: Final = 2
_EXPIRATION_MAX: Final = 0xFFFFFFFF * 1000


class Wishes(NamedTuple):
    """What of a message's properties the broker looks at."""

    persistent: bool
    priority: int
    decoded: Properties
    is_plain: bool  # nothing below has to be looked at


_kept: dict[bytes, Wishes] = {}


def wishes_of(raw: bytes) -> Wishes:
    """Most publishers send the same properties again and again: those are decoded once."""
    found = _kept.get(raw)
    if found is not None:
        return found
    try:
        decoded = decode_properties(raw)
    except AmqpError as error:
        raise WireError(502, f"cannot decode properties: {error}") from None
    headers = decoded.headers or {}
    is_plain = (
        decoded.expiration is None
        and decoded.user_id is None
        and decoded.reply_to is None
        and "CC" not in headers
        and "BCC" not in headers
    )
    wishes = Wishes(decoded.delivery_mode == _PERSISTENT, decoded.priority or 0, decoded, is_plain)
    if len(raw) <= _KEPT_BYTES_MAX:
        if len(_kept) >= _KEPT_MAX:
            _kept.clear()
        _kept[raw] = wishes
    return wishes


def publish(channel: Channel, method: m.BasicPublish, properties: bytes, body: bytes) -> None:
    """Carry out a publish: route the message, return or confirm it."""
    if method.immediate:
        raise NotThere("immediate=true")
    vhost = channel.vhost
    channel.session.rights.check("write", "exchange", method.exchange)
    exchange = vhost.exchange(method.exchange)
    if exchange.internal:
        raise AccessRefused(
            f"cannot publish to internal {vhost.describe('exchange', exchange.name)}"
        )
    wishes = wishes_of(properties)
    message = Message(
        exchange.name,
        [method.routing_key],
        properties,
        body,
        persistent=wishes.persistent,
        priority=wishes.priority,
    )
    message._decoded = wishes.decoded
    if not wishes.is_plain:
        message = _checked(channel, message, wishes.decoded)
    waits = channel.confirms is not None and channel.session.server.confirms_are_durable
    message.awaited = waits and message.persistent
    if not exchange.name and method.routing_key.startswith(REPLY_TO + "."):
        _reply(channel, method, message)
        return
    counts = channel.session.server.counts
    if channel.begun is None:
        counts.receive(channel, 1)
    outcome = channel.begun or Outcome()
    try:
        vhost.publish(message, exchange, outcome)
    except (DiskFull, StoreFull):
        channel.begun = outcome  # the session comes again: no queue gets it twice
        raise
    channel.begun = None
    if not outcome.queues:
        counts.unroutable(mandatory=method.mandatory)
        if method.mandatory:
            send_return(channel, method, message.properties, message.body)
    if channel.confirms is not None:
        channel.confirms.published(refused=outcome.refused, waits=outcome.durable and waits)
        channel.session.confirm_later(channel)


def _reply(channel: Channel, method: m.BasicPublish, message: Message) -> None:
    channel.session.server.counts.receive(channel, 1)
    target = channel.session.server.replies.get(method.routing_key)
    if target is not None:
        target.deliver_reply(method, message.properties, message.body)
    elif method.mandatory:
        send_return(channel, method, message.properties, message.body)
    if channel.confirms is not None:
        channel.confirms.published(refused=False, waits=False)
        channel.session.confirm_later(channel)


def send_return(channel: Channel, method: m.BasicPublish, properties: bytes, body: bytes) -> None:
    """No queue takes the message, and its publisher wants to know."""
    back = m.BasicReturn(312, "NO_ROUTE", method.exchange, method.routing_key)
    channel.session.send_content(channel.number, back, properties, body)


def check_properties(decoded: Properties, user: str) -> None:
    """Raise Precondition if this user may not say this, or if the expiration is none."""
    if decoded.user_id is not None and decoded.user_id != user:
        raise Precondition(
            f"user_id property set to '{decoded.user_id}' but authenticated user was '{user}'"
        )
    if decoded.expiration is not None:
        _check_expiration(decoded.expiration)


def _checked(channel: Channel, message: Message, decoded: Properties) -> Message:
    """The message with the routing keys of CC and BCC, and with the real address of a reply."""
    check_properties(decoded, channel.session.user)
    headers = dict(decoded.headers or {})
    keys = keys_of(headers, *message.routing_keys)
    changes: dict[str, Any] = {}
    if decoded.reply_to == REPLY_TO:
        if channel.reply_consumer is None:
            raise Precondition("fast reply consumer does not exist")
        changes["reply_to"] = channel.reply_consumer[1]
    properties = message.properties
    if changes or headers.pop("BCC", None) is not None:
        properties = message.with_headers(headers, **changes)
    return Message(
        message.exchange,
        keys,
        properties,
        message.body,
        persistent=message.persistent,
        priority=message.priority,
    )


def keys_of(headers: dict[str, Any], *keys: str) -> list[str]:
    """A message's routing keys, with those of CC and BCC. Precondition: they are no lists."""
    return [*keys, *_more_keys(headers, "CC"), *_more_keys(headers, "BCC")]


def _more_keys(headers: dict[str, Any], name: str) -> list[str]:
    found = headers.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise Precondition(
            f'invalid message: {{unacceptable_type_in_header,"{name}",{type_name(found)}}}'
        )
    return [key for key in found if isinstance(key, str)]


def _check_expiration(text: str) -> None:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits[:1].isdigit():
        raise Precondition(f"invalid expiration '{text}': no_integer")
    if not digits.isdigit():
        rest = digits.lstrip("0123456789")
        raise Precondition(f"invalid expiration '{text}': {{leftover_string,\"{rest}\"}}")
    value = int(text)
    if value < 0:
        raise Precondition(f"invalid expiration '{text}': {{value_negative,{value}}}")
    if value > _EXPIRATION_MAX:
        raise Precondition(f"invalid expiration '{text}': {{value_too_large,{value}}}")
