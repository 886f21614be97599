"""qindex for asyncio: the same names and meanings, awaited.

async with qindex.aio.open("data") as store:
    orders = await store.queue("orders")
    await orders.publish(b"one dozen", confirm=True)
    async for message in orders:
        await orders.ack(message)

The event loop never waits for a disk or a lock. publish() of a plain body, get() and ack() are done
at once where the core can do that without waiting; everything else, each fsync too, runs in a small
pool of threads. A get() that waits needs neither a thread nor polling: the core makes a descriptor
readable that the loop watches. A store belongs to the loop in which it was opened.

Cancelling is safe. A cancelled get loses no message: what it has taken goes back to its place in
the queue. A cancelled publish has published all or nothing: nothing if it still waited for room,
else it goes on in the background (a confirm is about durability only). asyncio.wait_for of Python
3.11 may drop a result that comes when it is cancelled itself: use `timeout=`.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import (
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Sequence,
)
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import qindex.opening
import qindex.store
import qindex.waiting
from qindex._core import ffi, lib
from qindex.aio_queue import Queue
from qindex.errors import QindexError, StoreClosed, raise_error
from qindex.message import Finding, Message
from qindex.store import StoreStats

__all__ = ["Queue", "Store", "open"]

T = TypeVar("T")

MAX_UNCONFIRMED: Final = 16 * 1024 * 1024  # bytes
_THREADS: Final = 4


class Store:
    """An open store of one event loop. Made by qindex.aio.open(); an async context manager."""

    def __init__(self, store: qindex.store.Store, max_unconfirmed: float) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="qindex")
        self._queues: dict[str, Queue] = {}
        self._by_handle: dict[Any, Queue] = {}
        self._closed = False
        self.path = store.path
        self.max_unconfirmed = max_unconfirmed
        self._bell: int = lib.qi_store_bell(store._handle)
        if self._bell < 0:
            raise_error(self._bell)
        self._loop.add_reader(self._bell, self._heard)

    def __repr__(self) -> str:
        return repr(self._store).replace("qindex.Store", "qindex.aio.Store")

    # --- threads and waking --------------------------------------------------------------------

    def _submit(self, call: Callable[[], T]) -> ThreadFuture[T]:
        if self._closed:
            raise StoreClosed("the store is closed")
        return self._pool.submit(call)

    async def _run(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """The answer of a call that may wait, made in the pool."""
        return await asyncio.wrap_future(self._submit(partial(call, *arguments, **options)))

    def _heard(self) -> None:
        """The bell rang: it is made silent first, then the queues that rang are asked for."""
        os.read(self._bell, 8)
        while (handle := lib.qi_bell_next(self._store._handle)) != ffi.NULL:
            queue = self._by_handle.get(handle)
            if queue is not None and not queue._wake_next():
                queue._pass_on()  # who had it armed is gone

    async def _wait(
        self,
        queues: Sequence[Queue],
        timeout: float | None,
        take: Callable[[], Awaitable[T]],
    ) -> T:
        """What `take` gives, as soon as it gives anything, or when the time is over."""
        deadline = None if timeout is None else self._loop.time() + timeout
        try:
            while not (taken := await take()) and timeout != 0:
                woken = self._loop.create_future()
                for queue in queues:
                    queue._waiters.append(woken)
                try:
                    async with asyncio.timeout_at(deadline):
                        for queue in queues:
                            await queue._arm(woken)
                        await woken
                except TimeoutError:
                    timeout = 0  # one more look
                finally:
                    for queue in queues:
                        queue._leave(woken)
            return taken
        finally:
            for queue in queues:
                queue._pass_on()

    # --- the verbs -----------------------------------------------------------------------------

    async def queue(self, name: str, *, create: bool = True, **rules: Any) -> Queue:
        """The queue of this name, created durably on first use; rules as qindex.Store.queue."""
        found = self._queues.get(name)
        if found is None or rules:
            queue = await self._run(self._store.queue, name, create=create, **rules)
            found = self._queues.get(name)  # another task may have been quicker
            if found is None:
                found = self._queues[name] = Queue(self, queue)
                self._by_handle[queue._handle] = found
        return found

    async def queues(self) -> list[str]:
        """The names of all queues, sorted."""
        return await self._run(self._store.queues)

    async def delete_queue(self, name: str) -> None:
        """Delete a queue with all its messages. Raises QueueMissing."""
        queue = self._queues.pop(name, None)
        await self._run(self._store.delete_queue, name)
        if queue is not None:
            queue._wake_next()

    async def publish(self, queues: Iterable[str], body: bytes, **options: Any) -> list[int]:
        """Publish one body to several queues; see qindex.Store.publish."""
        return await self._run(self._store.publish, queues, body, **options)

    async def get(
        self,
        queues: Sequence[str],
        *,
        timeout: float | None = 0,
        lease: float | None = None,
    ) -> Message | None:
        """Take the next message of the first of these queues that has one, in this order."""
        if isinstance(queues, str):
            raise TypeError("queues is a list of names; for one queue use its get()")
        if not queues:
            raise ValueError("name at least one queue")
        targets = [await self.queue(name) for name in queues]

        async def take() -> Message | None:
            for target in targets:
                if (message := await target._take(lease)) is not None:
                    return message
            return None

        return await self._wait(targets, qindex.waiting.check_timeout(timeout), take)

    async def sync(self) -> None:
        """Return when everything before this call, in all queues, survives a power cut."""
        await self._run(self._store.sync)

    async def compact(self) -> int:
        """Free the space of acked bodies now; return the bytes freed."""
        return await self._run(self._store.compact)

    async def check(self) -> list[Finding]:
        """Read and recount everything; return all findings."""
        return await self._run(self._store.check)

    async def stats(self) -> StoreStats:
        """All figures of the store at one moment."""
        return await self._run(self._store.stats)

    async def close(self) -> None:
        """Sync everything and mark the end as clean. Ends every wait with StoreClosed."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.shield(self._loop.run_in_executor(None, self._end))
        finally:
            self._loop.remove_reader(self._bell)
            for queue in self._by_handle.values():
                queue._wake_next()

    def _end(self) -> None:
        self._pool.shutdown()  # what a cancelled task began is finished
        self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except QindexError:
            if error is None:  # else what is on its way out says more
                raise


class _Opening:
    """What open() gives: to be awaited, or used as an async context manager."""

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
    max_unconfirmed: int | None = MAX_UNCONFIRMED,
    **options: Any,
) -> _Opening:
    """`await open(path)`, or `async with open(path) as store`. Options as qindex.open.

    When more than `max_unconfirmed` bytes of a queue may not be durable yet, publish() waits for a
    sync (None, and with sync="never": it does not), so that a disk that is slower than the
    publishers slows them down.
    """

    async def start() -> Store:
        loop = asyncio.get_running_loop()
        store = await loop.run_in_executor(None, partial(qindex.opening.open, path, **options))
        if max_unconfirmed is None or store.sync_policy == "never":
            return Store(store, math.inf)
        return Store(store, max_unconfirmed)

    return _Opening(start)
