"""RabbitMQ's health checks, for monitors and load balancers: 200 with "ok", 503 with a reason."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from qindex.serve.http import shapes
from qindex.serve.http.asked import Asked, answer
from qindex.serve.http.given import whole

_NAMES = {"amqp091": "amqp", "amqp0.9.1": "amqp", "amqp0-9-1": "amqp", "amqp-0-9-1": "amqp"}


def _said(failed: str, **more: Any) -> web.Response:
    if failed:
        return answer({"status": "failed", "reason": failed, **more}, 503)
    return answer({"status": "ok", **more})


async def alarms(asked: Asked) -> Any:
    """Fails while a client that publishes waits, since the disk has no room for its messages."""
    waiting = [each for each in asked.server.sessions if not each._has_room]
    return _said("publishers wait for room on the disk" if waiting else "")


async def virtual_hosts(asked: Asked) -> Any:
    """Fails when a virtual host cannot be opened, or its disk has failed a sync."""
    vhosts = asked.vhosts()
    failed = [vhost.name for vhost in vhosts if shapes.has_failed(vhost)]
    if down := [*asked.down(), *failed]:
        return _said("Some virtual hosts are down", **{"virtual-hosts": sorted(down)})
    return _said("")


async def always(asked: Asked) -> Any:
    """What one node without TLS always fulfils: no certificate expires, no mirror is behind."""
    return _said("")


async def single_node(asked: Asked) -> Any:
    return answer({"status": "ok", "reason": "single node cluster"})


async def port_listener(asked: Asked) -> Any:
    port = whole(asked.part("port"), "port", 65535)
    ports = [each[2] for each in asked.server.listening]
    if port in ports:
        return _said("", port=port)
    return _said("No active listener", missing=port, ports=ports)


async def protocol_listener(asked: Asked) -> Any:
    given = asked.part("protocol")
    name, there = _NAMES.get(given, given), [each[0] for each in asked.server.listening]
    if name in there:
        return _said("", protocol=name)
    return _said("No active listener", missing=given, protocols=sorted(set(there)))
