"""Found messages, published into a store as what they are: for salvage and replay --out.

Deliveries that a message had where it was found are noted behind its publish. A message that was
delivered as often as it may be gets one less, so that somebody gets it once more.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import Final

import qindex
from qindex._core import ffi, lib
from qindex.brokers.storable import (
    Changes,
    fit_due,
    fit_expiry,
    fit_headers,
    fit_lease,
    fit_priority,
    publish_each,
)
from qindex.errors import raise_error
from qindex.look.messages import Found
from qindex.native.times import TAKEN_BACK

COUNT_MAX: Final = 65535
LEASE_LEFT_OUT: Final = "its own lease was left out: the new store has format 1"
HELD: Final = 86400.0  # seconds, for one call
_RECORDS_MAX: Final = 65535  # of one frame


def put(queue: qindex.Queue, batch: list[Found], changes: Changes) -> list[Found]:
    """In order, with priorities; what is delayed stays so. One call for those that are alike.

    What a store does not take is changed and counted; returns the messages that are in the store.
    """
    stored: list[Found] = []
    if not queue._store._stores_settings:
        for found in batch:
            if found.lease_us:
                found.lease_us = 0
                changes.add([LEASE_LEFT_OUT])
    for _, alike in groupby(batch, _place):
        stored += publish_each(partial(_publish, queue), list(alike), _fit, changes)
    return stored


def _publish(queue: qindex.Queue, row: list[Found]) -> None:
    priority, due_at, lease_us = _place(row[0])
    counts = queue._store._stores_settings  # of format 2: else it is one delivery
    req_ids = queue.publish_many(
        [found.body for found in row],
        headers=[found.headers for found in row],
        persistent=[found.persistent for found in row],
        redelivered=[found.redelivered and not (found.delivery_count or counts) for found in row],
        expires_at=[found.expires_at for found in row],
        priority=priority,
        due=due_at,
        lease=(lease_us + 0.5) / 1e6 if lease_us else None,  # cut to microseconds there
    )
    pairs = zip(req_ids, row, strict=True)
    had = [(req_id, found.delivery_count) for req_id, found in pairs if _was_had(found, counts)]
    for some in _in_frames(had):
        numbers = array("Q", [req_id for req_id, _ in some])
        times = array("H", [count for _, count in some])
        code = lib.qi_had(
            queue._handle,
            ffi.from_buffer("uint64_t[]", numbers),
            ffi.from_buffer("uint16_t[]", times),
            len(some),
        )
        if code < 0:
            raise_error(code)


def _was_had(found: Found, counts: bool) -> bool:
    return found.delivery_count > 0 or (found.redelivered and counts)


def _in_frames(had: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    some: list[tuple[int, int]] = []
    records = 0
    for each in had:
        if some and records + each[1] >= _RECORDS_MAX:
            yield some
            some, records = [], 0
        some.append(each)
        records += each[1] + 1
    if some:
        yield some


def once_more(found: Found, most: int | None) -> bool:
    """Whether somebody gets it once more only if its count is one less, as it is made then.

    `most`: the deliveries that its queue allows, 0: any number; None: not known. Then it is that
    for a message that was taken back from the dead letters.
    """
    count = min(found.delivery_count, COUNT_MAX)
    taken_back = found.due_us == TAKEN_BACK
    is_spent = count > 0 and (taken_back if most is None else most > 0 and count % most == 0)
    found.delivery_count = count - is_spent
    return is_spent


def _place(found: Found) -> tuple[int, float | None, int]:
    due_at = found.due_at if found.state == "delayed" else None
    return found.priority or 0, due_at, found.lease_us


def _fit(found: Found) -> list[str]:
    kinds: list[str] = []
    found.table = fit_headers(found.headers, kinds)
    found.expiry_us = fit_expiry(found.expiry_us, kinds)
    found.due_us = fit_due(found.due_us, kinds)
    found.lease_us = fit_lease(found.lease_us, kinds)
    found.priority = fit_priority(found.priority, kinds)
    return kinds


def size_of(found: Found) -> int:
    """Of a message in memory, about."""
    return len(found.body) + len(found.table)


def put_dead(queue: qindex.Queue, batch: list[Found], changes: Changes) -> list[Found]:
    """As dead letters, into a queue that keeps them and has nothing else: they are `rejected` now.

    An expiry that has passed is left out: they would be gone before they are dead.
    """
    now_us = time.time() * 1e6
    for found in batch:
        found.state = "ready"
        found.expiry_us = 0 if found.expiry_us <= now_us else found.expiry_us
        found.delivery_count = max(0, found.delivery_count - 1)  # it dies of one here
    stored = put(queue, batch, changes)
    while taken := queue.get_many(len(batch), lease=HELD):  # not its own, which may be over at once
        queue.nack_many(taken, requeue=False)
    return stored
