"""What makes every message of a foreign or damaged directory storable: the one place for it.

A reader gives back what the files say, and a damaged or strange file may say what no store takes:
an expiry in the year 290,000, an int of 65 bits, headers of 20 MB. `publish()` first tries a batch
as it is, which costs nothing. If the store refuses a value, each message of the batch is fitted on
its own: its body stays as it is, and each value that cannot be stored is replaced or left out. What
was changed is counted in `Changes`, by what it was; a message that the store refuses all the same
is counted as unstorable.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from qindex.arguments import DELAY_MAX
from qindex.field_table import SHORTSTR_BYTES_MAX, TABLE_BYTES_MAX, encode_table
from qindex.names import as_bytes, is_unicode, written

NAME_BYTES_MAX: Final = 65_535  # of a queue's name, in UTF-8
EXPIRY_US_MAX: Final = (1 << 43) * 1_000_000 - 1_000_000
DUE_US_MAX: Final = (1 << 35) * 1_000_000 - 1_000_000
LEASE_US_MAX: Final = int(DELAY_MAX) * 1_000_000 - 1_000_000
PRIORITY_MAX: Final = 255
LEFT_OUT: Final = "left_out"  # the header that names the headers that are too long

_TEXT_CHARACTERS_MAX: Final = 65_536
Item = TypeVar("Item")


@dataclass(slots=True)
class Changes:
    """What had to be changed so that messages could be stored."""

    changed: int = 0  # messages
    unstorable: int = 0  # messages that are not in the store
    kinds: Counter[str] = field(default_factory=Counter)  # messages, by what was changed

    def add(self, kinds: Sequence[str]) -> None:
        self.changed += bool(kinds)
        self.kinds.update(kinds)

    def lose(self, reason: str) -> None:
        self.unstorable += 1
        self.kinds[f"not stored: {reason}"] += 1


@dataclass(slots=True)
class Row:
    """A message as it is published."""

    body: bytes
    headers: dict[str, Any]
    redelivered: bool = False
    expiry_us: int | None = None  # microseconds since 1970; None: never


def storable_name(name: str) -> str:
    """A queue's name as it is, or the written form of one that is not valid Unicode.

    One that is too long is cut and ends with its digest.
    """
    text = _as_unicode(name)
    raw = text.encode()
    if len(raw) <= NAME_BYTES_MAX:
        return text
    digest = hashlib.sha256(as_bytes(name)).hexdigest()[:32]
    return raw[: NAME_BYTES_MAX - 33].decode(errors="ignore") + "~" + digest


def _as_unicode(name: str) -> str:
    return name if is_unicode(name) else written(name)


def publish_each(
    publish: Callable[[list[Item]], object],
    batch: list[Item],
    fit: Callable[[Item], list[str]],
    changes: Changes,
) -> list[Item]:
    """Publishes a batch, and returns the messages that are in the store.

    If the batch is refused, `fit` changes each message in place and says what it changed; then they
    are published one by one. A batch is stored whole or not at all, so nothing is stored twice.
    """
    try:
        publish(batch)
        return batch
    except (TypeError, ValueError, OverflowError):
        pass
    stored = []
    for item in batch:
        kinds = fit(item)
        try:
            publish([item])
        except (TypeError, ValueError, OverflowError) as error:
            changes.lose(str(error))
        else:
            changes.add(kinds)
            stored.append(item)
    return stored


def fit_row(row: Row) -> list[str]:
    """What had to be changed in it."""
    kinds: list[str] = []
    row.headers = fit_headers(row.headers, kinds)
    row.expiry_us = fit_expiry(row.expiry_us, kinds) or None
    return kinds


def unfit(headers: Mapping[str, Any], expiry_us: int | None) -> list[str]:
    """What a recovery would have to change of a message. Empty of almost all; cost: its headers."""
    kinds: list[str] = []
    if _size(headers) is None:
        fit_headers(headers, kinds)
    if (expiry_us or 0) > EXPIRY_US_MAX:
        fit_expiry(expiry_us, kinds)
    return kinds


def fit_expiry(expiry_us: int | None, kinds: list[str]) -> int:
    """0: never."""
    if not expiry_us or 0 < expiry_us <= EXPIRY_US_MAX:
        return expiry_us or 0
    kinds.append("an expiry that is no date was left out")
    return 0


def fit_due(due_us: int, kinds: list[str]) -> int:
    if 0 <= due_us <= DUE_US_MAX:
        return due_us
    kinds.append("a delay beyond any date became the longest that there is")
    return DUE_US_MAX


def fit_lease(lease_us: int, kinds: list[str]) -> int:
    """0: it has none of its own."""
    if 0 <= lease_us <= LEASE_US_MAX:
        return lease_us
    kinds.append("a lease of its own that is too long became the longest that there is")
    return LEASE_US_MAX


def fit_priority(priority: int | None, kinds: list[str]) -> int:
    if priority is None or 0 <= priority <= PRIORITY_MAX:
        return priority or 0
    kinds.append(f"a priority that is not 0 to {PRIORITY_MAX} became the nearest one")
    return min(max(0, priority), PRIORITY_MAX)


def fit_headers(headers: Mapping[str, Any], kinds: list[str]) -> dict[str, Any]:
    """Headers that encode_table() takes."""
    fitted: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    for name, value in headers.items():
        key = _fit_key(name, fitted, kinds)
        for candidate in _candidates(value):
            size = _size({key: candidate})
            if size is not None:
                break
        else:
            continue  # no text of it either, which cannot be: the last candidate is short
        if candidate is not value:
            kinds.append(f"the header {key!r} cannot be stored as it is and is kept as text")
        fitted[key], sizes[key] = candidate, size
    left_out = []
    while fitted and (_size(fitted) is None):
        longest = max(sizes, key=lambda key: sizes[key])
        del fitted[longest], sizes[longest]
        kinds.append(f"the header {longest!r} was left out: more than {TABLE_BYTES_MAX:,} bytes")
        left_out.append(longest)
        fitted[LEFT_OUT], sizes[LEFT_OUT] = left_out, 0
    return fitted


def _fit_key(name: Any, taken: Mapping[str, Any], kinds: list[str]) -> str:
    key = name if isinstance(name, str) else str(name)
    raw = _as_unicode(key).encode()
    if _size({key: None}) is None or len(raw) > SHORTSTR_BYTES_MAX:
        key = raw[: SHORTSTR_BYTES_MAX - 8].decode(errors="ignore")
        kinds.append("the name of a header cannot be stored as it is and was cut")
    number, unique = 1, key
    while unique in taken:
        number += 1
        unique = f"{key}~{number}"
    return unique


def _candidates(value: Any) -> Iterator[Any]:
    """The value, and what stands for it if it cannot be stored; the last one always can."""
    yield value
    if isinstance(value, str):
        yield value.encode("utf-8", "surrogatepass")
    if isinstance(value, (bytes, bytearray, str)):
        yield b""
    else:
        text = str(value)[:_TEXT_CHARACTERS_MAX]
        yield text.encode("utf-8", "backslashreplace").decode()


def _size(table: Mapping[str, Any]) -> int | None:
    """Of the encoded table; None: it cannot be encoded."""
    try:
        return len(encode_table(table))
    except (TypeError, ValueError, OverflowError):
        return None
