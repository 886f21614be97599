"""What a virtual host remembers besides messages: exchanges, queues, bindings.

A catalog is a mapping of text to bytes. `apply()` changes several keys: after a crash the first of
these changes are there, or all, or none; up to 256 KiB of them all or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import qindex

_PIECE_BYTES: Final = 256 * 1024  # a store takes twice as much at once; one entry may have more


class Catalog(Protocol):
    def items(self) -> Iterator[tuple[str, bytes]]:
        """All entries, in the order in which they were added."""

    def apply(self, changes: Mapping[str, bytes | None]) -> None:
        """Set these keys, remove those with None. Durable when it returns, if anything is."""


class MemoryCatalog:
    """A catalog that is gone with the process."""

    def __init__(self) -> None:
        self._entries: dict[str, bytes] = {}

    def items(self) -> Iterator[tuple[str, bytes]]:
        return iter(self._entries.items())

    def apply(self, changes: Mapping[str, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = value


class StoreCatalog:
    """A catalog in a store's own mapping: one change is one frame of its commit log.

    Very many changes are several frames, in their order. So what depends on others has to be
    removed before them: bindings before their queue.
    """

    def __init__(self, store: qindex.Store) -> None:
        self._data = store.data

    def items(self) -> Iterator[tuple[str, bytes]]:
        for key, value in self._data.copy().items():
            yield key.decode("utf-8", "surrogateescape"), value

    def apply(self, changes: Mapping[str, bytes | None]) -> None:
        piece: dict[bytes, bytes | None] = {}
        size = 0
        for name, value in changes.items():
            key = name.encode("utf-8", "surrogateescape")
            piece[key] = value
            size += len(key) + len(value or b"")
            if size > _PIECE_BYTES:
                self._data.change(piece, confirm=True)
                piece, size = {}, 0
        if piece:
            self._data.change(piece, confirm=True)
