"""The audit's join of messages with bodies as DataFrames, for a store too big for one task.

    messages, bodies = read(spark, ["/brokers/huge"])
    join_bodies(messages, bodies).show()

`qindex audit` joins a whole directory in one task, which is five to ten times cheaper as long as it
fits. Here both sides are split, by segments and by files, and meet in Spark's shuffle. No side is
read whole by anybody; a store that is written to meanwhile shows messages of different moments.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What is wrong with one body, given who names it: none, one or more findings.
_FINDINGS: Final = """
inline(concat(
    if(named > 0 and (frames = 0 or not sound),
       transform(names, n -> named_struct(
           'kind', if(frames = 0, 'lost', 'damaged body'),
           'queue', n.queue, 'req_id', n.req_id, 'count', 1L)),
       array()),
    if(frames > 0 and published_to < 256 and named > published_to,
       array(named_struct('kind', 'references', 'queue', cast(null as string),
                          'req_id', array_min(names.req_id), 'count', 1L)),
       array()),
    if(named = 0,
       array(named_struct('kind', 'orphan bodies', 'queue', cast(null as string),
                          'req_id', cast(null as bigint), 'count', frames)),
       array()),
    transform(
        filter(array_distinct(names.queue), q -> size(filter(names, n -> n.queue = q)) > 1),
        q -> named_struct(
            'kind', 'duplicate', 'queue', q,
            'req_id', array_min(filter(names, n -> n.queue = q).req_id),
            'count', cast(size(filter(names, n -> n.queue = q)) - 1 as bigint)))
))
"""


def read(spark: SparkSession, paths: Iterable[str]) -> tuple[DataFrame, DataFrame]:
    """(messages, bodies) as join_bodies() needs them: messages that have lost theirs, too."""
    reader = spark.read.format("qindex").option("paths", json.dumps(list(paths)))
    messages = (
        reader.option("states", "ready,delayed,delivered,expired,lost")
        .option("columns", "source,broker,queue,req_id,msg_id")
        .load()
    )
    bodies = (
        reader.option("table", "bodies")
        .option("columns", "source,broker,msg_id,published_to,sound")
        .load()
    )
    return messages, bodies


def join_bodies(messages: DataFrame, bodies: DataFrame) -> DataFrame:
    """Findings: source, broker, queue, kind, req_id (the first one), count.

    The kinds are lost, damaged body, references, duplicate and orphan bodies, as in the table
    findings. One union and one grouping, not an outer join: half the cost, and of no body more than
    its references is in memory.
    """
    from pyspark.sql import functions as f

    named = messages.where("msg_id is not null").selectExpr(
        "source",
        "broker",
        "msg_id",
        "struct(queue, req_id) as name",
        "0 as published_to",
        "false as sound",
        "0 as frame",
    )
    stored = bodies.selectExpr(
        "source",
        "broker",
        "msg_id",
        "cast(null as struct<queue: string, req_id: bigint>) as name",
        "published_to",
        "sound",
        "1 as frame",
    )
    per_body = (
        named.union(stored)
        .groupBy("source", "broker", "msg_id")
        .agg(
            f.expr("collect_list(name) as names"),
            f.expr("count(name) as named"),
            f.expr("max(published_to) as published_to"),
            f.expr("max(sound) as sound"),
            f.expr("sum(frame) as frames"),
        )
    )
    return (
        per_body.selectExpr("source", "broker", _FINDINGS)
        .groupBy("source", "broker", "queue", "kind")
        .agg(f.expr("min(req_id) as req_id"), f.expr("sum(count) as count"))
    )
