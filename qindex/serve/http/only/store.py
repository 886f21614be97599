"""What the page asks of a store that is only read.

The queues are looked at in a thread, when somebody asks and the last look is old enough: looks take
at most a fifth of the time, as in `qindex top`. Messages are read when they are asked for.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from aiohttp import web

import qindex
from qindex.broker.errors import NotFound
from qindex.look.messages import Choice, Found, properties_of
from qindex.look.screen import CommandError
from qindex.look.sources import StoreSource
from qindex.look.stores import QueueGone, open_to_look
from qindex.look.watch import QueueLook, Silent, StoreLook, Watch
from qindex.serve.http import shapes
from qindex.serve.http.asked import TRUE, part_of
from qindex.serve.http.given import SINCE_MAX, number, whole
from qindex.serve.http.own.delayed import SPANS, counts_of
from qindex.serve.http.own.disk import usage_of
from qindex.serve.http.own.health import finding
from qindex.serve.http.own.messages import (
    LOOK_BYTES,
    LOOK_SECONDS,
    PAGE_MAX,
    PREVIEW_BYTES,
    PREVIEW_BYTES_MAX,
    REQ_ID_MAX,
)
from qindex.serve.http.own.queues import page_of
from qindex.serve.http.own.series import SAMPLES_MAX
from qindex.serve.http.port import any_name

SECONDS: Final = 2.0
PAUSE_PER_LOOK: Final = 4
VHOST: Final = "-"  # in the place of a virtual host
STATES: Final = ("ready", "unacked", "delayed", "dead", "expired")
DELAYED_MAX: Final = 50_000
_PREFIX: Final = "/api/qindex"
_KEYS: Final[dict[str, Callable[[QueueLook], Any]]] = {
    "name": lambda queue: queue.name,
    "ready": lambda queue: queue.ready,
    "unacked": lambda queue: queue.unacked,
    "delayed": lambda queue: queue.delayed,
    "dead": lambda queue: queue.dead,
    "published_rate": lambda queue: queue.rates.published or 0,
    "delivered_rate": lambda queue: queue.rates.delivered or 0,
    "acked_rate": lambda queue: queue.rates.acked or 0,
}


class _Question:
    """A request, as page_of() wants it."""

    def __init__(self, request: web.Request) -> None:
        self._request = request

    def query(self, name: str, default: str = "") -> str:
        return self._request.query.get(name, default)


class Looker:
    """Made and used in one event loop."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._watch = Watch(path)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="qindex-look")
        self._look: StoreLook | None = None
        self._looked = 0.0
        self._running: asyncio.Future[None] | None = None
        self._samples: deque[list[float]] = deque(maxlen=SAMPLES_MAX)

    async def begin(self) -> None:
        """The first look. CommandError: there is no store."""
        await self._look_again()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def add_to(self, app: web.Application) -> None:
        of_queue = "/queues/{vhost}/{name}"
        for path, call in (
            ("/overview", self._overview),
            ("/queues", self._queues),
            (of_queue, self._queue),
            (f"{of_queue}/messages", self._messages),
            (f"{of_queue}/messages/{{number}}", self._message),
            ("/delayed", self._delayed),
            ("/disk", self._disk),
            ("/health", self._health),
        ):
            app.router.add_get(_PREFIX + any_name(path), _handler(call))

    # --- looks ---------------------------------------------------------------------------------

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def _look_again(self) -> None:
        look = await self._in_thread(self._watch.look)
        now = time.monotonic()
        span = now - self._looked if self._look is not None else 0.0
        self._look, self._looked = look, now
        before = self._samples[-1] if self._samples else [0.0] * 7
        rates = [
            sum(getattr(queue.rates, name) or 0.0 for queue in look.queues) * span
            for name in ("published", "delivered", "acked")
        ]
        self._samples.append(
            [
                round(time.time(), 3),
                *(sum(getattr(queue, name) for queue in look.queues) for name in STATES[:3]),
                *(old + more for old, more in zip(before[4:], rates, strict=True)),
            ]
        )

    async def _current(self) -> StoreLook:
        """The last look; a new one begins if that is due, and is not waited for for long."""
        last = self._look
        pause = SECONDS if last is None else max(SECONDS, PAUSE_PER_LOOK * last.seconds)
        is_due = time.monotonic() - self._looked >= pause
        if is_due and (self._running is None or self._running.done()):
            self._running = asyncio.ensure_future(self._look_again())
        if self._running is not None:
            await asyncio.wait([self._running], timeout=0.5)
            if self._running.done():
                self._running.result()
        if self._look is None:
            raise RuntimeError("begin() comes first")
        return self._look

    # --- answers -------------------------------------------------------------------------------

    async def _overview(self, request: web.Request) -> Any:
        look = await self._current()
        since = number(request.query.get("since", "0"), "since", SINCE_MAX)
        return {
            "node": self.path,
            "product_version": qindex.__version__,
            "queue_totals": {
                "messages_ready": sum(queue.ready for queue in look.queues),
                "messages_unacknowledged": sum(queue.unacked for queue in look.queues),
            },
            "object_totals": {"queues": len(look.queues)},
            "dead": sum(queue.dead for queue in look.queues),
            "writer_pid": look.writer or 0,
            "samples": [sample for sample in self._samples if sample[0] > since],
        }

    async def _queues(self, request: web.Request) -> Any:
        question = _Question(request)
        look = await self._current()
        part = question.query("name").lower()
        rows = [queue for queue in look.queues if part in queue.name.lower()]
        sort = question.query("sort", "name")
        if sort not in _KEYS:
            raise ValueError(f"sort is one of {', '.join(_KEYS)}")
        rows.sort(key=_KEYS[sort], reverse=question.query("reverse") in TRUE)
        return page_of(question, rows, _row, len(look.queues))

    async def _queue(self, request: web.Request) -> Any:
        return _row(await self._named(request))

    async def _named(self, request: web.Request) -> QueueLook:
        name = part_of(request, "name")
        for queue in (await self._current()).queues:
            if queue.name == name:
                return queue
        raise NotFound("Not Found")

    async def _messages(self, request: web.Request) -> Any:
        question = _Question(request)
        name, state = (await self._named(request)).name, question.query("state") or None
        if state is not None and state not in STATES:
            raise ValueError(f"state is one of {', '.join(STATES)}")
        after = question.query("after")
        start = whole(after, "after", REQ_ID_MAX) + 1 if after else 0
        limit = whole(question.query("limit", "50"), "limit", PAGE_MAX)
        preview = whole(question.query("preview", str(PREVIEW_BYTES)), "preview", PREVIEW_BYTES_MAX)

        def read() -> Any:
            chosen: list[shapes.Shape] = []
            size = 0
            until = time.monotonic() + LOOK_SECONDS
            with open_to_look(self.path) as store:
                for found in StoreSource(store, Silent()).messages(name, Choice(first=start)):
                    if state in (None, found.state):
                        chosen.append(_shown(found, preview))
                    size += len(found.body)
                    if len(chosen) >= limit or size >= LOOK_BYTES or time.monotonic() > until:
                        return {"items": chosen, "next": str(found.req_id)}
            return {"items": chosen, "next": None}

        return await self._read(read)

    async def _message(self, request: web.Request) -> Any:
        question = _Question(request)
        name = (await self._named(request)).name
        number = whole(request.match_info["number"], "number", REQ_ID_MAX)
        preview = whole(
            question.query("preview", str(PREVIEW_BYTES_MAX)), "preview", PREVIEW_BYTES_MAX
        )

        def read() -> Any:
            with open_to_look(self.path) as store:
                choice = Choice(first=number, last=number)
                for found in StoreSource(store, Silent()).messages(name, choice):
                    return _shown(found, preview)
            raise NotFound("no such message: it has left the queue")

        return await self._read(read)

    async def _read(self, read: Callable[[], Any]) -> Any:
        try:
            return await self._in_thread(read)
        except QueueGone:
            raise NotFound("the queue was deleted") from None

    async def _delayed(self, request: web.Request) -> Any:
        look = await self._current()
        queues = sorted((each for each in look.queues if each.delayed), key=lambda q: -q.delayed)

        def read() -> list[shapes.Shape]:
            until = time.monotonic() + LOOK_SECONDS
            with open_to_look(self.path) as store:
                source = StoreSource(store, Silent())
                return [_due(source, queue, until) for queue in queues[:PAGE_MAX]]

        rows = await self._read(read)
        return {
            "spans": list(SPANS),
            "items": rows,
            "queues": len(queues),
            "total": sum(queue.delayed for queue in queues),
            "looked": sum(row["looked"] for row in rows),
        }

    async def _disk(self, request: web.Request) -> Any:
        usage = await self._in_thread(lambda: usage_of(self.path))
        return {"stores": [{"name": Path(self.path).name, **usage}]}

    async def _health(self, request: web.Request) -> Any:
        look = await self._current()
        return {
            "stores": [
                {
                    "name": Path(self.path).name,
                    "session": look.stats.session,
                    "was_clean": look.writer is not None or not look.unclean,
                    "failed": None,
                    "sync_seconds": None,
                    "findings": [finding(each) for each in look.findings[:PAGE_MAX]],
                    "finding_count": len(look.findings),
                }
            ],
            "free_bytes": look.free_bytes,
        }


