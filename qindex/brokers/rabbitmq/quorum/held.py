"""Messages as the machine holds them, and the lines in which they wait.

A machine never holds bodies: a message is the index of the entry that has it, and what happened to
it. Lines hold twelve bytes a message, twenty where messages expire, so that millions may wait.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_DROP_AT: Final = 65536
NEVER: Final = 0  # in place of an expiry
DEFAULT_PRIORITY: Final = 4
PRIORITY_MAX: Final = 31
_SIZE_MAX: Final = 0xFFFFFFFF
_HIGH: Final = 5  # from this priority on, where there are two lines
_IN_A_ROW: Final = 2  # high ones before the next normal one


class Held(NamedTuple):
    """One message. Counts are None as long as nothing was counted."""

    index: int  # type: ignore[assignment]  # of the entry that has it; -1: only a snapshot knows it
    size: int = 0
    expiry_ms: int = NEVER
    deliveries: int | None = None
    acquired: int | None = None
    notes: dict[Any, Any] | None = None


_new: Final = tuple.__new__  # of a named tuple: twice as fast as by its name


class Line:
    """Messages of which nothing is known but index, size and expiry: first in, first out."""

    __slots__ = ("_expiries", "_first", "_indexes", "_sizes")

    def __init__(self) -> None:
        self._indexes = array("q")
        self._sizes = array("I")
        self._expiries: array[int] | None = None
        self._first = 0

    def __len__(self) -> int:
        return len(self._indexes) - self._first

    def put(self, index: int, size: int, expiry_ms: int) -> None:
        if expiry_ms and self._expiries is None:
            self._expiries = array("q", bytes(8 * len(self._indexes)))
        self._indexes.append(index)
        self._sizes.append(size if size < _SIZE_MAX else _SIZE_MAX)
        if self._expiries is not None:
            self._expiries.append(expiry_ms)

    def first(self) -> tuple[int, int, int]:
        """index, size, expiry of the next one; there has to be one."""
        at = self._first
        expiry = self._expiries[at] if self._expiries is not None else NEVER
        return self._indexes[at], self._sizes[at], expiry

    def indexes(self) -> list[int]:
        return list(self._indexes[self._first :])

    def places(self) -> Iterator[tuple[int, int]]:
        """(index, size) of each."""
        return zip(self._indexes[self._first :], self._sizes[self._first :], strict=True)

    def take(self) -> tuple[int, int, int]:
        at = self._first
        expiry = self._expiries[at] if self._expiries is not None else NEVER
        taken = self._indexes[at], self._sizes[at], expiry
        self._first = at = at + 1
        if at >= _DROP_AT and at * 2 > len(self._indexes):
            for column in (self._indexes, self._sizes, self._expiries):
                if column is not None:
                    del column[: self._first]
            self._first = 0
        return taken


class Ready:
    """The line or lines of messages that wait to be delivered for the first time.

    `kind` is that of Rules.lines. Messages that already have counts stand in `odd` by their index.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.odd: dict[int, Held] = {}
        self.lines: dict[int, Line] = {}  # by what comes first: a smaller number
        self._lines_by_priority: dict[int, Line] = {}  # that messages came with
        self._only: Line | None = None  # the line, if there is but one
        self._one: Line | None = None  # the same, if there never is another one
        self.taken = 0  # where there are two lines: for whose turn it is
        self.expires = False  # whether any message here ever had an expiry
        self.length = 0

    def __len__(self) -> int:
        return self.length

    def put(self, message: Held, priority: int = DEFAULT_PRIORITY) -> None:
        index, size, expiry, *counts = message
        if counts != [None, None, None]:
            self.odd[index] = message
        self.put_new(index, size, expiry, priority)

    def put_new(self, index: int, size: int, expiry_ms: int, priority: int) -> None:
        """put() of one without counts."""
        line = self._one
        if line is None:
            line = self._lines_by_priority.get(priority)
            if line is None:
                line = self._line_of(priority)
        line.put(index, size, expiry_ms)
        self.length += 1
        if expiry_ms:
            self.expires = True

    def _line_of(self, priority: int) -> Line:
        if self.kind == "one":
            key = 0
        elif self.kind == "two":
            key = 0 if priority >= _HIGH else 1
        else:
            key = PRIORITY_MAX - max(0, min(priority, PRIORITY_MAX))
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = Line()
            self._only = line if len(self.lines) == 1 else None
            self._one = self._only if self.kind == "one" else None
        if priority <= PRIORITY_MAX:  # others are rare, and may be as many as there are messages
            self._lines_by_priority[priority] = line
        return line

    def _next_line(self) -> Line:
        if self._only is not None:
            return self._only
        filled = [key for key, line in self.lines.items() if len(line)]
        if self.kind == "two" and len(filled) == 2 and self.taken == _IN_A_ROW:
            high, normal = self.lines[0], self.lines[1]
            return high if high.first()[0] < normal.first()[0] else normal
        return self.lines[min(filled)]

    def indexes(self) -> list[int]:
        """Of all that are here, line by line."""
        return [index for key in sorted(self.lines) for index in self.lines[key].indexes()]

    def first(self) -> Held:
        """The next one; there has to be one."""
        found = self._next_line().first()
        return self.odd.get(found[0]) or Held(*found)

    def first_expiry(self) -> int:
        """When the next one expires, or NEVER."""
        return self._next_line().first()[2] if self.expires and self.length else NEVER

    def take(self) -> Held:
        """The next one, which leaves its line."""
        line = self._only
        if line is None:
            line = self._next_line()
        if self.kind == "two":
            self.taken = 0 if self.taken == _IN_A_ROW else self.taken + 1
        index, size, expiry = line.take()
        self.length -= 1
        if self.odd and index in self.odd:
            return self.odd.pop(index)
        return _new(Held, (index, size, expiry, None, None, None))

    def passed(self) -> None:
        """One was delivered."""
        self.taken = 0 if self.taken == _IN_A_ROW else self.taken + 1

    def take_expired(self, now_ms: int) -> Iterator[Held]:
        """Those at the head of any line that have expired, of the most urgent line first."""
        for key in sorted(self.lines):
            line = self.lines[key]
            while len(line) and 0 < line.first()[2] <= now_ms:
                held = Held(*line.take())
                self.length -= 1
                yield self.odd.pop(held.index, held)

    def moved_to(self, kind: str) -> Ready:
        """The same messages in the lines of another version of the machine."""
        other = Ready(kind)
        other.odd, other.expires = self.odd, self.expires
        for key in sorted(self.lines):
            line = self.lines[key]
            priority = 9 if self.kind == "two" and key == 0 else DEFAULT_PRIORITY
            while len(line):
                other.put_new(*line.take(), priority)
        return other
