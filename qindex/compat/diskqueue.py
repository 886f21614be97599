"""NSQ's diskqueue: put bytes, get them back in order, also after a restart.

It has two kinds of files. On qindex's engine a put survives kill -9 as soon as it returns, and a
power cut once it is synced: after `sync_every` operations, after `sync_timeout`, or with `sync()`.
In NSQ's own files (`format="nsq"`, see diskqueue_files.py) it is as durable as the original, and
keeps some messages that the original is known to lose or to count wrong.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, Literal, Protocol

from qindex.arguments import Buffer, as_bytes, number, whole
from qindex.errors import AlreadyAcked, StoreClosed, StoreCorrupt
from qindex.handle import Closing
from qindex.lines import say
from qindex.opening import open as open_store
from qindex.store import Store

MAX_BYTES_PER_FILE: Final = 100 << 20  # nsqd's own settings
MAX_MSG_SIZE: Final = 1 << 20
SYNC_EVERY: Final = 2500
SYNC_TIMEOUT: Final = 2.0


class Files(Protocol):
    """The files that keep the messages. Several threads may call these methods."""

    damaged: int

    def put(self, body: bytes) -> None: ...
    def get(self) -> bytes | None: ...
    def give_back(self, body: bytes) -> None: ...
    def peek(self) -> bytes | None: ...
    def depth(self) -> int: ...
    def sync(self) -> None: ...
    def empty(self) -> None: ...
    def delete(self) -> None: ...
    def close(self) -> None: ...


class DiskQueue(Closing):
    """A first in, first out queue of bytes in the directory `data_path`. Threads may share it.

    Queues of several names share a directory. One process at a time may use it: on the engine,
    another one gets StoreLocked; NSQ's own files have no lock, so nothing notices.

    - `max_bytes_per_file`: no file is longer. (On the engine: no message file.)
    - `min_msg_size`, `max_msg_size`: put() refuses bodies of other sizes.
    - `sync_every`: a sync comes after so many puts and gets,
    - `sync_timeout`: and so many seconds after the first of them.
    - `format`: "qindex" for the engine, "nsq" for the original's files.

    On the engine, the first queue that is opened in a directory decides on `max_bytes_per_file` and
    `sync_timeout`. Errors are those of qindex.open() on the engine, OSError with format="nsq".

    Cost: a few microseconds for a put or a get, and the syncs.
    """

    def __init__(
        self,
        name: str,
        data_path: str | os.PathLike[str],
        *,
        max_bytes_per_file: int = MAX_BYTES_PER_FILE,
        min_msg_size: int = 0,
        max_msg_size: int = MAX_MSG_SIZE,
        sync_every: int = SYNC_EVERY,
        sync_timeout: float = SYNC_TIMEOUT,
        format: Literal["qindex", "nsq"] = "qindex",  # noqa: A002 - what everybody calls it
    ) -> None:
        whole("max_msg_size", max_msg_size, 0, (1 << 31) - 1)
        whole("min_msg_size", min_msg_size, 0, max_msg_size)
        whole("max_bytes_per_file", max_bytes_per_file, 1, 1 << 62)
        whole("sync_every", sync_every, 1, 1 << 62)
        if not number("sync_timeout", sync_timeout) > 0:
            raise ValueError(f"sync_timeout must be seconds, above 0, not {sync_timeout!r}")
        self.name = name
        self.min_msg_size = min_msg_size
        self.max_msg_size = max_msg_size
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._closed = False
        self._files: Files
        if format == "nsq":
            from qindex.compat.diskqueue_files import NsqFiles

            self._files = NsqFiles(
                name,
                os.fspath(data_path),
                max_bytes_per_file,
                range(min_msg_size, max_msg_size + 1),
                sync_every,
                sync_timeout,
            )
        elif format == "qindex":
            self._files = _EngineFiles(
                name, os.fspath(data_path), max_bytes_per_file, sync_every, sync_timeout
            )
        else:
            raise ValueError(f"format must be 'qindex' or 'nsq', not {format!r}")

    def __repr__(self) -> str:
        return f"<qindex.DiskQueue {self.name!r}{' closed' if self._closed else ''}>"

    def put(self, body: Buffer) -> None:
        """Append a message. Raises ValueError, and writes nothing, if its size is not allowed."""
        body = as_bytes(body)
        if not self.min_msg_size <= len(body) <= self.max_msg_size:
            raise ValueError(
                f"a message of {len(body)} bytes: allowed are {self.min_msg_size}"
                f" to {self.max_msg_size}"
            )
        self._open_files().put(body)
        if self._waiting:
            with self._lock:
                self._changed.notify()

    def get(self, *, timeout: float | None = 0) -> bytes | None:
        """Take the oldest message; return None if none came in `timeout` seconds.

        0 (the default) does not wait, None waits for ever. A message is done when this thread gets
        the next one, or when the queue is closed. If the process is killed before that, the message
        comes again. With format="nsq", all messages that were taken since the last sync come again.
        """
        end = None if timeout is None else time.monotonic() + timeout
        # No call behind the one that takes: a signal handler that raises there would lose it.
        while (body := self._open_files().get()) is None and timeout != 0:
            if not self._wait(end):
                return None
        return body

    def _wait(self, end: float | None) -> bool:
        """Until there may be a message; false if that is not so before `end`."""
        with self._lock:
            self._waiting += 1
            try:
                while self._open_files().depth() == 0:
                    left = None if end is None else end - time.monotonic()
                    if left is not None and left <= 0:
                        return False
                    self._changed.wait(left)
            finally:
                self._waiting -= 1
        return True

    def __iter__(self) -> Iterator[bytes]:
        """Take messages until there is none. Each is done when the next one is asked for."""
        while (body := self.get()) is not None:
            yield body

    def peek(self) -> bytes | None:
        """The message that get() would return, without taking it; None if there is none."""
        return self._open_files().peek()

    @property
    def depth(self) -> int:
        """How many messages get() would return, one after the other."""
        return self._open_files().depth()

    def __len__(self) -> int:
        return self.depth

    def __bool__(self) -> bool:
        """True, also for an empty queue, so that `if queue:` does not mean `if len(queue):`."""
        return True

    @property
    def damaged(self) -> int:
        """How much could not be read and was passed over since the queue was opened.

        On the engine these are messages, which stay in the store. With format="nsq" these are
        files: missing ones, and damaged ones, which are renamed to .bad; `qindex recover` reads
        these. Each is logged, too.
        """
        return self._files.damaged

    def sync(self) -> None:
        """Return when everything that was put and taken before survives a power cut."""
        self._open_files().sync()

    def empty(self) -> None:
        """Drop all messages."""
        self._open_files().empty()

    def delete(self) -> None:
        """Drop all messages and the queue's files, and close it."""
        self._close(delete=True)

    def close(self) -> None:
        """Sync, and close the files. Closing twice is allowed."""
        self._close(delete=False)

    def _give_back(self, body: bytes) -> None:
        """Nobody has got what this thread took last; no other call may come but close()."""
        self._files.give_back(body)

    def _close(self, *, delete: bool) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        if delete:
            self._files.delete()
        else:
            self._files.close()

    def _open_files(self) -> Files:
        if self._closed:
            raise StoreClosed(f"the queue {self.name!r} is closed")
        return self._files


