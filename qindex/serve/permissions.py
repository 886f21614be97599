"""What a user needs for each method, as RabbitMQ has it.

basic.publish is not here: publishing.py asks for each exchange itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from qindex.amqp import methods as m
from qindex.broker.users import Rights

if TYPE_CHECKING:
    from qindex.serve.channel import Channel

REPLY_TO: Final = "amq.rabbitmq.reply-to"


def check(rights: Rights, channel: Channel, method: Any) -> None:
    """Raise AccessRefused if the user may not do this. Most methods need nothing: O(1)."""
    needs = _NEEDS.get(type(method))
    if needs is not None:
        needs(rights, channel, method)


def stripped(name: str) -> str:
    """The name that is meant: without line ends, as in RabbitMQ. What is checked is that name."""
    return name.replace("\r", "").replace("\n", "")


def check_declare_exchange(rights: Rights, name: str, arguments: dict[str, Any]) -> None:
    """Raise AccessRefused if the user may not make this exchange."""
    rights.check("configure", "exchange", name)
    alternate = arguments.get("alternate-exchange")
    if isinstance(alternate, str):
        rights.check("read", "exchange", name)
        rights.check("write", "exchange", alternate)


def check_declare_queue(rights: Rights, name: str, arguments: dict[str, Any]) -> None:
    """Raise AccessRefused if the user may not make this queue: "" is one that the server names."""
    rights.check("configure", "queue", name or "amq.gen-")
    dead = arguments.get("x-dead-letter-exchange")
    if isinstance(dead, str):
        rights.check("read", "queue", name or "amq.gen-")
        rights.check("write", "exchange", dead)


def _queue(channel: Channel, method: Any) -> str:
    return stripped(method.queue or channel.last_queue)


def _declare_exchange(rights: Rights, channel: Channel, method: m.ExchangeDeclare) -> None:
    if not method.passive:
        check_declare_exchange(rights, stripped(method.exchange), method.arguments)


def _delete_exchange(rights: Rights, channel: Channel, method: m.ExchangeDelete) -> None:
    rights.check("configure", "exchange", stripped(method.exchange))


def _join_exchanges(
    rights: Rights, channel: Channel, method: m.ExchangeBind | m.ExchangeUnbind
) -> None:
    rights.check("write", "exchange", method.destination)
    rights.check("read", "exchange", method.source)


def _declare_queue(rights: Rights, channel: Channel, method: m.QueueDeclare) -> None:
    name = stripped(method.queue)
    if method.passive or name == REPLY_TO or name.startswith(REPLY_TO + "."):
        return
    check_declare_queue(rights, name, method.arguments)


def _delete_queue(rights: Rights, channel: Channel, method: m.QueueDelete) -> None:
    rights.check("configure", "queue", _queue(channel, method))


def _join_queue(rights: Rights, channel: Channel, method: m.QueueBind | m.QueueUnbind) -> None:
    rights.check("write", "queue", _queue(channel, method))
    rights.check("read", "exchange", method.exchange)


def _read_queue(
    rights: Rights, channel: Channel, method: m.QueuePurge | m.BasicGet | m.BasicConsume
) -> None:
    if method.queue != REPLY_TO:
        rights.check("read", "queue", _queue(channel, method))


_NEEDS: Final[dict[type, Callable[[Rights, Channel, Any], None]]] = {
    m.ExchangeDeclare: _declare_exchange,
    m.ExchangeDelete: _delete_exchange,
    m.ExchangeBind: _join_exchanges,
    m.ExchangeUnbind: _join_exchanges,
    m.QueueDeclare: _declare_queue,
    m.QueueDelete: _delete_queue,
    m.QueueBind: _join_queue,
    m.QueueUnbind: _join_queue,
    m.QueuePurge: _read_queue,
    m.BasicGet: _read_queue,
    m.BasicConsume: _read_queue,
}
