"""Memory that is already there when a measurement needs it."""

import contextlib
import mmap
import os
from types import TracebackType

MIB = 1 << 20


class WarmMemory:
    """Holds touched memory between measurements and gives it to the kernel just before each.

    A virtual machine hands free memory back to its host within seconds, and fetching it again costs
    microseconds per page: without this, appending to a new file is up to eight times slower for
    whatever happens to run first after a pause than for what follows. A machine of metal loses
    nothing by it.
    """

    def __init__(self, mib: int) -> None:
        mib = min(mib, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 // MIB)
        self._size = mib * MIB
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, self._size, flags=private)
        # Huge pages come and go in a fraction of the time; a kernel without them refuses.
        with contextlib.suppress(OSError):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self.hold()

    def hold(self) -> None:
        self._memory.seek(0)
        for _ in range(self._size // MIB):
            self._memory.write(b"\1" * MIB)

    def release(self) -> None:
        self._memory.madvise(mmap.MADV_DONTNEED)

    def __enter__(self) -> "WarmMemory":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._memory.close()
