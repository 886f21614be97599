"""qindex replay --step of a quorum queue: a step is an entry of its log, its number the index.

Forwards goes on where it is; back plays the log once more from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator

from qindex.brokers.rabbitmq.quorum.history import History, Step
from qindex.brokers.rabbitmq.quorum.machine import Machine
from qindex.brokers.rabbitmq.quorum.queues import QuorumQueue
from qindex.cli.replay.quorum import reach, step_line
from qindex.look.screen import CommandError


class QuorumSteps:
    def __init__(self, queue: QuorumQueue) -> None:
        self._queue = queue
        self._begin()

    def _begin(self) -> None:
        self.history = History(self._queue.outcome.server)
        self._steps = self.history.steps(restart=False)
        first = next(self._steps, None)
        if first is None:
            raise CommandError(f"this log cannot be played: {reach(self._queue)}")
        self._show(first)

    def _show(self, step: Step) -> None:
        """What is asked for later, as it is now: the next step has the same machine."""
        self._line = step_line(step, self.history)
        self._machine = step.machine
        self._about = {event.message for event in step.events}
        self.number = self.history.first - 1 if step.entry is None else step.entry.index

    def go_to(self, number: int) -> bool:
        if number < self.number:
            self._begin()
        while self.number < number:
            step = next(self._steps, None)
            if step is None:
                return False
            self._show(step)
        return True

    def go_to_end(self) -> None:
        for step in self._steps:
            self._show(step)

    def find(self, req_id: int) -> bool:
        for step in self._steps:
            self._show(step)
            if req_id in self._about:
                return True
        return False

    def end(self) -> str:
        return f"entry {self.number:,}"

    def line(self) -> str:
        return self._line

    def live(self) -> tuple[int, Iterator[str]]:
        return self._machine.live, _names(self._machine)


def _names(machine: Machine) -> Iterator[str]:
    """Of what waits again, what is delivered, what waits, and what waits for its time."""
    for message in machine.returns:
        yield f"{message.index}*"
    for consumer in [*machine.consumers.values(), *(each for _, each in machine.waiting)]:
        for message in consumer.checked.values():
            yield f"{message.index}*"
    for index in machine.ready.indexes():
        yield f"{index}*" if index in machine.ready.odd else str(index)
    for _, message in machine.delayed:
        yield f"{message.index}*"
