"""Opening a store: its options and their defaults."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Literal

from qindex.arguments import boolean
from qindex.errors import QindexError
from qindex.handle import Disk, open_handle
from qindex.lines import say
from qindex.options import (
    EMBED_BELOW,
    IDLE_SECONDS,
    MAX_JOURNAL_BYTES,
    MAX_JOURNAL_ENTRIES,
    MESSAGE_FILE_SIZE,
    SYNC_INTERVAL,
    IoMode,
    Options,
    SyncPolicy,
)
from qindex.renaming import end_renaming
from qindex.store import Store
from qindex.store_log import listen


def open(  # noqa: A001 - qindex.open is the module's own verb
    path: str | os.PathLike[str],
    *,
    sync: SyncPolicy = "group",
    sync_interval: float = SYNC_INTERVAL,
    embed_below: int = EMBED_BELOW,
    message_file_size: int = MESSAGE_FILE_SIZE,
    max_journal_entries: int = MAX_JOURNAL_ENTRIES,
    max_journal_bytes: int = MAX_JOURNAL_BYTES,
    segment_entries: int = 0,
    idle: float = IDLE_SECONDS,
    max_open_files: int | None = None,
    max_memory: int | None = None,
    min_free: int = 0,
    max_messages: int | None = None,
    max_bytes: int | None = None,
    keep_history: int = 0,
    expire: bool = True,
    read_only: bool = False,
    create: bool = True,
    io: IoMode = "auto",
    format: Literal[1, 2] | None = None,  # noqa: A002 - what everybody calls it
    upgrade: bool = False,
    disk: Disk | None = None,
) -> Store:
    """Open the store in a directory; create it (not the folders above it) if it is not there.

    Durability:

    - `sync`: "group" syncs in the background every `sync_interval` seconds; "always" syncs before
      each publish and ack returns; "never" syncs only on sync() and close(), and where files come
      and go (a queue is created, opened or flushed).
    - `io`: "mmap" maps files, "pwrite" does not; "auto" maps on local file systems that keep what
      they have allocated.

    Sizes:

    - `embed_below`: headers and body of fewer bytes than this stand in the index itself, longer
      ones in message files of about `message_file_size` bytes. Of a message whose publisher waits
      for the sync (`confirm`), four times as many.
    - `max_journal_entries`, `max_journal_bytes`: a longer journal is flushed to segments.
    - `segment_entries`: fixed at creation; 0 means 16384, or what the store has.

    Limits:

    - `max_messages`, `max_bytes`: a publish that would leave more waiting in all queues together
      (headers and bodies; dead letters not counted) raises StoreFull. With one of these, opening
      reads the journals of all queues.
    - `min_free`: a publish that would leave fewer bytes of the disk free raises DiskFull. Acks and
      flushes go on.
    - `max_open_files`: file descriptors (24 or more) for all stores of this process together; the
      smallest number that an open store names counts. Without it, half of what RLIMIT_NOFILE
      allows; never more than three quarters. When they are in use, the queue that was used the
      longest time ago closes its files until it is used again.
    - `max_memory`: bytes of memory (16 MiB or more) for what all stores of this process keep of
      their messages in memory; the smallest number that an open store names counts. Without it,
      half of the memory of the machine, or of its container. From three quarters on, the queues
      that were used the longest time ago are flushed, and their memory is freed. Above it a publish
      raises StoreFull; gets and acks go on.
    - `idle`: a queue that was not used for this many seconds closes its files.

    What happens to messages and files:

    - `expire`: False if no message may leave by itself because it has expired. That is for tools,
      which do not know what rules the queues have in the programs that use them.
    - `keep_history`: bytes for each queue of journals that were flushed, and of the segment files
      that they begin with. They stay for `qindex replay`. The oldest go first, and all of them
      when the disk runs out of space.
    - `read_only`: True to look at a store, also at one that a process has open. Changes nothing.
    - `create`: False to raise StoreMissing if there is no store.
    - `format`: the format of a new store's files, 1 or 2; later versions read both. An existing
      store keeps its format; one of another format than was named is refused.
    - `upgrade`: True to make an older store one of `format`, or of the newest, for good. Code that
      knows only the older format refuses it from then on.
    - `disk`: a disk for tests, see qindex.testing. The path is only a name then.

    Raises NotAStore (other files are there, or it is a file), StoreNested (a new store inside
    another one's directory), StoreLocked, StoreMissing (also if the folder above it is not there),
    FormatError, StoreCorrupt, DiskError, DiskFull;
    ValueError and TypeError for bad arguments.

    Cost: a few small files are read; queues are read when they are asked for.
    """
    boolean("expire", expire)
    options = Options(
        sync=sync,
        sync_interval=sync_interval,
        embed_below=embed_below,
        message_file_size=message_file_size,
        max_journal_entries=max_journal_entries,
        max_journal_bytes=max_journal_bytes,
        segment_entries=segment_entries,
        idle=idle,
        max_open_files=max_open_files,
        max_memory=max_memory,
        min_free=min_free,
        max_messages=max_messages,
        max_bytes=max_bytes,
        keep_history=keep_history,
        read_only=read_only,
        create=create,
        io=io,
        format=format,
        upgrade=upgrade,
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
    try:
        _begin(store, disk)
    except BaseException:  # whoever gets no store cannot close it, and nobody else could open it
        with suppress(QindexError):
            store.close()
        raise
    return store


def _begin(store: Store, disk: Disk | None) -> None:
    """What an open does behind the core's."""
    store._log.opened()
    if not store.read_only and disk is None:
        listen(store)
    try:
        end_renaming(store)
    except Exception as error:  # whatever it is, it keeps no store shut
        text = "%s: a renaming that was cut off could not be ended, the next open tries it: %r"
        say("WARNING", text, store.path, error)
    store._watch.begin(disk is not None)
    store._wakes.begin(disk is not None)
    if not store.read_only and disk is None:
        if os.path.isdir(f"{store.path}/spark"):  # noqa: PTH112 - lighter
            from qindex.begun import settle

            settle(store)  # what a cut-off batch left, before a consumer can ack any of it
        if os.path.isdir(f"{store.path}/backup.hold"):  # noqa: PTH112 - lighter
            import shutil

            shutil.rmtree(f"{store.path}/backup.hold", ignore_errors=True)  # a backup was cut off
