"""Messages of a dead broker's directory, through the one interface of qindex.brokers.reader.

The readers hand out a message at a time, so that each row passes through Python once; to Spark go
batches. They read all bodies, wanted or not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from qindex.brokers.reader import DeadMessage, DeadQueue, open_node
from qindex.brokers.tree import UnknownFormat
from qindex.look.messages import deliveries_of, properties_of
from qindex.spark.headers import headers_as_json
from qindex.spark.plan import Unit
from qindex.spark.tables import Choice, from_rows, log

ROWS: Final = 8192
_BODIES_BYTES: Final = 8 << 20


def messages(unit: Unit, names: Sequence[str], choice: Choice) -> Iterator[pa.RecordBatch]:
    """What is alive, queue by queue."""
    try:
        with open_node(unit.folder) as node:
            for queue in node.queues:
                if choice.wants(queue.name, queue.group):
                    yield from _queue_batches(unit, queue, names, choice)
            for finding in node.findings:
                if finding.severity != "note":
                    log.warning("%s: %s", unit.source, finding)
    except (UnknownFormat, OSError) as error:
        log.warning("%s: %s", unit.source, error)
    except MemoryError:
        raise
    except Exception as error:  # a mistake of a reader: the others are read all the same
        text = "%s: a mistake in qindex, not read to the end: %s: %s"
        log.warning(text, unit.source, type(error).__name__, error)


def _queue_batches(
    unit: Unit, queue: DeadQueue, names: Sequence[str], choice: Choice
) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    held = 0
    for number, message in enumerate(queue.messages()):
        row = _row(queue, number, message, names, choice.now_us)
        if row["state"] in choice.states and _fits(message, row["req_id"], choice):
            rows.append(row)
            held += len(message.body) if "body" in names else 0
        if len(rows) >= ROWS or held >= _BODIES_BYTES:
            yield from from_rows(unit, "messages", names, rows)
            rows, held = [], 0
    yield from from_rows(unit, "messages", names, rows)


def _fits(message: DeadMessage, req_id: int, choice: Choice) -> bool:
    after, before, at = choice.expires_after_us, choice.expires_before_us, message.expiry_us
    return (
        choice.first <= req_id <= choice.last
        and (after is None or (at is not None and at >= after))
        and (before is None or (at is not None and at < before))
    )


def _row(
    queue: DeadQueue,
    number: int,
    message: DeadMessage,
    names: Sequence[str],
    now_us: int | None,
) -> dict[str, Any]:
    headers = message.headers
    due = headers.get("due")
    row = {
        "vhost": queue.group or None,
        "queue": queue.name,
        "req_id": getattr(message, "seq", number),
        "state": state_of(message, now_us),
        "priority": getattr(message, "priority", None),
        "due": None if due is None else int(due * 1e6),
        "expires_at": message.expiry_us,
        "delivery_count": deliveries_of(headers),
        "redelivered": message.redelivered,
        "persistent": getattr(message, "persistent", True),
        "msg_id": getattr(message, "msg_id", None),
        "size": len(message.body),
        "body": message.body,
        "exchange": getattr(message, "exchange", None),
        "routing_keys": getattr(message, "routing_keys", None),
        "file": message.file,
        "offset": message.offset,
    }
    if "headers" in names:
        others = {k: v for k, v in headers.items() if k not in ("exchange", "routing_keys")}
        if properties := properties_of(headers):
            others["properties"] = properties
        row["headers"] = headers_as_json(others)
    return row


def state_of(message: DeadMessage, now_us: int | None = None) -> str:
    """`now_us` decides what has expired, in microseconds since 1970; None: the clock."""
    if message.expiry_us and message.expiry_us <= (now_us or time.time() * 1e6):
        return "expired"
    return "unacked" if message.redelivered else "ready"
