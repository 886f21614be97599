"""Take messages over HTTP: wait for them, have them for a while, settle them.

A message that is got without `ack` is delivered: nobody else gets it until its lease ends, or until
it is settled by the name of its delivery. Leases are in memory: what was got when the server ended
is ready after its next start.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Any, Final

from aiohttp import web

from qindex.broker.backlog import Looked
from qindex.broker.errors import NotFound
from qindex.broker.queues import Queue
from qindex.broker.taken import Entry
from qindex.errors import QindexError
from qindex.serve.gmq.leases import Lease, Leases
from qindex.serve.gmq.waiting import Waiter
from qindex.serve.http.asked import Asked, answer
from qindex.serve.http.given import check_known, number, whole
from qindex.serve.http.own.acts import synced
from qindex.serve.http.own.messages import (
    PREVIEW_BYTES_MAX,
    message,
    readable,
)
from qindex.serve.server import Server

log: Final = logging.getLogger("qindex.serve")
WAIT_SECONDS_MAX: Final = 60.0
LEASE_SECONDS: Final = 60.0
LEASE_SECONDS_MAX: Final = 12 * 3600.0
COUNT_MAX: Final = 500
BYTES_MAX: Final = 16 * 1024 * 1024  # of bodies in one answer; one message may have more
WAITING_MAX: Final = 1000  # requests
LEASES_MAX: Final = 100_000
_VERBS: Final = ("ack", "requeue", "reject")


class Getting:
    """What requests have taken and not settled. Made and used in one event loop."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._leases = Leases(server.loop)
        self._waiting: set[asyncio.Future[None]] = set()
        self._stopped = False

    async def get(self, asked: Asked) -> Any:
        """{count, wait, lease, ack, preview}: up to `count` messages, the first one after up to
        `wait` seconds. With `ack` they are settled, else the caller has them for `lease` seconds.
        """
        queue, given = readable(asked), await asked.json()
        check_known(given, ("count", "wait", "lease", "ack", "preview"), "body")
        asked.vhost().check_arrived(queue.name)
        count = whole(given.get("count", 1), "count", COUNT_MAX)
        seconds = number(given.get("wait", 0), "wait", WAIT_SECONDS_MAX)
        lease = number(given.get("lease", LEASE_SECONDS), "lease", LEASE_SECONDS_MAX)
        preview = whole(given.get("preview", PREVIEW_BYTES_MAX), "preview", PREVIEW_BYTES_MAX)
        acks = given.get("ack", False)
        if not isinstance(acks, bool):
            raise TypeError("ack is true or false")
        if not acks and len(self._leases) + count > LEASES_MAX:
            raise web.HTTPTooManyRequests(reason="too many messages that were got are not settled")
        entries = _take(queue, count)
        if not entries and count and seconds and not self._stopped:
            entries = await self._wait(asked, queue, seconds, count)
        if _has_gone(asked.request):
            self._requeue(queue, entries)
            raise ConnectionResetError("the client has gone")
        items = [self._shown(queue, entry, lease, preview, acks) for entry in entries]
        asked.note(f"{len(entries)} messages{', settled' if acks else ''}")
        if acks and entries:
            queue.ack(entries)
        return {"items": items}

    async def _wait(self, asked: Asked, queue: Queue, seconds: float, count: int) -> list[Entry]:
        if len(self._waiting) >= WAITING_MAX:
            raise web.HTTPTooManyRequests(reason="too many requests wait for messages")
        came: asyncio.Future[None] = self._server.loop.create_future()
        found: list[Entry] = []

        def on_entry(queue: Queue, entry: Entry) -> None:
            found.append(entry)
            end()

        def end() -> None:
            if not came.done():
                came.set_result(None)

        waiter = Waiter(on_entry, lambda wake: not _has_gone(asked.request), end)
        waiter.listen(queue, asked.vhost().describe("queue", queue.name))
        self._waiting.add(came)
        try:
            await asyncio.wait([came], timeout=seconds)
        except BaseException:
            self._requeue(queue, found)
            raise
        finally:
            self._waiting.discard(came)
            waiter.stop()
        if queue.deleted:
            raise NotFound("the queue was deleted")
        return [*found, *(_take(queue, count - 1) if found else [])]

    def _shown(
        self, queue: Queue, entry: Entry, lease: float, preview: int, acks: bool
    ) -> dict[str, Any]:
        number = entry.place[0] if entry.place is not None else 0
        looked = Looked(number, entry.message, "unacked", entry.deliveries, 0)
        found = {**message(looked, preview), "redelivered": entry.redelivered}
        if acks:
            return found
        name = secrets.token_urlsafe(16)
        self._leases.add(name, queue, entry, lease, self._ended)
        return {**found, "delivery": name}

    async def settle(self, asked: Asked) -> web.Response:
        """{deliveries, verb: ack | requeue | reject}: how many were settled, and how many are not
        there any more. The answer comes when it survives a power cut.
        """
        queue, given = readable(asked), await asked.json()
        check_known(given, ("deliveries", "verb"), "body")
        verb, names = given.get("verb", "ack"), given.get("deliveries")
        if verb not in _VERBS:
            raise ValueError(f"verb is one of {', '.join(_VERBS)}")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError("deliveries is a list of what get has named so")
        entries = []
        for name in dict.fromkeys(names):
            lease = self._leases.look(name)
            if lease is not None and lease.queue is queue:
                self._leases.take(name)
                entries.append(lease.entry)
        if entries:
            verbs = {"ack": queue.ack, "requeue": queue.requeue, "reject": queue.reject}
            verbs[verb](entries)
            asked.note(f"{verb} of {len(entries)} messages")
            await synced(asked, asked.vhost(), [queue])
        return answer({"done": len(entries), "left": len(set(names)) - len(entries)})

    def _ended(self, lease: Lease) -> None:
        self._requeue(lease.queue, [lease.entry])

    def _requeue(self, queue: Queue, entries: list[Entry]) -> None:
        try:
            if entries:
                queue.requeue(entries)
        except QindexError as error:
            log.error("queue %r: messages stay out until a restart: %s", queue.name, error)
            queue.on_error(error)

    def stop(self) -> None:
        """The server ends: nobody waits any more."""
        self._stopped = True
        for came in list(self._waiting):
            if not came.done():
                came.set_result(None)

    def close(self) -> None:
        """What is leased is ready after the next start."""
        self._leases.stop()


def _take(queue: Queue, count: int) -> list[Entry]:
    found: list[Entry] = []
    size = 0
    while len(found) < count and size < BYTES_MAX and (entry := queue.get()) is not None:
        found.append(entry)
        size += entry.message.size
    return found


def _has_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()
