"""Walks through a queue on both sides at once and finds for each message its partner.

What is alike is only counted, so that two sides that differ little cost little more than reading
them. A message whose partner has not come yet waits in memory; when too many wait, they go to the
table, which finds the partners among those in the end. By content, the k-th message of a content on
one side and the k-th on the other are partners, unless so many waited.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from qindex.brokers.recover import DEAD_LETTER_AT
from qindex.cli.diff.table import Row, Table
from qindex.look.messages import Found, properties_of
from qindex.look.screen import plain
from qindex.names import written

WAITING_MAX: Final = 100_000
_DIGEST_BYTES: Final = 16


class Matcher:
    """Fills a table. Call queue() once per queue, then the table's match()."""

    def __init__(self, table: Table, *, by_id: bool, ignore_state: bool) -> None:
        self._table = table
        self._by_id = by_id
        self._ignore_state = ignore_state
        self._counts = [0, 0]
        self._waiting: list[dict[Any, list[Row]]] = [{}, {}]
        self._waiting_count = 0

    def queue(self, name: str, a: Iterator[Found], b: Iterator[Found]) -> None:
        """All messages of one queue, from both sides."""
        queue = written(name)
        x, y = next(a, None), next(b, None)
        while x is not None or y is not None:
            if x and y and (self._by_id or not self._waiting_count) and self._are_alike(x, y):
                self._table.add_alike(queue, *self._counts)
                self._counts[0] += 1
                self._counts[1] += 1
                x, y = next(a, None), next(b, None)
                continue
            x_is_behind, y_is_behind = self._who_is_behind(x, y)
            if x is not None and not y_is_behind:
                self._take(queue, 0, x)
                x = next(a, None)
            if y is not None and not x_is_behind:
                self._take(queue, 1, y)
                y = next(b, None)
        self._give_up()

    def _who_is_behind(self, x: Found | None, y: Found | None) -> tuple[bool, bool]:
        """By id, the one with the lower ReqId catches up; by content nobody knows."""
        if not self._by_id or x is None or y is None:
            return False, False
        ours, theirs = (x.part, x.req_id), (y.part, y.req_id)
        return ours < theirs, theirs < ours

    def _are_alike(self, x: Found, y: Found) -> bool:
        """Byte for byte; false says nothing: headers of two formats may be equal all the same."""
        return (
            x.body == y.body
            and type(x.table) is type(y.table)
            and x.table == y.table
            and (not self._by_id or (x.req_id, x.part) == (y.req_id, y.part))
            and (self._ignore_state or self._state(x) == self._state(y))
        )

    def _take(self, queue: str, side: int, message: Found) -> None:
        row = self._row(queue, side, message)
        key = (row.part, row.req_id) if self._by_id else row.content
        partners = self._waiting[1 - side].get(key)
        if partners:
            partner = partners.pop(0)
            self._waiting_count -= 1
            if not partners:
                del self._waiting[1 - side][key]
            self._pair(*((row, partner) if side == 0 else (partner, row)))
            return
        self._waiting[side].setdefault(key, []).append(row)
        self._waiting_count += 1
        if self._waiting_count > WAITING_MAX:
            self._give_up()

    def _pair(self, a: Row, b: Row) -> None:
        if a.content == b.content and a.state == b.state:
            self._table.add_alike(a.queue, a.number, b.number)
        else:
            self._table.add(a, partner=b)
            self._table.add(b)

    def _give_up(self) -> None:
        """The table has them: their partners may be there, too."""
        for waiting in self._waiting:
            for rows in waiting.values():
                for row in rows:
                    self._table.add(row)
            waiting.clear()
        self._waiting_count = 0

    def _state(self, message: Found) -> str:
        """By content `redelivered` counts: salvage and recover carry it over, not who had it."""
        kind = message.state
        if not self._by_id and kind in ("ready", "unacked"):
            kind = "redelivered" if message.redelivered else "ready"
        kind = kind if message.persistent else f"{kind}, transient"
        expiry_us = message.expiry_us or _dead_letter_at(message)
        # In milliseconds: an expiry goes through a float where messages are recovered.
        return f"{kind}, expires at {expiry_us // 1000} ms" if expiry_us else kind

    def _row(self, queue: str, side: int, message: Found) -> Row:
        body = hashlib.blake2b(message.body, digest_size=_DIGEST_BYTES).digest()
        table = message.table
        canonical, message_id = _canonical(table) if isinstance(table, bytes) else _of(table)
        content = hashlib.blake2b(body + canonical, digest_size=_DIGEST_BYTES).digest()
        state = "" if self._ignore_state else self._state(message)
        number = self._counts[side]
        self._counts[side] += 1
        place = message.part, message.req_id
        return Row(side, number, queue, *place, body, content, message_id, state, len(message.body))


def _dead_letter_at(message: Found) -> int:
    """A recovery makes the expiry a header in queues that pass on what dies."""
    if DEAD_LETTER_AT.encode() not in message.table if isinstance(message.table, bytes) else True:
        return 0
    told = message.headers.get(DEAD_LETTER_AT)
    return told if isinstance(told, int) else 0


@lru_cache(maxsize=1024)
def _canonical(table: bytes) -> tuple[bytes, str | None]:
    """Most messages of a queue have the same headers."""
    return _of(Found("", 0, "", False, 0, True, 0, table, b"").headers)


def _of(headers: dict[str, Any]) -> tuple[bytes, str | None]:
    """(the headers in one form for all formats, the AMQP message_id)"""
    message_id = properties_of(headers).get("message_id")
    content = {key: value for key, value in headers.items() if key != DEAD_LETTER_AT}
    text = json.dumps(plain(content), sort_keys=True)
    return text.encode("ascii"), None if message_id is None else written(str(message_id))
