"""Deliveries: messages that have left a backlog for a while, one by one and many at once.

`Taken` (qindex._wire, in C) is what one look into a backlog has brought. Whoever gets a message of
it settles it later by its place: no object is kept for it meanwhile. An `Entry` is one delivery
with its message, for what is done to messages one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from qindex._wire import Taken, taken_of_list
from qindex.broker.message import AmqpError, Message

_NAME_BYTES_MAX: Final = 255  # of an exchange and of a routing key in AMQP


Given = list[tuple[Taken, range]]
"""What consumers have got: of which look into the backlog, and which of its messages."""


class Places(NamedTuple):
    """Deliveries of one backlog, as what settles them: `numbers` of the messages in it, and which
    delivery of each message is meant. Both are the bytes of an array of uint64_t.
    """

    numbers: bytes
    deliveries: bytes

    @property
    def size(self) -> int:
        return len(self.numbers) // 8


class Entry:
    """A message in a backlog, as one delivery of it."""

    __slots__ = ("deliveries", "message", "place", "redelivered")

    def __init__(
        self, message: Message, place: tuple[int, int] | None, redelivered: bool, deliveries: int
    ) -> None:
        self.message = message
        self.place = place  # number and delivery, as in Places; None: it is in no backlog
        self.redelivered = redelivered
        self.deliveries = deliveries  # this one included

    def properties(self, *, counts: bool) -> bytes:
        """The properties as they are delivered: with `counts`, also how often nobody acked it."""
        message = self.message
        if not counts or self.deliveries <= 1:
            return message.properties
        count = {"x-delivery-count": self.deliveries - 1}
        try:
            return message.with_headers({**message.headers, **count})
        except (AmqpError, ValueError, TypeError):  # they are damaged, and go as they are
            return message.properties


def places_of(entries: Iterable[Entry]) -> Places:
    """What settles these; those without a place are left out."""
    found = [entry.place for entry in entries if entry.place is not None]
    return _packed(found)


def _packed(pairs: list[tuple[int, int]]) -> Places:
    numbers = array("Q", [number for number, _ in pairs]).tobytes()
    return Places(numbers, array("Q", [delivery for _, delivery in pairs]).tobytes())


def joined(places: list[Places]) -> Places:
    """All of these deliveries."""
    if len(places) == 1:
        return places[0]
    return Places(
        b"".join(each.numbers for each in places), b"".join(each.deliveries for each in places)
    )


def in_order(places: Places) -> Places:
    """These deliveries by the numbers of their messages, whoever has them. O(n log n)."""
    return _packed(sorted(_pairs(places)))


def left_of(taken: Taken, given: Given) -> Places:
    """What of `taken` is in none of these shares, which may be of parts of it."""
    gone: set[int] = set()
    for part, share in given:
        gone.update(array("Q", part.places(share.start, share.stop, share.step)[0]))
    pairs = _pairs(Places(*taken.places(0, len(taken), 1)))
    return _packed([pair for pair in pairs if pair[0] not in gone])


def _pairs(places: Places) -> Iterator[tuple[int, int]]:
    return zip(array("Q", places.numbers), array("Q", places.deliveries), strict=True)


def taken_of(entries: list[Entry], *, counts: bool = False) -> Taken:
    """These deliveries as a backlog gives them, each ready to go out if it has not expired."""
    messages = []
    for entry in entries:
        message = entry.message
        number, delivery = entry.place or (0, 0)
        messages.append(
            (
                number,
                delivery,
                entry.redelivered,
                message.expires_us,
                _short(message.exchange),
                _short(message.routing_keys[0]),
                entry.properties(counts=counts),
                message.body,
            )
        )
    return taken_of_list(messages, entries)


def _short(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")[:_NAME_BYTES_MAX]
