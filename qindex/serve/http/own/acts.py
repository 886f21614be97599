"""What the page changes beyond RabbitMQ's API: messages one by one, whole states, pauses.

A verb for messages takes `numbers`, or `state`: then all messages in that state, as they are found
now, up to COUNT_MAX; if there are others, the answer says `more`. They are looked up in the thread
for looks and changed in batches, with the event loop's other work between two of them. The answer
comes when the change survives a power cut.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiohttp import web

from qindex.broker import acts
from qindex.broker.backlog import Looked
from qindex.broker.errors import AccessRefused, NotFound
from qindex.broker.queues import Queue
from qindex.broker.vhost import VHost
from qindex.errors import StoreFailed
from qindex.serve.http.asked import Asked, answer
from qindex.serve.http.given import check_known, number, text, whole
from qindex.serve.http.own.messages import REQ_ID_MAX, STATES, Looks, readable

COUNT_MAX: Final = 100_000
DELAY_SECONDS_MAX: Final = 100 * 366 * 86400.0
_MORE: Final = {"delay": ("seconds",), "move": ("to",)}  # fields of one verb's body


async def change(asked: Asked, looks: Looks) -> Any:
    """delete, delay (`seconds`; 0: ready now) or move (`to`) messages of a queue."""
    queue, vhost, given = readable(asked), asked.vhost(), await asked.json()
    verb, touched = _verb(asked, vhost, queue, given)
    numbers, has_more = await _numbers(queue, looks, given)
    return with_more(await in_batches(asked, numbers, verb, *touched), has_more)


def with_more(done: dict[str, int], has_more: bool) -> dict[str, Any]:
    """An answer, with `more` if there are others that were not changed."""
    return {**done, "more": True} if has_more else dict(done)


async def in_batches(
    asked: Asked, numbers: list[int], verb: Callable[[list[int]], int], *queues: Queue
) -> Any:
    """What the verb has done, when it is durable. NotFound, with how many are done: one of the
    queues that it concerns was deleted meanwhile.
    """
    vhost, done = asked.vhost(), 0
    for at in range(0, len(numbers), acts.BATCH_MAX):
        for queue in queues:
            if queue.deleted:
                what = vhost.describe("queue", queue.name)
                raise NotFound(f"{what} was deleted: {done} are done")
        done += verb(numbers[at : at + acts.BATCH_MAX])
        await asyncio.sleep(0)
    ways = " to ".join(repr(queue.name) for queue in queues)
    asked.note(f"{done} of {len(numbers)} messages, {ways}")
    await synced(asked, vhost, queues)
    return {"done": done, "left": len(numbers) - done}


def _verb(
    asked: Asked, vhost: VHost, queue: Queue, given: dict[str, Any]
) -> tuple[Callable[[list[int]], int], list[Queue]]:
    """What it does with a batch, and the queues that it concerns."""
    verb = asked.part("verb")
    check_known(given, ("numbers", "state", *_MORE.get(verb, ())), "body")
    if verb == "delete":
        return lambda numbers: acts.drop(queue, numbers), [queue]
    if verb == "delay":
        seconds = number(_there(given, "seconds"), "seconds", DELAY_SECONDS_MAX)
        due_us = int((time.time() + seconds) * 1e6) if seconds else 0
        return lambda numbers: acts.put_off(queue, numbers, due_us), [queue]
    if verb == "move":
        target = target_of(asked, vhost, text(given, "to"))
        if target is queue:
            raise ValueError("a queue's messages are there already")
        return lambda numbers: acts.move(vhost, queue, numbers, target), [queue, target]
    raise NotFound("a message can be deleted, delayed and moved")


def _there(given: dict[str, Any], name: str) -> Any:
    if name not in given:
        raise ValueError(f"{name} is missing")
    return given[name]


def target_of(asked: Asked, vhost: VHost, name: str) -> Queue:
    """A queue that the user may publish to; an exclusive one is its connection's."""
    found = vhost.queue(name, None)
    asked.rights().check("write", "queue", name)
    vhost.check_arrived(name)
    return found


async def _numbers(queue: Queue, looks: Looks, given: dict[str, Any]) -> tuple[list[int], bool]:
    """The messages that are meant; True: there are more of them than COUNT_MAX."""
    if "numbers" in given:
        if not isinstance(given["numbers"], list) or len(given["numbers"]) > COUNT_MAX:
            raise ValueError(f"numbers is a list of up to {COUNT_MAX} messages")
        named = [whole(each, "a number", REQ_ID_MAX) for each in given["numbers"]]
        return list(dict.fromkeys(named)), False
    state = given.get("state")
    if state not in STATES:
        raise ValueError(f"name messages by numbers, or by state: {', '.join(STATES)}")

    def look() -> tuple[list[int], bool]:
        found: list[int] = []
        for looked in queue.backlog.look(0, state):
            if isinstance(looked, Looked):
                if len(found) >= COUNT_MAX:
                    return found, True
                found.append(looked.number)
        return found, False

    numbers: tuple[list[int], bool] = await looks.run(queue, look)
    return numbers


async def synced(asked: Asked, vhost: VHost, queues: Sequence[Queue]) -> None:
    """Wait until what was done with these queues survives a power cut."""
    if any(queue.backlog.is_durable for queue in queues) and vhost.commit is not None:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        vhost.commit.join(lambda: None if done.done() else done.set_result(None))
        waited: list[asyncio.Future[Any]] = [done, asked.server.failed]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            raise StoreFailed("the disk failed a sync: nobody knows whether that is durable")


async def hold(asked: Asked) -> web.Response:
    """Pause a queue, or let it go on."""
    vhost, queue = asked.queue()
    asked.rights().check("configure", "queue", queue.name)
    vhost.check_arrived(queue.name)
    if queue.owner is not None:
        raise AccessRefused(f"{vhost.describe('queue', queue.name)} is a connection's own")
    acts.hold(vhost, queue, on_hold=asked.part("verb") == "pause")
    return answer({"state": "held" if queue.on_hold else "running"})
