"""Messages as they are looked at: of one state, some at a time, with a part of their bodies.

A look takes nothing and changes nothing. A store is read in a thread beside the event loop. It
ends after LOOK_SECONDS or LOOK_BYTES and says from which number it goes on, since a state may be
rare in a long queue, and bodies may be large.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, get_args

from qindex.broker.backlog import Looked
from qindex.broker.errors import NotFound, Precondition
from qindex.broker.message import AmqpError, Message
from qindex.broker.queues import Queue
from qindex.message import State
from qindex.serve.http import shapes
from qindex.serve.http.asked import Asked
from qindex.serve.http.given import whole
from qindex.serve.http.own.search import Wanted, wanted_of

STATES: Final = get_args(State)
PAGE_MAX: Final = 500
PREVIEW_BYTES: Final = 1024
PREVIEW_BYTES_MAX: Final = 4 * 1024 * 1024
LOOK_SECONDS: Final = 0.2
LOOK_BYTES: Final = 32 * 1024 * 1024
REQ_ID_MAX: Final = (1 << 62) - 1


class Looks:
    """Runs looks at stores, one at a time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="qindex-look")

    async def run(self, queue: Queue, look: Any) -> Any:
        """`look()`, in the thread if the queue's messages are in a store."""
        if not queue.backlog.is_durable:
            return look()
        return await asyncio.get_running_loop().run_in_executor(self._pool, look)

    async def beside(self, look: Any) -> Any:
        """`look()` of something that the event loop does not use."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, look)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


async def messages(asked: Asked, looks: Looks) -> Any:
    """?state, after (a number: what is behind it), limit, preview (bytes of each body), and what is
    searched for: header or property, value, text. An answer may have few messages, or none, and a
    number to go on from.
    """
    queue = readable(asked)
    state = asked.query("state") or None
    if state is not None and state not in STATES:
        raise ValueError(f"state is one of {', '.join(STATES)}")
    after = asked.query("after")
    start = whole(after, "after", REQ_ID_MAX) + 1 if after else 0
    limit = whole(asked.query("limit", "50"), "limit", PAGE_MAX, 1)
    preview = whole(asked.query("preview", str(PREVIEW_BYTES)), "preview", PREVIEW_BYTES_MAX)

    wanted = wanted_of(asked)

    def look() -> Any:
        every = queue.backlog.look(start, state)  # type: ignore[arg-type]
        found, at, is_end = _some(every, limit, wanted)
        return {
            "items": [message(looked, preview) for looked in found],
            "next": None if is_end else str(at),
        }

    return await looks.run(queue, look)


def _some(
    found: Iterator[Looked | int], limit: int, wanted: Wanted | None
) -> tuple[list[Looked], int, bool]:
    """Up to `limit` messages; the number of the last one that was passed; True: that is all."""
    chosen: list[Looked] = []
    size = at = 0
    until = time.monotonic() + LOOK_SECONDS
    for looked in found:
        if isinstance(looked, int):
            at = looked
        else:
            if wanted is None or wanted.is_so(looked.message):
                chosen.append(looked)
            at = looked.number
            size += looked.message.size
        if len(chosen) >= limit or size >= LOOK_BYTES or time.monotonic() > until:
            return chosen, at, False
    return chosen, at, True


async def one(asked: Asked, looks: Looks) -> Any:
    """One message with its body, up to ?preview bytes."""
    queue = readable(asked)
    number = whole(asked.part("number"), "number", REQ_ID_MAX)
    preview = whole(asked.query("preview", str(PREVIEW_BYTES_MAX)), "preview", PREVIEW_BYTES_MAX)

    def look() -> Any:
        looked = next(queue.backlog.look(number, None), None)
        if not isinstance(looked, Looked) or looked.number != number:
            raise NotFound("no such message: it has left the queue, or is with its consumer")
        return message(looked, preview)

    return await looks.run(queue, look)


def readable(asked: Asked) -> Queue:
    """The queue of the path, whose messages the user may read."""
    vhost, queue = asked.queue()
    asked.rights().check("read", "queue", queue.name)
    vhost.check_arrived(queue.name)
    if queue.owner is not None:
        what = vhost.describe("queue", queue.name)
        raise Precondition(f"{what} is a connection's own: its messages are not shown")
    return queue


def message(looked: Looked, preview: int) -> shapes.Shape:
    """A message in JSON. The body is base64, whatever it is; numbers are texts."""
    found = looked.message
    try:
        properties = shapes.properties(found)
    except AmqpError as error:
        properties = {"damaged": str(error)}
    return {
        "number": str(looked.number),
        "state": looked.state,
        "deliveries": looked.deliveries,
        "due_at": looked.due_us / 1e6 if looked.due_us else None,
        "expires_at": found.expires_us / 1e6 if found.expires_us else None,
        "exchange": shapes.plain(found.exchange),
        "routing_keys": shapes.plain(found.routing_keys),
        "priority": found.priority,
        "persistent": found.persistent,
        "properties": properties,
        "body": base64.b64encode(_part(found, preview)).decode(),
        "body_bytes": found.size,
    }


def _part(found: Message, preview: int) -> bytes:
    return bytes(found.body[:preview])
