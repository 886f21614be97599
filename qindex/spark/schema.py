"""The tables of format("qindex") and their columns, without Spark and without Arrow.

All columns are nullable: a format that does not know something says null. Times are UTC. Text that
is no UTF-8, such as a file's name, is in its written form: qindex.names has it, and the way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class Column(NamedTuple):
    name: str
    type: str  # as in Spark's DDL
    meaning: str


_PLACE: Final = (
    Column("source", "string", "the directory that was read, as it was found"),
    Column("broker", "string", "the node's name: of a store its directory's"),
    Column("format", "string", "qindex, rabbitmq, nsq, gmq or beanstalkd; or unknown"),
)
_QUEUE: Final = (
    Column("vhost", "string", "what the queue's name is unique in; null where there is no such"),
    Column("queue", "string", "its name"),
)
_BYTES: Final = (
    Column("file", "string", "the file, relative to source"),
    Column("offset", "long", "where in it, bytes"),
)

TABLES: Final[dict[str, tuple[Column, ...]]] = {
    # What consumers would get: published and not acked, in that order within a queue.
    "messages": (
        *_PLACE,
        *_QUEUE,
        Column(
            "req_id",
            "long",
            "its number in the queue; unique with source, vhost, queue and priority",
        ),
        Column("segment", "long", "req_id // entries per segment"),
        Column("slot", "int", "req_id % entries per segment"),
        Column(
            "state",
            "string",
            "ready, delayed, delivered (not acked), expired, dead, or lost (no body)",
        ),
        Column("priority", "int", "the highest is delivered first"),
        Column("due", "timestamp", "until when it is, or was, delayed"),
        Column("expires_at", "timestamp", "when it stops being delivered"),
        Column("published_at", "timestamp", "when it was published, if that is known"),
        Column("delivery_count", "int", "how often it was delivered, if that is known"),
        Column("redelivered", "boolean", "somebody may have had it before"),
        Column("persistent", "boolean", "it was meant to survive a restart"),
        Column("msg_id", "binary", "16 bytes; null for one that is embedded in the index"),
        Column("size", "long", "of the body, bytes"),
        Column("body", "binary", "read only if this column is in the schema"),
        Column("headers", "string", "JSON; read only if this column is in the schema"),
        Column("exchange", "string", "of a RabbitMQ message"),
        Column("routing_keys", "array<string>", "of a RabbitMQ message"),
        *_BYTES,
    ),
    # What the journals and segments say, entry by entry; qindex's own stores only.
    "records": (
        *_PLACE,
        *_QUEUE,
        Column(
            "kind",
            "string",
            "publish, transient (publish), deliver, ack, time, event, count, purge",
        ),
        Column("req_id", "long", "whose record it is"),
        Column("segment", "long", "req_id // entries per segment"),
        Column("slot", "int", "req_id % entries per segment"),
        Column("expires_at", "timestamp", "of a publish"),
        Column("published_at", "timestamp", "of a publish: when that was, if that is known"),
        Column("size", "long", "of a publish: of the body, bytes"),
        Column("embedded", "long", "of a publish: bytes that stand in the index"),
        Column("due", "timestamp", "of a time"),
        Column("priority", "int", "of a time"),
        Column("delivery_count", "int", "of a count"),
        Column("msg_id", "binary", "of a publish whose payload is in a message file"),
        *_BYTES,
    ),
    # The stored bodies, frame by frame; qindex's own stores only.
    "bodies": (
        *_PLACE,
        Column("msg_id", "binary", "as the messages that it belongs to have it"),
        Column("size", "long", "of headers and body, bytes"),
        Column("published_to", "int", "to how many queues; 256: or more"),
        Column("sound", "boolean", "its checksum is right"),
        *_BYTES,
    ),
    "queues": (
        *_PLACE,
        *_QUEUE,
        Column("found", "long", "messages that the files tell of = live + gone + lost"),
        Column("live", "long", "of these: published, not acked, with a body"),
        Column("gone", "long", "of these: as it should be (acked, transient)"),
        Column("lost", "long", "of these: by damage"),
        Column("live_bytes", "long", "of the live ones' bodies"),
        Column("unacked", "long", "of the live ones: delivered, and not acked"),
        Column("next_req_id", "long", "what the next message would get"),
        Column("index_bytes", "long", "of the queue's own files"),
        Column("journal_bytes", "long", "of these, what a recovery replays"),
        Column("segments", "long", "segment files"),
        Column("recovery_us", "long", "what it took to read the queue's index here, microseconds"),
        Column("error", "string", "why it could not be read"),
    ),
    "files": (
        *_PLACE,
        Column("file", "string", "relative to source"),
        Column("kind", "string", "journal, segment, messages or other"),
        Column("bytes", "long", "its size"),
        Column("live_bytes", "long", "of a message file: of frames that a live message names"),
        Column("garbage_bytes", "long", "of a message file: of all other frames"),
        Column("frames", "long", "of a message file: stored bodies"),
        Column("orphans", "long", "of these: no live message names them"),
    ),
    "findings": (
        *_PLACE,
        *_QUEUE,
        Column("kind", "string", "one word or two: see qindex.spark.examine.KINDS"),
        Column("severity", "string", "damage, warning or note"),
        Column("req_id", "long", "the message, if it is about one"),
        Column("count", "long", "how many messages or places it stands for"),
        Column("text", "string", "what is wrong, for people"),
        *_BYTES,
    ),
    # A row per directory, which says what an audit has found; the audit writes its tables besides.
    "audit": (
        *_PLACE,
        Column("summary", "string", "JSON: qindex.spark.audit.Summary"),
    ),
}

JSON_COLUMNS: Final = ("headers", "summary")  # text that is UTF-8 already

_ARROW: Final = {
    "string": "string",
    "long": "int64",
    "int": "int32",
    "boolean": "bool_",
    "binary": "binary",
}


def columns_of(table: str) -> tuple[Column, ...]:
    """ValueError, with what there is, if there is no such table."""
    if table not in TABLES:
        raise ValueError(f"there is no table {table!r}: choose {', '.join(TABLES)}")
    return TABLES[table]


def ddl(table: str, names: Sequence[str] | None = None) -> str:
    """The schema as Spark's DDL; with `names` only these columns, in this order."""
    columns = {column.name: column for column in columns_of(table)}
    chosen = columns if names is None else names
    if unknown := [name for name in chosen if name not in columns]:
        raise ValueError(f"the table {table} has no column {', '.join(unknown)}")
    return ", ".join(f"`{name}` {columns[name].type}" for name in chosen)


def arrow_schema(table: str, names: Sequence[str] | None = None) -> pa.Schema:
    """The same for pyarrow."""
    chosen = [column.name for column in columns_of(table)] if names is None else names
    return _arrow_schema(table, tuple(chosen))


@lru_cache  # asked for with each batch, and the batches of small directories are small
def _arrow_schema(table: str, names: tuple[str, ...]) -> pa.Schema:
    import pyarrow as pa

    def arrow_type(name: str) -> pa.DataType:
        if name == "timestamp":
            return pa.timestamp("us", "UTC")
        if name == "array<string>":
            return pa.list_(pa.string())
        return getattr(pa, _ARROW[name])()

    types = {column.name: column.type for column in columns_of(table)}
    return pa.schema([(name, arrow_type(types[name])) for name in names])
