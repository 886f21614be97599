"""The methods of a queue of qindex.aio that look at messages or settle them.

What is at hand is settled at once; a thread does the rest, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from qindex._core import lib
from qindex.arguments import Moment, Seconds, boolean, parts_of, several
from qindex.message import Message, State
from qindex.settling import PurgeState

if TYPE_CHECKING:
    import qindex.queue
    from qindex.aio_group import GroupSync
    from qindex.aio_store import Store

_BROWSED: Final = 256  # messages per turn of a thread


@parts_of("Queue")
class AioSettling:
    """For the class of a queue. Methods and errors are those of qindex.Queue."""

    _store: Store
    _queue: qindex.queue.Queue
    _now: Any  # its verbs return something else than None if they cannot be done at once
    _confirm_all: bool
    _group: GroupSync

    async def peek(self, req_id: int | None = None) -> Message | None:
        """Show the message that get() would return, or the one with that ReqId; take nothing.

        See Queue.peek(). A turn of a thread.
        """
        return await self._store._run(self._queue.peek, req_id)

    async def browse(
        self, start: int = 0, stop: int | None = None, *, state: State | None = None
    ) -> AsyncIterator[Message]:
        """Show all messages with start <= req_id < stop, or those in one state; take nothing.

        See Queue.browse(). A turn of a thread for each 256 messages.
        """
        messages = self._queue.browse(start, stop, state=state)
        while batch := await self._store._run(lambda: list(islice(messages, _BROWSED))):
            for message in batch:
                yield message

    async def ack_many(
        self, messages: Iterable[Message | int | str], *, missing_ok: bool = False
    ) -> list[Message | int | str]:
        """Settle several messages at once, all or none. See Queue.ack_many()."""
        boolean("missing_ok", missing_ok)
        own = several("messages", messages, "messages", "ack()")
        if await self._settled_now(own, lib.QI_SETTLE_ACK, 0):
            return []
        return await self._store._run(self._queue.ack_many, own, missing_ok=missing_ok)

    async def nack(
        self,
        message: Message | int | str,
        requeue: bool = True,
        *,
        delay: Seconds | None = None,
        due: Moment | None = None,
        count: bool = True,
    ) -> None:
        """Give a delivered message back, or drop it. Options and errors as Queue.nack()."""
        if self._confirm_all:
            self._store._refuse_elsewhere()  # before anything is settled
        if self._now.nack(message, requeue, delay=delay, due=due, count=count) is not None:
            options: dict[str, Any] = {"delay": delay, "due": due, "count": count}
            await self._store._run(self._queue._nack, message, requeue, **options)
        elif self._confirm_all:
            await self._group.join()

    async def nack_many(
        self,
        messages: Iterable[Message | int | str],
        requeue: bool = True,
        *,
        delay: Seconds | None = None,
        due: Moment | None = None,
        count: bool = True,
        missing_ok: bool = False,
    ) -> list[Message | int | str]:
        """nack() for several messages, all or none. See Queue.nack_many()."""
        boolean("missing_ok", missing_ok)
        own = several("messages", messages, "messages", "nack()")
        if await self._settled_now(own, *self._queue._how(requeue, delay, due, count)):
            return []
        options = {"delay": delay, "due": due, "count": count, "missing_ok": missing_ok}
        return await self._store._run(self._queue.nack_many, own, requeue, **options)

    async def _settled_now(
        self, messages: list[Message | int | str], how: int, due_us: int
    ) -> bool:
        """False: nothing was changed; a thread does it, or says what is wrong."""
        if self._confirm_all:
            self._store._refuse_elsewhere()  # before anything is settled
        which = self._queue._which_of(messages)
        if lib.qi_settle_now(self._queue._handle, how, *which, due_us) != 0:
            return False
        if self._confirm_all:
            await self._group.join()
        return True

    async def touch(self, message: Message | int | str, lease: Seconds) -> None:
        """Extend the lease of a delivered message. See Queue.touch()."""
        if self._now.touch(message, lease) is not None:
            await self._store._run(self._queue._touch, message, lease)

    async def reschedule(
        self,
        message: Message | int | str,
        *,
        delay: Seconds | None = None,
        due: Moment | None = None,
    ) -> None:
        """Change when a message that is not delivered is ready. See Queue.reschedule()."""
        await self._store._run(self._queue.reschedule, message, delay=delay, due=due)

    async def delete(self, message: Message | int | str) -> None:
        """Drop a message that is not delivered. See Queue.delete()."""
        await self._store._run(self._queue.delete, message)

    async def redrive(self, count: int | None = None) -> int:
        """Make dead letters ready again; return how many. See Queue.redrive()."""
        return await self._store._run(self._queue.redrive, count)

    async def expire(self) -> int:
        """Drop every message that has expired; return how many. See Queue.expire()."""
        return await self._store._run(self._queue.expire)

    async def purge(
        self, where: Callable[[Message], bool] | None = None, *, state: PurgeState = "ready"
    ) -> int:
        """Drop the messages that are ready, or in another state; return how many.

        See Queue.purge().
        """
        return await self._store._run(self._queue.purge, where, state=state)
