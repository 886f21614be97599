"""The items of a durable queue as a deque has them, and how they become bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from sortedcontainers import SortedList

from qindex.message import Message
from qindex.queue import Queue

_RAW: Final = b"\x00"  # no JSON text begins with it
_TUPLE: Final = "()"


class Serializer(Protocol):
    """What makes bytes (or text) of an item, and an item of bytes: json and pickle do."""

    def dumps(self, item: Any, /) -> bytes | str:
        """The item as bytes."""
        ...

    def loads(self, data: bytes, /) -> Any:
        """The item."""
        ...


class Plain:
    """The default: bytes as they are, the rest as JSON, with {"()": [...]} for a tuple.

    For None, bool, int, float, str, bytes (alone, not within others), and lists, tuples and dicts
    of them, with text as keys. They come back as they were; whatever would not is refused with
    TypeError when it is put in. Loading runs no code, whoever wrote the file.
    """

    def dumps(self, item: Any) -> bytes:
        """Bytes behind a zero byte, or JSON."""
        if type(item) is bytes:
            return _RAW + item
        try:
            return json.dumps(_pack(item), allow_nan=False, separators=(",", ":")).encode()
        except ValueError as error:  # NaN
            raise TypeError(f"{item!r} has no JSON form: {error}") from None

    def loads(self, data: bytes) -> Any:
        """What dumps() was given; ValueError for anything else."""
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
    """A durable queue with a deque's verbs. An item that was taken is acked: it is gone."""

    def __init__(self, queue: Queue, serializer: Serializer) -> None:
        self._queue = queue
        self._serializer = serializer

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
        item = self._serializer.loads(message.body)  # an item that fails stays unacked
        self._queue.ack(message)
        return item


class SortedItems(Items):
    """The smallest is taken first, of equals the oldest. All are in memory, too: bytes have no
    order. Opening reads them."""

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
        item, req_id = self._sorted[0]
        self._queue.delete(req_id)
        del self._sorted[0]
        return item

    popleft = pop
