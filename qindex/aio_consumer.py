"""The consumer of qindex.aio: for the tasks of one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from qindex.aio_line import BREATH, Line
from qindex.arguments import Moment, Seconds
from qindex.errors import MessageError, StoreClosed
from qindex.held import PRUNE_SECONDS, Held, Turn, deleted_of, ended_of, give_back, names_of
from qindex.message import Message
from qindex.waiting import check_timeout

if TYPE_CHECKING:
    from qindex.aio_store import Store


class _ChangedError(Exception):
    """Somebody paused the consumer, closed it, or changed its queues while a task waited."""


class Consumer(Line):
    """Takes messages from several queues of a store: made by `await Store.consumer()`.

    As qindex.Consumer: use it with `async with`; `async for message in consumer` takes messages as
    they come. Any number of tasks may share one, and share what comes. `unacked` takes the store's
    lock for a moment.
    """

    def __init__(self, store: Store, held: Held) -> None:
        super().__init__()  # the line of those who wait for messages: a change wakes them, too
        self._store = store
        self._held = held
        self._places = Line()  # that of those who may not take any

    def __repr__(self) -> str:
        return repr(self._held).replace("qindex.Consumer", "qindex.aio.Consumer")

    @contextmanager
    def _change(self) -> Iterator[Held]:
        """Change something; tasks that wait look again."""
        self._held.check_open()
        yield self._held
        self._wake_all()

    def _wake_all(self) -> None:
        while self._wake_next() or self._places._wake_next():
            pass

    # --- taking --------------------------------------------------------------------------------

    async def get(self, *, timeout: Seconds | None = 0) -> Message | None:
        """Take the next message of the queue whose turn it is; None if none came in `timeout`.

        See qindex.Consumer.get().
        """
        timeout = check_timeout(timeout)
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        held = self._held
        self._calls += 1
        if self._in_line or self._calls % BREATH == 0:
            await self._stand_in_line()
        while True:
            left = None if deadline is None else max(0.0, deadline - loop.time())
            held.check_open()
            if held.is_full() and held.messages:
                held.forget_all(await self._store._run(ended_of, held.by_queue()))
            if held.may_take():
                turn = held.turn
                message = await self._look(turn, left)
                if message is not None or (left == 0 and turn is held.turn):
                    return message
            elif left == 0:
                return None
            else:
                await self._wait_for_place(PRUNE_SECONDS if held.is_full() else None, left)

    async def _wait_for_place(self, pause: float | None, left: float | None) -> None:
        """Until a task may take a message, or something changes; at most so long."""
        woken = asyncio.get_running_loop().create_future()
        self._places._join(woken)
        try:
            async with asyncio.timeout(min((s for s in (pause, left) if s), default=None)):
                await woken
        except TimeoutError:
            pass
        finally:
            self._places._leave(woken)

    async def _look(self, turn: Turn, left: float | None) -> Message | None:
        """Wait for a message until the time is over or something changes."""
        held = self._held
        queues = [self._store._by_handle[queue._handle] for queue in turn.queues]

        async def take() -> Message | None:
            for queue in queues[held.start :] + queues[: held.start]:
                if held.turn is not turn or held.paused or held.closed:
                    raise _ChangedError
                if (message := await queue._take(held.lease)) is not None:
                    return message
            return None

        held.asked += 1
        message = None
        try:
            message = await self._store._wait([*queues, self], left, take)
        except _ChangedError:
            return None
        except StoreClosed:
            deleted = await self._store._run(deleted_of, self._store._store, turn.queues)
            if not deleted:
                raise
            held.drop(deleted)
            self._wake_all()
        finally:
            held.asked -= 1
            if message is not None and not held.closed:
                held.take(turn, message)
            self._places._wake_next()
        if message is not None and held.closed:
            message._returned  # noqa: B018  # reading it gives the message back
            raise StoreClosed("the consumer is closed")
        return message

    def __aiter__(self) -> AsyncIterator[Message]:
        """Take messages as they come; ends when the consumer or the store is closed."""
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Message]:
        while True:
            try:
                message = await self.get(timeout=None)
            except StoreClosed:
                return
            if message is not None:
                yield message

    # --- settling ------------------------------------------------------------------------------

    @contextmanager
    def _settling(self, message: Message | str) -> Iterator[None]:
        """Forget a message that is settled, or that turns out not to be ours any more."""
        try:
            yield
        except MessageError:
            self._forget(message)
            raise
        self._forget(message)

    def _forget(self, message: Message | str) -> None:
        self._held.forget(self._store._store._key, message)
        self._places._wake_next()

    async def ack(self, message: Message | str) -> None:
        """Settle a message; errors and cost as Queue.ack()."""
        with self._settling(message):
            await self._store.ack(message)

    async def nack(
        self,
        message: Message | str,
        requeue: bool = True,
        *,
        delay: Seconds | None = None,
        due: Moment | None = None,
        count: bool = True,
    ) -> None:
        """Give a message back to its queue, or drop it; see Queue.nack()."""
        with self._settling(message):
            await self._store.nack(message, requeue, delay=delay, due=due, count=count)

    async def touch(self, message: Message | str, lease: Seconds) -> None:
        """Extend the lease of a message; see Queue.touch()."""
        try:
            await self._store.touch(message, lease)
        except MessageError:
            self._forget(message)
            raise

    @property
    def unacked(self) -> list[Message]:
        """The messages that it has taken and that are not settled, in the order of taking."""
        self._held.forget_all(ended_of(self._held.by_queue()))
        return list(self._held.messages.values())

    # --- what it takes from --------------------------------------------------------------------

    @property
    def queues(self) -> list[str]:
        """The names of its queues, the one that is preferred first."""
        return self._held.names

    async def add(self, queues: Iterable[str], *, create: bool = False) -> None:
        """Take from these queues, too; see qindex.Consumer.add()."""
        names = names_of(queues)
        added = [(await self._store.queue(name, create=create))._queue for name in names]
        with self._change() as held:
            held.add(added)

    async def remove(self, queues: Iterable[str]) -> None:
        """Take nothing more from these queues; see qindex.Consumer.remove()."""
        with self._change() as held:
            held.remove(names_of(queues))

    @property
    def paused(self) -> bool:
        """True between pause() and resume()."""
        return self._held.paused

    async def pause(self) -> None:
        """Take nothing until resume(). A get() waits, or returns None when its time is over."""
        with self._change() as held:
            held.paused = True

    async def resume(self) -> None:
        """Take messages again."""
        with self._change() as held:
            held.paused = False

    # --- the end -------------------------------------------------------------------------------

    async def close(self) -> None:
        """Give back what is not settled, and end all waits with StoreClosed. Closing twice is fine.

        See qindex.Consumer.close().
        """
        groups = self._held.close()
        self._wake_all()
        with suppress(StoreClosed):  # then they are ready again at the next open
            await self._store._run(give_back, groups)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
