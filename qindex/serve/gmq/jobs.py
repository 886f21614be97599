"""gmq's version 1: jobs with an id, a topic, a delay and a time to run. A topic is a queue.

An id is unique among the live jobs, as far as the newest IDS_MAX pushes reach. Which job an id
names is kept in memory, and read from the queues again when the server starts.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from qindex.broker.errors import Refused
from qindex.broker.queues import Queue
from qindex.broker.taken import Entry
from qindex.errors import QindexError
from qindex.gmq.text import to_bytes, told, whole_number
from qindex.serve.gmq.leases import Lease
from qindex.serve.gmq.shop import (
    DELAY_HEADER,
    ID_BYTES_MAX,
    PRIORITY_MAX,
    TTR_HEADER,
    Shop,
    decoded,
)
from qindex.serve.gmq.waiting import Takes, Waiter, first_of
from qindex.serve.outlet import OnOut

log: Final = logging.getLogger("qindex.serve")
IDS_MAX: Final = 1_000_000
POP_SECONDS: Final = 2.0
SECONDS_MAX: Final = 100 * 366 * 86400
FOREIGN_TTR: Final = 60  # of a message that no client of gmq has pushed
_TOPIC: Final = "gmq/1/"  # a prefix in the catalog
_RESERVED: Final = "3"


OnPop = Callable[[Any, str | None, OnOut | None], None]


class _Job(NamedTuple):
    id: str
    topic: str
    body: bytes
    delay: int
    ttr: int
    priority: int


class Jobs:
    """The calls of version 1; `done` hears the result and the error, one of them None."""

    def __init__(self, shop: Shop, pop_seconds: float = POP_SECONDS) -> None:
        self._shop = shop
        self._pop_seconds = pop_seconds
        self._known: OrderedDict[str, tuple[str, int]] = OrderedDict()  # id -> queue and number
        self._waiting: dict[str, dict[Waiter, None]] = {}  # for topics that are not there yet
        catalog = shop.vhost.catalog
        found = [key.removeprefix(_TOPIC) for key, _ in catalog.items() if key.startswith(_TOPIC)]
        self._topics = set(found)
        for topic in found:
            self._restore(topic)

    def _restore(self, topic: str) -> None:
        queue = self._shop.vhost.queues.get(topic)
        if queue is None:
            return
        for number, message in queue.backlog.browse():
            properties = decoded(message)
            if properties.message_id and TTR_HEADER in (properties.headers or {}):
                self._remember(properties.message_id, topic, number)

    def _remember(self, name: str, topic: str, number: int) -> None:
        self._known[name] = topic, number
        if len(self._known) > IDS_MAX:
            self._known.popitem(last=False)

    def topic_names(self) -> list[str]:
        return sorted(self._topics)

    def where(self, name: str) -> tuple[str, int] | None:
        """The queue of the job with this id, and its number there; it may have left by now."""
        return self._known.get(name)

    def deliveries_of(self, name: str) -> int | None:
        """How often the live job of this id was delivered; None: there is no such job."""
        topic, number = self._known.get(name, ("", 0))
        queue = self._shop.vhost.queues.get(topic)
        found = queue.backlog.find(number) if queue is not None else None
        if found is None or decoded(found[0]).message_id != name:
            self._known.pop(name, None)
            return None
        return found[1]

    # --- push ----------------------------------------------------------------------------------

    def push(self, fields: Any, done: Callable[[Any, str | None], None]) -> None:
        """The result is "success", or the id if the job had none.

        gmq says in the result, too, that an id is taken or a topic is missing, and so it is here.
        What else is refused is an error: its clients take each result for a success.
        """
        try:
            job = _job(fields)
            if not job.topic:
                done("job.topic is empty", None)
                return
            if job.id and (job.id in self._shop.leases or self.deliveries_of(job.id) is not None):
                done(f"jobKey:gmq:jobpool:{job.id},error:has exist", None)
                return
            queue = self._shop.make(job.topic)
            if job.topic not in self._topics:
                self._shop.vhost.catalog.apply({_TOPIC + job.topic: b""})
                self._topics.add(job.topic)
            name = job.id or str(self._shop.ids.next())
            number = self._shop.publish(
                queue,
                name,
                job.body,
                delay=job.delay,
                priority=job.priority,
                headers={TTR_HEADER: job.ttr, DELAY_HEADER: job.delay},
            )
        except (ValueError, Refused) as error:
            done(None, str(error))
            return
        except QindexError as error:
            done(None, self._shop.failed("Service.Push", error))
            return
        if number is None:
            done(None, f"queue '{job.topic}' is full")
            return
        self._remember(name, job.topic, number)
        for waiter in self._waiting.pop(job.topic, {}):
            self._listen(waiter, queue)
        self._shop.when_safe(lambda: done("success" if job.id else name, None))

    # --- pop -----------------------------------------------------------------------------------

    def _listen(self, waiter: Waiter, queue: Queue) -> None:
        """The push is in, whatever keeps one that waits from its queue: that is no error of it."""
        try:
            waiter.listen(queue, self._shop.describe(queue.name))
        except Refused as error:
            log.info("gmq: a pop cannot wait for queue %r: %s", queue.name, error)

    def pop(self, topics: Any, done: OnPop, takes: Takes) -> Callable[[], None]:
        """The first job of the first topic that has one. Returns what ends the wait.

        `done` hears the job, what is wrong, and who wants to know if the job's bytes have left.
        """
        try:
            names = _topic_names(topics)
            queues = [queue for name in names if (queue := self._shop.find(name)) is not None]
            found = first_of(queues)
        except (ValueError, Refused) as error:
            done(None, str(error), None)
            return _nothing
        except QindexError as error:
            done(None, self._shop.failed("Service.Pop", error), None)
            return _nothing
        if found is not None:
            self._hand_out(*found, done)
            return _nothing
        return self._wait(names, queues, done, takes)

    def _wait(
        self, names: list[str], queues: list[Queue], done: OnPop, takes: Takes
    ) -> Callable[[], None]:
        missing = [name for name in names if name not in self._shop.vhost.queues]

        def on_entry(queue: Queue, entry: Entry) -> None:
            self._shop.loop.call_soon(end)
            self._hand_out(queue, entry, done)

        def end() -> None:
            timer.cancel()
            waiter.stop()
            for name in missing:
                waiting = self._waiting.get(name, {})
                waiting.pop(waiter, None)
                if not waiting:
                    self._waiting.pop(name, None)

        def give_up() -> None:
            if not waiter.is_over:
                end()
                done(None, "empty", None)

        waiter = Waiter(on_entry, takes)
        timer = self._shop.loop.call_later(self._pop_seconds, give_up)
        for name in missing:
            self._waiting.setdefault(name, {})[waiter] = None
        try:
            for queue in queues:
                waiter.listen(queue, self._shop.describe(queue.name))
        except Refused as error:
            end()
            done(None, str(error), None)
        return end

    def _hand_out(self, queue: Queue, entry: Entry, done: OnPop) -> None:
        """Reserve a delivery; one whose time to run is 0 is settled when its bytes have left."""
        message = entry.message
        headers = decoded(message).headers or {}
        ttr, delay = headers.get(TTR_HEADER), headers.get(DELAY_HEADER)
        seconds = ttr if isinstance(ttr, int) and 0 <= ttr <= SECONDS_MAX else FOREIGN_TTR
        name = self._shop.id_of(message)
        on_out = None
        if seconds:
            self._shop.leases.add(name, queue, entry, seconds, self._expired)
        else:
            on_out = self._shop.settles(queue, entry, lambda: self._forget(name))
        job = {
            "TTR": str(seconds),
            "body": told(message.body),
            "consume_num": str(entry.deliveries - 1),
            "delay": str(delay if isinstance(delay, int) else 0),
            "id": name,
            "status": _RESERVED,
            "topic": queue.name,
        }
        done(job, None, on_out)

    def _forget(self, name: str) -> None:
        self._known.pop(name, None)

    def _expired(self, lease: Lease) -> None:
        self._shop.give_back(lease.queue, lease.entry)

    # --- ack -----------------------------------------------------------------------------------

    def ack(self, name: Any, done: Callable[[Any, str | None], None]) -> None:
        """True, if the job is reserved."""
        if isinstance(name, int) and not isinstance(name, bool):
            name = str(name)
        if not isinstance(name, str):
            done(None, "job.id is a text")
            return
        lease = self._shop.leases.take(name)
        try:
            if lease is not None:
                lease.queue.ack([lease.entry])
                self._known.pop(name, None)
                done(True, None)
                return
            deliveries = self.deliveries_of(name)
        except QindexError as error:
            done(None, self._shop.failed("Service.Ack", error))
            return
        if deliveries is None:
            done(None, f"jobKey:gmq:jobpool:{name},error:not exist")
        elif deliveries:
            done(None, "TTR has expired and will be consumed again")
        else:
            done(None, "Job is not be reserved")


def _nothing() -> None:
    pass


def _job(fields: Any) -> _Job:
    if not isinstance(fields, dict):
        raise ValueError("a job is an object with id, topic, body, delay and TTR")
    name, topic, body = fields.get("id"), fields.get("topic"), fields.get("body")
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    if isinstance(topic, list) and len(topic) == 1:
        topic = topic[0]  # as gmq's own text has it
    if not isinstance(name, str | None) or not isinstance(body, str | None):
        raise ValueError("job.id and job.body are texts")
    if not isinstance(topic, str | None):
        raise ValueError("job.topic is a text")
    name = to_bytes(name or "").decode()
    if len(name.encode()) > ID_BYTES_MAX:
        raise ValueError(f"job.id may have {ID_BYTES_MAX} bytes")
    return _Job(
        name,
        to_bytes(topic or "").decode(),
        to_bytes(body or ""),
        whole_number(fields.get("delay"), "job.delay", SECONDS_MAX),
        whole_number(fields.get("TTR"), "job.TTR", SECONDS_MAX),
        whole_number(fields.get("priority"), "job.priority", PRIORITY_MAX),
    )


def _topic_names(topics: Any) -> list[str]:
    if not isinstance(topics, list) or not topics:
        raise ValueError("topics is empty")
    if not all(isinstance(topic, str) for topic in topics):
        raise ValueError("a topic is a text")
    return list(dict.fromkeys(to_bytes(topic).decode() for topic in topics))
