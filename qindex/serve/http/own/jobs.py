"""gmq's views: ready queues, buckets of what waits for its time, what is reserved, one job."""

from __future__ import annotations

from typing import Any, Final

from qindex.broker.errors import NotFound
from qindex.broker.message import Message
from qindex.serve.gmq.door import Door
from qindex.serve.gmq.shop import DELAY_HEADER, TTR_HEADER, decoded
from qindex.serve.http import shapes
from qindex.serve.http.asked import Asked
from qindex.serve.http.own import delayed as spans
from qindex.serve.http.own.messages import Looks, message

RESERVED_MAX: Final = 500
TOPICS_MAX: Final = 500


def door_of(asked: Asked) -> Door:
    """gmq's port, whose virtual host the user may see; NotFound."""
    found = next((door for door in asked.server.doors if isinstance(door, Door)), None)
    if found is None or found.shop.vhost not in asked.vhosts():
        raise NotFound("gmq's port is not open: --gmq opens it")
    return found


async def gmq(asked: Asked, looks: Looks) -> Any:
    door = door_of(asked)
    vhost = door.shop.vhost
    leases = door.shop.leases.rows()
    reserved: dict[str, int] = {}
    for lease in leases:
        reserved[lease.queue.name] = reserved.get(lease.queue.name, 0) + 1
    names = [*door.jobs.topic_names(), *door.topics.queue_names()]
    queues = [vhost.queues[name] for name in names if name in vhost.queues]
    rows = [
        {
            "name": shapes.plain(queue.name),
            "ready": len(queue),
            "delayed": queue.backlog.delayed(),
            "reserved": reserved.get(queue.name, 0),
        }
        for queue in queues[:TOPICS_MAX]
    ]
    counts = [0] * (len(spans.SPANS) + 1)
    for lease in leases:
        counts[sum(lease.seconds > span for span in spans.SPANS)] += 1
    found = await spans.delayed_of(looks, [(vhost, queue) for queue in queues])
    buckets = [sum(row["counts"][at] for row in found["items"]) for at in range(len(counts))]
    return {
        "vhost": vhost.name,
        "connections": len(door.connections),
        "topics": len(queues),
        "items": rows,
        "spans": list(spans.SPANS),
        "buckets": buckets,
        "ttr_buckets": counts,
        "reserved": [
            {
                "id": shapes.plain(lease.name.partition("\0")[0]),
                "topic": shapes.plain(lease.queue.name),
                "deliveries": lease.entry.deliveries,
                "seconds": round(lease.seconds, 1),
            }
            for lease in leases[:RESERVED_MAX]
        ],
        "reserved_total": len(leases),
    }


async def job(asked: Asked, looks: Looks) -> Any:
    """One job by its id: where it is, and what it has."""
    door, name = door_of(asked), asked.part("id")
    vhost = door.shop.vhost
    rights = asked.server.node.users.rights(asked.user, vhost.name)
    lease = next((each for each in door.shop.leases.rows() if each.name == name), None)
    if lease is not None:
        rights.check("read", "queue", lease.queue.name)
        found = _job(lease.queue.name, "reserved", lease.entry.message)
        return {**found, "deliveries": lease.entry.deliveries, "seconds": round(lease.seconds, 1)}
    where = door.jobs.where(name)
    queue = None if where is None else vhost.queues.get(where[0])
    if where is None or queue is None:
        raise NotFound(f"there is no live job {name!r}")
    rights.check("read", "queue", queue.name)
    number = where[1]
    looked = await looks.run(queue, lambda: next(iter(queue.backlog.look(number, None)), None))
    if looked is None or isinstance(looked, int) or looked.number != number:
        raise NotFound(f"there is no live job {name!r}")
    shown = message(looked, 65536)
    return {**_job(queue.name, looked.state, looked.message), **shown}


def _job(topic: str, state: str, found: Message) -> shapes.Shape:
    headers = decoded(found).headers or {}
    return {
        "topic": shapes.plain(topic),
        "state": state,
        "ttr": headers.get(TTR_HEADER),
        "delay": headers.get(DELAY_HEADER),
    }
