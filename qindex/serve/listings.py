"""The commands that list what there is, with the columns of rabbitmqctl."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from qindex.broker.errors import Invalid
from qindex.broker.exchanges import QUEUE, Binding, Destination
from qindex.broker.vhost import VHost
from qindex.serve.administration import Administration, Reply
from qindex.serve.consumers import Consumer
from qindex.serve.plain import plain

_QUEUE_COLUMNS: Final[dict[str, Callable[[VHost, Any], Any]]] = {
    "name": lambda vhost, queue: queue.name,
    "messages": lambda vhost, queue: len(queue) + queue.unacked,
    "messages_ready": lambda vhost, queue: len(queue),
    "messages_unacknowledged": lambda vhost, queue: queue.unacked,
    "consumers": lambda vhost, queue: len(queue.consumers),
    "durable": lambda vhost, queue: queue.durable,
    "auto_delete": lambda vhost, queue: queue.auto_delete,
    "exclusive": lambda vhost, queue: queue.owner is not None,
    "arguments": lambda vhost, queue: plain(queue.arguments),
    "policy": lambda vhost, queue: "",
    "type": lambda vhost, queue: "quorum" if queue.limits.is_quorum else "classic",
    "state": lambda vhost, queue: vhost.state_of(queue),
}
_CONNECTION_COLUMNS: Final[dict[str, Callable[[Any], Any]]] = {
    "pid": lambda session: f"<qindex.{session.number}>",
    "name": lambda session: session.peer,
    "user": lambda session: session.user,
    "peer_host": lambda session: session.peer.rpartition(":")[0],
    "peer_port": lambda session: session.peer.rpartition(":")[2],
    "vhost": lambda session: session.vhost_name,
    "state": lambda session: session.state,
    "channels": lambda session: session.channel_count,
    "recv_oct": lambda session: session.received,
    "send_oct": lambda session: session.sent,
    "timeout": lambda session: session.connection.heartbeat,
    "client_properties": lambda session: plain(session.connection.client),
    "host": lambda session: session.server.address_of(session)[0],
    "port": lambda session: session.server.address_of(session)[1],
    "protocol": lambda session: "{0,9,1}",
    "frame_max": lambda session: session.connection.frame_max,
    "channel_max": lambda session: session.connection.channel_max,
    "ssl": lambda session: False,
}


def _columns(given: list[str], default: list[str], known: dict[str, Any]) -> list[str]:
    for name in given:
        if name not in known:
            raise Invalid(f"there is no column {name!r}; there are {', '.join(known)}")
    return given or default


def list_queues(admin: Administration, given: list[str]) -> Reply:
    columns = _columns(given, ["name", "messages"], _QUEUE_COLUMNS)
    vhost = admin.open_vhost()
    rows = [
        [_QUEUE_COLUMNS[column](vhost, queue) for column in columns]
        for _, queue in sorted(vhost.queues.items())
    ]
    return Reply(f"Listing queues for vhost {admin.vhost} ...", columns, rows)


def list_connections(admin: Administration, given: list[str]) -> Reply:
    default = ["user", "peer_host", "peer_port", "state"]
    columns = _columns(given, default, _CONNECTION_COLUMNS)
    rows = [
        [_CONNECTION_COLUMNS[column](session) for column in columns]
        for session in sorted(admin.sessions, key=lambda each: each.number)
    ]
    return Reply("Listing connections ...", columns, rows)


_EXCHANGE_COLUMNS: Final[dict[str, Callable[[Any], Any]]] = {
    "name": lambda exchange: exchange.name,
    "type": lambda exchange: exchange.kind,
    "durable": lambda exchange: exchange.durable,
    "auto_delete": lambda exchange: exchange.auto_delete,
    "internal": lambda exchange: exchange.internal,
    "arguments": lambda exchange: plain(exchange.arguments),
    "policy": lambda exchange: "",
}
_BINDING_COLUMNS: Final[dict[str, Callable[[Any], Any]]] = {
    "source_name": lambda row: row[0].source,
    "source_kind": lambda row: "exchange",
    "destination_name": lambda row: row[0].destination.name,
    "destination_kind": lambda row: row[0].destination.kind,
    "routing_key": lambda row: row[0].routing_key,
    "arguments": lambda row: plain(row[1]),
}
_CHANNEL_COLUMNS: Final[dict[str, Callable[[Any], Any]]] = {
    "pid": lambda row: f"<qindex.{row[0].number}.{row[1].number}>",
    "connection": lambda row: f"<qindex.{row[0].number}>",
    "name": lambda row: f"{row[0].peer} ({row[1].number})",
    "number": lambda row: row[1].number,
    "user": lambda row: row[0].user,
    "vhost": lambda row: row[0].vhost_name,
    "confirm": lambda row: row[1].confirms is not None,
    "transactional": lambda row: False,
    "consumer_count": lambda row: row[1].consumer_count,
    "messages_unacknowledged": lambda row: row[1].unacked,
    "prefetch_count": lambda row: row[1].prefetch,
    "global_prefetch_count": lambda row: row[1].shared.limit,
}
_CONSUMER_COLUMNS: Final[dict[str, Callable[[Any], Any]]] = {
    "queue_name": lambda consumer: consumer.queue.name,
    "channel_pid": lambda consumer: (
        f"<qindex.{consumer.channel.session.number}.{consumer.channel.number}>"
    ),
    "consumer_tag": lambda consumer: consumer.tag,
    "ack_required": lambda consumer: not consumer.no_ack,
    "prefetch_count": lambda consumer: consumer.prefetch,
    "active": lambda consumer: consumer.is_active,
    "arguments": lambda consumer: consumer.arguments,
    "exclusive": lambda consumer: consumer.exclusive,
    "priority": lambda consumer: consumer.priority,
}


def _rows(found: Iterable[Any], columns: list[str], known: dict[str, Any]) -> list[list[Any]]:
    return [[known[column](each) for column in columns] for each in found]


def list_exchanges(admin: Administration, given: list[str]) -> Reply:
    columns = _columns(given, ["name", "type"], _EXCHANGE_COLUMNS)
    found = [each for _, each in sorted(admin.open_vhost().exchanges.items())]
    text = f"Listing exchanges for vhost {admin.vhost} ..."
    return Reply(text, columns, _rows(found, columns, _EXCHANGE_COLUMNS))


def list_bindings(admin: Administration, given: list[str]) -> Reply:
    """Those of the default exchange, which each queue has, come first."""
    columns = _columns(given, list(_BINDING_COLUMNS), _BINDING_COLUMNS)
    vhost = admin.open_vhost()
    found: list[tuple[Binding, dict[str, Any]]] = [
        (Binding("", Destination(QUEUE, name), name, ""), {}) for name in sorted(vhost.queues)
    ]
    for _, each in sorted(vhost.exchanges.items()):
        found += each.bindings.items()
    text = f"Listing bindings for vhost {admin.vhost}..."
    return Reply(text, columns, _rows(found, columns, _BINDING_COLUMNS))


def list_channels(admin: Administration, given: list[str]) -> Reply:
    default = ["pid", "user", "consumer_count", "messages_unacknowledged"]
    columns = _columns(given, default, _CHANNEL_COLUMNS)
    sessions = sorted(admin.sessions, key=lambda each: each.number)
    found = [(session, channel) for session in sessions for channel in session.channels]
    return Reply("Listing channels ...", columns, _rows(found, columns, _CHANNEL_COLUMNS))


def list_consumers(admin: Administration, given: list[str]) -> Reply:
    default = ["queue_name", "channel_pid", "consumer_tag", "ack_required", "prefetch_count"]
    default += ["active", "arguments"]
    columns = _columns(given, default, _CONSUMER_COLUMNS)
    found = [
        consumer
        for _, queue in sorted(admin.open_vhost().queues.items())
        for consumer in queue.consumers
        if isinstance(consumer, Consumer)
    ]
    text = f"Listing consumers in vhost {admin.vhost} ..."
    return Reply(text, columns, _rows(found, columns, _CONSUMER_COLUMNS))
