"""A RabbitMQ node that dies with messages on their way to dead-letter exchanges, and what it does
with them when it starts again: `build()` makes both; the archive in data/ was made with it."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .rabbitmq_server import Server

TTL_MS = 3000
POLICIES = [  # name, pattern, definition, apply-to
    ("ttlpol", "^pol\\.", {"message-ttl": TTL_MS, "dead-letter-exchange": "dx.fan"}, "queues"),
    ("ae", "^dx\\.ae", {"alternate-exchange": "dx.alt"}, "exchanges"),
]
EXCHANGES = {
    "dx.direct": "direct", "dx.fan": "fanout", "dx.topic": "topic", "dx.headers": "headers",
    "dx.ae": "direct", "dx.alt": "fanout", "dx.none": "direct",
}  # fmt: skip
FINALS = [
    "final", "final.fan1", "final.fan2", "final.topic", "final.topic2", "final.headers",
    "final.any", "final.alt", "final.direct", "final.hop",
]  # fmt: skip
BINDINGS = [  # queue, exchange, key, arguments
    ("final.direct", "dx.direct", "rk.d", {}),
    ("a.topickeep", "dx.direct", "a.zz", {}),
    ("final.fan1", "dx.fan", "", {}),
    ("final.fan2", "dx.fan", "", {}),
    ("final.topic", "dx.topic", "a.*.c", {}),
    ("final.topic2", "dx.topic", "a.#", {}),
    ("final.headers", "dx.headers", "", {"x-match": "all", "kind": "x"}),
    ("final.any", "dx.headers", "", {"x-match": "any", "kind": "none", "num": 12}),
    ("final.alt", "dx.alt", "", {}),
]
TO_FINAL = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "final"}
LATER = {"x-message-ttl": TTL_MS}


def to(exchange: str, key: str | None = None, **more: Any) -> dict[str, Any]:
    arguments = {**LATER, "x-dead-letter-exchange": exchange, **more}
    return arguments if key is None else {**arguments, "x-dead-letter-routing-key": key}


QUEUES: dict[str, dict[str, Any]] = {
    **{name: {} for name in FINALS},
    "final.ttl": {"x-message-ttl": 600_000},
    "d.default": to("", "final"),
    "d.direct": to("dx.direct", "rk.d"),
    "d.x2x": to("dx.direct", "rk.x"),
    "d.topic": to("dx.topic", "a.b.c"),
    "a.topickeep": to("dx.topic"),
    "d.headers": to("dx.headers"),
    "d.ae": to("dx.ae"),
    "d.permsg": TO_FINAL,
    "d.lost": to("dx.none", "nobody"),
    "d.nodlx": to("dx.missing"),
    "d.tottl": to("", "final.ttl"),
    "hop1": to("", "hop2"),
    "hop2": {**to("", "hop3"), "x-message-ttl": 0},
    "hop3": {**to("", "final.hop"), "x-message-ttl": 0},
    "cyc1": to("", "cyc2"),
    "cyc2": {**to("", "cyc1"), "x-message-ttl": 0},
    "self": to("", "self"),
    "pol.a": {},
    "d.behind": TO_FINAL,
    "plain.ttl": LATER,
    "maxlen": {"x-max-length": 5, **TO_FINAL},
    "maxrej": {"x-max-length": 5, "x-overflow": "reject-publish", **TO_FINAL},
    "maxbytes": {"x-max-length-bytes": 1000, **TO_FINAL},
    "prio.ttl": {**to("", "final"), "x-max-priority": 3},
}
DEATH = {"count": 2, "reason": "expired", "queue": "d.default", "exchange": "x",
         "routing-keys": ["k"]}  # fmt: skip
HEADERS: list[dict[str, Any] | None] = [
    None,
    {"CC": ["other", "final.fan2"], "BCC": ["hidden"]},
    {"x-death": [{**DEATH, "queue": "before"}, DEATH, {**DEATH, "reason": "rejected"}], "a": 1},
    {"x-death": [DEATH], "z": [1, {"a": b"b"}]},
    {"x-death": [{**DEATH, "queue": "final"}, {"queue": "by", "reason": "rejected"}]},  # no circle
    {"x-death": [{"queue": "by", "reason": "rejected"}, {**DEATH, "queue": "final"}]},
    {"x-death": "a text", "x-first-death-queue": "q"},
    {"x-death": [{"reason": "expired", "queue": "old"}, {"reason": "expired", "queue": "old"}]},
]


def declare(server: Server, channel: Any) -> None:
    for name, pattern, definition, apply_to in POLICIES:
        text = json.dumps(definition)
        server.ctl("set_policy", name, pattern, text, "--apply-to", apply_to)
    for name, kind in EXCHANGES.items():
        channel.exchange_declare(name, kind, durable=True)
    for name, arguments in QUEUES.items():
        channel.queue_declare(name, durable=True, arguments=arguments)
    for queue, exchange, key, arguments in BINDINGS:
        channel.queue_bind(queue, exchange, key, arguments)
    channel.exchange_bind("dx.fan", "dx.direct", "rk.x")


def publish_all(server: Server, channel: Any, other_channel: Any) -> None:
    """Some are delivered and not acked, so that their queues are too long after a crash."""
    number = 0

    def publish(queue: str, exchange: str = "", key: str | None = None, **properties: Any) -> None:
        nonlocal number
        number += 1
        body = properties.pop("body", b"%d of %s" % (number, queue.encode()))
        told = server.pika.BasicProperties(delivery_mode=2, message_id=str(number), **properties)
        channel.basic_publish(exchange, queue if key is None else key, body, told)

    channel.confirm_delivery()
    _fill(publish, other_channel)


def _fill(publish: Callable[..., None], other_channel: Any) -> None:
    _too_many(publish, other_channel)
    publish("d.behind")
    for queue, expiration in (("d.behind", "2500"), ("d.permsg", "2500")):
        for _ in range(2):
            publish(queue, expiration=expiration)
    publish("d.permsg", expiration="600000")
    for queue in ("d.default", "d.direct", "d.x2x", "d.topic", "d.ae", "d.lost", "d.nodlx",
                  "d.tottl", "hop1", "cyc1", "self", "pol.a", "plain.ttl"):  # fmt: skip
        for _ in range(2):
            publish(queue, headers={"n": 7})
    for _ in range(2):
        publish("a.topickeep", "dx.direct", "a.zz")
    for headers in ({"kind": "x", "CC": ["final.fan1"], "big": 5}, {"kind": "y"},
                    {"kind": "x", "z": [1, {"a": b"b"}], "num": 12}):  # fmt: skip
        publish("d.headers", headers=headers)
    for told in HEADERS:
        publish("d.default", headers=told)
    publish("d.default", body=b"big" * 3000, content_type="text/plain", priority=4,
            expiration="2000", user_id="guest")  # fmt: skip
    for priority in (1, 3, 0):
        publish("prio.ttl", priority=priority)


def _too_many(publish: Callable[..., None], other_channel: Any) -> None:
    for queue in ("maxlen", "maxrej", "maxbytes"):
        for _ in range(3):
            publish(queue, body=(b"%s " % queue.encode()).ljust(300, b"."))
        for _ in range(3):
            other_channel.basic_get(queue)
        for _ in range(5 if queue != "maxbytes" else 3):
            publish(queue, body=(b"%s then " % queue.encode()).ljust(300, b"."))


def drained(channel: Any) -> dict[str, list[dict[str, Any]]]:
    queues = {}
    for name in QUEUES:
        rows = []
        while True:
            got, properties, body = channel.basic_get(name)
            if got is None:
                break
            rows.append(
                {
                    "body": body.decode(),
                    "exchange": got.exchange,
                    "key": got.routing_key,
                    "redelivered": got.redelivered,
                    "properties": b"".join(properties.encode()).hex(),
                }
            )
        queues[name] = rows
    return queues


def build(server: Server, out: Path) -> dict[str, Any]:
    """out/dead is the dead node's directory. Returns when it was started again, and what it then
    had in its queues."""
    connection = server.connect()
    channel = connection.channel()
    declare(server, channel)
    publish_all(server, channel, connection.channel())
    server.kill()
    with contextlib.suppress(server.pika.exceptions.AMQPError):
        connection.process_data_events(1)  # notices that the node is gone, and gives all back
    shutil.copytree(server.mnesia / "qix@localhost", out / "dead")
    time.sleep(TTL_MS / 1000 + 1)
    booted = time.time()
    server.start()
    time.sleep(2)
    connection = server.connect()
    queues = drained(connection.channel())
    connection.close()
    return {"booted": booted, "queues": queues}
