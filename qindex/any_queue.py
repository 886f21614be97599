"""A store's verbs that settle messages of any of its queues: each knows where it is from."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING

from qindex.arguments import Moment, Seconds, parts_of, several, shown
from qindex.errors import DeliveryEnded, UnknownMessage
from qindex.message import Message
from qindex.tokens import KEY_SIZE, read_token

if TYPE_CHECKING:
    from qindex.queue import Queue


@parts_of("Store")
class AnyQueue:
    """For the class of a store. Each verb takes messages, or their tokens."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(KEY_SIZE)  # of this session's tokens
        self._by_tag: dict[int, Queue] = {}  # what the deliveries of a queue have in common

    def ack(self, message: Message | str) -> None:
        """Settle a delivered message of any queue of this store; errors and cost as Queue.ack()."""
        self._queue_of(message).ack(message)

    def ack_many(
        self, messages: Iterable[Message | str], *, missing_ok: bool = False
    ) -> list[Message | int | str]:
        """Settle messages of any queues of this store; return those that were too late: none.

        Those of one queue are settled all or none, and queue by queue: after an error some queues
        may have theirs settled. `missing_ok` and errors as Queue.ack_many().
        """
        late: list[Message | int | str] = []
        messages = several("messages", messages, "messages", "ack()")
        for queue, own in self._by_queue(messages).items():
            late += queue.ack_many(own, missing_ok=missing_ok)
        return late

    def nack(
        self,
        message: Message | str,
        requeue: bool = True,
        *,
        delay: Seconds | None = None,
        due: Moment | None = None,
        count: bool = True,
    ) -> None:
        """Give a message of any queue of this store back, or drop it; see Queue.nack()."""
        self._queue_of(message).nack(message, requeue, delay=delay, due=due, count=count)

    def nack_many(
        self,
        messages: Iterable[Message | str],
        requeue: bool = True,
        *,
        delay: Seconds | None = None,
        due: Moment | None = None,
        count: bool = True,
        missing_ok: bool = False,
    ) -> list[Message | int | str]:
        """Give messages of any queues of this store back; all or none of each queue's.

        `missing_ok` and errors as Queue.nack_many().
        """
        late: list[Message | int | str] = []
        messages = several("messages", messages, "messages", "nack()")
        for queue, own in self._by_queue(messages).items():
            late += queue.nack_many(
                own, requeue, delay=delay, due=due, count=count, missing_ok=missing_ok
            )
        return late

    def touch(self, message: Message | str, lease: Seconds) -> None:
        """Extend the lease of a message of any queue of this store; see Queue.touch()."""
        self._queue_of(message).touch(message, lease)

    def _queue_of(self, message: Message | str) -> Queue:
        """The queue that it was taken from; ReqIds are refused, since each queue counts its own."""
        if isinstance(message, str):
            return self._queue_of_token(message)
        if not isinstance(message, Message):
            why = "a ReqId alone does not say of which queue"  # type: ignore[unreachable]
            if message is None:
                why = "get() returned None, because nothing was ready"
            raise TypeError(f"a Message or its token is needed, not {shown(message)}: {why}")
        queue = message._settler()
        if queue._store is not self:
            raise UnknownMessage(
                f"message {message.req_id} of {message.queue!r} is of another store, or of an "
                "earlier session of this one"
            )
        return queue

    def _queue_of_token(self, token: str) -> Queue:
        queue = self._by_tag.get(read_token(self._key, token)[0])
        if queue is None:
            raise DeliveryEnded(f"token {token}: the queue of this delivery was deleted")
        return queue

    def _by_queue(
        self, messages: Iterable[Message | str]
    ) -> dict[Queue, list[Message | int | str]]:
        found: dict[Queue, list[Message | int | str]] = {}
        for message in messages:
            found.setdefault(self._queue_of(message), []).append(message)
        return found
