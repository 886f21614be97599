"""Where messages are read from: a store, or a dead broker's directory. Nothing is written.

    with open_source(path, screen) as source:
        for name in source.names():
            for message in source.messages(name, Choice()):
                ...

All kinds have the same few methods. What is damaged is told on stderr, counted in `damaged`, and
left out; reading goes on behind it. Memory holds a message at a time (and, of a RabbitMQ node,
where each stored message is).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import qindex
from qindex._core import ffi, lib
from qindex.buffers import Reader
from qindex.errors import raise_error
from qindex.look.members import refuse_members
from qindex.look.messages import Choice, Found, deliveries_of
from qindex.look.screen import CommandError, Screen
from qindex.look.states import found_of, state_of
from qindex.look.stores import (
    UNREADABLE,
    QueueGone,
    advice,
    as_named,
    damage_count,
    nameless_queue_count,
    open_queue,
    unlisted,
)
from qindex.look.telling import Telling, why_missing
from qindex.look.text import count, printable

if TYPE_CHECKING:
    from qindex.brokers.rabbitmq.node import Node, Part
    from qindex.brokers.reader import DeadMessage, DeadNode
    from qindex.brokers.tree import Tree

START: Final = (0, 0)


class Source(Protocol):
    """`damaged` counts what could not be read so far: messages, and queues beyond reading."""

    path: str
    root: Path  # the whole directory that is read, resolved
    format: str
    damaged: int
    missing: list[str]  # single messages that were asked for and are not there
    at_time: float | None  # decides what has expired, in seconds since 1970; None: the clock

    def names(self) -> list[str]:
        """All queues, sorted."""

    def depth(self, name: str) -> int:
        """How many live messages the queue says it has; 0 if it is gone or beyond reading."""

    def next_req_id(self, name: str) -> int | None:
        """What the next message would get; None: not known."""

    def messages(
        self, name: str, choice: Choice, start: tuple[int, int] = START
    ) -> Iterator[Found]:
        """Its chosen messages in order, from (part, ReqId) on; the limit is the caller's.

        QueueGone if there is no such queue.
        """

    def tell(self, text: str) -> None:
        """One more damaged message or queue."""

    def suspected(self) -> int:
        """How many of the damaged places are only suspected."""

    def damage(self) -> int:
        """`damaged`, and what else is known to be damaged."""

    def unlisted(self) -> list[str]:
        """In words: what is lost, or cannot be read, of which no queue in names() tells."""


@contextmanager
def open_source(
    path: str, screen: Screen, members: Sequence[str] = (), at_time: float | None = None
) -> Iterator[Source]:
    """What is at `path`, a dead node with `members`. CommandError if it is nothing known.

    `at_time` (seconds since 1970) decides what has expired; None: the moment at which it is read.
    """
    try:
        store = qindex.open(path, read_only=True, create=False)
    except qindex.StoreMissing:
        with _open_node(path, screen, members) as node:
            node.at_time = at_time
            yield node
        return
    except (qindex.FormatError, qindex.StoreCorrupt) as error:
        raise CommandError(f"{path!r} cannot be opened: {error}") from None
    with store:
        refuse_members(members, path)
        source = StoreSource(store, screen)
        source.at_time = at_time
        yield source


@contextmanager
def _open_node(path: str, screen: Screen, members: Sequence[str]) -> Iterator[Source]:
    from qindex.brokers.rabbitmq.directory import Node
    from qindex.brokers.reader import open_node
    from qindex.brokers.tree import UnknownFormat

    try:
        with screen.progress(f"reading {printable(path)}") as progress:
            progress.at(0)
            node = open_node(path, members=members)
    except UnknownFormat as error:
        if members or "several" in str(error):
            raise CommandError(str(error)) from None
        raise CommandError(
            f"{path!r} is neither a store nor a dead broker's directory{advice(path)}"
        ) from None
    with node:
        if isinstance(node, Node):
            yield NodeSource(node, screen, path)
        else:
            yield DeadSource(node, screen, path)


class StoreSource(Telling):
    """A store of qindex, also one that another process has open."""

    format = "qindex"

    def __init__(self, store: qindex.Store, screen: Screen) -> None:
        super().__init__(screen)
        self.store = store
        self.path = store.path
        self.root = Path(store.path).resolve()

    def names(self) -> list[str]:
        return self.store.queues()

    def depth(self, name: str) -> int:
        try:
            return len(self.store.queue(name, create=False))
        except (*UNREADABLE, qindex.QueueMissing):
            return 0

    def next_req_id(self, name: str) -> int | None:
        return self.store.queue(name, create=False).stats().next_req_id

    def damage(self) -> int:
        return max(self.damaged, damage_count(self.store.findings) + self._nameless)

    def unlisted(self) -> list[str]:
        return unlisted(self.store)

    @cached_property
    def _nameless(self) -> int:
        """Once: to count them costs as much as to list all queues."""
        return nameless_queue_count(self.store)

    def messages(
        self, name: str, choice: Choice, start: tuple[int, int] = START
    ) -> Iterator[Found]:
        try:
            queue = open_queue(self.store, name)
        except UNREADABLE as error:
            self.tell(f"{printable(name)}: {error} (see qindex check)")
            return
        for found in self._browse(queue, max(choice.first, start[1]), choice.last):
            if found.state in choice.states:
                yield found

    def _browse(self, queue: qindex.Queue, start: int, last: int) -> Iterator[Found]:
        reader = Reader()
        raw = reader.struct.message
        address = ffi.addressof(raw)
        while start <= last:
            size = lib.qi_browse(
                queue._handle, start, False, address, reader.buffer, reader.struct.room
            )
            if size == lib.QI_E_ROOM:
                reader.grow(raw.payload_size)
                continue
            if size == lib.QI_EMPTY:
                return
            if size < 0:
                try:
                    raise_error(size)
                except UNREADABLE as error:
                    self.tell(f"{printable(queue.name)}: {error} (see qindex check)")
                    req_id = getattr(error, "req_id", None)
                    if req_id is None:  # nobody can say what is behind it
                        return
                    start = req_id + 1
                    continue
            if raw.req_id > last:
                return
            yield found_of(queue.name, raw, reader.buffer, self.at_time)
            start = raw.req_id + 1


class DeadSource(Telling):
    """A dead broker's directory; its queues have the names that `recover --out` gives them.

    A message's ReqId is its place among the live ones.
    """

    def __init__(self, node: DeadNode, screen: Screen, path: str) -> None:
        from qindex.brokers.recover import names_in_store

        super().__init__(screen)
        self.format = node.format
        self.path = path
        self.root = min(node.tree.path, Path(path).resolve(), key=lambda root: len(root.parts))
        self._node = node
        self._queues = {name: queue for queue, name in names_in_store(node)}

    @property
    def tree(self) -> Tree:
        return self._node.tree

    def names(self) -> list[str]:
        return sorted(self._queues)

    def depth(self, name: str) -> int:
        return self._queues[name].account.live if name in self._queues else 0

    def next_req_id(self, name: str) -> int | None:
        return None

    def suspected(self) -> int:
        return sum(finding.severity == "suspected" for finding in self._node.findings)

    def damage(self) -> int:
        from qindex.brokers.reader import total

        lost = sum(total(self._node.queues).lost.values())
        return max(self.damaged, damage_count(self._node.findings) + lost)

    def messages(
        self, name: str, choice: Choice, start: tuple[int, int] = START
    ) -> Iterator[Found]:
        self._check(name)
        first = max(choice.first, start[1])
        for number, message in enumerate(self._queues[name].messages()):
            if number > choice.last:
                return
            expiry_us = message.expiry_us or 0
            state = state_of(expiry_us, self.at_time, message.redelivered)
            if number >= first and state in choice.states:
                times = deliveries_of(headers := message.headers) or 0
                told = (message.redelivered, times, True, expiry_us, headers, message.body)
                entry = getattr(message, "index", getattr(message, "stream_offset", None))
                yield Found(name, number, state, *told, entry=entry)

    def dead_messages(self, name: str) -> Iterator[DeadMessage]:
        """Its live messages as their format has them, with file and offset."""
        self._check(name)
        return self._queues[name].messages()

    def _check(self, name: str) -> None:
        if name not in self._queues:
            for each in self._node.facts().get("not_read", []):
                if name in (each["queue"], f"{each['vhost']}/{each['queue']}"):
                    raise QueueGone(
                        f"{printable(each['kind'])} {printable(name)!r} in {self.path!r} is not"
                        " read: qindex recover DIR says why"
                    )
            names = count(len(self._queues), "queue")
            raise QueueGone(
                f"no queue {printable(name)!r} in {self.path!r}, which has {names}: see"
                " qindex recover DIR (in another virtual host: its name, a slash, the queue's)"
            )


class NodeSource(DeadSource):
    """A dead RabbitMQ node, whose messages have sequence numbers of their own."""

    def __init__(self, node: Node, screen: Screen, path: str) -> None:
        from qindex.brokers.rabbitmq.directory import Queue

        super().__init__(node, screen, path)
        self.node = node
        self.queues = {n: queue for n, queue in self._queues.items() if isinstance(queue, Queue)}
        # Streams have no index of publishes and acks: their messages are numbered by their places.
        self.replicated = {n: queue for n, queue in self._queues.items() if n not in self.queues}

    def messages(
        self, name: str, choice: Choice, start: tuple[int, int] = START
    ) -> Iterator[Found]:
        self._check(name)
        if name in self.replicated:
            yield from super().messages(name, choice, start)
            return
        for number, part in enumerate(self.queues[name].parts):
            first = max(choice.first, start[1] if number == start[0] else 0)
            if number < start[0]:
                continue
            for seq, redelivered, expiry_us, headers, body in self._rows(
                name, part, first, choice.last
            ):
                state = state_of(expiry_us, self.at_time, redelivered)
                if state in choice.states:
                    told = (redelivered, 0, True, expiry_us, headers, body, number, part.priority)
                    yield Found(name, seq, state, *told)

    def _rows(
        self, name: str, part: Part, first: int, last: int
    ) -> Iterator[tuple[int, bool, int, bytes | dict[str, Any], bytes]]:
        """As Columns.rows(); the headers are decoded where a message comes by itself."""
        from qindex.brokers.columns import Columns, Wish

        for each in self.queues[name].columns_of(part, Wish(0, "keep"), first, last):
            if isinstance(each, Columns):
                yield from each.rows()
            else:
                yield each.seq, each.redelivered, each.expiry_us or 0, each.headers, each.body


@dataclass(frozen=True, slots=True)
class Position:
    """A message that is done, and how many of its queue are, itself included."""

    queue: str
    part: int
    req_id: int
    count: int


def chosen_names(source: Source, choice: Choice, after: Position | None = None) -> list[str]:
    """The queues to read, in their order; with `after` from its queue on, which may be gone.

    QueueGone if one that was asked for is not there.
    """
    names = source.names()
    if not choice.queues:
        return [name for name in names if after is None or name >= after.queue]
    queues = list(dict.fromkeys(as_named(name, names) for name in choice.queues))
    for name in [name for name in queues if name not in names]:
        damaged = source.damaged
        first_message = next(source.messages(name, choice), None)  # raises, with advice
        if first_message is None and source.damaged > damaged:  # told, and once is enough
            queues.remove(name)
    first = queues.index(after.queue) if after and after.queue in queues else 0
    return queues[first:]


def chosen(source: Source, choice: Choice, after: Position | None = None) -> Iterator[Found]:
    """The chosen messages of all queues; with `after` only those behind it.

    A queue that goes while its messages are read is no error.
    """
    for name in chosen_names(source, choice, after):
        goes_on = after is not None and name == after.queue
        start, count = START, 0
        if goes_on and after is not None:
            start, count = (after.part, after.req_id + 1), after.count
        left = None if choice.limit is None else max(0, choice.limit - count)
        damaged, found = source.damaged, goes_on
        with suppress(QueueGone):
            for message in islice(source.messages(name, choice, start), left):
                found = True
                yield message
        if choice.one is not None and not found and source.damaged == damaged:
            source.missing.append(why_missing(source, name, choice.one))


def total_of(source: Source, choice: Choice) -> int:
    """How many messages there are to choose from: at most so many are chosen."""
    depths = [source.depth(name) for name in chosen_names(source, choice)]
    return sum(depths if choice.limit is None else (min(d, choice.limit) for d in depths))
