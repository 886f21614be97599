"""The state machine of a quorum queue, rabbit_fifo, as far as it decides what becomes of messages.

`apply()` takes the entries of a log one by one. What the machine tells clients is left out. All
versions are this one machine: what differs stands in rules.py. What the commands do stands in
deliveries.py and attendance.py; here is what they share: the lines, the turn of consumers, limits,
expiry, dead letters.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from qindex.brokers.rabbitmq.quorum.consumers import Consumer, Key, Service, Waiting
from qindex.brokers.rabbitmq.quorum.dead_letters import DeadLetters
from qindex.brokers.rabbitmq.quorum.delayed import Delayed
from qindex.brokers.rabbitmq.quorum.held import Held, Ready
from qindex.brokers.rabbitmq.quorum.mixed import Mixed
from qindex.brokers.rabbitmq.quorum.rules import RULES, VERSION_MAX, Rules, rules_of
from qindex.names import written


class At(NamedTuple):
    """Of a command: the index of its entry, the leader's time, and whom the leader answers."""

    index: int  # type: ignore[assignment]
    now_ms: int
    reply: Any


# What comes of values of other kinds than a machine has: the bytes are not what they seem to be
SENSELESS: Final = (TypeError, ValueError, AttributeError, IndexError, KeyError, OverflowError)

# Verb, index of the message, more words. The verbs are publish, deliver, return, ack, reject, drop,
# expire, dead-letter, purge and move.
Observer = Callable[[str, int, str], None]


@dataclass(slots=True)
class Config:
    """A queue's settings that decide what becomes of messages."""

    handler: Any = None  # dead letters: None, "at_least_once", ("at_most_once", ...)
    overflow: str = "drop_head"
    length_max: int | None = None
    bytes_max: int | None = None
    single_active: bool = False
    delivery_limit: int | None = None
    ttl_ms: int | None = None
    delayed_retry: Any = None  # ("all" | "failed" | "returned", least, most)

    @property
    def at_least_once(self) -> bool:
        return isinstance(self.handler, str) and self.handler == "at_least_once"


