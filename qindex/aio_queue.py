"""The queue of qindex.aio: a verb is done at once if the core need not wait, else in a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future as ThreadFuture
from enum import Enum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from qindex._core import ffi, lib
from qindex.arguments import Buffer, as_bytes
from qindex.errors import QindexError, StoreClosed
from qindex.figures import QueueStats
from qindex.message import Message
from qindex.native import QueueCalls
from qindex.queue import State
from qindex.waiting import check_timeout

if TYPE_CHECKING:
    import qindex.queue
    from qindex.aio import Store

T = TypeVar("T")

_RECORD: Final = 64  # bytes that a message takes besides its body, about
_BROWSED: Final = 256  # messages per turn of a thread


class _Busy(Enum):
    BUSY = 0


BUSY: Final = _Busy.BUSY


class _CallsNow(QueueCalls):
    """publish, get and ack without their slow ways: BUSY, where those would be taken."""

    def _busy(self, *arguments: object, **options: object) -> _Busy:
        return BUSY

    _publish = _get = _ack = _busy


class _GroupSync:
    """One sync at a time; who comes while one runs shares the next, which covers them all."""

    def __init__(self, sync: Callable[[], Any]) -> None:
        self._sync = sync
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def join(self) -> None:
        if self._next is None:
            self._next = asyncio.create_task(self._one())
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._next)  # others wait for it, too

    async def _one(self) -> None:
        if self._running is not None:
            await asyncio.wait([self._running])
        self._running, self._next = self._next, None
        await self._sync()


class Queue:
    """A durable queue of a qindex.aio.Store. For the tasks of one event loop."""

    def __init__(self, store: Store, queue: qindex.queue.Queue) -> None:
        self._store = store
        self._queue = queue
        self.name = queue.name
        self._confirm_all = queue._confirm_all
        calls = _CallsNow()
        address = int(ffi.cast("uintptr_t", queue._handle))
        calls._attach(address, Message, queue._plain, False)
        self._publish_now: Callable[..., int | _Busy] = calls.publish
        self._get_now: Callable[[], Message | _Busy | None] = calls.get
        self._ack_now: Callable[[Message | int], _Busy | None] = calls.ack
        self._unconfirmed = 0  # bytes that may not be durable
        self._bound = store.max_unconfirmed
        self._group = _GroupSync(self._sync)
        self._waiters: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        return f"<qindex.aio.Queue {self.name!r}>"

    # --- waking --------------------------------------------------------------------------------

    def _wake_next(self) -> bool:
        while self._waiters:
            woken = self._waiters.popleft()
            if not woken.done():
                woken.set_result(None)
                return True
        return False

    async def _arm(self, woken: asyncio.Future[None]) -> None:
        """From here on a message rings; one that is there wakes at once."""
        code = lib.qi_bell_arm(self._queue._handle, False)
        if code == lib.QI_BUSY:
            code = await self._store._run(lib.qi_bell_arm, self._queue._handle, True)
        if code != 0 and not woken.done():  # a message, or an error that the next look raises
            woken.set_result(None)

    def _leave(self, woken: asyncio.Future[None]) -> None:
        with contextlib.suppress(ValueError):  # who woke it has taken it out
            self._waiters.remove(woken)

    def _pass_on(self) -> None:
        """Somebody leaves, perhaps woken for what he did not take: who waits on is served."""
        if self._store._closed:
            self._wake_next()
        elif self._waiters:
            code = lib.qi_bell_arm(self._queue._handle, False)
            if code == lib.QI_BUSY:
                self._store._loop.call_later(0.001, self._pass_on)
            elif code != 0:
                self._wake_next()
        elif lib.qi_bell_disarm(self._queue._handle, False) == lib.QI_BUSY:
            self._store._loop.call_later(0.001, self._pass_on)

    # --- publishing ----------------------------------------------------------------------------

    async def publish(self, body: Buffer, *, confirm: bool = False, **options: Any) -> int:
        """Append a message; return its ReqId. It survives kill -9 when this returns.

        With `confirm`, also a power cut: all that wait for that share one sync. Options and errors
        as qindex.Queue.publish. Cost: that of qindex.Queue.publish and a coroutine; with options
        but a priority or a delay, or with a body that is not embedded, a turn of a thread.
        """
        data = body if type(body) is bytes else as_bytes(body)
        size = len(data) + _RECORD
        if self._unconfirmed + size > self._bound:
            await self._make_room(size)
        self._unconfirmed += size
        req_id = self._publish_now(data, **options)
        if isinstance(req_id, _Busy):
            req_id = await self._store._run(self._queue._publish, data, **options)
        if confirm or self._confirm_all:
            await self._group.join()
        return req_id

    async def publish_many(
        self, bodies: Iterable[Buffer], *, confirm: bool = False, **options: Any
    ) -> range:
        """Append a batch, all of it or nothing; see qindex.Queue.publish_many. In a thread."""
        items = [as_bytes(body) for body in bodies]
        size = sum(map(len, items)) + _RECORD * len(items)
        await self._make_room(size)
        self._unconfirmed += size
        req_ids = await self._store._run(self._queue.publish_many, items, **options)
        if confirm or self._confirm_all:
            await self._group.join()
        return req_ids

    async def _make_room(self, size: int) -> None:
        """Waits until so much more is within the bound; one that is too big alone goes alone."""
        while self._unconfirmed and self._unconfirmed + size > self._bound:
            await self._group.join()

    async def _sync(self) -> None:
        covered = self._unconfirmed
        await self._store._run(self._queue.sync)
        self._unconfirmed -= covered

    # --- getting -------------------------------------------------------------------------------

    async def get(self, *, timeout: float | None = 0, lease: float | None = None) -> Message | None:
        """Take the next ready message; None if there is none, after `timeout` seconds.

        0 (the default) does not wait, None waits for ever; `lease` as in qindex.Queue.get. Cost: as
        qindex.Queue.get and a coroutine, with a lease a turn of a thread; one that waits costs
        nothing meanwhile.
        """
        check_timeout(timeout)
        message = self._get_now() if lease is None else BUSY
        if isinstance(message, Message):
            return message
        return await self._store._wait([self], timeout, partial(self._take, lease))

    async def get_many(
        self, count: int, *, timeout: float | None = 0, lease: float | None = None
    ) -> list[Message]:
        """Take up to `count` ready messages; see qindex.Queue.get_many. In a thread."""

        async def take() -> list[Message]:
            get = partial(self._queue.get_many, count, lease=lease)
            return await self._take_in_thread(get) or []

        return await self._store._wait([self], check_timeout(timeout) if count else 0, take)

    async def get_newest(self, *, lease: float | None = None) -> Message | None:
        """Take the ready message that was published last; None if there is none. In a thread."""
        return await self._take_in_thread(partial(self._queue.get_newest, lease=lease))

    def __aiter__(self) -> AsyncIterator[Message]:
        """The messages as they come, without end; ends when the store is closed. Ack each."""
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Message]:
        while True:
            try:
                message = await self.get(timeout=None)
            except StoreClosed:
                return
            if message is not None:
                yield message

    async def _take(self, lease: float | None = None) -> Message | None:
        message = self._get_now() if lease is None else BUSY
        if isinstance(message, _Busy):
            return await self._take_in_thread(partial(self._queue._get, lease=lease))
        return message

    async def _take_in_thread(self, take: Callable[[], T]) -> T:
        taking = self._store._submit(take)
        try:
            return await asyncio.wrap_future(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._give_back)
            raise

    def _give_back(self, taking: ThreadFuture[Any]) -> None:
        """Nobody waits any more for what was taken: back to its place. In any thread."""
        if taking.cancelled() or taking.exception() is not None:
            return
        taken = taking.result()
        messages = [taken] if isinstance(taken, Message) else taken or []
        # A store that is closed does the same when it is opened again.
        with contextlib.suppress(QindexError, RuntimeError):
            self._store._submit(partial(self._queue.nack_many, messages))

    async def peek(self, req_id: int | None = None) -> Message | None:
        """The message that get() would return, or that one, without taking it. In a thread."""
        return await self._store._run(self._queue.peek, req_id)

    async def browse(
        self, start: int = 0, stop: int | None = None, *, state: State | None = None
    ) -> AsyncIterator[Message]:
        """All messages with start <= req_id < stop, or those in a state; changes nothing."""
        messages = self._queue.browse(start, stop, state=state)
        while batch := await self._store._run(lambda: list(islice(messages, _BROWSED))):
            for message in batch:
                yield message

    # --- settling ------------------------------------------------------------------------------

    async def ack(self, message: Message | int) -> None:
        """Settle a delivered message (or its ReqId): it is done and will not come back."""
        if isinstance(self._ack_now(message), _Busy):
            await self._store._run(self._queue._ack, message)
        elif self._confirm_all:
            await self._group.join()

    async def ack_many(self, messages: Iterable[Message | int]) -> None:
        """Settle several messages at once, all or none. In a thread."""
        await self._store._run(self._queue.ack_many, messages)

    async def nack(
        self, message: Message | int, requeue: bool = True, **options: float | None
    ) -> None:
        """Give a delivered message back; options (delay, due) as qindex.Queue.nack."""
        await self._store._run(self._queue.nack, message, requeue, **options)

    async def nack_many(
        self, messages: Iterable[Message | int], requeue: bool = True, **options: float | None
    ) -> None:
        """nack() for several, all or none."""
        await self._store._run(self._queue.nack_many, messages, requeue, **options)

    async def touch(self, message: Message | int, lease: float) -> None:
        """Extend the lease of a delivered message; raises LeaseExpired if it has ended."""
        await self._store._run(self._queue.touch, message, lease)

    async def reschedule(
        self, message: Message | int, *, delay: float | None = None, due: float | None = None
    ) -> None:
        """Change when a message that is not delivered is ready; see qindex.Queue.reschedule."""
        await self._store._run(self._queue.reschedule, message, delay=delay, due=due)

    async def delete(self, message: Message | int) -> None:
        """Drop a message that is not delivered, by its ReqId."""
        await self._store._run(self._queue.delete, message)

    async def redrive(self, count: int | None = None) -> int:
        """Make dead letters ready again; see qindex.Queue.redrive."""
        return await self._store._run(self._queue.redrive, count)

    async def expire(self) -> int:
        """Drop every message that has expired; see qindex.Queue.expire."""
        return await self._store._run(self._queue.expire)

    async def purge(self, where: Callable[[Message], bool] | None = None) -> int:
        """Drop all messages but the unacked, or those of `where`; return how many."""
        return await self._store._run(self._queue.purge, where)

    # --- durability and figures ----------------------------------------------------------------

    async def sync(self) -> None:
        """Return when everything before this call survives a power cut. Raises OutcomeUnknown."""
        await self._group.join()

    async def flush(self) -> None:
        """Move the journal's entries into segments now."""
        await self._store._run(self._queue.flush)

    async def stats(self) -> QueueStats:
        """All figures at one moment."""
        return await self._store._run(self._queue.stats)
