"""Opening a store: its options, and what they are without being named."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Literal

from qindex.handle import SyncPolicy, make_options, open_handle
from qindex.store import Store

if TYPE_CHECKING:
    from qindex.testing.simulated import SimulatedDisk

EMBED_BELOW: Final = 4096  # measured, see tools/bench/embed.py
MESSAGE_FILE_SIZE: Final = 16 * 1024 * 1024
MAX_JOURNAL_ENTRIES: Final = 65536
MAX_JOURNAL_BYTES: Final = 32 * 1024 * 1024
IDLE_SECONDS: Final = 1.0


def open(  # noqa: A001 - qindex.open is the module's own verb
    path: str | os.PathLike[str],
    *,
    sync: SyncPolicy = "group",
    sync_interval: float = 0.005,
    embed_below: int = EMBED_BELOW,
    message_file_size: int = MESSAGE_FILE_SIZE,
    max_journal_entries: int = MAX_JOURNAL_ENTRIES,
    max_journal_bytes: int = MAX_JOURNAL_BYTES,
    segment_entries: int = 0,
    idle: float = IDLE_SECONDS,
    min_free: int = 0,
    max_messages: int | None = None,
    max_bytes: int | None = None,
    keep_history: int = 0,
    expire: bool = True,
    read_only: bool = False,
    create: bool = True,
    io: Literal["auto", "mmap", "pwrite"] = "auto",
    disk: SimulatedDisk | None = None,
) -> Store:
    """Open a store directory; create it (not its parents) if it is not there.

    sync: "group" (default) syncs in the background every `sync_interval` seconds; "always" before
    each publish and ack returns; "never" only on sync() and close(), and where files come and go
    (a queue is created, opened, flushed). embed_below: headers and body below this many bytes stand
    in the index itself, bigger ones in the message store.
    segment_entries is fixed at creation (0: 16384, or as the store has it). After `idle` seconds
    without use a queue closes its files. min_free: publishes that need more of the disk than would
    leave so many bytes free raise DiskFull; acks and flushes go on. max_messages, max_bytes:
    publishes that would leave more waiting in all queues together (headers and bodies; dead letters
    not counted) raise StoreFull; then opening reads the journals of all queues. keep_history: so
    many bytes per queue of journals that were flushed, and of segment files that they begin with,
    stay for `qindex replay`; the oldest go first, and all of them when the disk runs out of space.
    expire=False: no message leaves by itself because it has expired; for tools, which do not know
    what rules the queues have in the programs that use them. read_only looks at a store, also one
    that a process has open, and changes nothing. io: "auto" maps files on local file systems that
    keep what they allocated, and uses pwrite elsewhere. disk: for tests, see qindex.testing; the
    path is only a name then.

    Raises StoreLocked, FormatError, StoreCorrupt, StoreMissing, DiskError, DiskFull, ValueError.
    Cost: a few small files; queues are read when they are asked for.
    """
    options = make_options(
        sync,
        sync_interval,
        embed_below,
        message_file_size,
        max_journal_entries,
        max_journal_bytes,
        segment_entries,
        idle,
        read_only,
        create,
        io,
        index_only=False,
        keep_history=keep_history,
        min_free=min_free,
        max_messages=max_messages,
        max_bytes=max_bytes,
    )
    text, handle = open_handle(path, options, disk)
    store = Store(
        text,
        handle,
        read_only=read_only,
        sync_policy=sync,
        expire=expire,
        disk=disk,
        counts_bytes=max_bytes is not None and not read_only,
    )
    if not read_only and disk is None:
        _settle_batches(store)
    return store


def _settle_batches(store: Store) -> None:
    """What of a batch of Spark's that was cut off is here is known only until somebody gets."""
    if not os.path.isdir(f"{store.path}/spark"):  # noqa: PTH112 - lighter
        return
    from qindex.spark.sink_commit import settle

    try:
        settle(store)
    except BaseException:
        store.close()
        raise
