"""readStream.format("qindex"): what is published into live stores, batch by batch.

    messages = spark.readStream.format("qindex").option("columns", "*").load("/data/orders")

======================  ===========  ===============================================================
option                  default      meaning
======================  ===========  ===============================================================
path, paths                          stores, with wildcards ("/brokers/*"); paths is a JSON list
queues                  all          names or patterns, with commas; later ones are found, too
columns                 no bodies    as for spark.read; * is all. A schema does the same
startingOffsets         earliest     earliest, latest, or JSON {queue: ReqId}; only without a
                                     checkpoint. A queue that comes later begins at 0. A ReqId is
                                     about its lane: [5, 4503599627370503] is 5 without a priority
                                     and 7 of priority 1 (4503599627370496 is 2 ** 52)
endingOffsets           none         the same JSON: the stream goes no further
maxMessagesPerTrigger   all          for all queues together, shared out fairly
messagesPerTask         100000       more of one queue are split, fewer of many are put together
failOnDataLoss          true         false: what is gone or damaged is left out, and logged
ack                     false        true, owner: the stream is the consumer, see below
lockWait                10           with ack: seconds to wait for a store's lock
pollInterval            0.1          seconds between two looks when there was nothing new
======================  ===========  ===============================================================

The columns are those of the table messages. Rows are what is alive when the batch is read, in the
order of ReqIds within a task, high priorities first; expired messages are not among them. What the
store's own consumers ack before that is not seen, and is no loss: it was consumed.

What is delayed, or was given back with a delay, comes when its time is over; a dead letter comes if
it is redriven. Until then the offset says that it was left, in runs: a thousand of them at most in
each queue, then the stream waits there until the first of them are ready or gone (and says so).
What was left and is ready comes on top of maxMessagesPerTrigger.

*ack = true.* A batch is acked after Spark has it in its commit log, never before: Spark tells it
when it plans the next batch. Killed at any moment, the query starts again with the batch that was
not committed, and all of it is still there. To ack, the source opens the store for writing: another
process that has it open at that moment (longer than lockWait) fails the query with StoreLocked.
Everything else about the stream needs no lock.

*ack = owner.* The same for a store that a process keeps open, such as a broker: what is to be acked
is written down in the store's folder, and that process does it when it calls
qindex.spark.apply_acks(store), for example once a second.

With both there may be no other consumer, and no asyncProgressTrackingEnabled; and the columns have
to have the body.

Dead letters are not acked, either.

A look opens each store, and reads the index of what waits: where there are many, let Spark ask now
and then, .trigger(processingTime="1 second").
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

import qindex
from qindex.spark import stream_offsets as offsets
from qindex.spark.options import choice_of, paths_of
from qindex.spark.source import check_schema
from qindex.spark.stream_offsets import Offset, Range
from qindex.spark.stream_options import choice, lower_keys, number, truth
from qindex.spark.stream_store import (
    QueueView,
    Run,
    ack,
    find_stores,
    first_live,
    held_runs,
    last_live,
    leave_acks,
    look,
)
from qindex.spark.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

MESSAGES_PER_TASK: Final = 100_000
RUNS_LEFT_MAX: Final = 1000  # of a queue: an offset is a text of bounded length
# What they leave out would be acked, and nobody would have seen it.
_NOT_FOR_STREAMS: Final = frozenset(
    ("states", "vhosts", "minreqid", "maxreqid", "expiresafter", "expiresbefore")
)
log = logging.getLogger("qindex.spark")


@dataclass(frozen=True)
class Options:
    """The options of a stream, checked. ValueError for what makes no sense."""

    paths: list[str]
    wants: Callable[[str], bool]  # a queue, by its name
    starting: str | dict[str, Any]
    ending: str | dict[str, Any]
    limit: int
    per_task: int
    fail_on_loss: bool
    ack: str  # false, true or owner
    lock_wait: float
    poll: float

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Options:
        lower = lower_keys(given)
        if lower.get("table", "messages") != "messages":
            raise ValueError("a stream has the table messages; the others are for spark.read")
        if wrong := _NOT_FOR_STREAMS.intersection(lower):
            raise ValueError(
                f"a stream has no option {', '.join(sorted(wrong))}: choose rows with .where()"
            )
        ending = offsets.read_bounds("endingOffsets", lower.get("endingoffsets", "latest"))
        if ending == offsets.EARLIEST:
            raise ValueError("endingOffsets is JSON with a ReqId per queue")
        return cls(
            paths_of(lower),
            choice_of(lower).wants,
            offsets.read_bounds("startingOffsets", lower.get("startingoffsets", "earliest")),
            ending,
            int(number(lower, "maxMessagesPerTrigger", 0, 0)),
            int(number(lower, "messagesPerTask", MESSAGES_PER_TASK, 1)),
            truth(lower, "failOnDataLoss", True),
            choice(lower, "ack", ("false", "true", "owner")),
            number(lower, "lockWait", 10, 0),
            number(lower, "pollInterval", 0.1, 0),
        )


@dataclass
class Task(InputPartition):
    """What one task reads, in this order."""

    ranges: list[Range]

    def __init__(self, ranges: list[Range]) -> None:
        super().__init__(None)
        self.ranges = ranges


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream. Spark keeps one of these in a process beside the driver and asks it in turn;
    copies of it read in the workers."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        check_schema("messages", schema)
        self.options = Options.read(options)
        self.columns = list(schema.names)
        if self.options.ack != "false" and "body" not in self.columns:
            raise ValueError(
                "a message that is acked is gone, and its body is not among the columns: choose"
                ' them with .option("columns", "*") or a schema'
            )
        chosen = json.dumps([self.options.paths, lower_keys(options).get("queues", "")])
        self._name = blake2b(chosen.encode(), digest_size=8).hexdigest()  # the same after a restart
        self._horizon: Offset | None = None  # where trigger(availableNow=True) ends
        self._acked: Offset = {}
        self._latest: Offset | None = None
        self._look_again = 0.0
        self._left: dict[tuple[str, str], tuple[list[Run], QueueView]] = {}  # as last seen

    # --- offsets: in the driver's process --------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return offsets.initial_offset(self.options.starting, self._look())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self.options.limit
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._horizon = offsets.initial_offset(offsets.LATEST, self._look())

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        return self._latest

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The end of the next batch; `start` if there is nothing new.

        Spark asks only when the batch before is in its commit log, so that all before `start` may
        be acked here: the last batch of a run is never given to commit().
        """
        self._ack(start)
        if time.monotonic() < self._look_again:
            return start
        views = self._look()
        offset = offsets.follow(start, views, self._lose)
        found = offsets.news(offset, views, self.options.ending, self._horizon)
        self._latest = offsets.advance(offset, found)
        if isinstance(limit, ReadMaxRows):
            found = self._cut(found, limit.max_rows)
        elif self._horizon is not None or self.options.ending != offsets.LATEST:
            found = self._cut(found, None)
        end = self._leave(offset, found, views)
        if end == start:
            self._look_again = time.monotonic() + self.options.poll
        return end

    def commit(self, end: Offset) -> None:
        self._ack(end)

    def _look(self) -> dict[str, dict[str, QueueView]]:
        return {
            store: look(store, self.options.wants, self._lose)
            for store in find_stores(self.options.paths)
        }

    def _lose(self, text: str) -> None:
        if self.options.fail_on_loss:
            raise offsets.DataLoss(
                f"{text}. What was in it and not read yet is lost to this stream. To go on"
                " without it, set failOnDataLoss to false"
            )
        log.warning("%s: the stream goes on without what is lost", text)

    def _ack(self, offset: Offset) -> None:
        if self.options.ack == "false" or offset == self._acked:
            return
        for store, queues in offset.items():
            before = self._acked.get(store, {})
            if queues == before or not Path(store, "store.meta").exists():
                continue  # or it is gone: the next look says so
            if self.options.ack == "owner":
                leave_acks(store, self._name, queues)
            else:
                news = {name: at for name, at in queues.items() if at != before.get(name)}
                ack(store, news, self.options.lock_wait)
        self._acked = offset

    def _cut(self, found: Sequence[Range], limit: int | None) -> list[Range]:
        """The ranges with no more than `limit` messages together, each ending behind a live one.

        ReqIds have gaps, some of them huge, so that a range counts from its first live message on:
        it may have fewer messages than its share, but never none.
        """
        given = offsets.shares([r.stop - r.start for r in found], limit) if limit else []
        cut = []
        for i, each in enumerate(found):
            with qindex.open(each.store, read_only=True, create=False) as store:
                queue = store.queue(each.queue, create=False)
                first = first_live(queue, each.start)
                stop = min(each.stop, first + given[i]) if limit else each.stop
                last = last_live(queue, first, stop) if first >= 0 else -1
            if last >= 0:
                cut.append(each._replace(stop=last + 1, last=last))
        return cut

    def _leave(
        self, offset: Offset, found: Sequence[Range], views: dict[str, dict[str, QueueView]]
    ) -> Offset:
        """The offset behind these ranges; what nobody gets yet of all until there is left."""
        moves: dict[tuple[str, str], list[Range]] = {}
        for each in found:
            moves.setdefault((each.store, each.queue), []).append(each)
        end = {store: dict(queues) for store, queues in offset.items()}
        for store, queues in views.items():
            for name, view in queues.items():
                here, ranges = end[store][name], moves.get((store, name), [])
                left = offsets.runs_left(here)
                if left or (ranges and view.holds):
                    left, ranges = self._look_at_held(store, name, view, left, ranges)
                moved = offsets.advance({store: {name: here}}, ranges)[store][name]
                end[store][name] = {**moved, "left": [list(run) for run in left]}
        return end

    def _look_at_held(
        self, store: str, name: str, view: QueueView, left: list[Run], ranges: list[Range]
    ) -> tuple[list[Run], list[Range]]:
        """What of `left` and of the ranges is held now; and the ranges, shorter if it is much."""
        known, before = self._left.get((store, name), (None, view))
        is_still = before.mark == view.mark and time.time() < view.next_due
        if not ranges and known == left and is_still:
            return left, ranges
        with qindex.open(store, read_only=True, create=False) as opened:
            queue = opened.queue(name, create=False)
            held = [run for first, stop in left for run in held_runs(queue, first, stop)]
            kept = []
            for each in ranges:
                runs = list(islice(held_runs(queue, each.start, each.stop), RUNS_LEFT_MAX + 1))
                stop = each.stop
                if len(held) + len(runs) > RUNS_LEFT_MAX:
                    room = max(0, RUNS_LEFT_MAX - len(held))
                    stop, runs = runs[room][0], runs[:room]
                    log.warning(
                        "the queue %r of %s holds more than %d runs of delayed messages and dead"
                        " letters: the stream goes on behind %d when there are fewer",
                        *(name, store, RUNS_LEFT_MAX, stop),
                    )
                last = last_live(queue, each.start, stop)
                held += runs
                if last >= 0:
                    kept.append(each._replace(stop=last + 1, last=last))
        held.sort()
        self._left[store, name] = held, view
        return held, kept

    # --- a batch ---------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> list[Task]:
        found: list[Range] = []
        per_task = self.options.per_task
        for each in offsets.ranges_between(start, end):
            if each.stop - each.start <= per_task:
                found.append(each)
            else:
                found += offsets.split(each, self._depth(each), per_task)
        return [Task(ranges) for ranges in offsets.pack(found, per_task)]

    def _depth(self, each: Range) -> int:
        """How many messages a range may have: it may be mostly a gap."""
        try:
            with qindex.open(each.store, read_only=True, create=False) as store:
                return len(store.queue(each.queue, create=False))
        except (qindex.StoreMissing, qindex.QueueMissing):
            return 1  # the task will tell

    # --- reading: in a worker --------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from qindex.spark.stream_rows import read_ranges

        settle()
        whole = self.options.ack != "false" and self.options.fail_on_loss
        return read_ranges(getattr(partition, "ranges", []), self.columns, self._lose, whole)