# --- on the engine ------------------------------------------------------------------------------


class _EngineFiles:
    """A queue of a store. What a thread has got is acked when it gets the next one."""

    def __init__(
        self, name: str, path: str, max_bytes_per_file: int, sync_every: int, sync_timeout: float
    ) -> None:
        self._shared = _SharedStore.of(path, max_bytes_per_file, sync_timeout)
        try:
            self._queue = self._shared.store.queue(name)
        except BaseException:
            self._shared.release()
            raise
        self._sync_every = sync_every
        self._unsynced = 0
        self._taken: dict[int, int] = {}  # thread: ReqId
        self.damaged = 0
        self._counting = threading.Lock()

    def put(self, body: bytes) -> None:
        self._queue.publish(body)
        self._count()

    def get(self) -> bytes | None:
        thread = threading.get_ident()
        before = self._taken.get(thread)
        if before is not None:
            with suppress(AlreadyAcked):  # by a call that a signal handler ended here
                self._queue.ack(before)
            del self._taken[thread]
        while True:
            try:
                message = self._queue.get()
            except StoreCorrupt as error:
                self._pass_over(error)
                continue
            if message is None:
                return None
            self._taken[thread] = message.req_id
            try:
                body = message.body
                self._count()
            except BaseException:  # a signal handler's: nobody has got it
                del self._taken[thread]
                message._returned  # noqa: B018  # a verb without a call
                raise
            return body

    def give_back(self, body: bytes) -> None:
        """What this thread took last is ready again, in its place."""
        self._queue.nack(self._taken.pop(threading.get_ident()))

    def _pass_over(self, error: StoreCorrupt) -> None:
        """A damaged message stays with nobody, so in the store, and the next get() goes on."""
        if error.req_id is None:
            raise error
        say("WARNING", "queue %r passes over a damaged message: %s", self._queue.name, error)
        with self._counting:
            self.damaged += 1

    def _count(self) -> None:
        """Threads may lose a count to each other; then the sync comes a little later."""
        self._unsynced += 1
        if self._unsynced >= self._sync_every:
            # What was done is done, and close() has synced it: no reason for the verb to fail.
            with suppress(StoreClosed):
                self.sync()

    def peek(self) -> bytes | None:
        while True:
            try:
                message = self._queue.peek()
            except StoreCorrupt as error:
                self._take_damaged(error)
                continue
            return None if message is None else message.body

    def _take_damaged(self, error: StoreCorrupt) -> None:
        """Another thread may have been faster: then what was got goes back to its place."""
        try:
            message = self._queue.get()
        except StoreCorrupt:
            self._pass_over(error)
        else:
            if message is not None:
                self._queue.nack(message)

    def depth(self) -> int:
        return self._queue.ready

    def sync(self) -> None:
        self._unsynced = 0
        self._queue.sync()

    def empty(self) -> None:
        self._queue.purge(state="all")

    def delete(self) -> None:
        self._taken.clear()
        self._shared.store.delete_queue(self._queue.name)
        self._shared.release()

    def close(self) -> None:
        try:
            with suppress(KeyError):  # until there is none
                while True:
                    taken = self._taken.popitem()[1]  # a thread may be taking its own out
                    with suppress(AlreadyAcked):  # as in get()
                        self._queue.ack(taken)
            self._queue.sync()
        finally:
            self._shared.release()


class _SharedStore:
    """The store of a directory, which all its queues in this process have open together."""

    _open: dict[str, _SharedStore] = {}
    _lock: Final = threading.Lock()

    def __init__(self, key: str, store: Store) -> None:
        self._key = key
        self.store = store
        self._users = 0

    @classmethod
    def of(cls, path: str, max_bytes_per_file: int, sync_timeout: float) -> _SharedStore:
        with cls._lock:
            key = os.path.realpath(path)
            shared = cls._open.get(key)
            if shared is None:
                options: dict[str, Any] = {"sync_interval": min(sync_timeout, 3600)}
                size = min(max(max_bytes_per_file, 4096), 1 << 30)
                store = open_store(path, message_file_size=size, **options)
                shared = cls._open[key] = cls(key, store)
            shared._users += 1
            return shared

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                del self._open[self._key]
                self.store.close()  # before another thread opens the directory anew
