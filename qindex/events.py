"""What a store does by itself, as it happens: leases that end, messages that die, marks."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, cast, get_args

from qindex._core import ffi, lib
from qindex.arguments import Seconds, parts_of, several, shown, whole
from qindex.errors import StoreClosed, raise_error
from qindex.waiting import Wait

if TYPE_CHECKING:
    from qindex.store import Store

EventKind: TypeAlias = Literal[
    "lease ended", "expired", "died", "dropped", "ready", "above", "below", "missed"
]
_KINDS: Final[tuple[EventKind, ...]] = get_args(EventKind)  # in the order of QI_EVENT_...
_WHYS: Final = {
    lib.QI_DEAD_EXPIRED: "expired",
    lib.QI_DEAD_REJECTED: "rejected",
    lib.QI_DEAD_DELIVERIES: "deliveries",
    lib.QI_DEAD_FULL: "full",
}
_AT_ONCE: Final = 256
ROOM: Final = 10_000
ROOM_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a store did by itself."""

    kind: EventKind
    """- "lease ended": a delivery ended with its lease; the message is ready again.
    - "expired": a message expired and was dropped.
    - "died": a message became a dead letter; `why` says of what.
    - "dropped": a message left because its queue was full, or it was delivered too often.
    - "ready": the time of a delayed message has come. It may be told again of one that was there
      when the store was opened. One that is given back without a delay is no event.
    - "above", "below": so many messages wait that a mark is reached, or not any more.
    - "missed": so many events were not kept, because nobody took them in time."""
    time: float
    """When, in seconds since 1970, by the wall clock."""
    queue: str | None
    """The name of the queue; None: "missed"."""
    req_id: int | None
    """The message; None: the event is not about one."""
    why: str | None
    """Of "died" and "dropped": "expired", "rejected", "deliveries" or "full"."""
    count: int
    """Of "above" and "below": how many messages wait. Of "missed": how many events. Else 1."""


def kinds_of(kinds: Iterable[EventKind] | None) -> int:
    """The kinds as bits; ValueError: there is no such kind."""
    bits = 0
    for kind in _KINDS if kinds is None else several("kinds", kinds, "kinds", "kinds=[kind]"):
        if kind not in _KINDS:
            raise ValueError(f"a kind of event is one of {', '.join(_KINDS)}, not {shown(kind)}")
        bits |= 2 << _KINDS.index(kind)
    return bits


def marks_of(
    marks: Mapping[str, int | tuple[int, int]] | None,
) -> list[tuple[str, int, int]]:
    """Name, high and low of each mark; TypeError and ValueError."""
    found = []
    for name, mark in (marks or {}).items():
        high, low = mark if isinstance(mark, tuple) and len(mark) == 2 else (mark, mark)
        high = whole(f"the mark of {name!r}", high, 1, 1 << 62)
        low = whole(f"the lower mark of {name!r}", low, 1, 1 << 62)
        if low > high:
            raise ValueError(f"the lower mark of {name!r} is above the other: give (high, low)")
        found.append((name, high, low))
    return found


class Listener:
    """The core's listener, and the events that were taken from it: what both surfaces share."""

    def __init__(
        self,
        store: Store,
        kinds: Iterable[EventKind] | None,
        marks: Mapping[str, int | tuple[int, int]] | None,
        room: int,
    ) -> None:
        bits, places = kinds_of(kinds), marks_of(marks)
        whole("room", room, 1, ROOM_MAX)
        queues = [(store.queue(name, create=False), high, low) for name, high, low in places]
        handle = ffi.new("qi_listener **")
        code = lib.qi_listener_new(store._open_handle(), room, bits, handle)
        if code < 0:
            raise_error(code)
        self.store = store
        self.handle = handle[0]
        # Not before: another thread may be in a call with the handle, and then it has this object.
        self._free = weakref.finalize(self, lib.qi_listener_free, self.handle)
        self._free.atexit = False  # the store's end is enough then
        self.closed = False
        self._taken: deque[Event] = deque()
        self._events = ffi.new("qi_event[]", _AT_ONCE)
        self._missed = ffi.new("uint64_t *")
        for queue, high, low in queues:
            code = lib.qi_listener_mark(self.handle, queue._handle, high, low)
            if code < 0:
                self.close()
                raise_error(code)

    def close(self) -> None:
        """Who waits for an event, in whatever thread, gets StoreClosed."""
        self.closed = True
        if self._free.alive:  # else a __del__ of the same garbage calls
            lib.qi_listener_close(self.handle)

    def arm(self) -> bool:
        """For an event loop. False: there are events; True: the store's bell rings for them."""
        if self.closed:
            raise StoreClosed("these events were closed")
        code = lib.qi_listener_arm(self.handle)
        if code < 0:
            raise_error(code)
        return code == 0

    def take(self, wait: Wait) -> Event | None:
        """The next event; None: the time is over. Raises StoreClosed behind the last one."""
        if not self._taken:
            if self.closed:
                raise StoreClosed("these events were closed")
            count = wait(lib.qi_listener_wait, self.handle, self._events, _AT_ONCE, self._missed)
            if count < 0:
                raise_error(count)
            if self._missed[0] and count:
                first = self._events[0].us / 1e6
                self._taken.append(Event("missed", first, None, None, None, int(self._missed[0])))
            self._taken.extend(_event(self._events[i]) for i in range(count))
        return self._taken.popleft() if self._taken else None


