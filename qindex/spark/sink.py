"""df.write and df.writeStream with format("qindex"): rows become messages, each batch exactly once.

    rows.writeStream.format("qindex").option("checkpointLocation", C).start("/data/orders")
    rows.write.format("qindex").option("queue", "orders").mode("append").save("/data/orders")

============  ==================================================================================
column        meaning
============  ==================================================================================
body          binary or string (UTF-8); needed
queue         the queue, created if it is not there; or the option queue, for all rows. In its
              written form, if it is no UTF-8 (qindex.names)
headers       a JSON object, as the table messages has it (headers.py), or a map
exchange,     go into the headers, as qindex recover --out does it
routing_keys
priority      0 to 255; null: 0
due           timestamp: not before; null: at once
delay         instead: seconds from the task's clock on
expires_at    timestamp; null: never
ttl           instead: seconds from the task's clock on
persistent    false: does not survive an unclean end
redelivered   true: somebody may have had it before
============  ==================================================================================

So a table messages can be written as it is. Its other columns say where a message was, and are
passed over: vhost, state, delivery_count, published_at (a message that is written is published
anew) and the places in files. A dead letter becomes an ordinary
message (choose others with where("state <> 'dead'")), one of several virtual hosts' queues of the
same name needs a name of its own. Columns and their types are checked when the query is planned.

Rows of one queue, priority and time are published together: where each row has another time to
wait for, each is a write of its own, about 0.1 ms.

============  ========  ========================================================================
option        default   meaning
============  ========  ========================================================================
path                    the store; created if it is not there
queue                   all rows go there
lockWait      10        seconds to wait for the store's lock, when a batch is committed
writeId       random    df.write: a name for this write. Once it is done, another one of this
                        name into this store does nothing; one that was cut off is finished
writeVersion  0         df.write: the same for a row of writes with one name: 0, 1, 2 ..., as the
                        batch ids that foreachBatch gives
============  ========  ========================================================================

Tasks stage their rows in `store/spark/`; nobody sees them. The driver publishes them when Spark
commits the batch: in the order of partitions, and of rows within one; a partition's rows of one
queue are one atomic batch (in parts of 128 MiB). For that moment it has the store open for writing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

import qindex
from qindex.begun import FOLDER
from qindex.spark.options import NO_TABLE, WRITE, WRITE_STREAM, Use, known, number, whole
from qindex.spark.sink_columns import check_columns
from qindex.spark.sink_commit import Write
from qindex.spark.sink_stage import Staged, stage
from qindex.spark.stream_store import local_path
from qindex.spark.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_WRITE_ID_MAX = 200


@dataclass
class Message(WriterCommitMessage):
    """What a task says to the driver."""

    partition: int
    write: str
    staged: Staged


class _Writer:
    """What both writers share. Spark pickles it: the driver's copy commits, others write."""

    use: Use

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ValueError('queues are appended to: .mode("append"), or outputMode("append")')
        lower = known(options, self.use)
        if not lower.get("path"):
            raise ValueError(
                f'name the store: .save("/data/orders"), or .start("/data/orders"){NO_TABLE}'
            )
        self.store = local_path(lower["path"])
        self.queue = lower.get("queue")
        self.lock_wait = number(lower, "lockWait", 10, 0)
        columns = [(each.name, each.dataType.simpleString()) for each in schema.fields]
        check_columns(columns, self.queue)
        if not Path(self.store, "store.meta").exists():
            qindex.open(self.store).close()

    def _stage(self, rows: Iterator[pa.RecordBatch], write: str, batch: int) -> Message:
        from pyspark import TaskContext

        settle()
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        folder = Path(self.store, FOLDER, write)
        staged = stage(folder, f"{batch}-{partition}", self.queue, rows)
        return Message(partition, write, staged)

    def _write(self, name: str) -> Write:
        return Write(self.store, name, self.lock_wait)


def _files(messages: Sequence[Any]) -> list[Staged]:
    told = [message for message in messages if isinstance(message, Message)]
    return [message.staged for message in sorted(told, key=lambda each: each.partition)]


def _names(messages: Sequence[Any]) -> set[str]:
    """Of the write that the messages are about; none if there are none."""
    return {message.write for message in messages if isinstance(message, Message)}


class BatchWriter(_Writer, DataSourceArrowWriter):
    """df.write"""

    use = WRITE

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        lower = known(options, self.use)
        given = lower.get("writeid", "")
        if given and (given.startswith(".") or "/" in given or len(given) > _WRITE_ID_MAX):
            raise ValueError(f"writeId becomes the name of a folder; {given!r} cannot")
        self.is_named = bool(given)
        self.write_id = given or f"write-{uuid4().hex}"
        self.version = whole(lower, "writeVersion", 0, 0)
        super().__init__(options, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        return self._stage(iterator, self.write_id, self.version)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        write = self._write(self.write_id)
        write.commit(self.version, _files(messages))
        if not self.is_named:
            write.forget()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Also after a commit that failed."""
        write = self._write(self.write_id)
        write.abort(_files(messages))
        if not self.is_named:
            write.forget()


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """df.writeStream; the query's id, which the checkpoint keeps, names the write."""

    use = WRITE_STREAM

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        from pyspark import TaskContext

        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        if not query or not batch:
            raise RuntimeError("Spark does not tell the task its query and its batch")
        return self._stage(iterator, query, int(batch))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for name in _names(messages):
            self._write(name).commit(batchId, _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Also after a commit that failed."""
        for name in _names(messages):
            self._write(name).abort(_files(messages))
