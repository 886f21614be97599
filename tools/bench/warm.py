"""Memory that is already there when a measurement needs it."""

import os
from types import TracebackType

MIB = 1 << 20


class WarmMemory:
    """Holds touched memory between measurements and gives it to the kernel just before each.

    A virtual machine hands free memory back to its host within seconds, and fetching it again costs
    microseconds per page: without this, appending to a new file is up to eight times slower for
    whatever happens to run first after a pause than for what follows. A machine of metal loses
    nothing by it. The memory is that of a file in memory: a kernel takes the pages of a file's
    cache from what it has in small pieces, so huge pages that were freed would not be used before
    colder ones.
    """

    def __init__(self, mib: int) -> None:
        all_of_it = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._mib = min(mib, all_of_it // 4 // MIB)
        self._file = os.memfd_create("warm")
        self.hold()

    def hold(self) -> None:
        for number in range(self._mib):
            os.pwrite(self._file, b"\1" * MIB, number * MIB)

    def release(self) -> None:
        os.ftruncate(self._file, 0)

    def __enter__(self) -> "WarmMemory":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)
