"""A message as a consumer gets it, and a finding of recovery or check."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

from qindex.calls import MessageDetails as Details
from qindex.calls import MessageFields, decode_headers, new_message_type
from qindex.errors import StoreCorrupt, UnknownMessage

if TYPE_CHECKING:
    from qindex.arguments import Moment, Seconds
    from qindex.queue import Queue

__all__ = ["DeadReason", "Death", "Details", "Finding", "Message", "State"]

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., None])
DeadReason: TypeAlias = Literal["expired", "rejected", "deliveries", "full"]
State: TypeAlias = Literal["ready", "unacked", "delayed", "dead"]


def _made_in_c(cls: type[_T]) -> type[_T]:
    """Return a type made in C that has the members of this class and takes its place.

    The garbage collector tracks objects of a class written in Python, which costs 50 ns for each
    message. A message needs no tracking: nothing that it holds can lead back to it.
    """
    made = new_message_type()
    for name, value in vars(cls).items():
        if name not in ("__module__", "__slots__"):
            setattr(made, name, value)
    return made  # type: ignore[no-any-return]


def _asks_for_a_lease(touch: _F) -> _F:
    """Say what to do where Python would only miss an argument."""

    @functools.wraps(touch)
    def asking(*message: Any, **lease: Any) -> None:
        if len(message) == 1 and not lease:
            raise TypeError(
                "touch() has to be told for how many seconds from now: message.touch(30); a lease "
                "that the message was published with, or taken with, is not repeated by itself"
            )
        touch(*message, **lease)

    return asking  # type: ignore[return-value]


class Death(NamedTuple):
    """How a message became a dead letter: all times in one queue for one reason."""

    queue: str
    why: DeadReason
    times: int
    first: float
    """When it was so for the first time, in seconds since 1970."""
    last: float
    """And for the last time."""


@_made_in_c
class Message(MessageFields):
    """A message that get() has delivered, or that peek() or browse() has shown.

    It stands for one delivery: ack(), nack() and touch() refuse it once another consumer has the
    message. All of its fields were read when it was made, and reading one costs no call into the
    store.
    """

    __slots__ = ()

    @property
    def queue(self) -> str:
        """The name of the queue that it is in."""
        return self._details.queue

    @property
    def redelivered(self) -> bool:
        """True if a consumer may have had it before, or if it survived an unclean end."""
        return self._details.redelivered

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this delivery included; 0 if nobody has taken it yet.

        The count stays at 65535. It survives kill -9; a power cut may take its last milliseconds.
        """
        return self._details.delivery_count

    @property
    def persistent(self) -> bool:
        """False if it does not survive an unclean end."""
        return self._details.persistent

    @property
    def expires_at(self) -> float | None:
        """When it expires, in seconds since 1970; None: never. It is not delivered after that."""
        return self._details.expires_at

    @property
    def priority(self) -> int:
        """Its priority, 0 to 255; the highest is delivered first."""
        return self._details.priority

    @property
    def due(self) -> float | None:
        """Until when it is, or was, delayed, in seconds since 1970; None: it has no such time.

        peek() and browse() give None for a message that a consumer has; what get() gave keeps it.
        """
        us = self._due_us
        if us <= 3:  # 0: none; 1, 2: it was taken back from the dead letters; 3: due=0
            return 0.0 if us == 3 else None
        return us / 1e6

    @property
    def published_at(self) -> float | None:
        """When it was published, in seconds since 1970 by the wall clock; None: nobody knows.

        This is never later than the publish, and at most 11 ms earlier. A move to another queue
        changes nothing about it. Stores of format 1 do not keep it, and of a message from before
        the upgrade, or from another version of the library, it is not known.
        """
        us = self._published_us
        return us / 1e6 if us else None

    @property
    def dead(self) -> DeadReason | None:
        """Why it is a dead letter; None if it is none.

        "expired": its time to live was over. "rejected": nack(requeue=False). "deliveries": it was
        delivered `max_deliveries` times. "full": the queue was full.
        """
        return self._details.dead

    @property
    def deaths(self) -> list[Death]:
        """How it became a dead letter: in which queues, why, how often and when; the latest first.

        A move, also one to a queue of dead letters, takes the list along: at most 64 entries, the
        latest. Stores of format 1 keep none of it.
        """
        from qindex.deaths import read_deaths

        return read_deaths(self._details.deaths)

    @property
    def headers(self) -> dict[str, Any]:
        """The headers that it was published with. Decoded anew at each read: O(their size).

        Raises StoreCorrupt if another process has written into them while the store was open.
        """
        table = self._details.headers
        if not table:
            return {}
        usual = decode_headers(table)
        if usual is not None:
            return usual
        from qindex.field_table import decode_table

        try:
            return decode_table(table)
        except ValueError as error:  # another process wrote into the store's files
            raise StoreCorrupt(
                f"the headers of message {self.req_id} of {self.queue!r} are damaged: {error}",
                self.req_id,
            ) from None

    @property
    def token(self) -> str:
        """This delivery in 32 URL-safe characters, to go over a wire and come back.

        The verbs of the store and of the queue that end a delivery take it in place of the message.
        It is good until the delivery ends, at the latest when the store is closed. Raises
        UnknownMessage if the message was only looked at. Cost: a hash, about 2 us.
        """
        from qindex.tokens import write_token

        return write_token(self._settler()._store._key, self)

    def ack(self) -> None:
        """Settle this delivery, in the queue that it came from; see Queue.ack().

        A program with an event loop awaits the ack() of its queue or store instead.
        """
        self._settler().ack(self)

    def nack(
        self,
        requeue: bool = True,
        *,
        delay: Seconds | None = None,
        due: Moment | None = None,
        count: bool = True,
    ) -> None:
        """Give it back to the queue that it came from, or drop it there; see Queue.nack()."""
        self._settler().nack(self, requeue, delay=delay, due=due, count=count)

    @_asks_for_a_lease
    def touch(self, lease: Seconds) -> None:
        """Extend its lease: it ends `lease` seconds from now. See Queue.touch()."""
        self._settler().touch(self, lease)

    def _settler(self) -> Queue:
        """The queue that it was taken from."""
        calls = self._taken_from
        if calls is None:
            raise UnknownMessage(
                f"message {self.req_id} of {self.queue!r} is with nobody: peek() and browse() only "
                "look at it, get() takes it (or its store is gone)"
            )
        return calls._whole  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        body = self.body if len(self.body) <= 40 else self.body[:37] + b"..."
        again = f", delivery_count={self.delivery_count}" if self.redelivered else ""
        return f"<Message {self.req_id} of {self.queue!r}: {len(self.body)} bytes {body!r}{again}>"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that recovery or check found: damage, or a note that explains itself."""

    severity: str
    """"damage" or "note"."""
    where: str
    """The file, relative to the store's directory."""
    offset: int
    """The place in the file, in bytes."""
    text: str
    """What was found, for people."""
    queue: str | None = None
    """The queue whose file it is; None: it is about the store."""
    lost: int = 0
    """Messages that are lost by it, as far as they can be counted."""
    orphans: int = 0
    """Delivers and acks without a publish, if it is about these."""

    @property
    def folder(self) -> str:
        """The queue's folder, as Store.queue_directory() names it; "": it is about the store."""
        return "/".join(self.where.split("/")[:2]) if self.where.startswith("queues/") else ""

    @property
    def place(self) -> str:
        """The queue, the name of its file and the offset, for people. `where` is the whole path."""
        if self.queue is None:
            return f"{self.where or 'store'} at byte {self.offset}"
        if self.where == self.folder:
            return f"queue {self.queue}"
        return f"queue {self.queue}, {self.where.rpartition('/')[2]} at byte {self.offset}"

    def __str__(self) -> str:
        return f"{self.severity}: {self.place}: {self.text}"
