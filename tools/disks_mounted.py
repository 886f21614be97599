"""File systems for disks.py: in images that can lose power, and on a disk that fails as it is told.

The failing disk is one file, through FUSE. The kernel's protocol is spoken directly (/dev/fuse;
root): the file system has one file, `disk`, whose bytes are in this process. What a write that
fails would have written is gone, as on a medium. A loop device on it hands the error on, so that
the fsync of a real file system says EIO.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

SHUTDOWN = 0x8004587D
LOG_FLUSH, NO_LOG_FLUSH = 1, 2
MEBIBYTES = {"ext4": 48, "xfs": 320, "btrfs": 128}  # as small as each allows
MKFS = {"ext4": ["-q", "-F"], "xfs": ["-q", "-f"], "btrfs": ["-q", "-f"]}
# Their image lies on an ext4, and that one loses power: its file then has what was flushed to it,
# and some of the rest. A loop device turns flushes into fsync, so this is what a disk does.
NO_SHUTDOWN = {"btrfs"}
# Of FUSE's protocol.
ROOT_NODE, DISK_NODE = 1, 2
NAME = b"disk"
HEADER = struct.Struct("<IIQQIIIHH")
ANSWER = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<6Q3I7I")
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC = (
    *(1, 2, 3, 4, 14, 15, 16, 17),
    *(18, 20),
)
FLUSH, INIT, OPENDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = 25, 26, 27, 29, 36, 42
DIRECT_IO = 1  # no cache before the disk
WRITE_MAX = 1 << 17
REQUEST_MAX = WRITE_MAX + 4096


class Impossible(Exception):
    """This machine does not allow it; says why."""


def call(*command: object) -> None:
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    except FileNotFoundError:
        raise Impossible(f"{command[0]} is not installed") from None
    if done.returncode:
        raise Impossible(f"{command[0]}: {done.stderr.strip() or done.returncode}")


@contextmanager
def file_system(kind: str, mebibytes: int, folder: Path) -> Iterator[Image]:
    if os.geteuid() != 0:
        raise Impossible("needs root")
    disk = None
    if kind in NO_SHUTDOWN:
        (folder / "disk").mkdir()
        disk = Image("ext4", mebibytes + 64, folder / "disk-image", folder / "disk")
        disk.make()
    image = Image(kind, mebibytes, (folder / "disk" if disk else folder) / "image", folder / "m")
    image.mounted.mkdir()
    image.disk = disk
    try:
        if disk:
            disk.mount()
        image.make()
        if disk:
            disk.unmount()
        image.mount()
        yield image
    finally:
        for mounted in (image.mounted, *([disk.mounted] if disk else [])):
            with suppress(Impossible):
                call("umount", mounted)


@dataclass
class Image:
    kind: str
    mebibytes: int
    file: Path
    mounted: Path
    disk: Image | None = None  # what holds the image's file and loses power in its place

    def make(self) -> None:
        if self.kind == "tmpfs":
            return
        if not self.file.exists():
            with self.file.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, self.mebibytes << 20)
        call(f"mkfs.{self.kind}", *MKFS[self.kind], self.file)

    def mount(self) -> None:
        if self.disk:
            self.disk.mount()
        if self.kind == "tmpfs":
            call("mount", "-t", "tmpfs", "-o", f"size={self.mebibytes}m", "tmpfs", self.mounted)
        else:
            call("mount", "-o", "loop", self.file, self.mounted)

    def unmount(self) -> None:
        call("umount", self.mounted)
        if self.disk:
            self.disk.unmount()

    def cut(self, flag: int) -> None:
        if self.disk:
            return self.disk.cut(flag)
        fd = os.open(self.mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", flag))
        except OSError as error:
            raise Impossible(f"the shutdown ioctl: {error.strerror}") from None
        finally:
            os.close(fd)


# ---- a disk that fails ----


class FailingDisk:
    """`fail(n)`: the next n requests of these kinds are answered EIO."""

    def __init__(self, size: int) -> None:
        self.bytes = bytearray(size)
        self.failed = 0
        self._left = 0
        self._kinds: frozenset[int] = frozenset()

    def fail(self, count: int, *, writes: bool, flushes: bool) -> None:
        self._kinds = frozenset([WRITE] * writes + [FSYNC] * flushes)
        self._left = count

    def _fails(self, kind: int) -> bool:
        if self._left == 0 or kind not in self._kinds:
            return False
        self._left -= 1
        self.failed += 1
        return True

    def _attributes(self, node: int) -> bytes:
        is_file = node == DISK_NODE
        size = len(self.bytes) if is_file else 0
        mode = 0o100600 if is_file else 0o040700
        return ATTRIBUTES.pack(node, size, size >> 9, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def answer(self, kind: int, node: int, body: memoryview) -> bytes | int:
        """The answer's bytes, or an error number."""
        if kind == INIT:
            _major, minor, ahead = struct.unpack_from("<III", body)
            return struct.pack("<IIIIHHII32x", 7, min(minor, 31), ahead, 0, 8, 8, WRITE_MAX, 1)
        if kind == LOOKUP:
            if bytes(body).rstrip(b"\0") != NAME:
                return errno.ENOENT
            return struct.pack("<QQQQII", DISK_NODE, 0, 60, 60, 0, 0) + self._attributes(DISK_NODE)
        if kind in (GETATTR, SETATTR):
            return struct.pack("<QII", 60, 0, 0) + self._attributes(node)
        if kind in (OPEN, OPENDIR):
            return struct.pack("<QII", 0, DIRECT_IO if kind == OPEN else 0, 0)
        if kind == STATFS:
            return struct.pack("<5Q4I24x", 1 << 20, 1 << 20, 1 << 20, 9, 9, 4096, 255, 4096, 0)
        if self._fails(kind):
            return errno.EIO
        if kind in (READ, WRITE):
            _, offset, size = struct.unpack_from("<QQI", body)
            if kind == READ:
                return bytes(self.bytes[offset : offset + size])
            if offset + size > len(self.bytes):
                return errno.ENOSPC
            self.bytes[offset : offset + size] = body[40 : 40 + size]
            return struct.pack("<II", size, 0)
        return b"" if kind in (FSYNC, FLUSH, RELEASE, RELEASEDIR) else errno.ENOSYS

    def serve(self, device: int) -> None:
        """Until it is unmounted."""
        while True:
            try:
                request = memoryview(os.read(device, REQUEST_MAX))
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue  # who asked went away
                os.close(device)  # here: a number that is used again must not be read
                return  # ENODEV: unmounted
            _, kind, unique, node, *_ = HEADER.unpack_from(request)
            if kind in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            answer = self.answer(kind, node, request[HEADER.size :])
            error, body = (-answer, b"") if isinstance(answer, int) else (0, answer)
            try:
                os.write(device, ANSWER.pack(ANSWER.size + len(body), error, unique) + body)
            except OSError:
                continue  # nobody waits for it any more


