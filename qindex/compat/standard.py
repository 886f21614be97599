"""The queues of the standard library, with their items in a durable queue.

Only the place of the items is replaced. Everything else (blocking, timeouts, maxsize, task_done,
join, shutdown) is the code of the interpreter that runs it, so it behaves as the original, and
isinstance() holds.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from typing import Any

import qindex.queue
from qindex.compat.items import PLAIN, Items, Serializer, SortedItems
from qindex.handle import Closing
from qindex.opening import open as open_store


class _Durable(Closing):
    """The place of the items. The second base of each class is the original."""

    _kind = Items

    def __init__(
        self,
        place: str | os.PathLike[str] | qindex.queue.Queue,
        maxsize: int = 0,
        *,
        serializer: Serializer = PLAIN,
        **options: Any,
    ) -> None:
        self._store = None
        if not isinstance(place, qindex.queue.Queue):
            self._store = open_store(place, **options)
            place = self._store.queue("queue")
        elif options:
            raise TypeError(f"options are for a store that is opened here: {sorted(options)}")
        self._durable = place
        self._items: Any = self._kind(place, serializer)  # has those verbs of a deque that are used
        super().__init__(maxsize)  # type: ignore[call-arg]  # the original's
        self._resume()

    def _resume(self) -> None:
        """Count what an earlier process left as unfinished, so that join() waits for it, too."""
        raise NotImplementedError

    def sync(self) -> None:
        """Return when everything before this call survives a power cut, not only kill -9."""
        self._durable.sync()

    def close(self) -> None:
        """Close the store, if it was opened here. The items are there at the next open."""
        if self._store is not None:
            self._store.close()


class _Handing:
    """The item that this thread, or this loop, has taken and not returned yet."""

    active = False
    taken: Any = None


class _HandingThreads(threading.local, _Handing):
    pass


class _DurableThreads(_Durable):
    """In queue.py the items are in `queue`."""

    mutex: threading.Lock
    not_empty: threading.Condition

    def _init(self, maxsize: int) -> None:
        self.queue = self._items
        self._items.handing = _HandingThreads()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """As the original's. An item that a signal handler keeps from being returned goes back."""
        handing = self._items.handing
        handing.taken, handing.active = None, True
        try:
            item = super().get(block, timeout)  # type: ignore[misc]
        except BaseException:
            if handing.taken is not None:
                handing.taken._returned  # noqa: B018
                with self.mutex:
                    self.not_empty.notify()
            raise
        finally:
            handing.active = False
        handing.taken._acked  # noqa: B018
        return item

    def _resume(self) -> None:
        self.unfinished_tasks = len(self._items)


class _DurableTasks(_Durable):
    """In asyncio/queues.py they are in `_queue`."""

    _finished: asyncio.Event

    def _init(self, maxsize: int) -> None:
        self._queue = self._items
        self._items.handing = _Handing()

    def get_nowait(self) -> Any:
        """As the original's. An item that a signal handler keeps from being returned goes back."""
        handing = self._items.handing
        handing.taken, handing.active = None, True
        try:
            item = super().get_nowait()  # type: ignore[misc]
        except BaseException:
            if handing.taken is not None:
                handing.taken._returned  # noqa: B018
            raise
        finally:
            handing.active = False
        handing.taken._acked  # noqa: B018
        return item

    def _resume(self) -> None:
        self._unfinished_tasks = len(self._items)
        if self._unfinished_tasks:
            self._finished.clear()


class _Sorted(_Durable):
    """The original keeps a heap; here the items know their order."""

    _kind = SortedItems

    def _put(self, item: Any) -> None:
        self._items.append(item)

    def _get(self) -> Any:
        return self._items.pop()


class Queue(_DurableThreads, queue.Queue[Any]):
    """queue.Queue whose items survive the process, also kill -9.

    `place` is a directory for a store of its own, or a qindex.Queue. With a directory, `options`
    are those of qindex.open(). An item is gone once get() has returned it. shutdown(immediate=True)
    drops all items for good. put() raises the errors of Queue.publish(), and TypeError for an item
    that the serializer refuses.

    Cost: that of the original, plus a publish, or a get and an ack, and a look at the depth.
    """


class LifoQueue(_DurableThreads, queue.LifoQueue[Any]):
    """queue.LifoQueue whose items survive the process; see Queue."""


class PriorityQueue(_Sorted, _DurableThreads, queue.PriorityQueue[Any]):
    """queue.PriorityQueue whose items survive the process: smallest first, of equals the oldest.

    All of its items are in memory, too, and are read when it is opened (10 µs each). Nothing else
    may take from its queue. See Queue. (A qindex.Queue has 256 priorities of its own.)
    """


class AsyncQueue(_DurableTasks, asyncio.Queue[Any]):
    """asyncio.Queue whose items survive the process; see Queue.

    put_nowait() and get_nowait() are plain calls, so they work on the event loop: some
    microseconds, more when the disk is slower than the publishers. qindex.aio never waits there.
    """


class AsyncLifoQueue(_DurableTasks, asyncio.LifoQueue[Any]):
    """asyncio.LifoQueue whose items survive the process; see AsyncQueue."""


class AsyncPriorityQueue(_Sorted, _DurableTasks, asyncio.PriorityQueue[Any]):
    """asyncio.PriorityQueue whose items survive the process; see PriorityQueue and AsyncQueue."""
