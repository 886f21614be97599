"""Consumers of a quorum queue, and the turn in which they are served."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Any, Final, TypeAlias

from qindex.brokers.rabbitmq.erlang import ErlangError, decode_at
from qindex.brokers.rabbitmq.quorum.held import Held

# (tag, pid), or the index of the entry that made it
Key: TypeAlias = "tuple[Any, Any] | int"
SERIALS: Final = 1 << 32  # AMQP 1.0 counts deliveries modulo this


@dataclass(slots=True)
class Consumer:
    tag: Any
    pid: Any
    lifetime: str = "auto"  # or "once"
    mode: Any = "simple_prefetch"  # or "credited", or either with its number
    credit: int = 0
    deliveries: int = 0
    priority: int = 0
    status: str = "up"  # cancelled, quiescing, suspected_down, timeout
    below: str = ""  # the status that suspected_down or timeout stand over
    next_id: int = 0
    checked: dict[int, Held] = field(default_factory=dict)
    locks: dict[int, int] = field(default_factory=dict)  # until when, by id
    late: list[int] = field(default_factory=list)  # ids that were taken back because it took long
    timeout_ms: int = 1_800_000
    meta: Any = None

    @property
    def id(self) -> tuple[Any, Any]:
        return (self.tag, self.pid)

    @property
    def has_own_credit(self) -> bool:
        """The consumer alone says how much credit it has."""
        return self.mode == "credited" or (type(self.mode) is tuple and self.mode[0] == "credited")

    @property
    def has_serials(self) -> bool:
        """Its delivery count wraps around, as in AMQP 1.0."""
        return type(self.mode) is tuple and self.mode[0] == "credited"

    @property
    def is_active(self) -> bool:
        """Of a single active consumer: it has the place."""
        if self.status == "suspected_down":
            return self.below in ("up", "quiescing")
        return self.status in ("up", "quiescing")

    def give_credit(self, count: int, *, has_max: bool) -> None:
        """For messages that it settled or gave back."""
        if self.lifetime == "once" or self.has_own_credit:
            return
        self.credit += count
        if has_max and type(self.mode) is tuple and self.mode[1] > 0:
            self.credit = min(self.credit, self.mode[1])

    def become(self, status: str) -> None:
        """A status that stands over another one, or the end of that: "up"."""
        if status in ("suspected_down", "timeout"):
            if not self.below:
                self.status, self.below = status, self.status
            elif status == "suspected_down":
                self.status = status
        elif status == "up" and self.below:
            if self.late:
                self.status = "timeout"
            else:
                self.status, self.below = self.below, ""
        else:
            self.status, self.below = status, ""


class Service:
    """Who is served next: of the highest priority, in turn. Nobody stands in it twice."""

    def __init__(self) -> None:
        self._lines: dict[int, deque[Key]] = {}
        self.members: set[Key] = set()

    def put(self, key: Key, priority: int) -> None:
        if key not in self.members:
            self.members.add(key)
            line = self._lines.get(priority)
            if line is None:
                line = self._lines[priority] = deque()
            line.append(key)

    def take(self) -> Key:
        """The next one, which leaves its turn."""
        key = self.line().popleft()
        self.members.discard(key)
        return key

    def discard(self, key: Key) -> None:
        """Takes it out of its turn."""
        if key in self.members:
            self.members.discard(key)
            for line in self._lines.values():
                if key in line:
                    line.remove(key)

    def is_in(self, line: deque[Key], consumer: Consumer) -> bool:
        """Whether the consumer's turn is in this line: its priority may be another one by now."""
        return self._lines.get(consumer.priority) is line

    def line(self) -> deque[Key]:
        """Of those who are served next; there has to be one."""
        if len(self._lines) == 1:
            for line in self._lines.values():
                return line
        for priority in [p for p, line in self._lines.items() if not line]:
            del self._lines[priority]
        return self._lines[max(self._lines)]

    def __iter__(self) -> Iterator[Key]:
        for priority in sorted(self._lines, reverse=True):
            yield from self._lines[priority]


Waiting: TypeAlias = "list[tuple[Key, Consumer]]"


def put_waiting(waiting: Waiting, key: Key, consumer: Consumer) -> Waiting:
    """With this one, sorted: those that are up first, by priority, by credit, by age."""
    others = [each for each in waiting if each[0] != key]
    return sort_waiting([*others, (key, consumer)])


def sort_waiting(waiting: Waiting) -> Waiting:
    return sorted(waiting, key=cmp_to_key(_compare))


def _compare(one: tuple[Key, Consumer], other: tuple[Key, Consumer]) -> int:
    (key, a), (other_key, b) = one, other
    if a.status == b.status == "up":
        if a.priority != b.priority:
            return b.priority - a.priority
        if a.credit != b.credit:
            return b.credit - a.credit
        return -1 if term_order(key) < term_order(other_key) else 1
    return (b.status == "up") - (a.status == "up")


def term_order(term: Any) -> tuple[int, Any]:
    """Erlang's order of keys: numbers, atoms, pids, tuples by size and elements, binaries."""
    if isinstance(term, int):
        return (0, term)
    if isinstance(term, str):
        return (1, term)
    if isinstance(term, tuple) and hasattr(term, "tag") and hasattr(term, "data"):
        return (2, pid_order(term))
    if isinstance(term, tuple):
        return (3, (len(term), tuple(term_order(each) for each in term)))
    return (4, bytes(term)) if isinstance(term, bytes) else (5, str(term))


def read_name(raw: bytes) -> Any:
    """A publisher's pid, or a consumer's key; None: it is none that a machine could know."""
    try:
        name = decode_at(raw, 0)[0]
        hash(name)
    except (ErlangError, TypeError):
        return None
    return name


def pid_node(pid: Any) -> bytes:
    """The name of the node that a pid is of."""
    data = getattr(pid, "data", b"")
    if data[:1] in (b"d", b"v"):
        size = int.from_bytes(data[1:3], "big")
        return bytes(data[3 : 3 + size])
    if data[:1] in (b"s", b"w"):
        return bytes(data[2 : 2 + data[1]])
    return b""


def pid_order(pid: Any) -> tuple[int, int, bytes, int]:
    """Erlang's order of pids: number, serial, node, creation."""
    node = pid_node(pid)
    data = getattr(pid, "data", b"")
    rest = data[(3 if data[:1] in (b"d", b"v") else 2) + len(node) :] if node else b""
    number, serial = int.from_bytes(rest[:4], "big"), int.from_bytes(rest[4:8], "big")
    return (number, serial, node, int.from_bytes(rest[8:], "big"))
