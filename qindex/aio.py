"""qindex for asyncio: the same names and meanings, awaited.

::

    async with qindex.aio.open("data") as store:
        orders = await store.queue("orders")
        await orders.publish(b"one dozen", confirm=True)
        async for message in orders:
            await orders.ack(message)

The event loop never waits for a disk or a lock. publish() of a plain body (also to several queues),
get(), and what settles messages (ack, nack, touch) are done at once where the core can do that
without waiting. Everything else runs in a small pool of threads. A get() that waits needs neither
a thread nor polling: the core makes a file descriptor readable that the loop watches. The syncs
that confirms wait for are made by a thread of the core, which needs no GIL. A store belongs to the
loop in which it was opened.

Cancelling is safe. A cancelled get() loses no message: what it had taken goes back to its place in
the queue, and in a store of format 2 that delivery does not count. A cancelled publish() has
published everything or nothing: nothing if it was still waiting for room, else it goes on in the
background. asyncio.wait_for of Python 3.11 may drop a result that arrives at the moment of its own
cancellation: use `timeout=`.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

import qindex.opening
from qindex.aio_consumer import Consumer
from qindex.aio_data import Data
from qindex.aio_events import Events
from qindex.aio_queue import Queue
from qindex.aio_store import Store
from qindex.aio_transaction import Transaction
from qindex.arguments import whole
from qindex.handle import Disk
from qindex.options import (
    EMBED_BELOW,
    IDLE_SECONDS,
    MAX_JOURNAL_BYTES,
    MAX_JOURNAL_ENTRIES,
    MESSAGE_FILE_SIZE,
    SYNC_INTERVAL,
    IoMode,
    SyncPolicy,
)

if TYPE_CHECKING:
    from qindex.compat.diskqueue_aio import DiskQueue

__all__ = ["Consumer", "Data", "DiskQueue", "Events", "Queue", "Store", "Transaction", "open"]

MAX_UNCONFIRMED: Final = 16 * 1024 * 1024  # bytes


def __getattr__(name: str) -> object:
    """Load DiskQueue only when it is asked for, as qindex does."""
    if name == "DiskQueue":
        from qindex.compat.diskqueue_aio import DiskQueue

        return DiskQueue
    raise AttributeError(f"module 'qindex.aio' has no attribute {name!r}")


class _Opening:
    """What open() returns: await it, or use it as an async context manager."""

    def __init__(self, start: Callable[[], Awaitable[Store]]) -> None:
        self._start = start

    def __await__(self) -> Generator[Any, None, Store]:
        return self._start().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self._start()
        return self._store

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._store.__aexit__(kind, error, trace)


def open(  # noqa: A001 - qindex.aio.open is the module's own verb
    path: str | os.PathLike[str],
    *,
    sync: SyncPolicy = "group",
    sync_interval: float = SYNC_INTERVAL,
    embed_below: int = EMBED_BELOW,
    message_file_size: int = MESSAGE_FILE_SIZE,
    max_journal_entries: int = MAX_JOURNAL_ENTRIES,
    max_journal_bytes: int = MAX_JOURNAL_BYTES,
    segment_entries: int = 0,
    idle: float = IDLE_SECONDS,
    max_open_files: int | None = None,
    max_memory: int | None = None,
    min_free: int = 0,
    max_messages: int | None = None,
    max_bytes: int | None = None,
    keep_history: int = 0,
    expire: bool = True,
    read_only: bool = False,
    create: bool = True,
    io: IoMode = "auto",
    format: Literal[1, 2] | None = None,  # noqa: A002 - what everybody calls it
    upgrade: bool = False,
    disk: Disk | None = None,
    max_unconfirmed: int | None = MAX_UNCONFIRMED,
) -> _Opening:
    """Open a store: `await open(path)`, or `async with open(path) as store`.

    Options and errors as qindex.open(). One more: when more than `max_unconfirmed` bytes of a queue
    may not be durable yet, publish() waits for a sync, so that publishers are slowed down to what
    the disk can take. With None, or with sync="never", it does not wait.
    """
    if max_unconfirmed is not None:
        whole("max_unconfirmed", max_unconfirmed, 1, 1 << 62)
    start = partial(
        qindex.opening.open,
        path,
        sync=sync,
        sync_interval=sync_interval,
        embed_below=embed_below,
        message_file_size=message_file_size,
        max_journal_entries=max_journal_entries,
        max_journal_bytes=max_journal_bytes,
        segment_entries=segment_entries,
        idle=idle,
        max_open_files=max_open_files,
        max_memory=max_memory,
        min_free=min_free,
        max_messages=max_messages,
        max_bytes=max_bytes,
        keep_history=keep_history,
        expire=expire,
        read_only=read_only,
        create=create,
        io=io,
        format=format,
        upgrade=upgrade,
        disk=disk,
    )

    async def opened() -> Store:
        store = await asyncio.get_running_loop().run_in_executor(None, start)
        if max_unconfirmed is None or store.sync_policy == "never":
            return Store(store, math.inf)
        return Store(store, max_unconfirmed)

    return _Opening(opened)
