"""queuelib's FifoDiskQueue and LifoDiskQueue on qindex; for Scrapy there is qindex.compat.scrapy.

They have push, pop, peek, clear, close and len as queuelib's have; queuelib itself is not needed.
When the process is killed, the originals lose what came since they were opened; here a push
survives.

All queues in one folder share one store, `.qindex` beside them, with one background thread. The
queue's own path is a folder that only says that the queue is there; it goes when an empty queue is
closed. One process at a time may use them.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from qindex.errors import StoreCorrupt
from qindex.message import Message
from qindex.opening import open as open_store
from qindex.private import make_folder
from qindex.queue import Queue
from qindex.store import Store

EMPTY_MAX: Final = 64  # each takes some 80 KB


@dataclass
class _Shared:
    """The store of a folder, which its queues in this process have open together.

    Making and deleting a queue takes syncs, and PriorityQueue does both whenever one runs empty.
    So those that were closed empty stay for who opens them again, until the store is closed.
    """

    store: Store
    users: int = 0
    empty: dict[str, None] = field(default_factory=dict)  # names; the last one is the newest

    lock: ClassVar = threading.Lock()
    opened: ClassVar[dict[Path, _Shared]] = {}

    @classmethod
    def queue(cls, folder: Path, name: str) -> tuple[_Shared, Queue]:
        """The queue of that name. leave() ends its use."""
        with cls.lock:
            shared = cls.opened.get(folder) or cls._open(folder)
            queue = shared.store.queue(name)
            shared.users += 1
            shared.empty.pop(name, None)
            return shared, queue

    @classmethod
    def _open(cls, folder: Path) -> _Shared:
        shared = cls.opened[folder] = cls(open_store(folder / ".qindex"))
        for name in shared.store.queues():  # a kill may have left some that were closed empty
            with suppress(StoreCorrupt):  # nobody asked for this one
                if not (folder / name).exists() and len(shared.store.queue(name)) == 0:
                    shared.empty[name] = None
        return shared

    def leave(self, folder: Path, name: str, *, is_empty: bool) -> None:
        with self.lock:
            self.users -= 1
            if is_empty:
                self.empty[name] = None
            try:
                while len(self.empty) > (EMPTY_MAX if self.users else 0):
                    oldest = next(iter(self.empty))
                    del self.empty[oldest]
                    self.store.delete_queue(oldest)
            finally:
                if not self.users:
                    del self.opened[folder]
                    self.store.close()


class _DiskQueue:
    """What both have. `chunksize` is taken, as the original does, and not used."""

    def __init__(self, path: str | os.PathLike[str], chunksize: int = 0) -> None:
        self.path = os.fspath(path)
        marker = Path(path).absolute()
        make_folder(marker)
        self._marker, self._folder = marker, marker.parent.resolve()
        self._shared, self._queue = _Shared.queue(self._folder, marker.name)
        self._closed = False
        self._held: Message | None = None  # taken by peek(), not acked

    def _take(self) -> Message | None:
        raise NotImplementedError

    def push(self, data: bytes) -> None:
        """Add an item. TypeError if it is not bytes. Cost: a publish."""
        self._put_back()
        self._queue.publish(data)

    def pop(self) -> bytes | None:
        """Take an item; None if there is none. Cost: a get and an ack."""
        message, self._held = self._held or self._take(), None
        if message is None:
            return None
        message._acked  # noqa: B018  # a verb without a call: no signal handler runs behind it
        return message.body

    def peek(self) -> bytes | None:
        """The item that pop() would take."""
        if self._held is None:
            self._held = self._take()
        return None if self._held is None else self._held.body

    def _put_back(self) -> None:
        if self._held is not None:
            self._queue.nack(self._held)
            self._held = None

    def clear(self) -> None:
        """Drop all items."""
        self._put_back()
        self._queue.purge(state="all")

    def __len__(self) -> int:
        return self._queue.ready + (self._held is not None)

    def close(self) -> None:
        """Close; if the queue is empty, it and its folder go. Closing twice is allowed."""
        if self._closed:
            return
        self._closed = True
        is_empty = False
        try:
            self._put_back()
            is_empty = len(self._queue) == 0
            if is_empty:
                self._marker.rmdir()
        finally:
            self._shared.leave(self._folder, self._marker.name, is_empty=is_empty)


class FifoDiskQueue(_DiskQueue):
    """First in, first out."""

    def _take(self) -> Message | None:
        return self._queue.get()


class LifoDiskQueue(_DiskQueue):
    """Last in, first out."""

    def _take(self) -> Message | None:
        return self._queue.get_newest()
