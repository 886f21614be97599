"""What a consumer has: its queues, whose turn it is, and the messages that it was given.

Both surfaces build on this; neither a lock nor a wait is in here.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from qindex._core import ffi, lib
from qindex.arguments import REQ_ID_MAX, Seconds, boolean, queue_name, to_lease_us, whole
from qindex.calls import to_deliveries
from qindex.errors import QueueMissing, StoreClosed, StoreError, raise_error
from qindex.message import Message
from qindex.queue import Queue
from qindex.tokens import read_token

if TYPE_CHECKING:
    from qindex.store import Store

PRUNE_SECONDS = 0.25  # so often a consumer at its limit looks for what was settled elsewhere

Key = tuple[int, int]  # the tag of the queue's handle, and the ReqId


def names_of(queues: Iterable[str]) -> list[str]:
    """The names, each once; else TypeError."""
    if isinstance(queues, str):
        raise TypeError("queues is a list of names; write [name] for one queue")
    return list(dict.fromkeys(map(queue_name, queues)))


class Turn:
    """The queues in the order in which a get looks at them. It does not change: sets replace it."""

    def __init__(self, queues: list[Queue]) -> None:
        self.queues = queues
        # Twice: `count` handles from any place on are the queues from that place on.
        self.handles = ffi.new("qi_queue *[]", [queue._handle for queue in queues * 2])
        self.by_handle = {queue._handle: queue for queue in queues}
        self.place_of = {lib.qi_queue_tag(queue._handle): at for at, queue in enumerate(queues)}

    def places(self, start: int) -> list[Queue]:
        """The queues, from this place on."""
        return self.queues[start:] + self.queues[:start]


class Held:
    """The messages that a consumer was given and that have not been settled, and its settings."""

    def __init__(
        self, queues: list[Queue], fair: bool, prefetch: int | None, lease: Seconds | None
    ) -> None:
        self.fair = boolean("fair", fair)
        self.prefetch = None if prefetch is None else whole("prefetch", prefetch, 1, REQ_ID_MAX)
        self.lease, self.lease_us = lease, to_lease_us(lease)
        self.turn = Turn(queues)
        self.start = 0  # the place in `turn` of the queue that is looked at first
        self.paused = self.closed = False
        self.asked = 0  # gets under way that may take a message
        self.messages: dict[Key, Message] = {}  # in the order of taking
        self.queue_of: dict[int, Queue] = {}  # of those that gave them, by their tags

    def __repr__(self) -> str:
        state = "closed" if self.closed else "paused" if self.paused else "open"
        return f"<qindex.Consumer of {len(self.turn.queues)} queues, {state}>"

    @property
    def names(self) -> list[str]:
        """Without those that were deleted, which the next get drops."""
        of = [(queue, queue._store._queues.get(queue.name)) for queue in self.turn.queues]
        return [queue.name for queue, now in of if now is queue]

    def check_open(self) -> None:
        if self.closed:
            raise StoreClosed("the consumer is closed")

    def may_take(self) -> bool:
        """Whether a get may look for a message now."""
        return bool(self.turn.queues) and not self.paused and not self.is_full()

    def is_full(self) -> bool:
        return self.prefetch is not None and len(self.messages) + self.asked >= self.prefetch

    def add(self, queues: list[Queue]) -> None:
        """Behind those that are there."""
        self._set([*self.turn.queues, *(q for q in queues if q not in self.turn.queues)])

    def remove(self, names: list[str]) -> None:
        """Take nothing more from these; QueueMissing if one of them is not in the set."""
        own = {queue.name for queue in self.turn.queues}
        for name in names:
            if name not in own:
                raise QueueMissing(f"the consumer does not take from a queue {name!r}")
        self._set([queue for queue in self.turn.queues if queue.name not in names])

    def drop(self, deleted: list[Queue]) -> None:
        """Queues that were deleted leave the set, if they are still there."""
        self._set([queue for queue in self.turn.queues if queue not in deleted])

    def close(self) -> dict[Queue, list[Message]]:
        """Nothing can be taken any more; these have to be given back."""
        self.closed = True
        groups = self.by_queue()
        self.messages.clear()
        return groups

    def by_queue(self) -> dict[Queue, list[Message]]:
        """What it has, by the queues that gave it."""
        groups: dict[Queue, list[Message]] = {}
        for (tag, _), message in self.messages.items():
            groups.setdefault(self.queue_of[tag], []).append(message)
        return groups

    def _set(self, queues: list[Queue]) -> None:
        """The next get begins where this one would have, as far as that queue is still there."""
        first = self.turn.places(self.start)[:1]
        self.turn = Turn(queues)
        self.start = queues.index(first[0]) if first and first[0] in queues and self.fair else 0

    def take(self, turn: Turn, message: Message) -> None:
        """It is ours now; if turns are taken fairly, the queue behind its own is next."""
        tag = message._delivery >> 32
        self.messages.pop((tag, message.req_id), None)  # a delivery whose lease has ended
        self.messages[tag, message.req_id] = message
        self.queue_of[tag] = turn.queues[turn.place_of[tag]]
        if self.fair and turn is self.turn:
            self.start = (turn.place_of[tag] + 1) % len(turn.queues)

    def forget(self, key: bytes, message: Message | str) -> None:
        """It is settled, or its delivery has ended. A later delivery of it stays ours."""
        fields = read_token(key, message)[1] if isinstance(message, str) else message
        place = (fields._delivery >> 32, fields.req_id)
        held = self.messages.get(place)
        if held is not None and held._delivery == fields._delivery:
            del self.messages[place]

    def forget_all(self, ended: list[Message]) -> None:
        """Forget these deliveries, which were settled in another way or whose lease has ended."""
        for message in ended:
            self.forget(b"", message)


def ended_of(groups: dict[Queue, list[Message]]) -> list[Message]:
    """Those of these deliveries that have ended."""
    ended = []
    for queue, messages in groups.items():
        held = held_of(queue, messages)
        ended += [message for message, is_held in zip(messages, held, strict=True) if not is_held]
    return ended


def give_back(groups: dict[Queue, list[Message]]) -> None:
    """Each message goes back to its place in its queue, unless it is settled already."""
    for queue, messages in groups.items():
        with suppress(StoreError):  # closed, failed or deleted: nobody has them then
            queue.nack_many(messages, missing_ok=True)


def deleted_of(store: Store, queues: list[Queue]) -> list[Queue]:
    """Those of these queues that were deleted. Waits for a deletion that is under way."""
    with store._lock:
        return [queue for queue in queues if store._queues.get(queue.name) is not queue]


def held_of(queue: Queue, messages: list[Message]) -> list[bool]:
    """Of each of these deliveries whether it is still current; of a deleted queue none is."""
    req_ids, deliveries = to_deliveries(messages)
    of_64: Any = partial(ffi.from_buffer, "uint64_t[]")
    held = ffi.new("uint8_t[]", len(messages))
    code = lib.qi_deliveries_held(
        queue._handle, of_64(req_ids), of_64(deliveries), len(messages), held
    )
    if code == lib.QI_E_CLOSED:
        return [False] * len(messages)
    if code < 0:
        raise_error(code)
    return list(map(bool, held))
