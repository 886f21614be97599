"""Messages of a dead broker's queue as the core publishes them: many at once, no object for each.

A queue that can has a method `columns(wish)`. It gives what messages() gives, in the same order: as
Columns where nothing is the matter with the messages, and one by one where something is, or where
the caller has to decide what becomes of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

from qindex._core import ffi, lib
from qindex.errors import raise_error

if TYPE_CHECKING:
    from qindex.queue import Queue

Expired: TypeAlias = Literal["drop", "keep", "tell"]
Expiry: TypeAlias = Literal["expires", "dies", "told"]
Message = TypeVar("Message")
_BYTES: Final = ffi.typeof("char *")


@dataclass(frozen=True, slots=True)
class Wish:
    """What becomes of the messages.

    `expired`: of those that have expired by `now_us` (microseconds since 1970). "drop": they are
    counted and left out; "keep": they never expire again; "tell": they come one by one.
    `expiry`: of those that expire later. "expires": they do so in the store; "dies": they do not,
    but have the header dead_letter_at; "told": the header is expires_us.
    `priority_max`: messages are put apart by the priority in their properties, this one at most.
    """

    now_us: int
    expired: Expired
    later_us: int = 0  # added to each expiry
    expiry: Expiry = "expires"
    priority_max: int = 0


class Columns:
    """Messages in the order of their queue; valid until what follows them is asked for."""

    __slots__ = ("_rows", "_tables")

    def __init__(self, rows: Any, tables: Any) -> None:
        self._rows = rows  # a qi_rabbit_rows, whose bodies stay where they are
        self._tables = tables  # their headers, as the engine stores them

    @property
    def count(self) -> int:
        return self._rows.count  # type: ignore[no-any-return]

    @property
    def priority(self) -> int:
        """Of each of them, if Wish.priority_max asks for that; else 0."""
        return self._rows.priority  # type: ignore[no-any-return]

    @property
    def body_bytes(self) -> int:
        return self._rows.body_bytes  # type: ignore[no-any-return]

    @property
    def redelivered(self) -> int:
        return self._rows.redelivered  # type: ignore[no-any-return]

    @property
    def dying(self) -> int:
        """How many have the header dead_letter_at."""
        return self._rows.dying  # type: ignore[no-any-return]

    @property
    def expired(self) -> int:
        """How many between them have expired and are left out."""
        return self._rows.expired  # type: ignore[no-any-return]

    def rows(self) -> Iterator[tuple[int, bool, int, bytes, bytes]]:
        """Of each its number, whether it is redelivered, expiry, headers as a table, and body."""
        found, count = self._rows, self.count
        sizes = ffi.unpack(found.table_sizes, count)
        tables, start = ffi.buffer(self._tables, sum(sizes)), 0
        columns = (found.seqs, found.flags, found.expiries_us, found.bodies, found.body_sizes)
        each = zip(*(ffi.unpack(column, count) for column in columns), sizes, strict=True)
        for seq, flags, expiry_us, body, body_size, size in each:
            table = tables[start : start + size]
            yield (
                seq,
                flags != 0,
                expiry_us,
                table,
                ffi.buffer(ffi.cast(_BYTES, body), body_size)[:],
            )
            start += size

    def publish(self, queue: Queue) -> None:
        """All of them or none, in one batch. Errors as those of Queue.publish_many()."""
        rows = self._rows
        if not rows.count:
            return
        first = lib.qi_publish_bodies(
            queue._handle,
            rows.count,
            rows.bodies,
            rows.body_sizes,
            self._tables,
            rows.table_sizes,
            self.priority << lib.QI_PRIORITY_SHIFT,  # and expiry and due time of all of them
            0,
            0,
            rows.flags,
            rows.expiries_us,
        )
        if first < 0:
            raise_error(first)


def apart(found: Iterable[Columns | Message]) -> Iterator[Columns | Iterator[Message]]:
    """What columns() gives: the messages that come one by one between two Columns together."""
    for in_columns, some in groupby(found, key=lambda each: type(each) is Columns):
        if in_columns:
            yield from cast(Iterator[Columns], some)
        else:
            yield cast(Iterator[Message], some)
