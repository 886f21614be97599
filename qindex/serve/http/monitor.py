"""The JSON of gmq's web monitor, below /gmq/: its names and its envelope {code, msg, data}.

gmq spreads jobs over numbered buckets. Here each topic has one of what is delayed and one of what
is reserved, so the keys of buckets name topics.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from qindex.broker.backlog import Looked
from qindex.broker.errors import NotFound
from qindex.broker.message import Message
from qindex.broker.queues import Queue
from qindex.gmq.text import shown
from qindex.serve.gmq.door import Door
from qindex.serve.gmq.leases import Reserved
from qindex.serve.gmq.shop import DELAY_HEADER, TTR_HEADER, decoded
from qindex.serve.http import shapes
from qindex.serve.http.asked import Asked
from qindex.serve.http.given import whole
from qindex.serve.http.own.jobs import door_of
from qindex.serve.http.own.messages import LOOK_SECONDS, Looks

READY: Final = "gmq:readyqueue:"
BUCKET: Final = "gmq:bucket:"
TTR_BUCKET: Final = "gmq:ttrbucket:"
JOB: Final = "gmq:jobpool:"
LIMIT: Final = 20
LIMIT_MAX: Final = 500
STATES: Final = {"delayed": ("1", "delay"), "ready": ("2", "ready"), "reserved": ("3", "reserved")}
_ID_MAX: Final = 10_000  # delayed jobs of a topic that are looked at


def paths(looks: Looks) -> list[tuple[str, Callable[[Asked], Any]]]:
    """The paths, and what answers them."""

    async def jobs(asked: Asked) -> Any:
        return await _jobs(asked, looks)

    async def detail(asked: Asked) -> Any:
        return await _detail(asked, looks)

    return [
        ("getReadyQueueStat", _ready),
        ("getBucketStat", _buckets),
        ("getTTRBucketStat", _ttr_buckets),
        ("getJobsByBucketKey", jobs),
        ("jobDetail", detail),
    ]


def _said(data: Any) -> dict[str, Any]:
    return {"code": 0, "msg": "", "data": data}


def _wrong(text: str) -> web.Response:
    answer = {"code": 1, "msg": text, "data": None}
    return web.Response(status=400, text=shapes.to_json(answer), content_type="application/json")


def _queues(door: Door) -> list[Queue]:
    names = [*door.jobs.topic_names(), *door.topics.queue_names()]
    return [door.shop.vhost.queues[name] for name in names if name in door.shop.vhost.queues]


async def _ready(asked: Asked) -> Any:
    return _said(
        [
            {"id": at, "queue_name": READY + queue.name, "job_num": len(queue)}
            for at, queue in enumerate(_queues(door_of(asked)), 1)
        ]
    )


async def _buckets(asked: Asked) -> Any:
    rows = []
    for at, queue in enumerate(_queues(door_of(asked)), 1):
        count, due_us = queue.backlog.delayed(), queue.due_timer.next_us
        next_at = _moment(due_us / 1e6) if count and due_us else ""
        row = {"id": at, "bucket_name": BUCKET + queue.name, "job_num": count, "next_time": next_at}
        rows.append(row)
    return _said(rows)


async def _ttr_buckets(asked: Asked) -> Any:
    door = door_of(asked)
    leases = door.shop.leases.rows()
    rows = []
    for at, queue in enumerate(_queues(door), 1):
        own = [lease.seconds for lease in leases if lease.queue is queue]
        next_at = _moment(time.time() + own[0]) if own else ""
        name = TTR_BUCKET + queue.name
        row = {"id": at, "bucket_name": name, "job_num": len(own), "next_time": next_at}
        rows.append(row)
    return _said(rows)


async def _jobs(asked: Asked, looks: Looks) -> Any:
    """Those that end first, as many as ?limit says."""
    door, key = door_of(asked), asked.query("bucketKey")
    limit = whole(asked.query("limit", str(LIMIT)), "limit", LIMIT_MAX)
    prefix = TTR_BUCKET if key.startswith(TTR_BUCKET) else BUCKET
    queue = door.shop.vhost.queues.get(key.removeprefix(prefix))
    if not key.startswith(prefix) or queue not in _queues(door):
        return _wrong("bucketKey is none of getBucketStat and getTTRBucketStat")
    asked.server.node.users.rights(asked.user, door.shop.vhost.name).check(
        "read", "queue", queue.name
    )
    if prefix == TTR_BUCKET:
        leases = [lease for lease in door.shop.leases.rows() if lease.queue is queue][:limit]
        now = time.time()
        found = [(now + lease.seconds, lease.entry.message) for lease in leases]
        return _said([_row(queue, at, each, "reserved") for at, each in found])
    backlog, until = queue.backlog, time.monotonic() + LOOK_SECONDS

    def look() -> list[tuple[float, Message]]:
        due: list[tuple[float, Message]] = []
        for each in backlog.look(0, "delayed"):
            if isinstance(each, Looked):
                due.append((each.due_us / 1e6, each.message))
            if len(due) >= _ID_MAX or time.monotonic() > until:
                break
        return sorted(due, key=lambda each: each[0])[:limit]

    found = await looks.run(queue, look)
    return _said([_row(queue, at, each, "delayed") for at, each in found])


def _row(queue: Queue, at: float, found: Message, state: str) -> dict[str, Any]:
    job = _job(queue, found, state)
    return {
        "id": job["id"],
        "job_key": JOB + job["id"],
        "runtime": _moment(at),
        "ttr": job["TTR"],
        "delay_time": job["delay"],
        "topic": job["topic"],
        "status": STATES[state][1],
    }


async def _detail(asked: Asked, looks: Looks) -> Any:
    """One job, all of its values as texts."""
    door, name = door_of(asked), asked.query("jobId")
    rights = asked.server.node.users.rights(asked.user, door.shop.vhost.name)
    lease = _lease(door, name)
    if lease is not None:
        rights.check("read", "queue", lease.queue.name)
        found = _job(lease.queue, lease.entry.message, "reserved")
        return _said({**found, "consume_num": str(lease.entry.deliveries)})
    topic, number = door.jobs.where(name) or ("", 0)
    queue = door.shop.vhost.queues.get(topic)
    if queue is None:
        raise NotFound(f"there is no live job {name!r}")
    rights.check("read", "queue", queue.name)
    backlog = queue.backlog
    looked = await looks.run(queue, lambda: next(iter(backlog.look(number, None)), None))
    if not isinstance(looked, Looked) or looked.number != number or looked.state not in STATES:
        raise NotFound(f"there is no live job {name!r}")
    found = _job(queue, looked.message, looked.state)
    return _said({**found, "consume_num": str(looked.deliveries)})


def _lease(door: Door, name: str) -> Reserved | None:
    return next((each for each in door.shop.leases.rows() if each.name == name), None)


def _job(queue: Queue, found: Message, state: str) -> dict[str, str]:
    properties = decoded(found)
    headers = properties.headers or {}
    name = str(shapes.plain(properties.message_id or ""))
    delay = headers.get(DELAY_HEADER)
    return {
        "id": name,
        "job_key": JOB + name,
        "topic": str(shapes.plain(queue.name)),
        "body": shown(bytes(found.body)),
        "delay": _span(delay if isinstance(delay, int) else 0),
        "TTR": str(headers.get(TTR_HEADER, 0)),
        "status": STATES[state][0],
    }


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _span(seconds: int) -> str:
    """As Go writes a duration: 1h0m5s."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
