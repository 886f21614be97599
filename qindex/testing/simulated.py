"""A disk in memory for qindex itself, which can lose power, fail and rot: the C core runs on it.

::

    disk = SimulatedDisk(seed=1)
    store = qindex.open("/", disk=disk)
    ...
    left = disk.power_cut(seed=7)        # another disk, with what the medium kept
    abandon(store)
    store = qindex.open("/", disk=left)
"""

from __future__ import annotations

from typing import Any, Final, Literal, Self

from qindex._core import lib as core
from qindex.errors import raise_error
from qindex.index import QueueIndex
from qindex.store import Store
from qindex.testing._sim import ffi, lib

Mode = Literal["mixed", "nothing", "all", "prefix", "sectors512", "sectors4k", "zeros"]
Fault = Literal["eio", "enospc", "short", "eintr", "enomem"]
Damage = Literal[
    "bit_flip",
    "zero_sector",
    "stale_sector",
    "misdirected",
    "lost_write",
    "missing_file",
    "swapped_files",
]

_MODES: Final[dict[Mode, int]] = {
    "mixed": lib.QI_SIM_MIXED,
    "nothing": lib.QI_SIM_NOTHING,
    "all": lib.QI_SIM_ALL,
    "prefix": lib.QI_SIM_PREFIX,
    "sectors512": lib.QI_SIM_SECTORS512,
    "sectors4k": lib.QI_SIM_SECTORS4K,
    "zeros": lib.QI_SIM_ZEROS,
}
_FAULTS: Final[dict[Fault, int]] = {
    "eio": lib.QI_SIM_EIO,
    "enospc": lib.QI_SIM_ENOSPC,
    "short": lib.QI_SIM_SHORT,
    "eintr": lib.QI_SIM_EINTR,
    "enomem": lib.QI_SIM_ENOMEM,
}
_DAMAGES: Final[dict[Damage, int]] = {
    "bit_flip": lib.QI_SIM_BIT_FLIP,
    "zero_sector": lib.QI_SIM_ZERO_SECTOR,
    "stale_sector": lib.QI_SIM_STALE_SECTOR,
    "misdirected": lib.QI_SIM_MISDIRECTED,
    "lost_write": lib.QI_SIM_LOST_WRITE,
    "missing_file": lib.QI_SIM_MISSING_FILE,
    "swapped_files": lib.QI_SIM_SWAPPED_FILES,
}


class SimulatedDisk:
    """A disk in memory. Seeds decide everything: the same calls give the same bytes.

    Only one thread may use it.

    `capacity` is in bytes; `wall` is the clock at the start, in seconds since 1970; with `mapping`
    the store maps its files, as on a good local file system. With `crowd` an open behind a kill or
    a power cut syncs everything at once if the store has so many queues. No background thread runs
    on it: what the thread would do happens in tick().
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        capacity: int = 0,
        wall: float = 0,
        growth_min: int = 0,
        mapping: bool = True,
        crowd: int = 0,
    ) -> None:
        knobs = ffi.new("qi_sim_knobs *")
        knobs.capacity, knobs.wall_us = capacity, int(wall * 1e6)
        knobs.growth_min, knobs.mapping, knobs.crowd = growth_min, mapping, crowd
        self.handle = self._own(lib.qi_sim_new(seed, knobs))

    @staticmethod
    def _own(handle: Any) -> Any:
        if handle == ffi.NULL:
            raise MemoryError("no memory for a simulated disk")
        return ffi.gc(handle, lib.qi_sim_free)

    @property
    def capsule(self) -> int:
        """The address of what the core takes for a disk: it says of which layout this one is."""
        return int(ffi.cast("uintptr_t", lib.qi_sim_capsule(self.handle)))

    @classmethod
    def _of(cls, handle: Any) -> Self:
        disk = cls.__new__(cls)
        disk.handle = cls._own(handle)
        return disk

    # --- crashes -------------------------------------------------------------------------------

    def power_cut(self, seed: int, mode: Mode = "mixed") -> SimulatedDisk:
        """What a power cut now would leave, as a disk that nobody has open. This one goes on."""
        return self._of(lib.qi_sim_crash(self.handle, seed, _MODES[mode]))

    def kill(self) -> SimulatedDisk:
        """What kill -9 now would leave: everything; what is not synced can still be lost later."""
        return self._of(lib.qi_sim_kill(self.handle))

    def power_cut_at(self, change: int, seed: int, mode: Mode = "mixed") -> None:
        """Put aside what a power cut leaves just before the change-th write, sync or rename (1: the
        next). The run goes on; taken() gives it out. 0: not any more."""
        lib.qi_sim_crash_at(self.handle, change, seed, _MODES[mode])

    def taken(self) -> SimulatedDisk | None:
        """The disk that power_cut_at() put aside, once; None: it has not come to that."""
        handle = lib.qi_sim_taken(self.handle)
        return None if handle == ffi.NULL else self._of(handle)

    # --- faults and damage ---------------------------------------------------------------------

    def fault(self, call: int, kind: Fault, *, sticky: bool = False) -> None:
        """The call-th call from now on (1: the next) fails; with `sticky` all that follow, too."""
        lib.qi_sim_fault(self.handle, call, _FAULTS[kind], sticky)

    def fill(self) -> None:
        """Somebody else takes all the space that is left: no file can grow any more."""
        lib.qi_sim_fill(self.handle)

    def heal(self) -> None:
        """No call fails any more."""
        lib.qi_sim_fault(self.handle, 0, 0, False)

    def damage(self, kind: Damage, seed: int, where: str = "") -> str | None:
        """Damage a file that nobody has open and whose path contains `where`; say what was done.

        None: there is nothing that could be damaged in this way.
        """
        text = ffi.new("char[]", 512)
        code = lib.qi_sim_damage(self.handle, _DAMAGES[kind], seed, where.encode(), text, len(text))
        return None if code < 0 else ffi.string(text).decode("utf-8", "replace")

    # --- time and figures ----------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Both clocks go on."""
        lib.qi_sim_advance(self.handle, int(seconds * 1e6))

    def set_wall(self, wall: float) -> None:
        """The wall clock is set, in seconds since 1970: forwards or back."""
        lib.qi_sim_set_wall(self.handle, int(wall * 1e6))

    @property
    def calls(self) -> int:
        """Calls so far that could have failed."""
        return lib.qi_sim_calls(self.handle)

    @property
    def changes(self) -> int:
        """Writes, syncs, renames ... so far: what power_cut_at() counts."""
        return lib.qi_sim_changes(self.handle)

    def files(self) -> dict[str, bytes]:
        """Every file, as a process sees it now."""
        path, size = ffi.new("char[]", 1024), ffi.new("uint64_t *")
        data, found = ffi.new("const void **"), dict[str, bytes]()
        while lib.qi_sim_file(self.handle, len(found), path, len(path), data, size) == 0:
            found[ffi.string(path).decode()] = bytes(ffi.buffer(data[0], size[0]))
        return found


def tick(store: Store) -> None:
    """Do once what the background thread does: sync, flush, census, compaction, rest."""
    code = core.qi_store_tick(store._handle)
    if code < 0:
        raise_error(code)


def abandon(store: Store | QueueIndex) -> None:
    """Let go of a store as a killed process does: no close, no sync. On any disk; once or twice.

    Its queues and messages raise StoreClosed from then on.
    """
    store._closed = True
    core.qi_store_abandon(store._handle if isinstance(store, Store) else store._store)
