"""The verbs of a store of qindex.aio that settle messages of any of its queues."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from qindex.arguments import Moment, Seconds, parts_of, several
from qindex.message import Message

if TYPE_CHECKING:
    import qindex.queue
    import qindex.store
    from qindex.aio_queue import Queue


@parts_of("Store")
class AioAnyQueue:
    """For the class of a store of qindex.aio. Each verb takes messages, or their tokens."""

    _store: qindex.store.Store

    if TYPE_CHECKING:

        def _of(self, queue: qindex.queue.Queue) -> Queue: ...

    async def ack(self, message: Message | str) -> None:
        """Settle a delivered message of any queue of this store; see Queue.ack()."""
        await self._queue_of(message).ack(message)

    async def ack_many(
        self, messages: Iterable[Message | str], *, missing_ok: bool = False
    ) -> list[Message | int | str]:
        """Settle messages of any queues of this store; see qindex.Store.ack_many()."""
        late: list[Message | int | str] = []
        for queue, own in self._by_queue(messages, "ack()"):
            late += await queue.ack_many(own, missing_ok=missing_ok)
        return late

    async def nack(
        self,
        message: Message | str,
        requeue: bool = True,
        *,
        delay: Seconds | None = None,
        due: Moment | None = None,
        count: bool = True,
    ) -> None:
        """Give a message of any queue of this store back, or drop it; see Queue.nack()."""
        await self._queue_of(message).nack(message, requeue, delay=delay, due=due, count=count)

    async def nack_many(
        self,
        messages: Iterable[Message | str],
        requeue: bool = True,
        *,
        delay: Seconds | None = None,
        due: Moment | None = None,
        count: bool = True,
        missing_ok: bool = False,
    ) -> list[Message | int | str]:
        """Give messages of any queues of this store back; all or none of each queue's."""
        late: list[Message | int | str] = []
        options: Any = {"delay": delay, "due": due, "count": count, "missing_ok": missing_ok}
        for queue, own in self._by_queue(messages, "nack()"):
            late += await queue.nack_many(own, requeue, **options)
        return late

    async def touch(self, message: Message | str, lease: Seconds) -> None:
        """Extend the lease of a message of any queue of this store; see Queue.touch()."""
        await self._queue_of(message).touch(message, lease)

    def _by_queue(
        self, messages: Iterable[Message | str], one: str
    ) -> list[tuple[Queue, list[Message | int | str]]]:
        own = several("messages", messages, "messages", one)
        return [(self._of(queue), some) for queue, some in self._store._by_queue(own).items()]

    def _queue_of(self, message: Message | str) -> Queue:
        return self._of(self._store._queue_of(message))
