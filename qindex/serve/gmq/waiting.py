"""Wait for one message of several queues, as a consumer with a credit of one."""

from __future__ import annotations

from collections.abc import Callable

from qindex._wire import Taken
from qindex.broker.queues import Queue
from qindex.broker.taken import Entry

OnEntry = Callable[[Queue, Entry], None]
Takes = Callable[[Callable[[], None]], bool]
"""False while the client does not read; then the function is called when it does."""


class Waiter:
    """Hears of one message, from whichever queue has it first; then it waits no more."""

    def __init__(
        self, on_entry: OnEntry, takes: Takes, on_gone: Callable[[], None] = lambda: None
    ) -> None:
        self.is_over = False
        self._on_entry = on_entry
        self._takes = takes
        self.on_gone = on_gone  # one of the queues is deleted
        self._ears: list[_Ear] = []

    def listen(self, queue: Queue, what: str) -> None:
        """Wait for this queue, too. AccessRefused if another consumer has it for itself.

        An auto-delete queue would go with this consumer, so it is left to those that are its own.
        """
        if not queue.auto_delete and not self.is_over:
            ear = _Ear(self, queue)
            queue.add_consumer(ear, what)
            self._ears.append(ear)

    def stop(self) -> None:
        """Hear of nothing any more."""
        self.is_over = True
        ears, self._ears = self._ears, []
        for ear in ears:
            ear.queue.remove_consumer(ear)

    def takes(self) -> bool:
        return not self.is_over and self._takes(self._wake)

    def _wake(self) -> None:
        for ear in self._ears:
            ear.queue.may_take(ear)

    def deliver(self, queue: Queue, entry: Entry) -> None:
        # The queue is in the middle of handing out: its list of consumers is not changed now.
        self.is_over = True
        self._on_entry(queue, entry)


class _Ear:
    """The waiter as a consumer of one of its queues; broker.queues.Consumer says what it does."""

    no_ack = False
    exclusive = False
    priority = 0
    shares_credit = True

    def __init__(self, waiter: Waiter, queue: Queue) -> None:
        self.queue = queue
        self.waiting = False
        self._waiter = waiter

    def credit(self) -> int:
        return 1 if self._waiter.takes() else 0

    def deliver(self, queue: Queue, taken: Taken, share: range) -> None:
        self._waiter.deliver(queue, queue.entry(taken, share.start))

    def cancelled(self, queue: Queue) -> None:
        """The queue is gone; the other queues may still have something."""
        self._waiter.on_gone()


def first_of(queues: list[Queue]) -> tuple[Queue, Entry] | None:
    """A message of the first queue that has one; nobody waits."""
    for queue in queues:
        entry = queue.get()
        if entry is not None:
            return queue, entry
    return None
