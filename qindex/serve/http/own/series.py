"""What virtual hosts have had, every few seconds; and how fast each queue is just now.

Costs one pass over the queues for each sample, which makes objects for those only that something
has happened to. With very many queues samples become fewer, so that they take no more than a
two-hundredth of the event loop's time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from qindex.broker.queues import Queue
from qindex.broker.vhost import VHost
from qindex.serve.http.own.ages import Ages

if TYPE_CHECKING:
    from qindex.serve.server import Server

SECONDS: Final = 2.0
SAMPLES_MAX: Final = 900  # half an hour
PAUSE_PER_SAMPLE: Final = 200
# Published, delivered, acked since the process began, and the sum of these.
Counts = tuple[int, int, int, int]


class Figures(NamedTuple):
    """Of one virtual host, or of several together, at one moment."""

    ready: int = 0
    unacked: int = 0
    delayed: int = 0
    published: int = 0
    delivered: int = 0
    acked: int = 0


class Sample(NamedTuple):
    at: float  # seconds since 1970
    vhosts: dict[str, Figures]


class Series:
    """Made and used in one event loop; begin() takes the first sample."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._counts: dict[Queue, Counts] = {}  # at the last sample
        self._moved: dict[Queue, tuple[Counts, Counts]] = {}  # now and before, if they differ
        self._taken = time.monotonic()
        self._seconds = 0.0  # between the last two
        self._timer: asyncio.TimerHandle | None = None
        self.late_seconds = 0.0  # of the last sample: the event loop had other work
        self.sample_seconds = 0.0  # that it took
        self.ages = Ages()

    def begin(self) -> None:
        begun = time.monotonic()
        if self._timer is not None:
            self.late_seconds = max(0.0, self._server.loop.time() - self._timer.when())
        self._seconds, self._taken = begun - self._taken, begun
        self._moved = {}
        found = {vhost.name: self._look_at(vhost) for vhost in self._server.node.open_vhosts}
        self._forget_deleted()
        self._samples.append(Sample(round(time.time(), 3), found))
        self.ages.note(self._server)
        self.sample_seconds = time.monotonic() - begun
        pause = max(SECONDS, self.sample_seconds * PAUSE_PER_SAMPLE)
        self._timer = self._server.loop.call_later(pause, self.begin)

    def _look_at(self, vhost: VHost) -> Figures:
        ready = unacked = delayed = 0
        published, delivered, acked, _ = vhost.gone
        counts = self._counts
        for queue in vhost.queues.values():
            one, two, three = queue.published, queue.delivered, queue.acked
            backlog = queue.backlog
            ready += len(backlog)
            unacked += queue.unacked
            delayed += backlog.delayed()
            published += one
            delivered += two
            acked += three
            before = counts.get(queue)
            if before is None or before[3] != one + two + three:  # none of them ever falls
                counts[queue] = one, two, three, one + two + three
                if before is not None:
                    self._moved[queue] = counts[queue], before
        return Figures(ready, unacked, delayed, published, delivered, acked)

    def _forget_deleted(self) -> None:
        vhosts = self._server.node.open_vhosts
        if len(self._counts) > sum(len(vhost.queues) for vhost in vhosts):
            live = {queue for vhost in vhosts for queue in vhost.queues.values()}
            self._counts = {queue: at for queue, at in self._counts.items() if queue in live}

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def since(self, at: float, vhosts: list[VHost]) -> list[list[float]]:
        """The samples behind this moment: the moment, and Figures of all these together."""
        names = [vhost.name for vhost in vhosts]
        rows = []
        for sample in self._samples:
            if sample.at > at:
                found = [sample.vhosts[name] for name in names if name in sample.vhosts]
                total = map(sum, zip(*found, strict=True)) if found else Figures()
                rows.append([sample.at, *total])
        return rows

    def rates(self, queue: Queue) -> tuple[float, float, float]:
        """Published, delivered and acked in a second, between the last two samples."""
        found = self._moved.get(queue)
        if found is None or self._seconds <= 0:
            return 0.0, 0.0, 0.0
        one, two, three, _ = (
            round((new - old) / self._seconds, 2) for new, old in zip(*found, strict=True)
        )
        return one, two, three
