"""What the API says of things, in the JSON that RabbitMQ 3.10 has for them."""

from __future__ import annotations

import base64
import os
import platform
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import qindex
from qindex import strict_json
from qindex.broker.exchanges import DELAYED, QUEUE, TYPES, Binding, Destination, Exchange
from qindex.broker.message import Message
from qindex.broker.queues import Queue
from qindex.broker.totals import Totals
from qindex.broker.vhost import VHost
from qindex.brokers.amqp import PROPERTY_NAMES
from qindex.serve.consumers import Consumer
from qindex.serve.definitions import RABBITMQ_VERSION
from qindex.serve.plain import plain as plain

if TYPE_CHECKING:
    from qindex.serve.channel import Channel
    from qindex.serve.server import Server
    from qindex.serve.session import Session

MANAGEMENT_VERSION: Final = RABBITMQ_VERSION
Shape = dict[str, Any]


def overview(server: Server, vhosts: list[VHost]) -> Shape:
    queues = [queue for vhost in vhosts for queue in vhost.queues.values()]
    ready, unacked = sum(map(len, queues)), sum(queue.unacked for queue in queues)
    total = Totals(*(sum(column) for column in zip(*map(VHost.totals, vhosts), strict=True)))
    channels = [channel for session in server.sessions for channel in session.channels]
    return {
        "management_version": MANAGEMENT_VERSION,
        "rabbitmq_version": MANAGEMENT_VERSION,
        "product_name": "qindex",
        "product_version": qindex.__version__,
        "rates_mode": "none",
        "cluster_name": server.properties()["cluster_name"],
        "node": node_name(server),
        "statistics_db_node": node_name(server),
        "exchange_types": _exchange_types(),
        "listeners": [
            {"node": node_name(server), "protocol": protocol, "ip_address": address, "port": port}
            for protocol, address, port in server.listening
        ],
        "message_stats": _message_stats(total),
        "queue_totals": {
            "messages": ready + unacked,
            "messages_ready": ready,
            "messages_unacknowledged": unacked,
        },
        "object_totals": {
            "connections": len(server.sessions),
            "channels": len(channels),
            "consumers": sum(len(queue.consumers) for queue in queues),
            "exchanges": sum(len(vhost.exchanges) for vhost in vhosts),
            "queues": len(queues),
        },
    }


def _exchange_types() -> list[Shape]:
    return [{"name": kind, "description": "", "enabled": True} for kind in (*TYPES, DELAYED)]


def has_failed(vhost: VHost) -> bool:
    """True once a sync has failed: nobody knows what is durable."""
    return vhost.commit is not None and vhost.commit.failed is not None


def _message_stats(total: Totals | Queue) -> Shape:
    return {
        "publish": total.published,
        "deliver_get": total.delivered,
        "ack": total.acked,
    }


def node_name(server: Server) -> str:
    return str(server.properties()["cluster_name"])


def node(server: Server) -> Shape:
    return {
        "name": node_name(server),
        "type": "disc",
        "running": True,
        "partitions": [],
        "exchange_types": _exchange_types(),
        "processors": os.cpu_count() or 1,
        "os_pid": str(os.getpid()),
        "python": platform.python_version(),
        "mem_alarm": False,
        "disk_free_alarm": False,
        "uptime": int(server.uptime * 1000),
    }


def vhost(server: Server, found: VHost) -> Shape:
    ready = sum(map(len, found.queues.values()))
    unacked = sum(queue.unacked for queue in found.queues.values())
    return {
        "name": found.name,
        "description": "",
        "tags": [],
        "tracing": False,
        "cluster_state": {node_name(server): "stopped" if has_failed(found) else "running"},
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
    }


def vhost_down(server: Server, name: str, why: str) -> Shape:
    """Of one that cannot be opened: nobody knows what is in it."""
    return {
        "name": name,
        "description": "",
        "tags": [],
        "tracing": False,
        "cluster_state": {node_name(server): "stopped"},
        "error": plain(why),
    }


def queue(server: Server, vhost: VHost, found: Queue) -> Shape:
    return {
        "name": plain(found.name),
        "vhost": vhost.name,
        "type": "quorum" if found.limits.is_quorum else "classic",
        "durable": found.durable,
        "auto_delete": found.auto_delete,
        "exclusive": found.owner is not None,
        "arguments": plain(found.arguments),
        "node": node_name(server),
        "state": vhost.state_of(found),
        "messages": len(found) + found.unacked,
        "messages_ready": len(found),
        "messages_unacknowledged": found.unacked,
        "messages_delayed": found.backlog.delayed(),
        "consumers": len(found.consumers),
        "policy": None,
        "message_stats": _message_stats(found),
    }