def _handler(call: Callable[[web.Request], Any]) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.Response:
        try:
            text = shapes.to_json(await call(request))
        except CommandError as error:  # the store is gone, or is none any more
            text = shapes.to_json({"error": "service_unavailable", "reason": str(error)})
            return web.Response(status=503, text=text, content_type="application/json")
        return web.Response(text=text, content_type="application/json")

    return handle


def _row(queue: QueueLook) -> shapes.Shape:
    return {
        "vhost": VHOST,
        "name": shapes.plain(queue.name),
        "durable": True,
        "exclusive": False,
        "ready": queue.ready,
        "unacked": queue.unacked,
        "delayed": queue.delayed,
        "dead": queue.dead,
        "published_rate": queue.rates.published,
        "delivered_rate": queue.rates.delivered,
        "acked_rate": queue.rates.acked,
        "state": "damaged" if queue.damage else "running",
        "damage": queue.damage,
        "oldest_seconds": queue.oldest_seconds,
        "next_due_at": queue.next_due,
        "disk_bytes": queue.disk_bytes,
    }


def _shown(found: Found, preview: int) -> shapes.Shape:
    """A message with the keys that a broker's have."""
    headers = found.headers
    properties = properties_of(headers)
    if properties:
        headers.pop("properties")
    return {
        "number": str(found.req_id),
        "state": found.state,
        "deliveries": found.delivery_count,
        "due_at": found.due_at,
        "expires_at": found.expires_at,
        "priority": found.priority or 0,
        "persistent": found.persistent,
        "dead": found.dead,
        "exchange": "",
        "routing_keys": [],
        "headers": shapes.plain(headers),
        "properties": shapes.plain(properties),
        "body": base64.b64encode(found.body[:preview]).decode(),
        "body_bytes": len(found.body),
    }


def _due(source: StoreSource, queue: QueueLook, until: float) -> shapes.Shape:
    due: list[int] = []
    try:
        for passed, found in enumerate(source.messages(queue.name, Choice())):
            if found.state == "delayed":
                due.append(found.due_us)
            if passed >= DELAYED_MAX or time.monotonic() > until:
                break
    except QueueGone:
        pass
    return {
        "vhost": VHOST,
        "name": shapes.plain(queue.name),
        "delayed": queue.delayed,
        "looked": len(due),
        "next_at": queue.next_due,
        "last_at": max(due) / 1e6 if due else None,
        "counts": counts_of(due),
    }
