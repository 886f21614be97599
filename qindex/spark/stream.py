"""readStream.format("qindex"): what is published into live stores, batch by batch.

    messages = spark.readStream.format("qindex").option("columns", "*").load("/data/orders")

======================  ===========  ===============================================================
option                  default      meaning
======================  ===========  ===============================================================
path, paths                          stores, with wildcards ("/brokers/*"); paths is a JSON list
queues                  all          names or patterns, with commas, or a JSON list; later ones are
                                     found, too
columns                 no bodies    as for spark.read; * is all. A schema does the same
startingOffsets         earliest     earliest, latest, or JSON {queue: ReqId}; only without a
                                     checkpoint. A queue that comes later begins at 0. A ReqId is
                                     about its lane: [5, 4503599627370503] is 5 without a priority
                                     and 7 of priority 1 (4503599627370496 is 2 ** 52)
startingTimestamp       none         instead: milliseconds since 1970. Nothing that was published
                                     then or later is left out; see below
endingOffsets           none         the same JSON: the stream goes no further
maxMessagesPerTrigger   all          for all queues together, shared out fairly; or
                                     maxOffsetsPerTrigger
minMessagesPerTrigger   1            a batch waits until there are so many; or minOffsetsPerTrigger
maxTriggerDelay         15m          but no longer than this
messagesPerTask         100000       more of one queue are split, fewer of many are put together
failOnDataLoss          true         false: what is gone or damaged is left out, and logged
ack                     false        true, owner: the stream is the consumer, see below
lockWait                10           with ack: seconds to wait for a store's lock
pollInterval            0.1          seconds between two looks when there was nothing new
======================  ===========  ===============================================================

An option that is not among them is refused: option("queue", "orders") would else be all queues.

The columns are those of the table messages. Rows are what is alive when the batch is planned, in
the order of ReqIds within a task, high priorities first; expired messages are not among them. What
the store's own consumers ack before that is not seen, and is no loss: it was consumed.

What is delayed, or was given back with a delay, comes when its time is over; a dead letter comes if
it is redriven. Until then the offset says that it was left, in runs: a thousand of them at most in
each queue, then the stream waits there until the first of them are ready or gone (and says so).
What was left and is ready comes on top of maxMessagesPerTrigger.

Messages have no time of their publish. What startingTimestamp knows is when journals began and when
they were synced, so it begins up to one interval of syncs, or one journal, too early: at the
beginning of what may have been published at that time.

A query that is started again with other `queues` or paths than its checkpoint has fails, and says
which queues it would leave. With failOnDataLoss = false it leaves them, and says so.

*ack = true.* A batch is acked after Spark has it in its commit log, never before: Spark tells it
when it plans the next batch. Killed at any moment, the query starts again with the batch that was
not committed, and all of it is still there. To ack, the source opens the store for writing: another
process that has it open at that moment (longer than lockWait) fails the query with StoreLocked.
Everything else about the stream needs no lock.

*ack = owner.* The same for a store that a process keeps open, such as a broker: what is to be acked
is written down in the store's folder, and that process does it when it calls
qindex.spark.apply_acks(store), for example once a second.

*What is acked* is all that the source has given to Spark: each message of the chosen queues that
was in a batch, whatever the query makes of it. The source does not see the query. A row that
.where(), .filter(), .limit() or a join leaves out is acked like the others, and is gone: choose
with `queues` what the query may consume, keep rows that it leaves out in a second sink
(foreachBatch), or do not ack. Not acked are messages that had expired when the batch was planned
and dead letters: no row had them, and the store's own rules say what becomes of them. With
failOnDataLoss = false a message that could not be read is acked, too: no row had it, and it is
logged.

With both there may be no other consumer, and no asyncProgressTrackingEnabled; and the columns have
to have the body.

A look opens each store, and reads the index of what waits: where there are many, let Spark ask now
and then, .trigger(processingTime="1 second").
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

import qindex
from qindex.begun import first_live
from qindex.spark import stream_offsets as offsets
from qindex.spark.source import check_schema
from qindex.spark.stream_offsets import Offset, Range
from qindex.spark.stream_options import Options
from qindex.spark.stream_since import published_since
from qindex.spark.stream_store import (
    QueueView,
    Run,
    ack,
    count_live,
    find_stores,
    held_runs,
    last_live,
    leave_acks,
    look,
)
from qindex.spark.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

RUNS_LEFT_MAX: Final = 1000  # of a queue: an offset is a text of bounded length
log = logging.getLogger("qindex.spark")


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
        chosen = json.dumps([self.options.paths, self.options.queues])
        self._name = blake2b(chosen.encode(), digest_size=8).hexdigest()  # the same after a restart
        self._horizon: Offset | None = None  # where trigger(availableNow=True) ends
        self._acked: Offset = {}
        self._latest: Offset | None = None
        self._look_again = 0.0
        self._last_batch = time.monotonic()
        self._is_new = True  # no batch was planned by this process yet
        self._left: dict[tuple[str, str], tuple[list[Run], QueueView]] = {}  # as last seen

    # --- offsets: in the driver's process --------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        views = self._look()
        if self.options.since_us is None:
            return offsets.initial_offset(self.options.starting, views)
        return offsets.initial_offset(published_since(self.options.since_us, views), views)

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
        offset = offsets.follow(self._still_chosen(start, views), views, self._lose)
        found = offsets.news(offset, views, self.options.ending, self._horizon)
        self._latest = offsets.advance(offset, found)
        if not self._is_time(found):
            self._look_again = time.monotonic() + self.options.poll
            return start
        if isinstance(limit, ReadMaxRows):
            found = self._cut(found, limit.max_rows)
        elif self._horizon is not None or self.options.ending != offsets.LATEST:
            found = self._cut(found, None)
        end = self._leave(offset, found, views)
        if end == start:
            self._look_again = time.monotonic() + self.options.poll
        else:
            self._last_batch = time.monotonic()
        return end

    def _is_time(self, found: Sequence[Range]) -> bool:
        """Whether there are minMessagesPerTrigger, or they were waited for long enough."""
        missing = self.options.at_least
        waited = time.monotonic() - self._last_batch
        if missing <= 1 or self._horizon is not None or waited >= self.options.delay_max:
            return True
        if sum(each.stop - each.start for each in found) < missing:
            return False
        for each in found:  # ReqIds have gaps
            missing -= count_live(each, missing)
            if missing <= 0:
                return True
        return False

    def _still_chosen(self, start: Offset, views: dict[str, dict[str, QueueView]]) -> Offset:
        """`start` without what other options than those of the checkpoint leave out.

        OtherChoice if there is such, unless losses are accepted: it may be a mistake.
        """
        is_new, self._is_new = self._is_new, False
        if not is_new:
            return start
        left_out = {
            store: [name for name in queues if store not in views or not self.options.wants(name)]
            for store, queues in start.items()
            if store in views or Path(store, "store.meta").exists()
        }
        told = offsets.told_of(left_out)
        added = {
            store: [name for name in queues if name not in start.get(store, {})]
            for store, queues in views.items()
        }
        if start and (news := offsets.told_of(added)):
            log.warning("the stream takes up %s: each from its first message on", news)
        if not told:
            return start
        text = (
            f"the query was started again with other options: its checkpoint has {told}, which"
            f" queues = {self.options.queues!r} and the paths {self.options.paths} leave out"
        )
        if self.options.fail_on_loss:
            raise offsets.OtherChoice(
                f"{text}. Start it with the options of before, or with a new checkpoint; to go on"
                " without these queues, set failOnDataLoss to false once"
            )
        log.warning("%s: the stream goes on without them", text)
        return {
            store: {name: at for name, at in queues.items() if name not in left_out.get(store, ())}
            for store, queues in start.items()
        }

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
        now_us = int(time.time() * 1e6)
        for store, queues in views.items():
            for name, view in queues.items():
                here, ranges = end[store][name], moves.get((store, name), [])
                left = offsets.runs_left(here)
                if left or (ranges and view.holds):
                    left, ranges = self._look_at_held(store, name, view, left, ranges)
                moved = offsets.advance({store: {name: here}}, ranges)[store][name]
                moved = {**moved, "left": [list(run) for run in left]}
                end[store][name] = moved if moved == here else {**moved, "at": now_us}
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
