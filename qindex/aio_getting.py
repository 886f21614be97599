"""The methods of a queue of qindex.aio that take several messages, or take them in a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from qindex.aio_line import BREATH, Line, give_back_unseen
from qindex.arguments import Seconds, parts_of, to_lease_us
from qindex.buffers import BATCH_ROOM
from qindex.errors import QindexError
from qindex.message import Message
from qindex.waiting import check_timeout

if TYPE_CHECKING:
    import qindex.queue
    from qindex.aio_store import Store

_AT_ONCE: Final = 256  # messages that get_many() takes in one turn of the loop
_AT_ONCE_BYTES: Final = 256 * 1024  # with so many, a thread takes the rest

T = TypeVar("T")


class Busy(Enum):
    BUSY = 0


BUSY: Final = Busy.BUSY


def _size(message: Message) -> int:
    """Its bytes, as the core counts them for a batch."""
    return len(message.body) + len(message._details.headers or b"")


@parts_of("Queue")
class AioGetting(Line):
    """For the class of a queue. Methods and errors are those of qindex.Queue."""

    _store: Store
    _queue: qindex.queue.Queue
    _get_now: Callable[..., Message | Busy | None]

    async def get_many(
        self, count: int, *, timeout: Seconds | None = 0, lease: Seconds | None = None
    ) -> list[Message]:
        """Take up to `count` ready messages. See Queue.get_many().

        Cost: as get(). A turn of a thread for more than 256 messages, for what is behind the first
        256 KiB, and for what get() would leave to one.
        """
        left = check_timeout(timeout) if count else 0
        if type(count) is int and 0 < count <= _AT_ONCE:
            self._calls = calls = self._calls + 1
            if self._in_line or calls % BREATH == 0:
                await self._stand_in_line()  # before it takes anything
            taken, is_busy = self._take_now(count, lease)
            if taken:
                return await self._take_more(taken, count, lease) if is_busy else taken
            return await self._store._wait([self], left, partial(self._take_batch, count, lease))

        async def take() -> list[Message]:
            get = partial(self._queue.get_many, count, lease=lease)
            return await self._take_in_thread(get) or []

        return await self._store._wait([self], left, take)

    async def _take_batch(self, count: int, lease: Seconds | None) -> list[Message]:
        """What is there: at once, then by a thread."""
        taken, is_busy = self._take_now(count, lease)
        if not is_busy:
            return taken
        if taken:
            return await self._take_more(taken, count, lease)
        return await self._take_in_thread(partial(self._queue.get_many, count, lease=lease))

    def _take_now(self, count: int, lease: Seconds | None) -> tuple[list[Message], bool]:
        """What needs no wait; True: a thread has to take the next one.

        An error ends it in front of the message that it is about. The next call raises it.
        """
        taken: list[Message] = []
        size = 0
        try:
            while len(taken) < count:
                if size >= _AT_ONCE_BYTES:
                    return taken, True
                message = self._get_now(lease=lease)
                if message is None or message is BUSY:
                    return taken, message is BUSY
                taken.append(message)
                size += _size(message)
        except BaseException as error:
            if taken and isinstance(error, QindexError):
                return taken, False
            give_back_unseen(taken)
            raise
        return taken, False

    async def _take_more(
        self, taken: list[Message], count: int, lease: Seconds | None
    ) -> list[Message]:
        """The rest, by a thread: up to 4 MiB with what is taken, and up to what is damaged."""
        room, lease_us = max(0, BATCH_ROOM - sum(map(_size, taken))), to_lease_us(lease)

        def take() -> list[Message]:
            both = list(taken)
            try:
                self._queue._get_rest(both, count, room, lease_us)
            except BaseException:
                give_back_unseen(both[len(taken) :])
                raise
            return both[len(taken) :]

        try:
            return taken + await self._take_in_thread(take)
        except BaseException:
            give_back_unseen(taken)
            raise

    async def get_newest(self, *, lease: Seconds | None = None) -> Message | None:
        """Take the ready message that was published last; None if there is none.

        See Queue.get_newest(). A turn of a thread.
        """
        return await self._take_in_thread(partial(self._queue.get_newest, lease=lease))

    async def _take_in_thread(self, take: Callable[[], T]) -> T:
        taking = self._store._submit(take)
        try:
            return await asyncio.wrap_future(taking)
        except BaseException:  # cancelled, or a signal handler raised
            taking.add_done_callback(self._give_back)
            raise

    def _give_back(self, taking: ThreadFuture[Any]) -> None:
        """The task that waited is gone: give back what was taken. Called in any thread."""
        if taking.cancelled() or taking.exception() is not None:
            return
        taken = taking.result()
        messages = [taken] if isinstance(taken, Message) else taken or []
        # If the store is closed, the next open makes them ready again.
        with contextlib.suppress(QindexError, RuntimeError):
            self._store._submit(partial(give_back_unseen, messages))
