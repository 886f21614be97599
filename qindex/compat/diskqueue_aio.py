"""DiskQueue for asyncio: the same names, awaited. Each call is a turn of one thread."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from qindex.arguments import Buffer
from qindex.compat import diskqueue
from qindex.compat.diskqueue import MAX_BYTES_PER_FILE, MAX_MSG_SIZE, SYNC_EVERY, SYNC_TIMEOUT
from qindex.errors import StoreClosed
from qindex.waiting import check_timeout

T = TypeVar("T")


class DiskQueue:
    """qindex.DiskQueue for the tasks of one event loop: `await DiskQueue(...)`, or `async with`.

    Arguments and errors are those of qindex.DiskQueue. The event loop never waits for the disk:
    each call is a turn of a thread (about 150 µs) that all calls of this queue share. `depth`,
    len() and `damaged` are not awaited.

    A cancelled get() loses no message: the next get() returns what it had taken, also behind a
    close.
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
        self.name = name
        self.min_msg_size = min_msg_size
        self.max_msg_size = max_msg_size
        self._make = partial(
            diskqueue.DiskQueue,
            name,
            data_path,
            max_bytes_per_file=max_bytes_per_file,
            min_msg_size=min_msg_size,
            max_msg_size=max_msg_size,
            sync_every=sync_every,
            sync_timeout=sync_timeout,
            format=format,
        )
        self._opened: diskqueue.DiskQueue | None = None
        self._closed = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="qindex-diskqueue")
        self._taking = asyncio.Lock()
        self._kept: list[bytes] = []  # at most one: what a cancelled get() had taken
        self._waiters: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        state = " closed" if self._closed else "" if self._opened else " not open"
        return f"<qindex.aio.DiskQueue {self.name!r}{state}>"

    # --- opening and closing --------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def _open(self) -> Self:
        if self._opened is None and not self._closed:
            opening = self._pool.submit(self._make)
            try:
                self._opened = await asyncio.wrap_future(opening)
            except BaseException:  # cancelled, or it cannot be opened: nobody will call close()
                opening.add_done_callback(_close_again)
                self._pool.shutdown(wait=False)
                raise
        return self

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Sync, and close the files. Closing twice is allowed."""
        await self._end(lambda queue: queue.close())

    async def delete(self) -> None:
        """Drop all messages and the queue's files, and close it."""
        await self._end(lambda queue: queue.delete())

    async def _end(self, end: Callable[[diskqueue.DiskQueue], None]) -> None:
        if self._closed:
            return
        self._closed = True
        for woken in self._waiters:
            if not woken.done():
                woken.set_result(None)
        try:
            await asyncio.shield(asyncio.wrap_future(self._pool.submit(self._end_now, end)))
        finally:
            self._pool.shutdown(wait=False)

    def _end_now(self, end: Callable[[diskqueue.DiskQueue], None]) -> None:
        if self._opened is not None:
            if self._kept:
                self._opened._give_back(self._kept.pop())
            end(self._opened)

    def _queue(self) -> diskqueue.DiskQueue:
        if self._closed or self._opened is None:
            state = "closed" if self._closed else "not open: await it, or use `async with`"
            raise StoreClosed(f"the queue {self.name!r} is {state}")
        return self._opened

    async def _run(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.wrap_future(self._pool.submit(call, *arguments))

    # --- putting and getting --------------------------------------------------------------------

    async def put(self, body: Buffer) -> None:
        """Append a message. Raises ValueError, and writes nothing, if its size is not allowed."""
        putting = self._pool.submit(self._queue().put, body)
        loop = asyncio.get_running_loop()
        # Also if this task is cancelled now: the message may have been put all the same.
        putting.add_done_callback(lambda _put: _call_soon(loop, self._wake_next))
        await asyncio.wrap_future(putting)

    def _wake_next(self) -> None:
        while self._waiters:
            woken = self._waiters.popleft()
            if not woken.done():
                woken.set_result(None)
                return

    async def get(self, *, timeout: float | None = 0) -> bytes | None:
        """Take the oldest message; return None if none came in `timeout` seconds.

        0 (the default) does not wait, None waits for ever. A message is done when a task gets the
        next one, or when the queue is closed. If the process is killed before that, it comes again.
        """
        timeout = check_timeout(timeout)
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            woken = loop.create_future()
            self._waiters.append(woken)
            try:
                body = await self._take()
                if body is not None or timeout == 0:
                    if woken.done():  # by a put that this task has not looked for
                        self._wake_next()
                    return body
                try:
                    async with asyncio.timeout_at(deadline):
                        await woken
                except TimeoutError:
                    timeout = 0  # one more look
            except BaseException:  # cancelled, and perhaps woken before that
                self._wake_next()
                raise
            finally:
                with suppress(ValueError):  # _wake_next() has taken it out
                    self._waiters.remove(woken)

    async def _take(self) -> bytes | None:
        """One at a time, so that what a cancelled task had taken is the next one's."""
        async with self._taking:
            taking = self._pool.submit(self._take_now, self._queue())
            try:
                return await asyncio.wrap_future(taking)
            except BaseException:
                taking.add_done_callback(self._keep)
                raise

    def _take_now(self, queue: diskqueue.DiskQueue) -> bytes | None:
        return self._kept.pop() if self._kept else queue.get()

    def _keep(self, taking: ThreadFuture[bytes | None]) -> None:
        if not taking.cancelled() and taking.exception() is None:
            body = taking.result()
            if body is not None:
                self._kept.append(body)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Take messages until there is none. Each is done when the next one is asked for."""
        while (body := await self.get()) is not None:
            yield body

    async def peek(self) -> bytes | None:
        """The message that get() would return, without taking it; None if there is none."""
        queue = self._queue()
        return await self._run(lambda: self._kept[0] if self._kept else queue.peek())

    # --- the rest -------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """How many messages get() would return, one after the other."""
        return self._queue().depth + len(self._kept)

    def __len__(self) -> int:
        return self.depth

    def __bool__(self) -> bool:
        """True, also for an empty queue, so that `if queue:` does not mean `if len(queue):`."""
        return True

    @property
    def damaged(self) -> int:
        """How much could not be read and was passed over; see qindex.DiskQueue.damaged."""
        return 0 if self._opened is None else self._opened.damaged

    async def sync(self) -> None:
        """Return when everything that was put and taken before survives a power cut."""
        await self._run(self._queue().sync)

    async def empty(self) -> None:
        """Drop all messages."""
        await self._run(self._empty_now, self._queue())

    def _empty_now(self, queue: diskqueue.DiskQueue) -> None:
        self._kept.clear()
        queue.empty()


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """In the loop's thread, unless the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)


def _close_again(opening: ThreadFuture[diskqueue.DiskQueue]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
