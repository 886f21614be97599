"""What both versions of gmq do with the broker: queues by name, messages, confirms, leases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from qindex.broker.arriving import NotIn
from qindex.broker.errors import Precondition
from qindex.broker.message import AmqpError, Message
from qindex.broker.queues import Queue
from qindex.broker.taken import Entry
from qindex.broker.timers import now_us
from qindex.broker.vhost import VHost
from qindex.brokers.amqp import Properties, encode_properties
from qindex.errors import QindexError
from qindex.gmq.text import Snowflakes
from qindex.serve.gmq.leases import Leases
from qindex.serve.outlet import OnOut

log: Final = logging.getLogger("qindex.serve")
NAME_BYTES_MAX: Final = 255
ID_BYTES_MAX: Final = 255
PRIORITY_MAX: Final = 255
TTR_HEADER: Final = "x-gmq-ttr"
DELAY_HEADER: Final = "x-gmq-delay"


class Shop:
    """A virtual host as gmq's doors use it. `waits` says whether an answer waits for a sync."""

    def __init__(self, vhost: VHost, loop: asyncio.AbstractEventLoop, *, waits: bool) -> None:
        self.vhost = vhost
        self.loop = loop
        self.leases = Leases(loop)
        self.ids = Snowflakes()
        self._waits = waits

    def describe(self, name: str) -> str:
        return self.vhost.describe("queue", name)

    def find(self, name: str) -> Queue | None:
        """The queue of this name. Refused if it is a connection's own, or is still coming in."""
        if name not in self.vhost.queues:
            return None
        try:
            self.vhost.check_arrived(name)
        except NotIn:
            what = self.describe(name)
            raise Precondition(f"the messages of {what} are still coming: try again") from None
        return self.vhost.queue(name, None)

    def make(self, name: str) -> Queue:
        """The queue of this name, made if it is not there. ValueError: that is no name."""
        if not 0 < len(name.encode()) <= NAME_BYTES_MAX or "\n" in name or "\r" in name:
            raise ValueError(f"a queue's name has 1 to {NAME_BYTES_MAX} bytes and no line ends")
        found = self.find(name)
        if found is not None:
            return found
        return self.vhost.declare_queue(
            name, durable=True, auto_delete=False, owner=None, user=None, arguments={}
        )

    def publish(
        self,
        queue: Queue,
        name: str,
        body: bytes,
        *,
        delay: int = 0,
        priority: int = 0,
        headers: dict[str, Any] | None = None,
    ) -> int | None:
        """Put a message into a queue under this id; its number there, or None: it is full."""
        properties = Properties(
            headers=headers, delivery_mode=2, message_id=name, priority=priority or None
        )
        now = now_us()
        message = Message(
            "",
            [queue.name],
            encode_properties(properties),
            body,
            persistent=True,
            priority=min(priority, queue.limits.max_priority),
        )
        message.awaited = self._waits
        if queue.limits.ttl_ms is not None:
            message = message.copy(expires_us=now + (delay * 1000 + queue.limits.ttl_ms) * 1000)
        return queue.publish(message, now, now + delay * 1_000_000 if delay else 0)

    def when_safe(self, done: Callable[[], None]) -> None:
        """Call `done` when what was published survives a power cut, or at once if nobody asks."""
        if self._waits and self.vhost.commit is not None:
            self.vhost.commit.join(done)
        else:
            done()

    def id_of(self, message: Message, *, is_one_word: bool = False) -> str:
        """The id under which a message is handed out: its own, or a new one if that cannot be."""
        found = decoded(message).message_id
        fits = not is_one_word or ((found or "").isprintable() and " " not in (found or ""))
        if found and fits and found not in self.leases:
            return found
        return str(self.ids.next())

    def give_back(self, queue: Queue, entry: Entry) -> None:
        """A delivery that was not settled: the message is ready again."""
        try:
            queue.requeue([entry])
        except QindexError as error:
            self.failed("requeue", error)

    def settles(self, queue: Queue, entry: Entry, then: Callable[[], None]) -> OnOut:
        """What settles a delivery that its client does not ack: when its bytes have left.

        If they cannot leave, the message is ready again: it was handed to nobody.
        """

        def settle(has_left: bool) -> None:
            if not has_left:
                self.give_back(queue, entry)
                return
            try:
                queue.ack([entry])
                then()
            except QindexError as error:
                self.failed("pop", error)

        return settle

    def failed(self, what: str, error: QindexError) -> str:
        """The store could not do it: logged, and said to the client."""
        log.error("gmq: %s failed: %s", what, error)
        self.vhost.failed(error)
        return str(error)


def decoded(message: Message) -> Properties:
    """The properties; none if they are damaged."""
    try:
        return message.decoded
    except AmqpError:
        return Properties()
