"""One client: its connection, its channels, and what it does wrong.

The server's protocol object feeds `receive()`; what is to be written goes out once per turn of the
event loop, through `flush()`. A disk that is full stops the clients that publish, and nobody else:
their bytes wait until a publish succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from qindex.amqp import methods as m
from qindex.amqp.connection import Connection
from qindex.amqp.events import (
    Acked,
    Called,
    ChannelClosed,
    ChannelOpened,
    Ended,
    Login,
    Open,
    Published,
    PublishedMany,
)
from qindex.amqp.wire import WireError
from qindex.broker import errors as broker
from qindex.broker.arriving import NotIn
from qindex.broker.durable import GroupCommit
from qindex.broker.users import Rights
from qindex.broker.vhost import VHost
from qindex.errors import DiskFull, QindexError, StoreFull
from qindex.serve import entrance, permissions
from qindex.serve.arrivals import check_arrived
from qindex.serve.batches import Batch
from qindex.serve.channel import Channel
from qindex.serve.confirms import send_confirms
from qindex.serve.deliveries import Deliveries
from qindex.serve.outlet import NOT_READ, Outlet
from qindex.serve.ways import Straight, Ways

if TYPE_CHECKING:
    from qindex.serve.server import Server

log: Final = logging.getLogger("qindex.serve")

# Reply codes; those of the connection end it, the others end the channel.
_OF_CHANNEL: Final[dict[type[broker.Refused], int]] = {
    broker.NotFound: 404,
    broker.AccessRefused: 403,
    broker.Locked: 405,
    broker.Precondition: 406,
}
_OF_CONNECTION: Final[dict[type[broker.Refused], int]] = {
    broker.NotAllowed: 530,
    broker.NotThere: 540,
    broker.Unknown: 503,
}
_RETRY_SECONDS: Final = 0.2
_ACK: Final = m.BasicAck(0, False)
Held = Published | Batch | Straight | Called | Login


class Session:
    """The broker's side of one connection."""

    def __init__(self, server: Server, transport: asyncio.Transport, peer: str, address: str):
        self.server = server
        self.number = server.next_number()
        self.peer = peer
        self.connection = Connection(server.properties(), body_max=server.body_max)
        self.user = ""
        self.closed = False
        self.received = self.sent = 0  # bytes, for heartbeats
        self.timer: asyncio.TimerHandle | None = None  # of its begin or its end
        self._vhost: VHost | None = None
        self._rights: Rights | None = None
        self._rights_epoch = -1
        self._transport = transport
        self.outlet = Outlet(transport, server.loop, self._not_read)
        self.deliveries = Deliveries(self.outlet, self.flush_later)
        self.address = address
        self._channels: dict[int, Channel] = {}
        self._ways = Ways()  # those of its user, when the connection is open
        self._to_confirm: dict[Channel, None] = {}
        self._flushing = self._told_blocked = False
        self.of_others = 0  # bytes of the next flush that others have caused
        self._events: Iterator[Any] = iter(())
        # What waits: for room on the disk, for messages of a rescue, for the digest of a password.
        self._held: Held | None = None
        self._has_room = True

    @property
    def is_writable(self) -> bool:
        """False while the client does not read: nothing is delivered to it then."""
        return not self.outlet.is_slow

    @property
    def vhost(self) -> VHost:
        if self._vhost is None:
            raise RuntimeError("no virtual host before the connection is open")
        return self._vhost

    @vhost.setter
    def vhost(self, vhost: VHost) -> None:
        self._vhost = vhost
        self._ways = self.server.ways_of(vhost, self.user)

    @property
    def commit(self) -> GroupCommit | None:
        """The sync that confirms wait for; None: nothing here needs one."""
        return self._vhost.commit if self._vhost is not None else None

    @property
    def vhost_name(self) -> str:
        """The virtual host's; empty before the connection is open."""
        return self._vhost.name if self._vhost is not None else ""

    @property
    def state(self) -> str:
        """As RabbitMQ names it: starting, running, blocked (it waits, and is not read), closing."""
        if self._held is not None and self._vhost is not None:
            return "blocked"
        if self.connection.is_running:
            return "running"
        return "closing" if self._vhost is not None else "starting"

    @property
    def channels(self) -> list[Channel]:
        return list(self._channels.values())

    @property
    def channel_count(self) -> int:
        return len(self._channels)

    @property
    def rights(self) -> Rights:
        """What the user may do in the virtual host, as it stands now. O(1) but after a change."""
        node = self.server.node
        if self._rights is None or self._rights_epoch != node.epoch:
            self._rights = node.users.rights(self.user, self.vhost.name)
            self._rights_epoch = node.epoch
        return self._rights

    def channel(self, number: int) -> Channel:
        """The channel of that number, which is open."""
        return self._channels[number]

    @staticmethod
    def not_found(text: str) -> broker.Refused:
        return broker.NotFound(text)

    # --- in ------------------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview) -> None:
        """Carry out what these bytes ask for. They may change then."""
        self.received += len(data)
        self._go_through(self.connection.receive(data))
        self.outlet.received(len(data))

    def _go_through(self, events: Iterator[Any]) -> None:
        self._events = iter(())
        for event in events:
            self._on_event(event)
            if self._held is not None:  # in the middle of many, what is left of them comes first
                self._events = chain(self._events, events)
                return
        self.flush_later()

    def _on_event(self, event: Any) -> None:
        kind = type(event)
        if kind is Published:
            self._publish(event)
        elif kind is PublishedMany:
            self._publish_many(event)
        elif kind is Acked:
            self._ack(event)
        elif kind is Called:
            self._call(event)
        elif kind is Batch or kind is Straight:  # that had no room
            self._run(event)
        elif kind is ChannelOpened:
            self._channels[event.channel] = Channel(self, event.channel)
        elif kind is ChannelClosed:
            self._close_channel(event.channel)
        elif kind is Login:
            entrance.login(self, event)
        elif kind is Open:
            entrance.open_vhost(self, event)
        elif kind is Ended:
            log.debug("%s: %s", self.peer, event.why)
            self._flush()
            self.server.ended(self)

    def all(self, events: Iterator[Any]) -> None:
        for event in events:
            self._on_event(event)

    def _call(self, event: Called) -> None:
        channel = self._channels.get(event.channel)
        if channel is None:  # connection.update-secret is the only one
            self.connection.send(0, m.ConnectionUpdateSecretOk())
            return
        if type(event.method) is m.BasicGet:
            self._flush()
            if not self.is_writable:  # what it asked for before fills the memory unless it reads
                self._hold(event)
                return
        try:
            permissions.check(self.rights, channel, event.method)
            if channel.vhost.arriving:
                check_arrived(channel, event.method)
            channel.call(event.method)
        except NotIn:
            self._hold(event)
        except (broker.Refused, WireError) as error:
            self._refuse(event.channel, error, event.method)
        except QindexError as error:
            self._fail(event.method, error)

    def _ack(self, event: Acked) -> None:
        try:
            self._channels[event.channel].ack(event.acks)
        except broker.Refused as error:
            self._refuse(event.channel, error, _ACK)
        except QindexError as error:
            self._fail(_ACK, error)

    def _publish(self, event: Published) -> None:
        channel = self._channels[event.channel]
        try:
            channel.publish(event.method, event.properties, event.body)
        except (broker.Refused, WireError) as error:
            self._refuse(event.channel, error, event.method)
        except NotIn:
            self._hold(event)
        except (DiskFull, StoreFull) as error:
            self._block(event, error)
        except QindexError as error:
            self._fail(event.method, error)

    def _publish_many(self, event: PublishedMany) -> None:
        batch = self._ways.batch_of(self, event)
        if batch is None:
            self._go_through(self.connection.one_by_one(event))
        else:
            self._run(batch)

    def _run(self, batch: Batch | Straight) -> None:
        try:
            batch.run()
        except (DiskFull, StoreFull) as error:
            self._block(batch, error)
        except QindexError as error:
            self._fail(batch.method, error)

    def _refuse(self, number: int, error: broker.Refused | WireError, method: Any) -> None:
        if isinstance(error, WireError):
            self.all(self.connection.fail(error.code, str(error), method))
            return
        log.info("%s, channel %d: %s", self.peer, number, error)
        code = _OF_CHANNEL.get(type(error))
        if code is not None:
            self.all(self.connection.fail_channel(number, code, str(error), method))
        else:
            self.all(self.connection.fail(_OF_CONNECTION[type(error)], str(error), method))

    def _fail(self, method: Any, error: QindexError) -> None:
        """The store could not do it: the client hears why."""
        log.error("%s: %s failed: %s", self.peer, type(method).__name__, error)
        self.all(self.connection.fail(541, str(error), method))
        self.vhost.failed(error)

    # --- what has to wait ----------------------------------------------------------------------

    def _block(self, event: Published | Batch | Straight, error: QindexError) -> None:
        """Stop reading from this client until there is room for its messages."""
        if self._held is None:
            log.warning("%s: publishing is blocked: %s", self.peer, error)
        if not self._told_blocked and self.connection.client_can("connection.blocked"):
            self._told_blocked = True
            self.connection.send(0, m.ConnectionBlocked("low on disk"))
            self.flush_later()
        self._hold(event)

    def _hold(self, event: Published | Batch | Straight | Called) -> None:
        """Try again later."""
        self.wait_for(event)
        self._has_room = False
        self.server.loop.call_later(_RETRY_SECONDS, self._retry)

    def wait_for(self, event: Held) -> None:
        """Read and carry out nothing that the client has sent behind this, until go_on()."""
        if self._held is None:
            self.connection.keep()
            self.outlet.read(False)
            self.flush_later()
        self._held = event

    def _retry(self) -> None:
        event = self._held
        if event is None or self.closed:
            return
        self._has_room = True
        self._on_event(event)  # _hold() says if it still cannot be done
        if not self._has_room:
            return
        if self._told_blocked:
            self._told_blocked = False
            self.connection.send(0, m.ConnectionUnblocked())
        self.go_on()

    def go_on(self) -> None:
        """What was waited for is done."""
        self._held = None
        self.outlet.read(True)
        self._go_through(self._events)

    # --- out -----------------------------------------------------------------------------------

    def send(self, channel: int, method: Any) -> None:
        self.connection.send(channel, method)
        self.flush_later()

    def send_content(self, channel: int, method: Any, properties: bytes, body: bytes) -> None:
        self.connection.send_content(channel, method, properties, body)
        self.flush_later()

    def confirm_later(self, channel: Channel) -> None:
        """This channel has news for flush(): confirms, now or after a sync."""
        self._to_confirm[channel] = None
        self.flush_later()

    def flush_later(self) -> None:
        """Write what there is at the end of this turn of the event loop."""
        if not self._flushing:
            self._flushing = True
            self.server.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._to_confirm:
            channels, self._to_confirm = self._to_confirm, {}
            send_confirms(self, list(channels))
        out = self.connection.out
        if out and not self._transport.is_closing():
            data = b"".join(out)
            out.clear()
            self.sent += len(data)
            self.outlet.write(data, of_others=self.of_others)
        self.of_others = 0
        self.deliveries.written()

    def resume(self) -> None:
        """It has read most of what waited for it."""
        self.outlet.resume()
        self.deliveries.wake()

    def _not_read(self) -> None:
        log.warning("%s: %s", self.peer, NOT_READ)
        self.server.end(self, NOT_READ)

    # --- the end -------------------------------------------------------------------------------

    def shut_down(self, text: str) -> None:
        """Tell the client that the server stops."""
        self.all(self.connection.fail(320, text))
        self.flush_later()

    def attempt(self, step: Callable[..., object], *args: Any) -> None:
        """Do a step of the end of what is gone: nobody is there to hear of an error but the log."""
        try:
            step(*args)
        except QindexError as error:
            log.error("%s: not all that it had could go back: %s", self.peer, error)
            self.vhost.failed(error)
        except Exception:
            log.exception("%s: not all that it had could go back", self.peer)

    def _close_channel(self, number: int) -> None:
        channel = self._channels.pop(number, None)
        if channel is not None:
            channel.close()

    def lost(self) -> None:
        """The socket is closed: what the client had goes back, its own queues go. No errors."""
        if self.closed:
            return
        self.closed = True
        self._held = None
        if self.timer is not None:  # it would keep all this in memory
            self.timer.cancel()
        for number in list(self._channels):
            self._close_channel(number)
        if self._vhost is not None:
            for queue in self._vhost.queues_of(self):
                self.attempt(self._vhost.delete_unused, queue)
