"""gmq's version 2: a topic has queues by bind key; a message goes to those that its key matches.

The queue of a key is the broker's queue TOPIC_KEY, its dead letters are in TOPIC_KEY_dead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from qindex.broker.errors import Refused
from qindex.broker.queues import Queue
from qindex.broker.taken import Entry
from qindex.errors import QindexError
from qindex.field_table import decode_table, encode_table
from qindex.gmq.commands import Wrong
from qindex.gmq.patterns import PatternError, pattern
from qindex.gmq.text import told, whole_number
from qindex.serve.gmq.leases import Lease
from qindex.serve.gmq.shop import Shop
from qindex.serve.gmq.waiting import Waiter
from qindex.serve.outlet import OnOut

log: Final = logging.getLogger("qindex.serve")
DEFAULT_KEY: Final = "default"
FULL, FUZZY = 1, 2
TTR: Final = 30
RETRIES: Final = 5
SECONDS_MAX: Final = 100 * 366 * 86400
RETRIES_MAX: Final = 60_000  # a delivery count ends at 65,535
_TOPIC: Final = "gmq/2/"  # a prefix in the catalog


@dataclass(slots=True)
class Topic:
    """What is kept of a topic, and what this process has counted."""

    name: str
    mode: int = FUZZY
    auto_ack: bool = True
    ttr: int = TTR
    retries: int = RETRIES
    keys: list[str] = field(default_factory=list)
    pushed: int = 0
    popped: int = 0
    began: datetime = field(default_factory=lambda: datetime.now().astimezone())

    def queue_name(self, key: str) -> str:
        return f"{self.name}_{key or DEFAULT_KEY}"

    def dead_name(self, key: str) -> str:
        return f"{self.queue_name(key)}_dead"


class Popped(NamedTuple):
    """A message as a client gets it; who wants to know if its bytes have left."""

    id: str
    body: str
    retries: int
    on_out: OnOut | None


class Topics:
    """The commands of version 2. What is refused is returned as Wrong."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self.topics: dict[str, Topic] = {}
        self._exited: set[str] = set()
        self._waits: dict[str, dict[Waiter, Callable[[Wrong], None]]] = {}  # pops, by topic
        for key, value in shop.vhost.catalog.items():
            if key.startswith(_TOPIC):
                name = key.removeprefix(_TOPIC)
                table: dict[str, Any] = decode_table(value)
                self.topics[name] = Topic(name, **table)

    def _find(self, name: str) -> Topic | None:
        """The topic; one that has exited is there again as soon as it is used."""
        self._exited.discard(name)
        return self.topics.get(name)

    def there(self) -> list[Topic]:
        """The topics that have not exited, by their names."""
        return [self.topics[name] for name in sorted(self.topics) if name not in self._exited]

    def look(self, name: str) -> Topic | None:
        """The topic, unless it has exited."""
        return None if name in self._exited else self.topics.get(name)

    def exit(self, name: str) -> None:
        """Pops that wait for this topic end, and it is shown no more until somebody uses it.

        Its queues, keys and settings stay.
        """
        self._exited.add(name)
        for waiter, done in self._waits.pop(name, {}).items():
            waiter.stop()
            done(Wrong("E_INVALID_READ", "closed.", True))

    def _keep(self, topic: Topic) -> None:
        """Make it durable, and only then known."""
        table = {name: getattr(topic, name) for name in ("mode", "auto_ack", "ttr", "retries")}
        entry = encode_table({**table, "keys": topic.keys})
        self._shop.vhost.catalog.apply({_TOPIC + topic.name: entry})
        self.topics[topic.name] = topic

    def queue_names(self) -> list[str]:
        """Of all topics and keys, with those of dead letters."""
        names = []
        for topic in self.topics.values():
            for key in topic.keys:
                names += [topic.queue_name(key), topic.dead_name(key)]
        return names

    def queue_of(self, topic: str, key: str) -> Queue | None:
        """The queue of a bind key, if it was declared and is still there."""
        found = self._find(topic)
        if found is None or (key or DEFAULT_KEY) not in found.keys:
            return None
        return self._shop.find(found.queue_name(key))

    # --- topics and queues ---------------------------------------------------------------------

    def declare(self, topic: str, key: str) -> Wrong | None:
        if not topic:
            return Wrong("E_INVALID_TOPIC", "topic name required", True)
        if not key:
            return Wrong("E_INVALID_BINDKEY", "bind key required", True)
        try:
            if self.queue_of(topic, key) is not None:
                return Wrong("E_INVALID_DECLARE", f"bindKey {key} has exist.")
            self._declare(topic, key)
        except (ValueError, Refused) as error:
            return Wrong("E_INVALID_DECLARE", str(error))
        except QindexError as error:
            return Wrong("E_INVALID_DECLARE", self._shop.failed("queue", error))
        return None

    def _declare(self, name: str, key: str) -> None:
        topic = self._find(name) or Topic(name)
        self._shop.make(topic.queue_name(key))
        if key not in topic.keys:
            topic.keys.append(key)
            try:
                self._keep(topic)
            except QindexError:
                topic.keys.remove(key)
                raise

    def configure(self, name: str, values: list[Any]) -> Wrong | None:
        """AUTO MODE TTR RETRY, as far as they are given; 0 leaves a value as it is."""
        if not name:
            return Wrong("E_INVALID_TOPIC", "topic is empty", True)
        topic = self._find(name) or Topic(name)
        before = topic.auto_ack, topic.mode, topic.ttr, topic.retries
        padded = (*values, 0, 0, 0, 0)
        auto, mode, ttr, retries = padded[0], padded[1], padded[2], padded[3]
        try:
            topic.auto_ack = whole_number(auto, "isAutoAck", 1) == 1
            topic.mode = whole_number(mode, "mode", FUZZY) or topic.mode
            topic.ttr = whole_number(ttr, "msgTTR", SECONDS_MAX) or topic.ttr
            topic.retries = whole_number(retries, "msgRetry", RETRIES_MAX) or topic.retries
            self._keep(topic)
        except (ValueError, QindexError) as error:
            topic.auto_ack, topic.mode, topic.ttr, topic.retries = before
            if isinstance(error, QindexError):
                self._shop.failed("set", error)
            return Wrong("E_INVALID_SET", str(error))
        return None

    # --- push ----------------------------------------------------------------------------------

    def route(self, topic: str, key: str) -> list[Queue] | Wrong:
        """The queues that a message with this key goes to: at least one."""
        found = self._find(topic)
        names = []
        if not key:
            if self.queue_of(topic, DEFAULT_KEY) is None:
                wrong = self.declare(topic, DEFAULT_KEY)
                if wrong is not None:
                    return wrong
            names = [DEFAULT_KEY]
        elif found is not None and found.mode == FULL:
            names = [key] if key in found.keys else []
        elif found is not None:
            try:
                names = [each for each in found.keys if pattern(key).is_in(each)]
            except PatternError as error:
                return Wrong("E_INVALID_PUSH", str(error))
        queues = [queue for each in names if (queue := self.queue_of(topic, each)) is not None]
        if not queues:
            mode = found.mode if found is not None else FUZZY
            text = f"routeKey:{key} is not match with queue, the mode is {mode}"
            return Wrong("E_INVALID_PUSH", text)
        return queues

    def push(
        self, topic: str, messages: list[tuple[str, bytes, Any]], done: Callable[[Any], None]
    ) -> None:
        """Push (key, body, delay) each; `done` hears the ids, or what is wrong: then of those that
        come before it some may be pushed, if a queue is full or the disk.
        """
        routed: list[tuple[list[Queue], bytes, int]] = []
        try:
            for key, body, delay in messages:
                queues = self.route(topic, key)
                if isinstance(queues, Wrong):
                    done(queues)
                    return
                routed.append((queues, body, whole_number(delay, "delay", SECONDS_MAX)))
        except ValueError as error:
            done(Wrong("E_INVALID_DELAY", str(error)))
            return
        except Refused as error:
            done(Wrong("E_INVALID_PUSH", str(error)))
            return
        ids: list[int] = []
        for queues, body, delay in routed:
            number = self._shop.ids.next()
            wrong = self._put(queues, str(number), body, delay)
            if wrong is not None:
                done(wrong)
                return
            ids.append(number)
            self.topics[topic].pushed += len(queues)
        self._shop.when_safe(lambda: done(ids))

    def _put(self, queues: list[Queue], name: str, body: bytes, delay: int) -> Wrong | None:
        try:
            for queue in queues:
                if self._shop.publish(queue, name, body, delay=delay) is None:
                    return Wrong("E_INVALID_PUSH", f"queue '{queue.name}' is full")
        except QindexError as error:
            return Wrong("E_INVALID_PUSH", self._shop.failed("pub", error))
        return None

    # --- pop -----------------------------------------------------------------------------------

    def pop(
        self, topic: str, key: str, done: Callable[[Popped | Wrong], None]
    ) -> Callable[[], None] | None:
        """The next message, whenever it comes. Returns what ends the wait; None: it is over."""
        found = self.pop_now(topic, key)
        if found is not None:
            done(found)
            return None

        def on_entry(queue: Queue, entry: Entry) -> None:
            self._shop.loop.call_soon(end)
            done(self._hand_out(topic, key, queue, entry))

        def end() -> None:
            waiter.stop()
            waits.pop(waiter, None)
            if not waits:
                self._waits.pop(topic, None)

        waiter = Waiter(on_entry, lambda wake: True)  # one at a time
        waits = self._waits.setdefault(topic, {})
        waits[waiter] = done
        try:
            queue = self.queue_of(topic, key)
            if queue is not None:
                waiter.listen(queue, self._shop.describe(queue.name))
        except Refused as error:
            end()
            done(Wrong("E_INVALID_POP", str(error)))
            return None
        return end

    def pop_now(self, topic: str, key: str) -> Popped | Wrong | None:
        """The next message; None: there is none now."""
        try:
            queue = self.queue_of(topic, key)
            if queue is None:
                return Wrong("E_INVALID_POP", f"bindKey:{key} can't match queue")
            entry = queue.get()
        except Refused as error:
            return Wrong("E_INVALID_POP", str(error))
        except QindexError as error:
            return Wrong("E_INVALID_POP", self._shop.failed("pop", error))
        return None if entry is None else self._hand_out(topic, key, queue, entry)

    def dead(self, topic: str, key: str) -> Popped | Wrong:
        """The next dead letter of a key."""
        found = self._find(topic)
        try:
            queue = None if found is None else self._shop.find(found.dead_name(key))
            if found is None or queue is None:
                return Wrong("E_INVALID_DEAD", f"bindkey:{key} is not associated with queue")
            entry = queue.get()
        except Refused as error:
            return Wrong("E_INVALID_DEAD", str(error))
        except QindexError as error:
            return Wrong("E_INVALID_DEAD", self._shop.failed("dead", error))
        if entry is None:
            return Wrong("E_INVALID_DEAD", "no message")
        return self._reserve(found, queue, entry, found.retries + 1, self._again)

    def _hand_out(self, name: str, key: str, queue: Queue, entry: Entry) -> Popped:
        topic = self.topics[name]
        topic.popped += 1

        def expired(lease: Lease) -> None:
            self._expired(topic, key, lease)

        return self._reserve(topic, queue, entry, entry.deliveries - 1, expired)

    def _reserve(
        self,
        topic: Topic,
        queue: Queue,
        entry: Entry,
        retries: int,
        on_end: Callable[[Lease], None],
    ) -> Popped:
        name = self._shop.id_of(entry.message, is_one_word=True)
        on_out = None
        if topic.auto_ack:
            on_out = self._shop.settles(queue, entry, _nothing)
        else:
            self._shop.leases.add(_lease(name, queue.name), queue, entry, topic.ttr, on_end)
        return Popped(name, told(entry.message.body), retries, on_out)

    def _again(self, lease: Lease) -> None:
        self._shop.give_back(lease.queue, lease.entry)

    def _expired(self, topic: Topic, key: str, lease: Lease) -> None:
        """Once more, or to the dead letters of its key if that was often enough."""
        if lease.entry.deliveries <= topic.retries or lease.queue.deleted:
            self._again(lease)
            return
        try:
            dead = self._shop.make(topic.dead_name(key))
            lease.queue.unacked -= 1
            self._shop.vhost.move(lease.queue, [lease.entry], dead)
        except (ValueError, Refused) as error:  # a name that is too long, a queue of a connection
            log.error("gmq: no dead letters of topic %r, key %r: %s", topic.name, key, error)
            self._again(lease)
        except QindexError as error:
            self._shop.failed("dead", error)

    def ack(self, number: str, topic: str, key: str) -> Wrong | None:
        found = self._find(topic)
        if found is None or (key or DEFAULT_KEY) not in found.keys:
            return Wrong("E_INVALID_ACK", f"bindkey:{key} is not associated with queue")
        for queue in (found.queue_name(key), found.dead_name(key)):
            lease = self._shop.leases.take(_lease(number, queue))
            if lease is not None:
                try:
                    lease.queue.ack([lease.entry])
                except QindexError as error:
                    return Wrong("E_INVALID_ACK", self._shop.failed("ack", error))
                return None
        return Wrong("E_INVALID_ACK", f"msgId:{number} is not exist.")


def _nothing() -> None:
    pass


def _lease(number: str, queue: str) -> str:
    """One message may be reserved in several queues at once. No id of version 1 is like this."""
    return f"{number}\0{queue}"
