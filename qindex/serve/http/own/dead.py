"""Dead letters of all queues: where they are, where they died and why, and back to there.

Dead letters lie in ordinary queues: those that arguments of other queues lead to, and gmq's. Which
one died why is in its headers, so messages are looked at, the first ones of each queue; an answer
says of how many. What is sent back keeps its headers.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, NamedTuple

from qindex.broker import acts
from qindex.broker.backlog import Looked
from qindex.broker.errors import AccessRefused, NotAllowed
from qindex.broker.message import AmqpError, Message
from qindex.broker.queues import Queue
from qindex.broker.vhost import VHost
from qindex.serve.http import shapes
from qindex.serve.http.asked import Asked
from qindex.serve.http.given import check_known, text
from qindex.serve.http.own.acts import COUNT_MAX, in_batches, target_of, with_more
from qindex.serve.http.own.messages import Looks

LOOKED_MAX: Final = 2000  # messages of each queue
SECONDS: Final = 0.3  # of all queues together
MEMORY_SECONDS: Final = 0.02  # of a queue that is looked at in the event loop
GMQ: Final = "_dead"


class Death(NamedTuple):
    queue: str
    why: str


def death_of(message: Message, name: str) -> Death | None:
    """Where and why it died the last time; None: it is no dead letter."""
    try:
        deaths = message.headers.get("x-death")
    except AmqpError:
        return None
    if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict):
        first = deaths[0]
        return Death(str(first.get("queue", "")), str(first.get("reason", "")))
    return Death(name.removesuffix(GMQ), "retries") if name.endswith(GMQ) else None


def dead_letter_queues(vhost: VHost) -> list[Queue]:
    """Queues that dead letters go to. O(queues)."""
    found: dict[str, None] = {}
    for queue in vhost.queues.values():
        exchange = vhost.exchanges.get(queue.limits.dead_exchange or "")
        if queue.limits.dead_exchange is not None and exchange is not None:
            key = queue.limits.dead_key
            for name in vhost.route(exchange, queue.name if key is None else key) or ():
                found[name] = None
        if queue.name.endswith(GMQ) and queue.name.removesuffix(GMQ) in vhost.queues:
            found[queue.name] = None
    return [vhost.queues[name] for name in found if name in vhost.queues]


async def dead(asked: Asked, looks: Looks) -> Any:
    """Rows of queue, origin and reason; of queues that the user may read."""
    rows: list[shapes.Shape] = []
    until = time.monotonic() + SECONDS
    for vhost in asked.vhosts():
        for queue in dead_letter_queues(vhost):
            if queue.name in vhost.arriving or not _may_read(asked, vhost, queue):
                continue
            about = {"vhost": vhost.name, "queue": shapes.plain(queue.name), "ready": len(queue)}
            found, looked = await looks.run(queue, lambda queue=queue: _counted(queue, until))
            await asyncio.sleep(0)
            rows += [
                {
                    **about,
                    "origin": shapes.plain(death.queue),
                    "origin_is_there": death.queue in vhost.queues,
                    "reason": shapes.plain(death.why),
                    "count": count,
                    "looked": looked,
                }
                for death, count in found.items()
            ]
    return {"items": sorted(rows, key=lambda row: -row["count"])}


def _may_read(asked: Asked, vhost: VHost, queue: Queue) -> bool:
    try:
        asked.server.node.users.rights(asked.user, vhost.name).check("read", "queue", queue.name)
    except (AccessRefused, NotAllowed):
        return False
    return queue.owner is None


def _counted(queue: Queue, until: float) -> tuple[dict[Death, int], int]:
    found: dict[Death, int] = {}
    looked = 0
    if not queue.backlog.is_durable:
        until = min(until, time.monotonic() + MEMORY_SECONDS)
    for each in queue.backlog.look(0, "ready"):
        looked += 1
        if isinstance(each, Looked):
            death = death_of(each.message, queue.name) or Death("", "")
            found[death] = found.get(death, 0) + 1
        if looked >= LOOKED_MAX or time.monotonic() > until:
            break
    return found, looked


async def send_back(asked: Asked, looks: Looks) -> Any:
    """Move the dead letters of {queue, origin, reason} to where they died: the queue `origin`.

    Up to COUNT_MAX of them: `more` says that others may be left.
    """
    vhost, given = asked.vhost(), await asked.json()
    check_known(given, ("queue", "origin", "reason"), "body")
    queue = vhost.queue(text(given, "queue"), None)
    asked.rights().check("read", "queue", queue.name)
    vhost.check_arrived(queue.name)
    wanted = Death(text(given, "origin"), text(given, "reason"))
    target = target_of(asked, vhost, wanted.queue)
    if target is queue:
        raise ValueError("these messages died where they are: they are there already")

    def look(start: int) -> tuple[list[int], int | None]:
        found: list[int] = []
        for passed, each in enumerate(queue.backlog.look(start, "ready")):
            number = each.number if isinstance(each, Looked) else each
            if passed >= LOOKED_MAX:
                return found, number
            if isinstance(each, Looked) and death_of(each.message, queue.name) == wanted:
                found.append(number)
        return found, None

    numbers: list[int] = []
    start: int | None = 0
    while start is not None and len(numbers) < COUNT_MAX:
        found, start = await looks.run(queue, lambda start=start: look(start))
        numbers += found
        await asyncio.sleep(0)
    has_more = start is not None or len(numbers) > COUNT_MAX
    numbers = numbers[:COUNT_MAX]
    done = await in_batches(
        asked, numbers, lambda some: acts.move(vhost, queue, some, target), queue, target
    )
    return with_more(done, has_more)
