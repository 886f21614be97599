"""queuelib's FifoDiskQueue and LifoDiskQueue on qindex; for Scrapy there is qindex.compat.scrapy.

push, pop, peek, clear, close and len as queuelib has them; queuelib itself is not needed. The
originals lose what came since they were opened when the process is killed; here a push survives it.

All queues in one folder share one store, `.qindex` beside them, with one background thread. The
queue's own path is a folder that only says that the queue is there; it goes when an empty queue is
closed. Used by one process at a time.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import ClassVar

from qindex.message import Message
from qindex.store import Store
from qindex.store import open as open_store


class _Shared:
    """The stores that are open, and how many queues use each."""

    lock = threading.Lock()
    stores: ClassVar[dict[Path, tuple[Store, int]]] = {}

    @classmethod
    def take(cls, folder: Path) -> Store:
        with cls.lock:
            store, users = cls.stores.get(folder) or (open_store(folder / ".qindex"), 0)
            cls.stores[folder] = (store, users + 1)
            return store

    @classmethod
    def leave(cls, folder: Path) -> None:
        with cls.lock:
            store, users = cls.stores.pop(folder)
            if users > 1:
                cls.stores[folder] = (store, users - 1)
            else:
                store.close()


class _DiskQueue:
    """What both have. `chunksize` is taken, as the original does, and not used."""

    def __init__(self, path: str | os.PathLike[str], chunksize: int = 0) -> None:
        self.path = os.fspath(path)
        marker = Path(path).absolute()
        marker.mkdir(parents=True, exist_ok=True)
        self._marker, self._folder = marker, marker.parent.resolve()
        self._store: Store | None = _Shared.take(self._folder)
        self._queue = self._store.queue(marker.name)
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
        self._queue.ack(message)
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
        self._queue.purge()

    def __len__(self) -> int:
        return self._queue.ready + (self._held is not None)

    def close(self) -> None:
        """Close; if the queue is empty, it and its folder go. Closing twice is allowed."""
        store, self._store = self._store, None
        if store is None:
            return
        try:
            self._put_back()
            if len(self._queue) == 0:
                store.delete_queue(self._marker.name)
                self._marker.rmdir()
        finally:
            _Shared.leave(self._folder)


class FifoDiskQueue(_DiskQueue):
    """First in, first out."""

    def _take(self) -> Message | None:
        return self._queue.get()


class LifoDiskQueue(_DiskQueue):
    """Last in, first out."""

    def _take(self) -> Message | None:
        return self._queue.get_newest()
