"""A consumer: takes messages from a changing set of queues, and knows what it has."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

from qindex._core import lib
from qindex.arguments import Moment, Seconds, boolean, parts_of
from qindex.errors import MessageError, StoreClosed
from qindex.held import PRUNE_SECONDS, Held, Turn, deleted_of, ended_of, give_back, names_of
from qindex.message import Message
from qindex.waiting import check_timeout

if TYPE_CHECKING:
    from qindex.queue import Queue
    from qindex.store import Store

_LOOK_US: Final = 50_000  # a thread that waits in the core looks up so often: paused, changed?
_FOR_EVER: Final = 2**64 - 1


class Consumer:
    """Takes messages from several queues of a store: made by Store.consumer().

    Use it with `with`, or close() it: what it has not settled then is given back. Any number of
    threads may share one; each message goes to one of them. `for message in consumer` takes
    messages as they come and ends when the consumer or the store is closed. A queue that is deleted
    leaves the set.

    Settle messages with the consumer's own ack() and nack(). What is settled in another way, or
    whose lease has ended, counts as unacked until the consumer looks: when it is asked for
    `unacked`, when it is at its limit (four times a second while it waits there), and at its end.
    """

    def __init__(self, store: Store, held: Held) -> None:
        self._store = store
        self._held = held
        self._changed = threading.Condition(threading.RLock())  # also its lock

    def __repr__(self) -> str:
        return repr(self._held)

    @contextmanager
    def _change(self) -> Iterator[Held]:
        """Change something; threads that wait look again."""
        with self._changed:
            self._held.check_open()
            yield self._held
            self._changed.notify_all()

    # --- taking --------------------------------------------------------------------------------

    def get(self, *, timeout: Seconds | None = 0) -> Message | None:
        """Take the next message of the queue whose turn it is; None if none came in `timeout`.

        0 (the default) does not wait, None waits for ever. At the limit of `prefetch`, while it is
        paused, and without queues it takes nothing.

        Raises StoreClosed when the consumer or its store is closed; other errors as Queue.get().

        Cost: as Queue.get(), and a look at each queue before the one that has a message.
        """
        timeout = check_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            with self._changed:
                self._held.check_open()
                if self._held.is_full():
                    self._held.forget_all(ended_of(self._held.by_queue()))
                turn, start = self._held.turn, self._held.start
                may_take = self._held.may_take()
                if may_take:
                    self._held.asked += 1
                elif left == 0:
                    return None
                else:
                    pause = PRUNE_SECONDS if self._held.is_full() else 3600.0
                    self._changed.wait(pause if left is None else min(left, pause))
            if may_take:
                message = self._look(turn, start, left)
                if message is not None or (left == 0 and turn is self._held.turn):
                    return message

    def _look(self, turn: Turn, start: int, left: float | None) -> Message | None:
        """Wait for a message until the time is over or something changes."""
        message = None
        try:
            message = self._take(turn, start, left)
        except StoreClosed:
            deleted = deleted_of(self._store, turn.queues)
            if self._store._closed or not deleted:
                raise
            with self._changed:
                self._held.drop(deleted)
        finally:
            with self._changed:
                self._held.asked -= 1
                if message is None or self._held.closed:
                    self._changed.notify_all()  # there is a place for others, or close() waits
                else:
                    self._held.take(turn, message)
        if message is not None and self._held.closed:
            message._returned  # noqa: B018  # reading it gives the message back
            raise StoreClosed("the consumer is closed")
        return message

    def _take(self, turn: Turn, start: int, left: float | None) -> Message | None:
        count = len(turn.queues)
        first = turn.queues[start]
        clock = lib.qi_store_clock_us(self._store._open_handle())
        until = _FOR_EVER if left is None or left > 1e9 else clock + int(left * 1e6)

        def take(reader: Any) -> int:
            while True:
                result: int = lib.qi_get_wait(reader, turn.handles + start, count, until, _LOOK_US)
                if result != lib.QI_PAUSE:
                    return result
                if turn is not self._held.turn or self._held.paused or self._held.closed:
                    return lib.QI_EMPTY

        message = first.get(lease=self._held.lease)  # often there is one
        if message is not None or (left == 0 and count == 1):
            return message
        return first._take(take, turn.by_handle, self._held.lease_us)

    def __iter__(self) -> Iterator[Message]:
        """Take messages as they come; ends when the consumer or the store is closed."""
        while True:
            try:
                message = self.get(timeout=None)
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
        with self._changed:
            self._held.forget(self._store._key, message)
            self._changed.notify_all()

    def ack(self, message: Message | str) -> None:
        """Settle a message; errors and cost as Queue.ack()."""
        with self._settling(message):
            self._store.ack(message)

    def nack(
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
            self._store.nack(message, requeue, delay=delay, due=due, count=count)

    def touch(self, message: Message | str, lease: Seconds) -> None:
        """Extend the lease of a message; see Queue.touch()."""
        try:
            self._store.touch(message, lease)
        except MessageError:
            self._forget(message)
            raise

    @property
    def unacked(self) -> list[Message]:
        """The messages that it has taken and that are not settled, in the order of taking."""
        with self._changed:
            self._held.forget_all(ended_of(self._held.by_queue()))
            return list(self._held.messages.values())

    # --- what it takes from --------------------------------------------------------------------

    @property
    def queues(self) -> list[str]:
        """The names of its queues, the one that is preferred first."""
        return self._held.names

    def add(self, queues: Iterable[str], *, create: bool = False) -> None:
        """Take from these queues, too; they come last in its preference.

        Raises QueueMissing if one is not there and may not be created: then nothing is changed.
        """
        added = [self._store.queue(name, create=create) for name in names_of(queues)]
        with self._change() as held:
            held.add(added)

    def remove(self, queues: Iterable[str]) -> None:
        """Take nothing more from these queues. What was taken from them stays unacked.

        A get() that waits in another thread may still return one message of them. Raises
        QueueMissing if it does not take from one of them: then nothing is changed.
        """
        with self._change() as held:
            held.remove(names_of(queues))

    @property
    def paused(self) -> bool:
        """True between pause() and resume()."""
        return self._held.paused

    def pause(self) -> None:
        """Take nothing until resume(). A get() waits, or returns None when its time is over.

        A get() that waits in another thread may still return one message.
        """
        with self._change() as held:
            held.paused = True

    def resume(self) -> None:
        """Take messages again."""
        with self._change() as held:
            held.paused = False

    # --- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Give back what is not settled, and end all waits with StoreClosed. Closing twice is fine.

        A message keeps its place in its queue. Its delivery counts: see `max_deliveries`.
        """
        with self._changed:
            groups = self._held.close()
            self._changed.notify_all()
        give_back(groups)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@parts_of("Store")
class Consuming:
    """For the class of a store."""

    if TYPE_CHECKING:

        def queue(self, name: str, *, create: bool = True) -> Queue: ...

    def consumer(
        self,
        queues: Iterable[str],
        *,
        fair: bool = True,
        prefetch: int | None = None,
        lease: Seconds | None = None,
        create: bool = False,
    ) -> Consumer:
        """A consumer of these queues. Use it with `with`: at its end it gives back what it has.

        - `fair`: the queues take turns: each get begins at the queue behind the one that gave the
          last message. False: by preference, in the order of the names.
        - `prefetch`: so many messages may be unacked at once; None: any number.
        - `lease`: seconds after which a message is ready again if it is not settled.
        - `create`: create queues that are not there, instead of raising QueueMissing.
        """
        boolean("create", create)
        found = [self.queue(name, create=create) for name in names_of(queues)]
        return Consumer(cast("Store", self), Held(found, fair, prefetch, lease))