@contextmanager
def failing_disk(mebibytes: int, folder: Path) -> Iterator[tuple[FailingDisk, Path]]:
    """The disk and its file, for a loop device. Impossible without /dev/fuse."""
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        raise Impossible(f"/dev/fuse: {error.strerror}") from None
    mounted = folder / "fuse"
    mounted.mkdir()
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.mount(b"failing_disk", os.fsencode(mounted), b"fuse", 0, options.encode())
    if failed:
        os.close(device)
        raise Impossible(f"mount of a FUSE disk: {os.strerror(ctypes.get_errno())}")
    disk = FailingDisk(mebibytes << 20)
    server = threading.Thread(target=disk.serve, args=(device,), daemon=True)
    server.start()
    try:
        yield disk, mounted / os.fsdecode(NAME)
    finally:
        for attempt in range(50):  # a loop device lets its file go a moment after its last user
            try:
                call("umount", *["-l"] * (attempt == 49), mounted)
                break
            except Impossible:
                time.sleep(0.1)
        server.join(5)


@contextmanager
def failing_image(kind: str) -> Iterator[tuple[Image, FailingDisk]]:
    """A file system on a disk that works, until it is told to fail; mounted."""
    with (
        tempfile.TemporaryDirectory(prefix="qindex-sync-") as folder,
        failing_disk(MEBIBYTES[kind], Path(folder)) as (disk, file),
    ):
        image = Image(kind, MEBIBYTES[kind], file, Path(folder) / "m")
        image.mounted.mkdir()
        image.make()
        image.mount()
        try:
            yield image, disk
        finally:
            with suppress(Impossible):
                image.unmount()
