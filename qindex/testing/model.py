"""The reference model: a queue that is stupid and right, and knows what a crash may take.

Each publish and each ack carries a Level: in doubt, returned, synced, closed. After a crash the
promise says from which level on a change must have survived; below it both outcomes are right, and
the model takes over what the queue shows (``accept``). Comparing is the business of invariants.py.
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from sortedcontainers import SortedDict

from qindex.testing.promise import Level, Promise

Id = int | str


def body_of(serial: int, size: int) -> bytes:
    """The body of the message with this serial number: its label, then noise; `size` bytes."""
    label = b"%d|" % serial
    return (label + random.Random(serial).randbytes(max(0, size - len(label))))[:size]  # noqa: S311


def label_size(serial: int) -> int:
    """Bodies of at least this size are unlike all others."""
    return len(b"%d|" % serial)


@dataclass(frozen=True, slots=True)
class Seen:
    """A message as a queue shows it. `id` and `redelivered` are None if the queue has no such."""

    body: bytes
    id: Id | None = None
    redelivered: bool | None = None


@dataclass(slots=True, eq=False)
class Sent:
    """A message as it was published, and what has happened to it since."""

    serial: int  # the order of publishing
    body: bytes
    persistent: bool = True  # False: it dies with an unclean end
    extra: object = None  # headers and the like; for whoever compares them
    id: Id | None = None
    batch: int | None = None
    published: Level = Level.DOUBT
    gone: Level | None = None  # acked, purged or dropped by a crash; None: it is in the queue
    out: bool = False  # delivered in this life and not settled
    deliveries: int = 0
    maybe_delivered: bool = False  # a get() that did not return may have taken it
    given_back: bool = False

    def __str__(self) -> str:
        name = f"message {self.serial}" + ("" if self.id is None else f" (id {self.id})")
        how = f"published: {self.published.name.lower()}"
        return f"{name}, {how}" + ("" if self.gone is None else f", gone: {self.gone.name.lower()}")


class Model:
    """The model of one queue. A call costs O(log n); one that looks at everything O(n)."""

    def __init__(self, promise: Promise | None = None) -> None:
        self.promise = promise or Promise()
        self.sent: SortedDict[int, Sent] = SortedDict()
        self.ids: dict[Id, Sent] = {}  # every id that was ever given
        self.last = 0  # serial number that was given
        self._batches = 0

    # --- what is there ---------------------------------------------------------------------------

    def live(self) -> list[Sent]:
        """All messages that are in the queue, in the order of publishing."""
        return [m for m in self.sent.values() if m.gone is None and m.published > Level.DOUBT]

    def out(self) -> list[Sent]:
        """Delivered and not settled."""
        return [m for m in self.live() if m.out]

    def ready(self) -> list[Sent]:
        """What get() may return, in the order of publishing."""
        return [m for m in self.live() if not m.out]

    # --- calls -----------------------------------------------------------------------------------

    def publishing(
        self, sizes: Sequence[int], *, batch: bool = False, persistent: bool = True
    ) -> list[Sent]:
        """A publish begins: return the new messages, which are in doubt until published()."""
        self._batches += 1
        messages = []
        for size in sizes:
            self.last += 1  # also if the publish is refused: no two messages share a body
            message = Sent(self.last, body_of(self.last, size), persistent)
            message.batch = self._batches if batch else None
            self.sent[self.last] = message
            messages.append(message)
        return messages

    def published(self, messages: Iterable[Sent], ids: Iterable[Id | None]) -> None:
        """The publish of these messages has returned."""
        for message, id_ in zip(messages, ids, strict=True):
            message.published = max(message.published, Level.RETURNED)
            self.name(message, id_)

    def name(self, message: Sent, id_: Id | None) -> None:
        """The queue has given this message an id."""
        if id_ is not None:
            message.id = id_
            self.ids[id_] = message

    def refused(self, messages: Iterable[Sent]) -> None:
        """The publish of these messages raised an error that means: nothing was changed."""
        for message in messages:
            del self.sent[message.serial]

    def delivered(self, message: Sent) -> None:
        """get() has returned this message."""
        message.out = True
        message.deliveries += 1
        message.maybe_delivered = False

    def removing(self, messages: Iterable[Sent]) -> None:
        """An ack, a drop or a purge of these begins: they are in doubt until removed()."""
        for message in messages:
            message.gone = Level.DOUBT

    def removed(self, messages: Iterable[Sent]) -> None:
        """The ack, drop or purge of these messages has returned."""
        for message in messages:
            message.gone = Level.RETURNED
            message.out = False

    def given_back(self, messages: Iterable[Sent]) -> None:
        """nack() of these messages has returned."""
        for message in messages:
            message.out = False
            message.given_back = True

    def synced(self) -> None:
        """sync() has returned: it covers everything that had returned before."""
        self._raise_to(Level.SYNCED)

    def closing(self) -> None:
        """close() begins. If it gets far enough, the end is clean, transient messages survive."""
        self.removing([message for message in self.live() if not message.persistent])

    def closed(self) -> None:
        """close() has returned: what was delivered is ready again."""
        self._raise_to(Level.CLOSED)
        self.crashed()

    def _raise_to(self, level: Level) -> None:
        for message in self.sent.values():
            if message.published > Level.DOUBT:
                message.published = max(message.published, level)
            if message.gone:  # not None, not in doubt
                message.gone = max(message.gone, level)

    # --- crashes ---------------------------------------------------------------------------------

    def crashed(self) -> None:
        """The process has ended: no message is with a consumer any more."""
        for message in self.sent.values():
            message.out = False

    def accept(self, shown: Iterable[tuple[Sent, Id | None]]) -> None:
        """Take over what the queue shows after opening (and what the checker let pass).

        What it shows has happened, as if the call had returned; with `barrier` it is synced.
        """
        level = Level.SYNCED if self.promise.barrier else Level.RETURNED
        present = set()
        for message, id_ in shown:
            present.add(message.serial)
            message.published = max(message.published, level)
            message.gone = None
            self.name(message, id_)
        for message in self.sent.values():
            message.batch = None
            if message.serial not in present:
                message.published = max(message.published, Level.RETURNED)
                message.gone = max(message.gone or Level.DOUBT, level)
        self.crashed()

    def identify(self, seen: Seen, taken: Container[int] = ()) -> Sent | None:
        """Which message this is: by its id, or else by its body; None: nobody published it.

        Equal bodies without a label are told apart by turn: those in `taken` had theirs.
        """
        if seen.id is not None and seen.id in self.ids:
            return self.ids[seen.id]
        digits, bar, _ = seen.body.partition(b"|")
        if bar and digits.isdigit() and len(digits) < 19:
            labelled: Sent | None = self.sent.get(int(digits))
            if labelled is not None and (seen.id is None or labelled.id is None):
                return labelled
        for message in self.sent.values():
            same = message.body == seen.body and message.id is None and message.gone is None
            if same and message.serial not in taken:
                return message  # type: ignore[no-any-return]
        return None
