"""Publishes whose way is known: what is remembered of those that came before.

Most clients publish to the same exchanges with the same keys again and again. Where that leads to
one queue of a store, and nothing about the message or the queue has to be looked at, the messages
go there at once (Publishes.publish_each()). What is remembered counts until a permission, a queue,
an exchange or a binding changes, for all connections of a user to a virtual host. All else goes
through batches.py, which does the same, slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qindex._wire import Publishes, Way
from qindex.amqp import methods as m
from qindex.broker.durable import AWAITED, PUBLISH_BODIES
from qindex.errors import raise_error
from qindex.serve.batches import AWAITED_BYTES_MAX, Batch, batch_of, confirm

if TYPE_CHECKING:
    from qindex.amqp.events import PublishedMany
    from qindex.serve.channel import Channel
    from qindex.serve.session import Session

_KNOWN_MAX: Final = 16_384
_ALL: Final = 0xFFFFFFFF  # groups
_PUBLISH: Final = m.BasicPublish(0, "", "", False, False)


class Ways:
    """Those of one user in one virtual host."""

    def __init__(self) -> None:
        # By the key of the group; None: it has no such way.
        self._known: dict[bytes, Way | None] = {}
        self._epochs = -1, -1  # of what is known

    def batch_of(self, session: Session, event: PublishedMany) -> Straight | Batch | None:
        """What carries these publishes out; None: they are carried out one by one."""
        vhost, messages = session.vhost, event.messages
        epochs = vhost.epoch, session.server.node.epoch
        if epochs != self._epochs:
            self._known.clear()
            self._epochs = epochs
        channel = messages.channel
        if channel is not None and not vhost.arriving and messages.find(self._known):
            return Straight(session, channel, messages)
        is_one, key = len(messages) == 1, messages.keys()[0]
        if is_one and (key is None or key in self._known):
            return None
        batch = batch_of(session, event)
        if batch is not None:
            self._learn(batch)
        elif is_one and key is not None:
            self._remember(key, None)
        return None if is_one else batch

    def _remember(self, key: bytes, way: Way | None) -> None:
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[key] = way

    def _learn(self, batch: Batch) -> None:
        """Remember the ways that batches.py has found for these publishes."""
        for key, way in zip(batch.messages.keys(), batch.ways, strict=True):
            if key is None or key in self._known:
                continue
            found = None
            if len(way.queues) == 1:
                exchange, routing_key = way.group.method.exchange, way.group.method.routing_key
                store = way.queues[0].store_way(
                    exchange, routing_key, persistent=way.persistent, priority=way.priority
                )
                found = Way(way.queues[0], *store, way.waits) if store is not None else None
            self._remember(key, found)


class Straight:
    """Publishes on their way into their queues. The disk may have no room: run() goes on then."""

    method = _PUBLISH

    def __init__(self, session: Session, channel: int, messages: Publishes) -> None:
        self._session = session
        self._channel = channel
        self._messages = messages
        waits = session.channel(channel).confirms is not None and messages.waits is not False
        self._flags = AWAITED if waits and messages.body_bytes <= AWAITED_BYTES_MAX else 0
        self._done = 0  # groups
        self._begun = False

    def run(self) -> None:
        """Publish and confirm. An error of the store: call it again."""
        messages = self._messages
        if not self._begun:
            self._begun = True
            self._publish(_ALL)
        while self._done < messages.group_count:  # there was no room ...
            if messages.found[self._done].queue.deleted:  # ... and what is gone since is left out
                self._done += 1
            else:
                self._publish(self._done + 1)
        channel = self._session.channel(self._channel)
        self._session.server.counts.receive(channel, len(messages))
        self._confirm(channel)

    def _publish(self, stop: int) -> None:
        found = self._messages.publish_each(PUBLISH_BODIES, self._done, stop, self._flags)
        self._done, code, watched = found
        for queue in watched:
            queue.wake()
        if code < 0:
            raise_error(code)

    def _confirm(self, channel: Channel) -> None:
        messages = self._messages
        if channel.confirms is None:
            return
        if messages.waits is not None:
            confirm(channel, len(messages), waits=messages.waits)
            return
        waits = [way.waits for way in messages.found]
        for number in messages.order:
            confirm(channel, 1, waits=waits[number])
