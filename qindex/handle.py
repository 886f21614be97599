"""The core's store as Python holds it: options, opening, closing. Store and QueueIndex share it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from qindex._core import ffi, lib
from qindex.errors import StoreFailed, StoreMissing, raise_error

if TYPE_CHECKING:
    from qindex.testing.simulated import SimulatedDisk

SyncPolicy = Literal["group", "always", "never"]


class Closing:
    """A context manager that closes at its end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # An error on its way out says more than that the store failed before it was closed.
        with contextlib.suppress(StoreFailed) if error else contextlib.nullcontext():
            self.close()

    def close(self) -> None:
        """What the subclass does."""
        raise NotImplementedError


def _check(name: str, value: int, low: int, high: int) -> int:
    if not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return value


def make_options(
    sync: SyncPolicy,
    sync_interval: float,
    embed_below: int,
    message_file_size: int,
    max_journal_entries: int,
    max_journal_bytes: int,
    segment_entries: int,
    idle: float,
    read_only: bool,
    create: bool,
    io: str,
    index_only: bool,
    keep_history: int = 0,
    min_free: int = 0,
    max_messages: int | None = None,
    max_bytes: int | None = None,
) -> Any:
    if sync not in ("group", "always", "never"):
        raise ValueError(f"sync must be 'group', 'always' or 'never', not {sync!r}")
    if io not in ("auto", "mmap", "pwrite"):
        raise ValueError(f"io must be 'auto', 'mmap' or 'pwrite', not {io!r}")
    if not 0 < sync_interval <= 3600:
        raise ValueError(f"sync_interval must be seconds, above 0, not {sync_interval!r}")
    if not 0 < idle <= 3600:
        raise ValueError(f"idle must be seconds, above 0, not {idle!r}")
    options = ffi.new("qi_options *")
    options.segment_entries = _check("segment_entries", segment_entries, 0, 16384)
    options.max_journal_entries = _check("max_journal_entries", max_journal_entries, 1, 1 << 24)
    options.max_journal_bytes = _check("max_journal_bytes", max_journal_bytes, 4096, 256 << 20)
    options.embed_below = _check("embed_below", embed_below, 0, 65536)
    options.message_file_size = _check("message_file_size", message_file_size, 4096, 1 << 30)
    options.sync_interval_us = 0 if sync == "never" else max(1, int(sync_interval * 1e6))
    options.min_free = _check("min_free", min_free, 0, 1 << 62)
    if max_messages is not None:
        options.max_messages = _check("max_messages", max_messages, 1, 1 << 62)
    if max_bytes is not None:
        options.max_bytes = _check("max_bytes", max_bytes, 1, 1 << 62)
    options.keep_history = _check("keep_history", keep_history, 0, 1 << 62)
    options.idle_us = int(idle * 1e6)
    options.io = ("auto", "mmap", "pwrite").index(io)
    options.read_only = read_only
    options.create = create
    options.index_only = index_only
    options.worker = not read_only
    return options


def close_with(owner: object, handle: Any, disk: object = None) -> weakref.finalize[..., Any]:
    """Close the core's store when its owner goes, or with the interpreter, if nobody did before.

    Whoever holds what this returns holds the disk, which must outlive the store.
    """
    return weakref.finalize(owner, _close_handle, handle, weakref.ref(owner), disk)


def _close_handle(handle: Any, owner: weakref.ref[Any], _disk: object) -> None:
    lib.qi_store_close(handle)
    if owner() is None:
        lib.qi_store_free(handle)
    else:  # the interpreter ends: threads may be in the core even now, exit handlers may come to it
        lib.qi_store_leave(handle)


def directory_of(name: str) -> bytes:
    """The folder of a queue in queues/: a name never becomes a path."""
    encoded = name.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(encoded, digest_size=16).hexdigest().encode("ascii")


def open_handle(
    path: str | os.PathLike[str], options: Any, disk: SimulatedDisk | None = None
) -> tuple[str, Any]:
    """Open the core's store; the path as text and the handle."""
    text = os.fspath(path)
    result = ffi.new("qi_store **")
    if disk is None:
        code = lib.qi_store_open(os.fsencode(text), options, result)
    else:
        code = lib.qi_store_open_sim(disk.handle, options, result)
    if code == lib.QI_E_MISSING:
        raise StoreMissing(f"there is no store at {text!r}")
    if code < 0:
        raise_error(code)
    return text, result[0]
