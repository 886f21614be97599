"""What changes something over HTTP: declare, bind, delete, purge, publish, get, close."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Final
from urllib.parse import quote, unquote

from aiohttp import web

from qindex.broker.errors import AccessRefused, NotFound
from qindex.broker.exchanges import EXCHANGE, QUEUE
from qindex.broker.message import Message
from qindex.broker.taken import Entry
from qindex.broker.vhost import VHost
from qindex.brokers.amqp import PROPERTY_NAMES, Properties, encode_properties
from qindex.field_table import encode_table
from qindex.serve.http import shapes
from qindex.serve.http.asked import Asked, answer, check_name
from qindex.serve.http.given import one_of, text, whole
from qindex.serve.permissions import check_declare_exchange, check_declare_queue
from qindex.serve.publishing import check_properties, keys_of

_NUMBERS: Final = {  # properties, each with the greatest and the least value
    "delivery_mode": (2, 1),
    "priority": (255, 0),
    "timestamp": ((1 << 63) - 1, -1 << 63),
}
GET_MAX: Final = 10_000
GET_BYTES_MAX: Final = 16 * 1024 * 1024  # of bodies in one answer; one message may have more


async def put_queue(asked: Asked) -> web.Response:
    vhost, name, given = asked.vhost(), asked.part("name"), await asked.json()
    arguments = _table(given, "arguments")
    check_declare_queue(asked.rights(), name, arguments)
    is_new = name not in vhost.queues
    vhost.declare_queue(
        name,
        durable=_flag(given, "durable", True),
        auto_delete=_flag(given, "auto_delete", False),
        owner=None,
        user=None,
        arguments=arguments,
    )
    return web.Response(status=201 if is_new else 204)


async def delete_queue(asked: Asked) -> web.Response:
    vhost, queue = asked.queue()
    asked.rights().check("configure", "queue", queue.name)
    vhost.check_arrived(queue.name)
    if_unused, if_empty = map(asked.flag, ("if-unused", "if-empty"))
    vhost.delete_queue(queue.name, None, if_unused=if_unused, if_empty=if_empty)
    return web.Response(status=204)


async def purge(asked: Asked) -> web.Response:
    vhost, queue = asked.queue()
    asked.rights().check("read", "queue", queue.name)
    vhost.check_arrived(queue.name)
    vhost.queue(queue.name, None).purge()
    return web.Response(status=204)


async def put_exchange(asked: Asked) -> web.Response:
    vhost, name, given = asked.vhost(), asked.part("name"), await asked.json()
    arguments = _table(given, "arguments")
    check_declare_exchange(asked.rights(), name, arguments)
    is_new = name not in vhost.exchanges
    vhost.declare_exchange(
        name,
        str(given.get("type", "direct")),
        durable=_flag(given, "durable", True),
        auto_delete=_flag(given, "auto_delete", False),
        internal=_flag(given, "internal", False),
        arguments=arguments,
    )
    return web.Response(status=201 if is_new else 204)


async def delete_exchange(asked: Asked) -> web.Response:
    vhost, name = asked.vhost(), asked.part("name")
    asked.rights().check("configure", "exchange", vhost.exchange(name).name)
    vhost.delete_exchange(name, if_unused=asked.flag("if-unused"))
    return web.Response(status=204)


def _ends(asked: Asked) -> tuple[VHost, str, str, str]:
    """The virtual host, source, kind and name of a binding's path, which the user may join."""
    vhost, source, name = asked.vhost(), asked.part("source"), asked.part("name")
    kind = QUEUE if asked.part("kind") == "q" else EXCHANGE
    asked.rights().check("write", kind, name)
    asked.rights().check("read", "exchange", source)
    return vhost, source, kind, name


async def bind(asked: Asked) -> web.Response:
    vhost, source, kind, name = _ends(asked)
    given = await asked.json()
    key = str(given.get("routing_key", ""))
    check_name(key)
    arguments = _table(given)
    vhost.bind(source, kind, name, key, arguments, None)
    found = next(
        each
        for each, its in vhost.exchange(source).bindings.items()
        if each.destination == (kind, name) and each.routing_key == key and its == arguments
    )
    last = f"{quote(name, safe='')}/{quote(shapes.properties_key(found), safe='')}"
    return web.Response(status=201, headers={"Location": last})


async def unbind(asked: Asked) -> web.Response:
    vhost, source, kind, name = _ends(asked)
    for binding, arguments in list(vhost.exchange(source).bindings.items()):
        key = unquote(shapes.properties_key(binding))
        if binding.destination == (kind, name) and key == unquote(asked.part("key")):
            vhost.unbind(source, kind, name, binding.routing_key, arguments, None)
            return web.Response(status=204)
    raise NotFound("Not Found")


