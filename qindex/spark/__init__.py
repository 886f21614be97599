"""Queues as tables, streams and fleet audits, for Apache Spark: `pip install 'qindex[spark]'`.

    from qindex.spark import register, start_session

    spark = register(start_session())
    spark.read.format("qindex").load("/brokers/*").groupBy("queue").count().show()

Importing this package imports neither pyspark nor pyarrow: what needs them loads them.

=================  =================================================================================
schema             the tables and their columns
session            a local session that starts fast, with a Java runtime from PyPI if there is none
source, options    what format("qindex") is: options, and who reads and writes
paths, search      paths and patterns to directories: stores, brokers, and what may be one
leftovers          what is left of a store or a broker that nobody recognises
plan               directories to tasks: weighed, split and packed
remote             directories on other file systems: s3:// and the like
columns            Arrow columns that the core fills
tables             one directory as batches of columns, for each table: native, foreign
examine            what is wrong in one directory: examine_native, _bodies, _foreign
audit              of a fleet: every directory examined, tables written (output), report
joins              the same join of messages with bodies, for a store too big for one task
stream             readStream: what is published into live stores, and acks for it
sink               write and writeStream: rows become messages, each batch exactly once
=================  =================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qindex.store import Store

__all__ = ["apply_acks", "register", "start_session"]


def apply_acks(store: Store) -> int:
    """Ack, in a store that this process has open, what streams with ack = owner are done with.

    Returns how many messages. Cost: a small file per stream, and 1 us per message.
    """
    from qindex.spark.stream_store import apply_acks

    return apply_acks(store)


def register(spark: SparkSession) -> SparkSession:
    """Make format("qindex") known to this session; return the session."""
    from qindex.spark.source import QindexSource

    spark.dataSource.register(QindexSource)
    return spark


def start_session(
    master: str = "local[*]",
    *,
    short_lived: bool = False,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session with settings for qindex; one that runs already is returned as it is.

    `short_lived`: for jobs of a minute. `conf` goes before qindex's own settings. Raises
    ImportError if pyspark is not there, RuntimeError if there is no Java. Cost: 3 to 6 s.
    """
    from qindex.spark.session import start

    return start(master, short_lived, conf or {})
