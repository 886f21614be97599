"""The store of qindex.aio: what may wait runs in threads; what becomes ready wakes tasks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import qindex.queue
import qindex.store
import qindex.waiting
from qindex._core import ffi, lib
from qindex.aio_any_queue import AioAnyQueue
from qindex.aio_consumer import Consumer
from qindex.aio_data import Data
from qindex.aio_events import Events
from qindex.aio_fanout import AioFanOut
from qindex.aio_line import Line, give_back_unseen
from qindex.aio_queue import Queue
from qindex.aio_transaction import Transaction
from qindex.arguments import Seconds, boolean, several
from qindex.asks import Asks
from qindex.errors import QindexError, StoreClosed, raise_error
from qindex.events import ROOM, EventKind, Listener
from qindex.figures import QueueStats, StoreStats
from qindex.held import Held, names_of
from qindex.message import Finding, Message
from qindex.options import SyncPolicy
from qindex.rules import Overflow

if TYPE_CHECKING:
    from qindex.backup import Backup

T = TypeVar("T")

_THREADS: Final = 4


def _wake(waiting: list[asyncio.Future[None]]) -> None:
    for woken in waiting:
        if not woken.done():
            woken.set_result(None)


class Store(AioFanOut, AioAnyQueue):
    """An open store of one event loop: made by qindex.aio.open(), closed by `await close()`.

    Or use it with `async with`. Methods and errors are those of qindex.Store. `path`, `read_only`,
    `findings` and `in` are not awaited; the last two take the store's lock for a moment.
    """

    def __init__(self, store: qindex.store.Store, max_unconfirmed: float) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="qindex")
        self._queues: dict[str, Queue] = {}
        self._by_handle: dict[Any, Queue] = {}
        self._for_places: list[asyncio.Future[None]] = []  # each waits for a place in a queue
        self._for_events: list[asyncio.Future[None]] = []  # each waits for an event
        self._asks = Asks(store._handle)
        self._closed = False
        self._process = os.getpid()
        self._ending: asyncio.Future[None] | None = None  # since close() was called
        self.path = store.path
        self.read_only: bool = store.read_only
        self.sync_policy: SyncPolicy = store.sync_policy
        self.max_unconfirmed = max_unconfirmed
        self._bell: int = lib.qi_store_bell(store._handle)
        if self._bell < 0:
            raise_error(self._bell)
        self._loop.add_reader(self._bell, self._heard)

    def __repr__(self) -> str:
        return repr(self._store).replace("qindex.Store", "qindex.aio.Store")

    # --- threads and waking --------------------------------------------------------------------

    def _submit(self, call: Callable[[], T]) -> ThreadFuture[T]:
        self._refuse_closed()
        self._refuse_elsewhere()
        return self._pool.submit(call)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")

    def _refuse_elsewhere(self) -> None:
        """Where a wait has no end: in a forked child, which has no threads; in another loop."""
        if os.getpid() != self._process:
            raise_error(lib.qi_store_queues(self._store._handle))  # the core says what to do
        if asyncio._get_running_loop() not in (None, self._loop):  # None: in a thread
            raise RuntimeError("this store belongs to another event loop: open one in this loop")

    async def _run(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Make a call that may wait in a thread of the pool; return its result."""
        return await asyncio.wrap_future(self._submit(partial(call, *arguments, **options)))

    def _heard(self) -> None:
        """The wake-up descriptor became readable: reset it, then wake the queues that caused it."""
        os.read(self._bell, 8)
        self._asks.heard()
        if lib.qi_places_came(self._store._handle):
            self._wake_for_places()
        if lib.qi_events_came(self._store._handle):
            self._wake_for_events()
        while (handle := lib.qi_bell_next(self._store._handle)) != ffi.NULL:
            queue = self._by_handle.get(handle)
            if queue is not None and not queue._wake_next():
                queue._pass_on()  # the task that had armed it is gone

    def _wake_for_places(self) -> None:
        waiting, self._for_places = self._for_places, []
        _wake(waiting)

    def _wake_for_events(self) -> None:
        waiting, self._for_events = self._for_events, []
        _wake(waiting)

    async def _wait(
        self,
        queues: Sequence[Line],
        timeout: float | None,
        take: Callable[[], Awaitable[T]],
    ) -> T:
        """Return what `take` takes, as soon as it takes anything, or when the time is over."""
        deadline = None if timeout is None else self._loop.time() + timeout
        taken: Any = None
        try:
            while not (taken := await take()) and timeout != 0:
                self._refuse_elsewhere()
                woken = self._loop.create_future()
                for queue in queues:
                    queue._join(woken)
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
            for queue in queues:
                queue._pass_on()
        except BaseException:
            give_back_unseen([taken] if isinstance(taken, Message) else taken or ())
            for queue in queues:
                queue._pass_on()
            raise
        result: T = taken
        return result

    # --- the verbs -----------------------------------------------------------------------------

    async def queue(
        self,
        name: str,
        *,
        create: bool = True,
        ttl: Seconds | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        overflow: Overflow | None = None,
        max_deliveries: int | None = None,
        dead_letters: bool | str | None = None,
        lease: Seconds | None = None,
        expires: Seconds | None = None,
    ) -> Queue:
        """The queue of this name, created on first use; rules as qindex.Store.queue()."""
        rules = {
            "ttl": ttl,
            "max_messages": max_messages,
            "max_bytes": max_bytes,
            "overflow": overflow,
            "max_deliveries": max_deliveries,
            "dead_letters": dead_letters,
            "lease": lease,
            "expires": expires,
        }
        named: Any = {key: rule for key, rule in rules.items() if rule is not None}
        boolean("create", create)
        self._store._open_handle()
        found = self._queues.get(name) if isinstance(name, str) else None
        if found is not None and self._store._queues.get(name) is not found._queue:
            found = None  # it has expired
        if found is None or named or name in self._store._watch:
            queue = await self._run(self._store.queue, name, create=create, **named)
            found = self._of(queue)
        return found

    def _of(self, queue: qindex.queue.Queue) -> Queue:
        """The queue of this surface."""
        if (found := self._by_handle.get(queue._handle)) is None:
            found = self._by_handle[queue._handle] = Queue(self, queue)
        found.name = queue.name  # it may have got another one
        self._queues[queue.name] = found
        return found

    def _opened(self, names: list[str]) -> list[Queue] | None:
        """The queues of these names. None: a thread has to open one first, or to say what it is."""
        found, plain = [], self._store._queues
        try:
            for name in names:
                queue = self._queues.get(name)
                if queue is None or plain[name] is not queue._queue:
                    if self._store._expire and not plain[name]._has_rules:
                        return None
                    queue = self._of(plain[name])
                found.append(queue)
        except (KeyError, TypeError):
            return None
        return found

    async def queues(self) -> list[str]:
        """The names of all queues, sorted."""
        return await self._run(self._store.queues)

    def queue_directory(self, name: str) -> str:
        """The folder of a queue of this name; see Store.queue_directory(). Not awaited: no I/O."""
        return self._store.queue_directory(name)

    def __contains__(self, name: object) -> bool:
        """True if there is a queue of this name. Reads a small file if it was not opened yet."""
        return name in self._store

    async def create_queues(self, names: Iterable[str]) -> int:
        """Create those that are not there, durably; return how many. See Store.create_queues()."""
        return await self._run(self._store.create_queues, names)

    async def delete_queue(
        self, name: str, *, if_empty: bool = False, if_unused: bool = False
    ) -> None:
        """Delete a queue with all its messages, durably. See qindex.Store.delete_queue()."""
        await self._run(self._store.delete_queue, name, if_empty=if_empty, if_unused=if_unused)
        if (queue := self._queues.pop(name, None)) is not None:
            queue._wake_next()

    async def rename_queue(self, name: str, to: str) -> None:
        """Give a queue another name, durably. See qindex.Store.rename_queue()."""
        try:
            await self._run(self._store.rename_queue, name, to)
        finally:  # it may have its new name although there was an error
            if (queue := self._queues.pop(name, None)) is not None:
                self._of(queue._queue)

    async def get(
        self,
        queues: Sequence[str],
        *,
        timeout: Seconds | None = 0,
        lease: Seconds | None = None,
        create: bool = False,
    ) -> Message | None:
        """Take the next message of the first of these queues that has one. See Store.get().

        A queue that is not there is an error, QueueMissing; with `create` it is created.
        """
        queues = several("queues", queues, "names", "store.queue(name).get()")
        if not queues:
            raise ValueError("name at least one queue")
        targets = [await self.queue(name, create=create) for name in queues]

        if targets[0]._in_line:
            await targets[0]._stand_in_line()

        async def take() -> Message | None:
            for target in targets:
                if (message := await target._take(lease)) is not None:
                    return message
            return None

        return await self._wait(targets, qindex.waiting.check_timeout(timeout), take)

    async def consumer(
        self,
        queues: Iterable[str],
        *,
        fair: bool = True,
        prefetch: int | None = None,
        lease: Seconds | None = None,
        create: bool = False,
    ) -> Consumer:
        """A consumer of these queues; use it with `async with`. See qindex.Store.consumer()."""
        names = names_of(queues)
        found = [(await self.queue(name, create=create))._queue for name in names]
        return Consumer(self, Held(found, fair, prefetch, lease))

    def transaction(self, *, confirm: bool = False) -> Transaction:
        """Publish, ack and move in any queues: all of it or nothing. See Store.transaction().

        ``async with store.transaction() as t:``. The methods of `t` are not awaited.
        """
        return Transaction(self._store, self._run, confirm=confirm)

    async def move(
        self,
        messages: Message | int | str | Iterable[Message | int | str],
        *,
        to: str,
        headers: Mapping[str, Any] | None = None,
        queue: str | None = None,
        confirm: bool = False,
    ) -> list[int]:
        """Move messages to another queue of the store: all or none. See Store.move()."""
        options = {"to": to, "headers": headers, "queue": queue, "confirm": confirm}
        return await self._run(self._store.move, messages, **options)

    async def sync(self) -> None:
        """Return when everything before this call, in all queues, survives a power cut."""
        await self._run(self._store.sync)

    async def compact(self) -> int:
        """Free the space of acked bodies now; return the bytes freed. See Store.compact()."""
        return await self._run(self._store.compact)

    async def backup(self, directory: str | os.PathLike[str]) -> Backup:
        """Make `directory` a copy of the store as it is at one moment. See Store.backup()."""
        return await self._run(self._store.backup, directory)

    async def events(
        self,
        *,
        kinds: Iterable[EventKind] | None = None,
        marks: Mapping[str, int | tuple[int, int]] | None = None,
        room: int = ROOM,
    ) -> Events:
        """What the store does by itself, from now on: an async iterator. See Store.events()."""
        return Events(self, await self._run(Listener, self._store, kinds, marks, room))

    async def check(self) -> list[Finding]:
        """Read, verify and recount everything; return all findings. See Store.check()."""
        return await self._run(self._store.check)

    async def accept_losses(self) -> bool:
        """Report what was lost no more. See Store.accept_losses()."""
        return await self._run(self._store.accept_losses)

    @property
    def data(self) -> Data:
        """A small durable mapping of bytes to bytes that belongs to the store."""
        return Data(self._store.data, self._run)

    @property
    def findings(self) -> list[Finding]:
        """What recovery and check() have found since the open. See Store.findings."""
        return self._store.findings

    async def stats(self) -> StoreStats:
        """All figures of the store at one moment."""
        return await self._run(self._store.stats)

    async def stats_all(self) -> list[QueueStats]:
        """The figures of all queues, sorted by their names. See Store.stats_all()."""
        return await self._run(self._store.stats_all)

    async def close(self) -> None:
        """Sync everything and mark the end as clean. Ends every wait with StoreClosed."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._process:
            return  # the parent closes it
        self._ending = self._loop.run_in_executor(None, self._end)
        self._ending.add_done_callback(self._ended)  # also if this task is cancelled
        await asyncio.shield(self._ending)

    def _end(self) -> None:
        self._pool.shutdown()  # waits for what a cancelled task has begun
        self._store.close()

    def _ended(self, _ending: asyncio.Future[None]) -> None:
        """All who wait hear of the end."""
        self._loop.remove_reader(self._bell)
        self._asks.heard()
        lib.qi_store_bell_close(self._store._handle)
        for queue in self._by_handle.values():
            queue._wake_next()
        self._wake_for_places()
        self._wake_for_events()

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
            if error is None:  # else the error that ends the block says more
                raise
