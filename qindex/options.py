"""The options of a store: their defaults, their limits, and how the core takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from qindex._core import ffi
from qindex.arguments import boolean, number, whole

SyncPolicy = Literal["group", "always", "never"]
IoMode = Literal["auto", "mmap", "pwrite"]

EMBED_BELOW: Final = 1024  # measured, see tools/bench/BODIES.rst
MESSAGE_FILE_SIZE: Final = 16 * 1024 * 1024
MAX_JOURNAL_ENTRIES: Final = 65536
MAX_JOURNAL_BYTES: Final = 32 * 1024 * 1024
SYNC_INTERVAL: Final = 0.005  # seconds
IDLE_SECONDS: Final = 1.0
FORMAT_NEWEST: Final = 2
FORMAT = FORMAT_NEWEST  # of a new store, unless the caller names another

_SYNCS: Final = ("group", "always", "never")
_IOS: Final = ("auto", "mmap", "pwrite")
_RANGES: Final = {  # an option with the default None may also be None
    "segment_entries": (0, 16384),
    "max_journal_entries": (1, 1 << 24),
    "max_journal_bytes": (4096, 256 << 20),
    "embed_below": (0, 65536),
    "message_file_size": (4096, 1 << 30),
    "min_free": (0, 1 << 62),
    "max_messages": (1, 1 << 62),
    "max_bytes": (1, 1 << 62),
    "max_open_files": (24, 1 << 30),
    "max_memory": (16 << 20, 1 << 62),
    "keep_history": (0, 1 << 62),
    "format": (1, FORMAT_NEWEST),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What qindex.open() and QueueIndex() pass to the core; qindex.open() says what each means."""

    sync: SyncPolicy = "group"
    sync_interval: float = SYNC_INTERVAL
    embed_below: int = EMBED_BELOW
    message_file_size: int = MESSAGE_FILE_SIZE
    max_journal_entries: int = MAX_JOURNAL_ENTRIES
    max_journal_bytes: int = MAX_JOURNAL_BYTES
    segment_entries: int = 0
    idle: float = IDLE_SECONDS
    max_open_files: int | None = None
    max_memory: int | None = None
    min_free: int = 0
    max_messages: int | None = None
    max_bytes: int | None = None
    keep_history: int = 0
    read_only: bool = False
    create: bool = True
    io: IoMode = "auto"
    format: int | None = None
    upgrade: bool = False
    index_only: bool = False

    def to_core(self) -> Any:
        """The core's struct (qi_options *). ValueError and TypeError: an option is wrong."""
        if self.sync not in _SYNCS:
            raise ValueError(f"sync must be 'group', 'always' or 'never', not {self.sync!r}")
        if self.io not in _IOS:
            raise ValueError(f"io must be 'auto', 'mmap' or 'pwrite', not {self.io!r}")
        for name in ("sync_interval", "idle"):
            seconds = getattr(self, name)
            if not 0 < number(name, seconds) <= 3600:
                raise ValueError(f"{name} must be seconds, above 0 to 3600, not {seconds!r}")
        if self.upgrade and self.read_only:
            raise ValueError(
                "a store that is opened read-only cannot be upgraded: take one of the two"
            )
        core = ffi.new("qi_options *")
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is not None or getattr(Options, name) is not None:
                setattr(core, name, whole(name, value, least, most))
        entries = self.segment_entries
        if entries and (entries < 8 or entries & (entries - 1)):
            raise ValueError(
                f"segment_entries must be a power of two from 8 to 16384, not {entries!r}"
            )
        core.new_format = FORMAT
        core.sync_interval_us = 0 if self.sync == "never" else max(1, int(self.sync_interval * 1e6))
        core.idle_us = int(self.idle * 1e6)
        core.io = _IOS.index(self.io)
        for name in ("read_only", "create", "upgrade", "index_only"):
            setattr(core, name, boolean(name, getattr(self, name)))
        core.worker = not self.read_only
        return core