@dataclass(slots=True)
class Machine:
    rules: Rules = RULES[0]
    version: int = 0
    config: Config = field(default_factory=Config)
    ready: Ready = field(default_factory=lambda: Ready("one"))
    returns: deque[Held] = field(default_factory=deque)
    consumers: dict[Key, Consumer] = field(default_factory=dict)
    waiting: Waiting = field(default_factory=list)
    service: Service = field(default_factory=Service)
    enqueuers: dict[Any, int] = field(default_factory=dict)  # next number by pid
    pending: dict[Any, dict[int, tuple[Any, ...]]] = field(default_factory=dict)
    early: dict[Any, tuple[int, int]] = field(default_factory=dict)  # refused: last number, count
    dead: DeadLetters = field(default_factory=DeadLetters)
    delayed: Delayed = field(default_factory=Delayed)
    ready_bytes: int = 0  # of messages that wait
    last_ms: int = 0
    found: int = 0  # messages that came, and those of the snapshot
    gone: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)  # commands that no version knows
    mixed: Mixed = field(default_factory=Mixed)  # messages in an order that only Erlang knows
    uncertain: bool = False  # an entry was missing: which messages were delivered is not sure
    maybe: int = 0  # messages that left a consumer since then: others may have left in their place
    unplaced: int = 0  # missing publishes for which there was no empty place: see lenient.py
    passed_on: list[tuple[str, Held]] | None = None  # dead letters that a starting node publishes
    known: list[Any] | None = None  # processes that a node knows when it starts: see watch()
    watched: list[Any] = field(default_factory=list)  # those it hears of then, in this order
    observer: Observer | None = None  # is told what becomes of each message
    deleted: bool = False
    members: int = 0  # of the queue in its cluster; 0: the log does not tell
    named: tuple[bytes, bytes] | None = None  # virtual host and queue, as a snapshot has them

    # --- entries ----------------------------------------------------------------------------------

    def upgrade(self, version: int, now_ms: int) -> None:
        """The version that is in force from here on."""
        if version > self.version:
            from qindex.brokers.rabbitmq.quorum.upgrades import upgrade

            upgrade(self, version, now_ms)
            self.version, self.rules = version, rules_of(version)

    @property
    def is_known(self) -> bool:
        """Whether the machine's version is one that this reader has rules for."""
        return self.version <= VERSION_MAX

    def apply(self, at: At, command: Any) -> None:
        """One command of the log. What is not understood is counted in `unknown`."""
        name = command[0] if type(command) is tuple and command else None
        handle = COMMANDS.get(name) if isinstance(name, str) else None
        if handle is None:
            self.unknown[str(name)[:40]] += 1
            return
        handle(self, at, command)
        self.last_ms = max(self.last_ms, at.now_ms)

    def processes(self) -> set[Any]:
        """Every process that the machine knows: publishers and consumers."""
        found = {*self.enqueuers, *self.pending}
        found |= {consumer.pid for consumer in self.consumers.values()}
        return found | {consumer.pid for _, consumer in self.waiting}

    def watch(self, pid: Any) -> None:
        """A node that starts knows the processes up to the last entry that it had noted as applied.

        It asks for these at once, in their order; for those of later entries while it applies them.
        The answers, that none lives any more, come in that order.
        """
        if self.known is not None:
            self.watched.append(pid)

    # --- messages ---------------------------------------------------------------------------------

    @property
    def live(self) -> int:
        """Messages that are in the queue, waiting or delivered. Dead letters are not among them."""
        checked = sum(len(each.checked) for each in self.consumers.values())
        checked += sum(len(each.checked) for _, each in self.waiting)
        return len(self.ready) + len(self.returns) + len(self.delayed) + checked

    def take_next(self) -> Held | None:
        """The message whose turn it is, which leaves its line."""
        if self.returns:
            return self.returns.popleft()
        return self.ready.take() if len(self.ready) else None

    def give_back(self, at: At, message: Held, *, failed: bool, notes: Any) -> None:
        """A message that was delivered waits again, before those that never were."""
        self.ready_bytes += message.size
        if self.observer is not None:
            self.observer("return", message.index, f"delivered {message.deliveries or 0} times")
        ready_ms = self._delay(at, message, failed, notes)
        if ready_ms is None:
            self.returns.append(message)
        else:
            token = notes.get(b"x-opt-deferral-token") if isinstance(notes, dict) else None
            self.delayed.put(ready_ms, message, token)

    def _delay(self, at: At, message: Held, failed: bool, notes: Any) -> int | None:
        """Version 8: until when a message that came back waits apart."""
        if self.version < 8:
            return None
        now_ms = max(self.last_ms, at.now_ms)
        wanted = notes.get(b"x-opt-delivery-time") if isinstance(notes, dict) else None
        if isinstance(wanted, int) and wanted > now_ms:
            return wanted
        match self.config.delayed_retry:
            case (str(which), int(least), int(most)):
                if which == "all" or (which == "failed") == failed:
                    return now_ms + min(least * max(1, message.deliveries or 1), most)
        return None

    def discard(self, messages: Iterable[Held], reason: str) -> None:
        """Dead-letters messages that left the queue, or forgets them."""
        if self.observer is not None:
            messages = list(messages)
            self._tell_discarded(messages, reason)
        if self.config.at_least_once and reason != "maxlen":
            self.dead.put(reason, messages, keeps_counts=self.version >= 8)
            return
        messages = list(messages)
        if self.passed_on is not None and self.config.handler is not None:
            self.passed_on += [(reason, message) for message in messages]
            return
        count = len(messages)
        if self.config.handler is not None and not self.config.at_least_once:
            self.gone["dead-lettered"] += count
        else:
            self.gone[_GONE.get(reason, reason)] += count

    def _tell_discarded(self, messages: list[Held], reason: str) -> None:
        passes_on = self.config.handler is not None
        for message in messages:
            if self.observer is not None:
                verb = "dead-letter" if passes_on else _VERBS.get(reason, "drop")
                self.observer(verb, message.index, reason)

    # --- delivering -------------------------------------------------------------------------------

    def checkout(self, at: At) -> None:
        """Delivers to consumers what they have credit for, then keeps the queue's limits."""
        self.deliver(at.now_ms)
        if self.config.at_least_once:
            self.dead.checkout()
        if self.has_limits:
            self.keep_limits()

    def deliver(self, now_ms: int) -> None:
        """To every consumer what it has credit for."""
        ready, members = self.ready, self.service.members
        while self.returns or (ready.length and (members or ready.expires)):
            if self.deliver_one(now_ms) is None:
                return

    def hand_over(self, index: int, size: int, expiry_ms: int, now_ms: int) -> bool:
        """A new message goes to the consumer whose turn it is, where nothing waits before it.

        False: it has to wait, or its consumer is not a usual one. The same as putting it in line
        and delivering, at half the cost.
        """
        service = self.service
        if not service.members:
            return False
        line = service.line()
        consumer = self.consumers.get(line[0])
        if consumer is None or consumer.credit < 2 or consumer.status != "up":
            return False
        if consumer.lifetime == "once" or not service.is_in(line, consumer):
            return False
        number = consumer.next_id
        consumer.checked[number] = _new(Held, (index, size, expiry_ms, None, None, None))
        consumer.next_id = number + 1
        consumer.credit -= 1
        consumer.deliveries += 1
        if self.version >= 8:
            consumer.locks[number] = now_ms + consumer.timeout_ms
        if expiry_ms:
            self.ready.expires = True
        if self.ready.kind == "two":
            self.ready.passed()
        if len(line) > 1:
            line.rotate(-1)
        return True

    def deliver_one(self, now_ms: int) -> Key | None:
        """Delivers one message: to whom."""
        ready, returns, service = self.ready, self.returns, self.service
        if returns or ready.expires:
            self.expire(now_ms)
        while service.members:
            line = service.line()
            key = line[0]
            consumer = self.consumers.get(key)
            if consumer is None:
                service.take()
                continue
            if not returns and not ready.length:
                return None
            credit = consumer.credit
            if credit == 0 or consumer.status != "up":
                service.take()
                continue
            message = returns.popleft() if returns else ready.take()
            number = consumer.next_id
            consumer.checked[number] = message
            consumer.next_id = number + 1
            consumer.credit = credit - 1
            consumer.deliveries += 1
            if self.version >= 8:
                consumer.locks[number] = now_ms + consumer.timeout_ms
            self.ready_bytes -= message.size
            if self.observer is not None:
                self.observer("deliver", message.index, f"to {name_of(consumer.tag)}, as {number}")
            if credit > 1 and consumer.lifetime != "once" and service.is_in(line, consumer):
                line.rotate(-1)  # to the end of its line, as if it had left it
            else:
                service.take()
                self.keep_or_remove(key, consumer)
            return key
        return None

    def keep_or_remove(self, key: Key, consumer: Consumer) -> None:
        """After a change: a consumer that is done goes, another one may be served again."""
        if consumer.lifetime == "once" and consumer.credit == 0:
            if consumer.checked:
                self.consumers[key] = consumer
            else:
                self.consumers.pop(key, None)
            return
        if consumer.status == "quiescing" and not consumer.checked:
            from qindex.brokers.rabbitmq.quorum.consumers import put_waiting

            consumer.status = "up"
            self.consumers.pop(key, None)
            self.waiting = put_waiting(self.waiting, key, consumer)
            return
        self.consumers[key] = consumer
        self.serve(key, consumer)

    def serve(self, key: Key, consumer: Consumer) -> None:
        """A consumer with credit gets its turn."""
        if consumer.credit > 0 and consumer.status == "up":
            self.service.put(key, consumer.priority)

    # --- limits -----------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """Drops what has expired at the head; what has expired behind it waits for its turn."""
        if not self._head_expired(now_ms):
            return
        expired: list[Held] = []
        if self.rules.lines == "many":
            expired = self._expired_returns(now_ms)
            expired += self.ready.take_expired(now_ms)
        else:
            while self._head_expired(now_ms):
                message = self.take_next()
                if message is not None:
                    expired.append(message)
        self.ready_bytes -= sum(message.size for message in expired)
        self.discard(expired, "expired")

    def _head_expired(self, now_ms: int) -> bool:
        expiry = self.returns[0].expiry_ms if self.returns else self.ready.first_expiry()
        return 0 < expiry <= now_ms

    def _expired_returns(self, now_ms: int) -> list[Held]:
        expired = []
        while self.returns and 0 < self.returns[0].expiry_ms <= now_ms:
            expired.append(self.returns.popleft())
        return expired

    def expire_everywhere(self, now_ms: int) -> None:
        """Version 8: at the head of every line; what was delayed until now waits again."""
        self.returns.extend(self.delayed.take_ready(now_ms))
        expired = self._expired_returns(now_ms)
        expired += self.ready.take_expired(now_ms)
        self.ready_bytes -= sum(message.size for message in expired)
        self.discard(expired, "expired")

    @property
    def has_limits(self) -> bool:
        """Whether there may be too much here: else publishers are told to stop, or nobody."""
        config = self.config
        limited = config.length_max is not None or config.bytes_max is not None
        return limited and config.overflow == "drop_head"

    def keep_limits(self) -> None:
        """Drops from the head what is too much."""
        while self.has_limits and self._is_over():
            message = self.take_next()
            if message is None:
                return
            self.ready_bytes -= message.size
            self.discard([message], "maxlen")

    def _is_over(self) -> bool:
        config = self.config
        length = len(self.ready) + len(self.returns) + len(self.dead)
        if config.length_max is not None and length > config.length_max:
            return True
        size = self.ready_bytes + self.dead.bytes
        return config.bytes_max is not None and size > config.bytes_max


# What a message is that a queue without a dead letter exchange dropped.
_GONE: Final = {
    "maxlen": "over the length limit",
    "delivery_limit": "over the delivery limit",
}

_VERBS: Final = {"rejected": "reject", "expired": "expire"}


def name_of(tag: Any) -> str:
    """A consumer's tag as text."""
    shown = written(tag.decode("utf-8", "surrogateescape")) if isinstance(tag, bytes) else str(tag)
    return f"consumer {shown}"


_new: Final = tuple.__new__  # of a named tuple: twice as fast as by its name

Handler = Callable[[Machine, At, Any], None]
COMMANDS: dict[str, Handler] = {}


def command(*names: str) -> Callable[[Handler], Handler]:
    """Makes a function the one that handles commands of these names."""

    def register(handler: Handler) -> Handler:
        for name in names:
            COMMANDS[name] = handler
        return handler

    return register
