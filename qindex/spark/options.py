"""The options of reads, streams and sinks: one parser for all. Needs no PySpark.

Names are in any case. A name that is not known is refused, and so is a value that makes no sense:
an option that is passed over would be one that a user relies on.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final, NamedTuple

from qindex.look.messages import FORMER_STATES, REQ_ID_MAX, STATES
from qindex.spark.examine import Limits
from qindex.spark.schema import columns_of
from qindex.spark.tables import LOST, Choice, default_names

# Spark gives a source in Python neither the path nor the options of a table in its catalog.
NO_TABLE: Final = (
    ". A table of the catalog (CREATE TABLE, saveAsTable) cannot be of qindex. What works: CREATE"
    " TEMPORARY VIEW v USING qindex OPTIONS (path '/brokers/*', table 'queues'), and to write"
    ' df.write.format("qindex").mode("append").save("/data/orders")'
)


class Use(NamedTuple):
    """What options are for, and their names."""

    what: str
    names: tuple[str, ...]


READ: Final = Use(
    "spark.read",
    (
        *("path", "paths", "table", "format", "columns", "queues", "vhosts", "states"),
        *("minReqId", "maxReqId", "expiresAfter", "expiresBefore", "atTime", "stuckBehind"),
        *("poisonDeliveries", "checkBodies", "targetBytes", "minPartitions", "out", "day"),
    ),
)
STREAM: Final = Use(
    "spark.readStream",
    (
        *("path", "paths", "table", "columns", "queues", "startingOffsets", "endingOffsets"),
        *("startingTimestamp", "maxMessagesPerTrigger", "minMessagesPerTrigger"),
        *("maxTriggerDelay", "messagesPerTask", "failOnDataLoss", "ack", "lockWait"),
        "pollInterval",
    ),
)
WRITE: Final = Use("df.write", ("path", "queue", "lockWait", "writeId", "writeVersion"))
WRITE_STREAM: Final = Use(
    "df.writeStream", ("path", "queue", "lockWait", "checkpointLocation", "queryName")
)
# What users of Kafka know, and what it is called here.
_KAFKA: Final = {
    "maxOffsetsPerTrigger": "maxMessagesPerTrigger",
    "minOffsetsPerTrigger": "minMessagesPerTrigger",
}
_KAFKA_ONLY: Final = {
    "subscribe": 'the queues are .option("queues", "orders,events")',
    "subscribepattern": '.option("queues", "orders*"): *, ? and [...] are patterns',
    "assign": 'the queues are .option("queues", "orders,events")',
    "topic": 'the queue is .option("queue", "orders") of a sink',
    "kafka.bootstrap.servers": 'there is no server: .load("/data/store")',
}


def known(given: Mapping[str, str], use: Use) -> dict[str, str]:
    """The options by their names in lower case; ValueError for one that is none of this use."""
    names = {name.lower(): name for name in use.names}
    others = {kafka.lower(): own.lower() for kafka, own in _KAFKA.items() if own in use.names}
    found: dict[str, str] = {}
    for key, value in given.items():
        name = others.get(key.lower(), key.lower())
        if name not in names:
            raise ValueError(f"{use.what} has no option {key!r}{_advice(key, use)}")
        if found.setdefault(name, value) != value:
            raise ValueError(f"{names[name]} is given twice: {found[name]!r} and {value!r}")
    return found


def _advice(key: str, use: Use) -> str:
    if told := _KAFKA_ONLY.get(key.lower()):
        return f": {told}"
    names = {name.lower(): name for name in (*use.names, *_KAFKA)}
    if close := get_close_matches(key.lower(), names, 1, 0.7):
        return f": is it {names[close[0]]}?"
    others = [other for other in (READ, STREAM, WRITE, WRITE_STREAM) if other is not use]
    having = [o.what for o in others if key.lower() in map(str.lower, o.names)]
    where = f", that is one of {' and '.join(having)}" if having else ""
    return f"{where}. It has {', '.join(use.names)}"


# --- values --------------------------------------------------------------------------------------


def number(given: Mapping[str, str], name: str, default: float, low: float) -> float:
    """An option that is a number, `low` or more; ValueError for anything else."""
    told = given.get(name.lower(), default)
    try:
        value = float(told)
    except ValueError:
        value = low - 1
    if not low <= value < float("inf"):
        raise ValueError(f"{name} is a number from {low} on, not {told!r}")
    return value


def whole(given: Mapping[str, str], name: str, default: int, low: int) -> int:
    """The same of a whole number; each of 64 bits is exact."""
    told = given.get(name.lower(), default)
    try:
        value = int(told)
    except ValueError:
        value = low - 1
    if value < low:
        raise ValueError(f"{name} is a whole number from {low} on, not {told!r}")
    return value


def choice(given: Mapping[str, str], name: str, words: Sequence[str]) -> str:
    """An option that is one of these words, the first of them if it is not given."""
    told = str(given.get(name.lower(), words[0]))
    if told.lower() not in words:
        raise ValueError(f"{name} is {', '.join(words[:-1])} or {words[-1]}, not {told!r}")
    return told.lower()


def truth(given: Mapping[str, str], name: str, default: bool) -> bool:
    """An option that is true or false; ValueError for anything else."""
    words = ("true", "false") if default else ("false", "true")
    return choice(given, name, words) == "true"


def seconds(given: Mapping[str, str], name: str, default: float) -> float:
    """An option that is a time: a number of seconds, or 500ms, 30s, 15m, 2h."""
    told = str(given.get(name.lower(), default)).strip().lower()
    for unit, factor in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)):
        if told.endswith(unit):
            try:
                value = float(told.removesuffix(unit)) * factor
            except ValueError:
                break
            if 0 <= value < float("inf"):
                return value
            break
    raise ValueError(f"{name} is seconds, or like 500ms, 30s, 15m, 2h, not {told!r}")


def names_of(given: Mapping[str, str], name: str) -> list[str]:
    """An option that is names with commas between them, or a JSON list of them."""
    text = given.get(name.lower(), "")
    if text.lstrip().startswith("["):
        try:
            listed = json.loads(text)
        except ValueError:
            listed = None  # a pattern may begin so
        if isinstance(listed, list) and all(isinstance(each, str) for each in listed):
            return listed
    return _words(text)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


# --- what several uses share ---------------------------------------------------------------------


def column_names(options: Mapping[str, str]) -> list[str]:
    """Of the option `columns`; ValueError if there is no such column."""
    table = options.get("table", "messages")
    told = options.get("columns")
    if told is None:
        columns_of(table)
        return default_names(table)
    if told.strip() == "*":
        return [column.name for column in columns_of(table)]
    return _words(told)


def paths_of(options: Mapping[str, str]) -> list[str]:
    """Of the options path and paths, in lower case. ValueError: there is neither."""
    try:
        listed = json.loads(options.get("paths", "[]"))
    except ValueError:
        listed = None
    if not isinstance(listed, list):
        raise ValueError(f"paths is a JSON list of paths, not {options['paths']!r}")
    paths = [str(path) for path in listed]
    if path := options.get("path"):
        paths.append(path)
    if not paths:
        raise ValueError(f'where to read from is not told: .load("/brokers/*"){NO_TABLE}')
    return paths


def choice_of(options: Mapping[str, str]) -> Choice:
    """Of options in lower case; ValueError says which of them makes no sense."""
    asked = _words(options.get("states", ",".join(STATES)))
    for former in FORMER_STATES.keys() & set(asked):
        warnings.warn(f"the state {former} is called {FORMER_STATES[former]} now", stacklevel=2)
    states = frozenset(FORMER_STATES.get(name, name) for name in asked)
    if unknown := states - {*STATES, LOST}:
        raise ValueError(f"states: {', '.join(unknown)} is none of {', '.join(STATES)}, {LOST}")
    return Choice(
        queues=tuple(names_of(options, "queues")),
        vhosts=tuple(names_of(options, "vhosts")),
        states=states,
        first=whole(options, "minReqId", 0, 0),
        last=whole(options, "maxReqId", REQ_ID_MAX, 0),
        expires_after_us=time_us(options, "expiresAfter"),
        expires_before_us=time_us(options, "expiresBefore"),
        now_us=time_us(options, "atTime"),
    )


def limits_of(options: Mapping[str, str]) -> Limits:
    """Of options in lower case."""
    usual = Limits()
    return Limits(
        stuck_behind=whole(options, "stuckBehind", usual.stuck_behind, 0),
        poison_deliveries=whole(options, "poisonDeliveries", usual.poison_deliveries, 1),
        check_bodies=truth(options, "checkBodies", True),
        now_us=time_us(options, "atTime"),
    )


def time_us(options: Mapping[str, str], name: str) -> int | None:
    """ISO 8601 (UTC unless it says another zone), or seconds since 1970."""
    text = options.get(name.lower())
    if text is None:
        return None
    try:
        return int(float(text) * 1e6)
    except (ValueError, OverflowError):
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name} is ISO 8601 or seconds since 1970, not {text!r}") from None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int(time.timestamp() * 1e6)
