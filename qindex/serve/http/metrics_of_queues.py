"""Figures of queues for Prometheus: added up, or as lines of its text for each queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from qindex.broker.durable import DurableBacklog
from qindex.broker.queues import Queue
from qindex.broker.vhost import VHost
from qindex.serve.http.shapes import plain

NAMES: Final = {
    "rabbitmq_queue_messages_ready": "Messages ready to be delivered",
    "rabbitmq_queue_messages_unacked": "Messages delivered and not yet acknowledged",
    "rabbitmq_queue_messages": "Messages ready and unacknowledged",
    "rabbitmq_queue_consumers": "Consumers on a queue",
    "qindex_queue_messages_delayed": "Messages whose time has not come",
    "qindex_queue_journal_bytes": "Bytes of the index that were not flushed yet",
}
OLDEST: Final = "qindex_queue_oldest_age_seconds"
OLDEST_TEXT: Final = "How long the oldest message has waited, at least: of a store, if any waits"


class Flushes:
    """How often journals were flushed since the first scrape. Queues count from their creation."""

    def __init__(self) -> None:
        self.total = 0
        self._seen: dict[Queue, int] = {}

    def begin(self) -> dict[Queue, int]:
        """A scrape begins: what was seen before; queues that are gone are forgotten."""
        before, self._seen = self._seen, {}
        return before

    def note(self, queue: Queue, count: int, before: dict[Queue, int]) -> None:
        self._seen[queue] = count
        self.total += max(0, count - before.get(queue, count))


class Figures:
    """Made for one scrape. add() looks at one queue."""

    def __init__(self, flushes: Flushes, *, per_object: bool) -> None:
        self._per_object = per_object
        self._totals = [0] * len(NAMES)
        self._lines: list[list[str]] = [[] for _ in NAMES]
        self._oldest: float | None = None
        self._oldest_lines: list[str] = []
        self._flushes, self._before = flushes, flushes.begin()

    def add(self, vhost: VHost, queue: Queue) -> None:
        backlog, unacked = queue.backlog, queue.unacked
        ready, journal = len(backlog), 0
        oldest = None
        if isinstance(backlog, DurableBacklog):
            journal, epoch = backlog.journal()
            self._flushes.note(queue, epoch, self._before)
            if ready or unacked:
                oldest = backlog.oldest_seconds()
        consumers, delayed = len(queue.consumers), backlog.delayed()
        values = (ready, unacked, ready + unacked, consumers, delayed, journal)
        if oldest is not None:
            self._oldest = max(oldest, self._oldest or 0.0)
        if not self._per_object:
            self._totals = [old + new for old, new in zip(self._totals, values, strict=True)]
            return
        labels = f'{{queue="{escaped(queue.name)}",vhost="{escaped(vhost.name)}"}}'
        for lines, value in zip(self._lines, values, strict=True):
            lines.append(f"{labels} {value}.0")
        if oldest is not None:
            self._oldest_lines.append(f"{labels} {oldest:.3f}")

    def texts(self) -> Iterator[bytes]:
        """The page's text, one figure after the other."""
        for at, (name, text) in enumerate(NAMES.items()):
            lines = self._lines[at] if self._per_object else [f" {self._totals[at]}.0"]
            yield _text(name, text, lines)
        lines = self._oldest_lines
        if not self._per_object:
            lines = [] if self._oldest is None else [f" {self._oldest:.3f}"]
        yield _text(OLDEST, OLDEST_TEXT, lines)


def _text(name: str, text: str, lines: list[str]) -> bytes:
    head = f"# HELP {name} {text}\n# TYPE {name} gauge\n"
    return (head + "".join(f"{name}{line}\n" for line in lines)).encode()


def escaped(label: str) -> str:
    text = str(plain(label))
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
