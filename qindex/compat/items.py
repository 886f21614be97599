"""A durable queue with the methods of a deque, and how items become bytes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from sortedcontainers import SortedList

from qindex.errors import AlreadyAcked, UnknownMessage
from qindex.message import Message
from qindex.queue import Queue

_RAW: Final = b"\x00"  # no JSON text begins with it
_TUPLE: Final = "()"


class Serializer(Protocol):
    """Turns an item into bytes or text, and bytes into an item, as json and pickle do."""

    def dumps(self, item: Any, /) -> bytes | str:
        """The item as bytes."""
        ...

    def loads(self, data: bytes, /) -> Any:
        """The item."""
        ...


class Plain:
    """The default serializer: bytes as they are, everything else as JSON.

    It takes None, bool, int, float, str, bytes (alone, not within others), and lists, tuples and
    dicts of these, with text as keys. (A tuple is written as {"()": [...]}.) They come back as they
    were. An item that would not is refused with TypeError when it is put in. Loading runs no code,
    whoever wrote the file.
    """

    def dumps(self, item: Any) -> bytes:
        """The item as bytes: a zero byte and bytes, or JSON. Raises TypeError."""
        if type(item) is bytes:
            return _RAW + item
        try:
            return json.dumps(_pack(item), allow_nan=False, separators=(",", ":")).encode()
        except ValueError as error:  # NaN
            raise TypeError(f"{item!r} has no JSON form: {error}") from None

    def loads(self, data: bytes) -> Any:
        """The item that dumps() was given. Raises ValueError for other bytes."""
        return data[1:] if data.startswith(_RAW) else json.loads(data, object_hook=_unpack)


def _pack(item: Any) -> Any:
    """The item in JSON's types."""
    kind = type(item)
    if item is None or kind in (bool, int, float, str):
        return item
    if kind is list:
        return [_pack(part) for part in item]
    if kind is tuple:
        return {_TUPLE: [_pack(part) for part in item]}
    if kind is dict and _TUPLE not in item and all(type(key) is str for key in item):
        return {key: _pack(part) for key, part in item.items()}
    raise TypeError(f"{item!r} would come back as something else; give a serializer for it")


def _unpack(found: dict[str, Any]) -> Any:
    return tuple(found[_TUPLE]) if _TUPLE in found else found


PLAIN: Final = Plain()


class Items:
    """A durable queue with the methods of a deque. An item that was taken is acked: it is gone."""

    def __init__(self, queue: Queue, serializer: Serializer) -> None:
        self._queue = queue
        self._serializer = serializer
        # While this is active, the caller that hands an item on acks its `taken` afterwards.
        self.handing: Any = None

    def __len__(self) -> int:
        return self._queue.ready

    def __iter__(self) -> Iterator[Any]:
        return (self._serializer.loads(message.body) for message in self._queue.browse())

    def append(self, item: Any) -> None:
        """At the end."""
        self._publish(item)

    def _publish(self, item: Any) -> int:
        data = self._serializer.dumps(item)
        return self._queue.publish(data.encode() if isinstance(data, str) else data)

    def popleft(self) -> Any:
        """The first; IndexError if there is none."""
        return self._take(self._queue.get)

    def pop(self) -> Any:
        """The last; IndexError if there is none."""
        return self._take(self._queue.get_newest)

    def _take(self, take: Callable[[], Message | None]) -> Any:
        message = take()
        if message is None:
            raise IndexError("pop from an empty queue")
        item = self._load(message)
        return self._hand_on(item, message)

    def _hand_on(self, item: Any, taken: Any) -> Any:
        if self.handing is not None and self.handing.active:
            self.handing.taken = taken
        else:
            # Reading it acks. It is no call, so no signal handler can run between ack and return.
            taken._acked  # noqa: B018
        return item

    def _load(self, message: Message) -> Any:
        """Load the item of a message.

        If the item itself cannot be loaded, the message stays unacked. If only a signal handler has
        interrupted the loading, the message goes back to its place.
        """
        try:
            return self._serializer.loads(message.body)
        except BaseException:
            self._serializer.loads(message.body)
            message._returned  # noqa: B018
            raise


class SortedItems(Items):
    """Items of which the smallest is taken first, of equals the oldest.

    All are in memory, too, because their bytes have no order. Opening reads them.
    """

    def __init__(self, queue: Queue, serializer: Serializer) -> None:
        super().__init__(queue, serializer)
        found = ((serializer.loads(each.body), each.req_id) for each in queue.browse())
        self._sorted: SortedList[tuple[Any, int]] = SortedList(found)

    def __len__(self) -> int:
        return len(self._sorted)

    def __iter__(self) -> Iterator[Any]:
        return (item for item, _ in self._sorted)

    def append(self, item: Any) -> None:
        """TypeError if the item cannot be compared with the others; nothing was added."""
        self._sorted.bisect((item, 0))
        self._sorted.add((item, self._publish(item)))

    def pop(self) -> Any:
        """The smallest; IndexError if there is none."""
        entry = self._sorted[0]
        popped = _Popped(self._queue, self._sorted, entry)
        try:
            del self._sorted[0]
        except BaseException:  # a signal handler's, somewhere in the list's own code
            popped._returned  # noqa: B018
            raise
        return self._hand_on(entry[0], popped)

    popleft = pop


class _Popped:
    """A sorted item on its way: what Message has, for an item that was never delivered."""

    def __init__(self, queue: Queue, items: SortedList[Any], entry: tuple[Any, int]) -> None:
        self._queue, self._items, self._entry = queue, items, entry

    @property
    def _acked(self) -> None:
        try:
            # It may be gone from the store by a call that a signal handler ended here.
            with contextlib.suppress(AlreadyAcked, UnknownMessage):
                self._queue.delete(self._entry[1])
        except BaseException:
            self._returned  # noqa: B018
            raise

    @property
    def _returned(self) -> None:
        if self._entry not in self._items:
            self._items.add(self._entry)
