"""What publishers have sent since the server began, and what became of it."""

from __future__ import annotations


class Counts:
    """Of AMQP and HTTP, all virtual hosts together; queues count what they have got themselves."""

    __slots__ = ("confirmed", "dropped", "received", "returned")

    def __init__(self) -> None:
        self.received = 0  # publishes
        self.confirmed = 0
        self.returned = 0  # no queue takes them, and their publisher hears of it
        self.dropped = 0  # no queue takes them

    def confirm(self, count: int) -> None:
        self.confirmed += count

    def unroutable(self, *, mandatory: bool) -> None:
        if mandatory:
            self.returned += 1
        else:
            self.dropped += 1
