"""What a store has beside its messages: its format, the settings of its queues, and data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

import qindex
from qindex.look.text import printable, queue_text

LOGS: Final = ("commits", "catalog")  # of format 2 only
Format: TypeAlias = Literal[1, 2]
PIECE: Final = 256 << 10  # bytes of entries that are changed at once


def format_to_make(root: Path, store: qindex.Store | None, out: str) -> Format | None:
    """That of the damaged store; None: there is a store already, which keeps its own."""
    if Path(out, "store.meta").exists():
        return None
    if store is not None:
        return 2 if store.stats().format == 2 else 1
    return 2 if any((root / name).exists() for name in LOGS) else 1


def carry_over(store: qindex.Store, target: qindex.Store, names: list[str]) -> list[str]:
    """Copy settings and data of the store and these queues, behind the messages.

    Returns what is left out, in words.
    """
    if not store._stores_settings:
        return []
    left: list[str] = []
    if not target._stores_settings:
        for name in names:
            queue = store.queue(name, create=False)
            if queue.settings != qindex.Settings() or len(queue.data):
                left.append(f"{queue_text(name)}: settings and data: the new store has format 1")
        if len(store.data):
            left.append("the data of the store: the new store has format 1")
        return left
    for name in names:
        try:
            left += _of_queue(store.queue(name, create=False), target.queue(name, create=False))
        except qindex.QindexError as error:
            left.append(f"{queue_text(name)}: settings and data: {error}")
    try:
        _copy_data(store.data, target.data)
    except qindex.QindexError as error:
        left.append(f"the data of the store: {error}")
    return left


def _of_queue(source: qindex.Queue, target: qindex.Queue) -> Iterator[str]:
    _copy_data(source.data, target.data)
    settings = source.settings
    try:
        target.configure(**asdict(settings))
    except qindex.QueueMissing:
        place = printable(str(settings.dead_letters))
        yield f"{queue_text(source.name)}: dead letters stay: their queue {place} is not there"
        target.configure(**asdict(replace(settings, dead_letters=True)))
    except ValueError as error:  # they name the queue itself, as renames once allowed
        yield f"{queue_text(source.name)}: dead letters stay: {error}"
        target.configure(**asdict(replace(settings, dead_letters=True)))


def _copy_data(source: qindex.Data, target: qindex.Data) -> None:
    """In the order of the keys; a change() takes 512 KiB."""
    some: dict[bytes, bytes | None] = {}
    size = 0
    for key, value in source.copy().items():
        if some and size + len(key) + len(value) > PIECE:
            target.change(some)
            some, size = {}, 0
        some[key] = value
        size += len(key) + len(value) + 6
    if some:
        target.change(some)


def not_read(root: Path) -> list[str]:
    """What is left out of a store of format 2 that the engine does not open."""
    if any((root / name).exists() for name in LOGS):
        return ["settings of queues, and data: they are not read where the store cannot be opened"]
    return []
