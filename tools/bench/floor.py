"""The raw floor in C (floor.c), compiled on the fly and called through ctypes."""

import ctypes
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("floor.c")


class FloorUnavailable(Exception):
    """No C compiler, or a CPU without CRC32C instructions."""


def build(directory: Path) -> Path:
    """Compile floor.c into `directory` and return the shared library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FloorUnavailable("no C compiler")
    library = directory / "floor.so"
    flags = ["-std=c11", "-O2", "-march=native", "-shared", "-fPIC"]
    command = [compiler, *flags, str(SOURCE), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise FloorUnavailable(done.stderr.strip().splitlines()[-1])
    return library


class Floor:
    """What floor.c measures, as rates per second."""

    def __init__(self, library: Path, directory: Path) -> None:
        self._lib = ctypes.CDLL(str(library))
        self._path = str(directory / "floor.dat").encode()

    def append_and_read(self, count: int, body: bytes) -> dict[str, float]:
        """Rates of appending to fresh pages, to pages written before, and of reading back."""
        seconds = (ctypes.c_double * 3)()
        self._call("floor_append_and_read", ctypes.c_uint64(count), body, _u32(len(body)), seconds)
        fresh, recycled, read = (count / s for s in seconds)
        return {"append_fresh": fresh, "append_recycled": recycled, "read": read}

    def cycle(self, count: int, depth: int, body: bytes) -> float:
        seconds = ctypes.c_double()
        self._call(
            "floor_cycle",
            ctypes.c_uint64(count),
            _u32(depth),
            body,
            _u32(len(body)),
            ctypes.byref(seconds),
        )
        return count / seconds.value

    def sync_each(self, count_max: int, seconds_max: float) -> float:
        """How many times a second one 4 KiB block can be written and made durable."""
        count, seconds = ctypes.c_uint64(), ctypes.c_double()
        self._call(
            "floor_sync_each",
            ctypes.c_uint64(count_max),
            ctypes.c_double(seconds_max),
            ctypes.byref(count),
            ctypes.byref(seconds),
        )
        return count.value / seconds.value

    def sync_batches(self, batch: int, count_max: int, seconds_max: float, body: bytes) -> float:
        """Appends to a file written before, `batch` of them durable at a time."""
        return self._batches("floor_sync_batches", batch, count_max, seconds_max, body)

    def flush(self, batch: int, count_max: int, seconds_max: float, body: bytes) -> float:
        """The same in blocks that were never written, as a segment's are."""
        return self._batches("floor_flush", batch, count_max, seconds_max, body)

    def bodies(self, count: int, body: bytes) -> dict[str, float]:
        """Rates of bodies of any size: once into a file whose pages are in memory, once out;
        by wall time and by CPU time."""
        seconds = (ctypes.c_double * 4)()
        self._call("floor_bodies", ctypes.c_uint64(count), body, _u32(len(body)), seconds)
        names = ("publish", "get_ack", "publish_cpu", "get_ack_cpu")
        return {name: count / value for name, value in zip(names, seconds, strict=True)}

    def reopen_ms(self, count: int, body: bytes) -> float:
        """`count` bodies that were synced as they came: sync, read."""
        seconds = ctypes.c_double()
        self._call("floor_reopen", _u32(count), body, _u32(len(body)), ctypes.byref(seconds))
        return seconds.value * 1e3

    def _batches(
        self, function: str, batch: int, count_max: int, seconds_max: float, body: bytes
    ) -> float:
        count, seconds = ctypes.c_uint64(), ctypes.c_double()
        self._call(
            function,
            _u32(batch),
            ctypes.c_uint64(count_max),
            ctypes.c_double(seconds_max),
            body,
            _u32(len(body)),
            ctypes.byref(count),
            ctypes.byref(seconds),
        )
        return count.value / seconds.value

    def _call(self, function: str, *arguments: object) -> None:
        error = getattr(self._lib, function)(self._path, *arguments)
        if error != 0:
            raise OSError(error, f"{function} failed")


def _u32(value: int) -> ctypes.c_uint32:
    return ctypes.c_uint32(value)