def exchange(vhost: VHost, found: Exchange) -> Shape:
    return {
        "name": plain(found.name),
        "vhost": vhost.name,
        "type": found.kind,
        "durable": found.durable,
        "auto_delete": found.auto_delete,
        "internal": found.internal,
        "arguments": plain(found.arguments),
        "user_who_performed_action": "",
    }


def properties_key(binding: Binding) -> str:
    """The last part of a binding's path: its routing key, and a digest of its arguments."""
    key = quote(binding.routing_key, safe="") or "~"
    return f"{key}~{binding.arguments}" if binding.arguments else key


def binding(vhost: VHost, found: Binding, arguments: Shape) -> Shape:
    return {
        "source": plain(found.source),
        "vhost": vhost.name,
        "destination": plain(found.destination.name),
        "destination_type": found.destination.kind,
        "routing_key": plain(found.routing_key),
        "arguments": plain(arguments),
        "properties_key": properties_key(found),
    }


def bindings(vhost: VHost) -> list[tuple[Binding, Shape]]:
    """All bindings, those of the default exchange to each queue first."""
    default: list[tuple[Binding, Shape]] = [
        (Binding("", Destination(QUEUE, name), name, ""), {}) for name in vhost.queues
    ]
    made = [each for found in vhost.exchanges.values() for each in found.bindings.items()]
    return [*default, *made]


def connection(server: Server, session: Session) -> Shape:
    host, _, port = session.peer.rpartition(":")
    client = plain(session.connection.client or {})
    return {
        "name": session.peer,
        "node": node_name(server),
        "type": "network",
        "protocol": "AMQP 0-9-1",
        "user": session.user,
        "vhost": session.vhost_name,
        "state": session.state,
        "host": server.address_of(session)[0],
        "port": server.address_of(session)[1],
        "peer_host": host,
        "peer_port": int(port) if port.isdigit() else 0,
        "ssl": False,
        "channels": session.channel_count,
        "channel_max": session.connection.channel_max,
        "frame_max": session.connection.frame_max,
        "timeout": session.connection.heartbeat,
        "recv_oct": session.received,
        "send_oct": session.sent,
        "client_properties": client,
        "user_provided_name": client.get("connection_name", ""),
    }


def channel(server: Server, session: Session, found: Channel) -> Shape:
    return {
        "name": f"{session.peer} ({found.number})",
        "node": node_name(server),
        "number": found.number,
        "user": session.user,
        "vhost": session.vhost_name,
        "confirm": found.confirms is not None,
        "transactional": False,
        "prefetch_count": found.prefetch,
        "global_prefetch_count": found.shared.limit,
        "state": "running",
        "messages_unacknowledged": found.unacked,
        "connection_details": {"name": session.peer},
    }


def consumer(vhost: VHost, queue: Queue, found: Consumer) -> Shape:
    session = found.channel.session
    return {
        "consumer_tag": plain(found.tag),
        "ack_required": not found.no_ack,
        "exclusive": found.exclusive,
        "prefetch_count": found.prefetch,
        "arguments": found.arguments,
        "active": found.is_active,
        "queue": {"name": plain(queue.name), "vhost": vhost.name},
        "channel_details": {
            "name": f"{session.peer} ({found.channel.number})",
            "number": found.channel.number,
            "connection_name": session.peer,
            "user": session.user,
        },
    }


def properties(message: Message) -> Shape:
    """The properties that are set, by RabbitMQ's names."""
    decoded = message.decoded
    values = ((name, getattr(decoded, name)) for name in PROPERTY_NAMES)
    return {name: plain(value) for name, value in values if value is not None}


def payload(body: bytes, encoding: str, truncate: int | None) -> Shape:
    shown = body if truncate is None else body[:truncate]
    text: str | None = None
    if encoding == "auto":
        try:
            text = shown.decode()
        except UnicodeDecodeError:
            text = None
    if text is None:
        raw = base64.b64encode(shown).decode()
        return {"payload": raw, "payload_encoding": "base64", "payload_bytes": len(body)}
    return {"payload": text, "payload_encoding": "string", "payload_bytes": len(body)}


def to_json(value: Any) -> str:
    return strict_json.dumps(value, ensure_ascii=False)