def _event(event: Any) -> Event:
    marks = event.kind in (lib.QI_EVENT_ABOVE, lib.QI_EVENT_BELOW)
    tells_why = event.kind in (lib.QI_EVENT_DIED, lib.QI_EVENT_DROPPED)
    name = bytes(ffi.buffer(event.name, event.name_size)).decode("utf-8", "surrogatepass")
    return Event(
        _KINDS[event.kind - 1],
        event.us / 1e6,
        name,
        None if marks else event.req_id,
        _WHYS.get(event.why) if tells_why else None,
        event.count,
    )


class Events:
    """Events of a store, as an iterator: made by Store.events(), closed by close() or `with`.

    A loop over it waits for the next one, and ends when the store or the iterator is closed. One
    thread at a time may use it.
    """

    def __init__(
        self,
        store: Store,
        kinds: Iterable[EventKind] | None,
        marks: Mapping[str, int | tuple[int, int]] | None,
        room: int,
    ) -> None:
        self._listener = Listener(store, kinds, marks, room)

    def get(self, *, timeout: Seconds | None = 0) -> Event | None:
        """The next event. None: none came within `timeout` seconds; with None, it waits for one.

        Raises StoreClosed when the store is closed and all events were taken.
        """
        return self._listener.take(Wait(self._listener.store._handle, timeout))

    def __iter__(self) -> Iterator[Event]:
        """Wait for each event in turn, until the store or the iterator is closed."""
        while True:
            try:
                event = self.get(timeout=None)
            except StoreClosed:
                return
            if event is not None:
                yield event

    def close(self) -> None:
        """Listen no more. Closing twice is allowed."""
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@parts_of("Store")
class Told:
    """The methods of a store that tell what it does by itself."""

    def events(
        self,
        *,
        kinds: Iterable[EventKind] | None = None,
        marks: Mapping[str, int | tuple[int, int]] | None = None,
        room: int = ROOM,
    ) -> Events:
        """What the store does by itself, from now on: an iterator of Event.

        Leases that end, messages that expire, die, are dropped or become ready by their time. Use
        it with `with`, or close it.

        - `kinds`: only events of these kinds.
        - `marks`: names of queues, each with a number of messages: "above" is told when so many
          wait (dead letters do not count), "below" when they are fewer again. With (high, low),
          "below" is told when fewer than `low` wait. A mark is looked at when a verb ends, and
          ends with its queue: of one that is deleted and created again it tells nothing.
        - `room`: so many events are kept (100 bytes each). When nobody takes them, the oldest go,
          and an event "missed" says how many.

        Verbs of consumers are no events, but for a rejected message that becomes a dead letter. As
        long as somebody listens, leases end and messages become ready when it is time, not only
        when somebody uses the queue. A queue for which nobody has asked since the open is not
        read for it, so that a store of many queues opens fast: nothing is told of its delayed
        messages before store.queue(name).

        Raises QueueMissing if a queue of `marks` is not there. Cost: nothing for publish, get and
        ack without marks; with marks, a comparison for each change.
        """
        return Events(cast("Store", self), kinds, marks, room)
