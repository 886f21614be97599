"""File systems in images that can lose power, for powercut.py: root, loop devices and mkfs."""

import fcntl
import os
import struct
import subprocess
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
def file_system(kind: str, mebibytes: int, folder: Path) -> Iterator["Image"]:
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
    disk: "Image | None" = None  # what holds the image's file and loses power in its place

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