async def publish(asked: Asked) -> web.Response:
    vhost, given = asked.vhost(), await asked.json()
    name = asked.part("name")
    exchange = vhost.exchange("" if name == "amq.default" else name)
    asked.rights().check("write", "exchange", exchange.name)
    if exchange.internal:
        raise AccessRefused("cannot publish to an internal exchange")
    values = _properties(given)
    body = _body(given)
    key = text(given, "routing_key")
    headers = dict(values.get("headers", {}))
    keys = keys_of(headers, key)
    for each in keys:
        check_name(each)
    if headers.pop("BCC", None) is not None:
        values["headers"] = headers
    properties = Properties(**values)
    raw = encode_properties(properties)
    check_properties(properties, asked.user)
    message = Message(
        exchange.name,
        keys,
        raw,
        body,
        persistent=properties.delivery_mode == 2,
        priority=properties.priority or 0,
    )
    message.awaited = asked.server.confirms_are_durable
    outcome = vhost.publish(message, exchange)
    asked.server.counts.received += 1
    if not outcome.queues:
        asked.server.counts.unroutable(mandatory=True)  # the answer says so
    if outcome.refused:
        raise ValueError("a queue is full or damaged, and has refused the message")
    if outcome.durable and asked.server.confirms_are_durable and vhost.commit is not None:
        synced = asyncio.Event()
        vhost.commit.join(synced.set)
        await synced.wait()
    return answer({"routed": bool(outcome.queues)})


def _properties(given: dict[str, Any]) -> dict[str, Any]:
    """Those of a message that have a value."""
    given = _object(given, "properties")
    values = {name: value for name, value in given.items() if value is not None}
    unknown = sorted(set(values) - set(PROPERTY_NAMES))
    if unknown:
        raise ValueError(f"unknown properties: {', '.join(unknown)}")
    for name in values:
        if name == "headers":
            values[name] = _table(values, name)
        elif name in _NUMBERS:
            values[name] = whole(values[name], name, *_NUMBERS[name])
        else:
            text(values, name)
    return values


def _body(given: dict[str, Any]) -> bytes:
    encoding = one_of(given, "payload_encoding", ("string", "base64"), "string")
    payload = text(given, "payload")
    if encoding == "string":
        return payload.encode()
    try:
        return base64.b64decode(payload, validate=True)
    except ValueError:
        raise ValueError("payload is no base64, and payload_encoding says that it is") from None


async def get(asked: Asked) -> web.Response:
    """Take messages, and settle or give them back at once, as ackmode says.

    Fewer than are asked for, if their bodies have more than about GET_BYTES_MAX bytes together.
    """
    vhost, queue = asked.queue()
    asked.rights().check("read", "queue", queue.name)
    vhost.check_arrived(queue.name)
    queue = vhost.queue(queue.name, None)
    given = await asked.json()
    mode = given.get("ackmode", "ack_requeue_true")
    verbs = {
        "ack_requeue_true": queue.requeue,
        "reject_requeue_true": queue.requeue,
        "ack_requeue_false": queue.ack,
        "reject_requeue_false": queue.reject,
    }
    if not isinstance(mode, str) or mode not in verbs:
        raise ValueError(f"ackmode is one of {', '.join(verbs)}")
    truncate = whole(given["truncate"], "truncate", 1 << 31) if "truncate" in given else None
    encoding = one_of(given, "encoding", ("auto", "base64"), "auto")
    count = whole(given.get("count", 1), "count", GET_MAX)
    entries: list[Entry] = []
    found = []
    try:
        size = 0
        while len(entries) < count and size < GET_BYTES_MAX:
            if (entry := queue.get()) is None:
                break
            entries.append(entry)
            size += len(entry.message.body)
        for at, entry in enumerate(entries):
            message = entry.message
            found.append(
                {
                    **shapes.payload(message.body, encoding, truncate),
                    "exchange": shapes.plain(message.exchange),
                    "routing_key": shapes.plain(message.routing_keys[0]),
                    "redelivered": entry.redelivered,
                    "message_count": len(queue) + len(entries) - at - 1,
                    "properties": shapes.properties(message),
                }
            )
    except Exception:
        queue.requeue(entries)
        raise
    if entries:
        verbs[mode](entries)
    return answer(found)


async def close_connection(asked: Asked) -> web.Response:
    for session in asked.sessions():
        if session.peer == asked.part("name"):
            if session.user != asked.user:  # monitoring sees it, too
                asked.must_administer()
            why = asked.request.headers.get("X-Reason", "Closed via management plugin")
            asked.server.end(session, why)
            return web.Response(status=204)
    raise NotFound("Not Found")


def _flag(given: dict[str, Any], name: str, default: bool) -> bool:
    value = given.get(name, default)
    if isinstance(value, str):  # rabbitmqadmin sends what its user has typed
        value = {"true": True, "false": False}.get(value)
    if not isinstance(value, bool):
        raise TypeError(f"{name} is true or false")
    return value


def _table(given: dict[str, Any], name: str = "arguments") -> dict[str, Any]:
    """An object whose values can be those of a table."""
    value = _object(given, name)
    encode_table(value, name=name)  # an error says which value it is, as the request has it
    return value


def _object(given: dict[str, Any], name: str) -> dict[str, Any]:
    value = given.get(name)
    if value is None or value == []:  # an empty object, as PHP writes it
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"{name} is an object")
    return value


QUERIES: Final[dict[Any, tuple[str, ...]]] = {  # what may follow "?" where something changes
    delete_queue: ("if-unused", "if-empty"),
    delete_exchange: ("if-unused",),
}
