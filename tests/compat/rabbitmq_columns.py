"""What the messages of a RabbitMQ queue are in columns, and what they have to be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Any

from qindex._core import ffi, lib
from qindex.brokers.amqp import AmqpError, decode_properties
from qindex.brokers.columns import Columns, Expired, Expiry, Wish
from qindex.brokers.rabbitmq.directory import Queue, open_node
from qindex.field_table import encode_table

# The table of its headers, body, redelivered, expiry, priority
Row = tuple[bytes, bytes, bool, int, int]
NOW = int(time.time() * 1e6)
EXPIRED: tuple[Expired, ...] = ("drop", "keep", "tell")
EXPIRY: tuple[Expiry, ...] = ("expires", "dies", "told")
WISHES = [
    Wish(NOW + 86_400_000_000 * days, expired, later_us, expiry, priority_max)
    for (expired, expiry), later_us, priority_max, days in zip(
        product(EXPIRED, EXPIRY),
        cycle((0, 7, -5, -NOW, 10**9)),
        cycle((0, 4, 255)),
        cycle((-9000, 0, 100, 0)),
        strict=False,
    )
]
PLAIN = Wish(0, "keep")
FRAME_BYTES = 100_000


# --- what the rows have to be ---------------------------------------------------------------------


def as_told(queue: Queue, wish: Wish) -> tuple[list[Row], int]:
    """What columns() has to give, said in Python, and how many have expired and are left out."""
    rows = [row_of(message, wish) for message in queue.messages()]
    return [row for row in rows if row], rows.count(None)


def row_of(message: Any, wish: Wish) -> Row | None:
    expiry_us = message.expiry_us or 0
    if 0 < expiry_us <= wish.now_us:
        if wish.expired != "keep":
            return None
        expiry_us = 0
    elif expiry_us:
        expiry_us = max(1, expiry_us + wish.later_us)
    headers = message.headers
    if expiry_us and wish.expiry == "dies":
        headers["dead_letter_at"] = expiry_us
    elif expiry_us and wish.expiry == "told":
        properties = headers.pop("properties")
        headers |= {"expires_us": expiry_us, "properties": properties}
    kept = expiry_us if wish.expiry == "expires" else 0
    priority = min(priority_of(message.properties), wish.priority_max)
    return encode_table(headers), message.body, message.redelivered, kept, priority


def priority_of(properties: bytes) -> int:
    try:
        return decode_properties(properties).priority or 0
    except AmqpError:
        return 0


# --- what they are --------------------------------------------------------------------------------


def rows_of(columns: Columns) -> Iterator[Row]:
    rows, start = columns._rows, 0
    tables = ffi.buffer(columns._tables)
    for i in range(columns.count):
        size, flags = rows.table_sizes[i], rows.flags[i]
        body = ffi.buffer(ffi.cast("char *", rows.bodies[i]), rows.body_sizes[i])[:]
        assert flags in (0, lib.QI_REDELIVERED)
        yield tables[start : start + size], body, flags != 0, rows.expiries_us[i], columns.priority
        start += size


def in_columns(queue: Queue, wish: Wish) -> tuple[list[Row], int, int]:
    """All messages, how many have expired and are left out, and how many came one by one.

    (Of the last not those whose bodies came in several frames: they always do.)
    """
    found: list[Row] = []
    expired = singles = 0
    for each in queue.columns(wish):
        if isinstance(each, Columns):
            rows = list(rows_of(each))
            assert each.body_bytes == sum(len(row[1]) for row in rows)
            assert each.redelivered == sum(row[2] for row in rows)
            assert each.dying == sum(b"\x0edead_letter_at" in row[0] for row in rows)
            found += rows
            expired += each.expired
            continue
        singles += len(each.body) < FRAME_BYTES
        row = row_of(each, wish)
        expired += row is None
        found += [row] if row else []
    return found, expired, singles


def seen_in_columns(queue: Queue, first: int, last: int) -> list[tuple[Any, ...]]:
    """What commands show of a queue: number, redelivered, expiry, headers, body."""
    found: list[tuple[Any, ...]] = []
    for part in queue.parts:
        for each in queue.columns_of(part, PLAIN, first, last):
            if isinstance(each, Columns):
                found += each.rows()
            else:
                found.append(seen(each))
    return found


def seen(message: Any) -> tuple[Any, ...]:
    told = message.redelivered, message.expiry_us or 0, encode_table(message.headers), message.body
    return (message.seq, *told)


def compare(path: Path, wish: Wish) -> tuple[int, int]:
    """How many messages there are, and how many of them came one by one."""
    count = singles = 0
    with open_node(path) as node, open_node(path) as other:
        for vhost, its in zip(node.vhosts, other.vhosts, strict=True):
            for queue, same in zip(vhost.queues, its.queues, strict=True):
                found, expired, alone = in_columns(same, wish)
                assert (found, expired) == as_told(queue, wish), queue.name
                assert same.unreadable == queue.unreadable
                count += len(found) + expired
                singles += alone
        assert other.findings == node.findings
    return count, singles
