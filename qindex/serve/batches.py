"""Many basic.publish at once: one batch for each queue, and confirms in ranges.

What one socket read has brought is carried out as if each publish came alone, only cheaper: the
questions (may this user publish there, which queues get it, what do its properties ask for) are
asked once per group. If one of the answers is unusual (an error, CC, a direct reply), nothing is
done here, and the session carries out one publish after the other. A queue that may refuse a
message is asked about each of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from qindex.amqp.events import Group, PublishedMany
from qindex.amqp.wire import WireError
from qindex.broker.backlog import Publishes, Share
from qindex.broker.errors import Refused
from qindex.broker.message import Message
from qindex.broker.queues import Queue
from qindex.broker.timers import now_us
from qindex.serve.permissions import REPLY_TO
from qindex.serve.publishing import send_return, wishes_of

if TYPE_CHECKING:
    from qindex.serve.channel import Channel
    from qindex.serve.session import Session

_US: Final = 1000  # microseconds of a millisecond
# Of publishes that wait for a sync, up to so many bytes in one read are embedded below 4 KiB. They
# need one sync, and not two; to write them again with a flush costs less than a sync.
AWAITED_BYTES_MAX: Final = 64 * 1024


class GroupWay(NamedTuple):
    """Where the messages of a group go."""

    channel: Channel
    group: Group
    queues: list[Queue]
    persistent: bool
    priority: int

    @property
    def waits(self) -> bool:
        """A confirm has to wait for a sync."""
        is_durable = self.persistent and any(queue.backlog.is_durable for queue in self.queues)
        return is_durable and self.channel.session.server.confirms_are_durable


Content: TypeAlias = tuple[int, bytes, bytes]  # the number of its group, properties, body


class Contents:
    """The messages of a batch by their groups: made once, also for many queues."""

    def __init__(self, messages: Publishes) -> None:
        self._messages = messages
        self._groups: dict[int, list[tuple[int, Content]]] = {}

    def of(self, groups: Iterable[int]) -> Iterator[tuple[int, Content]]:
        """Those of these groups, in order, with their places in the batch."""
        if not self._groups:
            for place in enumerate(self._messages.contents()):
                self._groups.setdefault(place[1][0], []).append(place)
        return merge(*(self._groups.get(number, ()) for number in groups), key=itemgetter(0))


class Part(NamedTuple):
    """What a queue gets of a batch: it is asked as the whole one is."""

    messages: Publishes
    all: Contents
    groups: Collection[int]

    def contents(self) -> list[Content]:
        return [content for _, content in self.all.of(self.groups)]

    def gather(
        self, wanted: list[tuple[int, bytes, int]], /
    ) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        return self.messages.gather(wanted)


class Batch:
    """Publishes that are on their way into their queues.

    The disk may have no room in the middle: `run()` goes on where it stopped.
    """

    def __init__(self, event: PublishedMany, ways: list[GroupWay]) -> None:
        self.method = event.groups[0].method
        self.messages = event.messages
        self.ways = ways
        self._counts = ways[0].channel.session.server.counts
        awaited = any(way.waits and way.channel.confirms is not None for way in ways)
        self._awaited = awaited and event.messages.body_bytes <= AWAITED_BYTES_MAX
        self._contents = Contents(event.messages)
        self._left = list(_shares(ways).items())
        self._refused: set[int] = set()  # by a queue that is full
        self._singles: Iterator[tuple[int, Content]] | None = None
        self._single: tuple[int, Message] | None = None  # that had no room

    def run(self) -> None:
        """Publish, return what no queue takes, confirm. An error of the store: call it again."""
        left = self._left
        while left:
            (queue, _), shares = left[0]
            if queue.deleted:  # while there was no room
                pass
            elif queue.takes_batches:
                part = Part(self.messages, self._contents, shares)
                queue.publish_many(part, shares, awaited=self._awaited)
            else:
                self._publish_singly(queue, shares)
            self._singles = self._single = None
            del left[0]
        for way, count in zip(self.ways, self.messages.counts, strict=True):
            self._counts.receive(way.channel, count)
        self._return()
        self._confirm()

    def _publish_singly(self, queue: Queue, shares: dict[int, Share]) -> None:
        if self._singles is None:
            self._singles = self._contents.of(shares)
        now = now_us()
        while True:
            if self._single is None:
                found = next(self._singles, None)
                if found is None:
                    return
                at, (number, properties, body) = found
                self._single = at, shares[number].message(properties, body)
            at, message = self._single
            message.awaited = self._awaited
            if queue.limits.ttl_ms == 0:  # it ends at the moment of this publish, not before
                message.expires_us = now
            if queue.publish(message, now) is None:
                self._refused.add(at)
            self._single = None

    def _return(self) -> None:
        lost = {at for at, way in enumerate(self.ways) if not way.queues}
        if lost:
            for number in self.messages.order:
                if number in lost:
                    method = self.ways[number].group.method
                    self._counts.unroutable(mandatory=method.mandatory)
        if not any(self.ways[at].group.method.mandatory for at in lost):
            return
        for number, properties, body in self.messages.contents():
            way = self.ways[number]
            if number in lost and way.group.method.mandatory:
                send_return(way.channel, way.group.method, properties, body)

    def _confirm(self) -> None:
        ways = self.ways
        waits = [way.waits for way in ways]
        hows = set(zip((way.channel for way in ways), waits, strict=True))
        if len(hows) == 1 and not self._refused:
            confirm(ways[0].channel, len(self.messages), waits=waits[0])
            return
        for at, number in enumerate(self.messages.order):
            refused = at in self._refused
            confirm(ways[number].channel, 1, waits=waits[number], refused=refused)


def confirm(channel: Channel, count: int, *, waits: bool, refused: bool = False) -> None:
    """The next `count` publishes of the channel are done. `waits`: a sync has to come first."""
    if channel.confirms is not None:
        channel.confirms.published(count, refused=refused, waits=waits)
        channel.session.confirm_later(channel)


def batch_of(session: Session, event: PublishedMany) -> Batch | None:
    """The batch of these publishes; None: something about them is unusual."""
    ways: list[GroupWay] = []
    for group in event.groups:
        try:
            way = _way_of(session.channel(group.channel), group)
        except (Refused, WireError):  # the one that is carried out alone says so
            return None
        if way is None:
            return None
        ways.append(way)
    return Batch(event, ways)


def _way_of(channel: Channel, group: Group) -> GroupWay | None:
    method, vhost = group.method, channel.vhost
    channel.session.rights.check("write", "exchange", method.exchange)
    exchange = vhost.exchange(method.exchange)
    if method.immediate or exchange.internal:
        return None
    if not exchange.name and method.routing_key.startswith(REPLY_TO + "."):
        return None
    persistent, priority = group.persistent, group.priority
    if group.properties is not None:
        wishes = wishes_of(group.properties)
        if not wishes.is_plain:
            return None
        persistent, priority = wishes.persistent, wishes.priority
    names = vhost.route(exchange, method.routing_key)
    if names is None:
        return None
    queues = [vhost.queues[name] for name in names if name in vhost.queues]
    if any(queue.paused for queue in queues):
        return None
    return GroupWay(channel, group, queues, persistent, priority)


def _shares(ways: list[GroupWay]) -> dict[tuple[Queue, int], dict[int, Share]]:
    """By queue and priority, in the order in which they came: what it takes of each group. Of a
    queue that is asked about each message, the priorities are together: they keep their order.
    """
    now = now_us()
    found: dict[tuple[Queue, int], dict[int, Share]] = {}
    for number, way in enumerate(ways):
        method = way.group.method
        for queue in way.queues:
            limits = queue.limits
            priority = min(way.priority, limits.max_priority)
            ttls = [ms for ms in (limits.ttl_ms, way.group.expiration_ms or None) if ms is not None]
            ends_us = now + min(ttls) * _US if ttls else 0
            key = (queue, priority if queue.takes_batches else 0)
            found.setdefault(key, {})[number] = Share(
                method.exchange, method.routing_key, way.persistent, priority, ends_us
            )
    return found
