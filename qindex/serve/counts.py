"""What clients have done since the server began, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from qindex.serve.channel import Channel


class Counts:
    """All virtual hosts together; queues count what they have got themselves.

    Publishes are those of AMQP and HTTP; connections, channels and deliveries those of AMQP.
    """

    def __init__(self) -> None:
        self.received = 0  # publishes
        self.received_confirm = 0  # of these, on channels that want confirms
        self.confirmed = 0
        self.returned = 0  # no queue takes them, and their publisher hears of it
        self.dropped = 0  # no queue takes them
        self.consumed = {False: 0, True: 0}  # deliveries to consumers, by no_ack
        self.got = {False: 0, True: 0}  # answers to basic.get, by no_ack
        self.got_empty = 0
        self.opened = self.closed = 0  # connections
        self.channels_opened = 0
        self.publishers: WeakSet[Channel] = WeakSet()  # channels that have published

    def receive(self, channel: Channel, count: int) -> None:
        """So many publishes of a channel."""
        self.received += count
        self.publishers.add(channel)
        if channel.confirms is not None:
            self.received_confirm += count

    def confirm(self, count: int) -> None:
        self.confirmed += count

    def unroutable(self, *, mandatory: bool) -> None:
        if mandatory:
            self.returned += 1
        else:
            self.dropped += 1

    def get(self, no_ack: bool, *, is_empty: bool) -> None:
        """A basic.get was answered."""
        if is_empty:
            self.got_empty += 1
        else:
            self.got[no_ack] += 1
