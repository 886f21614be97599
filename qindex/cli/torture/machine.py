"""What a ticket has to say about the machine: system, file system, mount, and a sync's time."""

from __future__ import annotations

import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import qindex

SYNCS: Final = 200
CONFIRMS: Final = 200


@dataclass(frozen=True)
class Mount:
    point: str
    kind: str
    options: str
    device: str


@dataclass(frozen=True)
class Latency:
    """Seconds."""

    median: float
    p99: float
    most: float


def mount_of(path: Path, table: str) -> Mount:
    """The mount that `path` is on, by the text of /proc/self/mountinfo: the longest point wins."""
    best = Mount("?", "unknown", "", "")
    for line in table.splitlines():
        left, _, right = line.partition(" - ")
        fields, behind = left.split(), right.split()
        if len(fields) < 6 or len(behind) < 3:
            continue
        point = fields[4].encode().decode("unicode_escape")  # \040 is a space
        if path.is_relative_to(point) and (best.point == "?" or len(point) >= len(best.point)):
            options = ",".join(dict.fromkeys((fields[5] + "," + behind[2]).split(",")))
            best = Mount(point, behind[0], options, behind[1])
    return best


def facts(folder: Path) -> list[tuple[str, str]]:
    """System and file system, in the order in which a report shows them."""
    try:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        table = ""
    mount = mount_of(folder.resolve(), table)
    space = os.statvfs(folder)
    with qindex.open(folder / "facts") as store:
        mapped = store.stats().mapped
    return [
        ("qindex", qindex.__version__),
        ("python", f"{platform.python_implementation()} {platform.python_version()}"),
        ("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
        ("processors", str(os.cpu_count() or "?")),
        ("user", "root" if os.geteuid() == 0 else "not root"),
        ("file system", f"{mount.kind} on {mount.device}"),
        ("mounted at", mount.point),
        ("mount options", mount.options or "?"),
        ("free", f"{space.f_bavail * space.f_frsize} bytes of {space.f_blocks * space.f_frsize}"),
        ("appends", "mapped files" if mapped else "pwrite (mapping is not safe here)"),
        ("byte order", sys.byteorder),
    ]


def sync_latency(folder: Path) -> Latency:
    """fdatasync behind an append of 4 KiB to a preallocated file."""
    file = folder / "sync-latency"
    block = os.urandom(4096)
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, SYNCS * len(block))
        os.fsync(fd)
        taken = []
        for i in range(SYNCS):
            os.pwrite(fd, block, i * len(block))
            started = time.perf_counter()
            os.fdatasync(fd)
            taken.append(time.perf_counter() - started)
    finally:
        os.close(fd)
        file.unlink()
    return _latency(taken)


def confirm_latency(folder: Path) -> Latency:
    """publish(confirm=True) of 100 bytes, one after the other."""
    taken = []
    with qindex.open(folder / "confirms") as store:
        queue = store.queue("confirms")
        for _ in range(CONFIRMS):
            started = time.perf_counter()
            queue.publish(b"x" * 100, confirm=True)
            taken.append(time.perf_counter() - started)
    return _latency(taken)


def _latency(taken: list[float]) -> Latency:
    taken.sort()
    return Latency(taken[len(taken) // 2], taken[len(taken) * 99 // 100], taken[-1])
