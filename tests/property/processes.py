"""Queues in a process of their own, for the tests of the recorder. Most of them misbehave."""

import ctypes
import mmap
import os
import threading
import time
import zlib
from pathlib import Path

from qindex.testing import Adapter, Promise


class Lines(Adapter):
    """A log of lines with checksums: a body in hex, or nothing for a get. Syncs when it must."""

    promise = Promise()

    def open(self, directory):
        self.directory, self.bodies, end = Path(directory), [], 0
        path = self.directory / "lines"
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        for line in path.read_bytes().splitlines(keepends=True):
            text = line[9:-1]
            if line != self.line(text):
                break
            end += len(line)
            self.bodies = [*self.bodies, bytes.fromhex(text.decode())] if text else self.bodies[1:]
        os.ftruncate(self.fd, end)
        self.sync()

    def line(self, text):
        return b"%08x %s\n" % (zlib.crc32(text), text)

    def publish(self, body):
        self.write(self.line(body.hex().encode()))
        self.bodies.append(body)

    def write(self, line):
        os.write(self.fd, line)

    def get(self):
        if not self.bodies:
            return None
        self.write(self.line(b""))
        return self.bodies.pop(0)

    def sync(self):
        os.fsync(self.fd)
        directory = os.open(self.directory, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)

    def close(self):
        os.fsync(self.fd)
        os.close(self.fd)


def zero_range(fd, offset, size):
    """The Linux call that Python does not have; where there is none, or it fails, a write."""
    fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
    keep_size_and_zero_range = 0x01 | 0x10
    numbers = (ctypes.c_long(offset), ctypes.c_long(size))
    if fallocate is None or fallocate(fd, keep_size_and_zero_range, *numbers) != 0:
        os.pwrite(fd, bytes(size), offset)


class EveryCall(Lines):
    """Uses whatever libc offers to change files; the harness compares its record with the files."""

    def publish(self, body):
        here = self.directory
        sub = here / "sub"
        sub.mkdir()
        fd = os.open(here / "a", os.O_RDWR | os.O_CREAT | os.O_DSYNC)
        os.writev(fd, [b"one", b"two", b""])
        os.pwrite(fd, b"X" * 600, 2)
        os.pwritev(fd, [b"Y", b"Z"], 700)
        os.lseek(fd, 1, os.SEEK_SET)
        os.write(fd, b"!")
        os.posix_fallocate(fd, 0, 2000)
        os.ftruncate(fd, 1500)
        os.fdatasync(fd)
        os.truncate(here / "a", 1400)
        copy = os.dup(fd)
        os.close(fd)
        os.write(copy, b"through a copy")
        os.link(here / "a", sub / "b")
        (here / "a").rename(here / "c")
        os.write(copy, b"after the rename")
        (here / "c").unlink()
        os.write(copy, b"after one of two names is gone")
        os.close(copy)
        directory = os.open(here, os.O_RDONLY)
        fd = os.open("d", os.O_WRONLY | os.O_CREAT, dir_fd=directory)
        os.write(fd, b"beside")
        os.pwrite(fd, b"beyond", 100)
        zero_range(fd, 2, 2)
        os.close(fd)
        os.replace("d", "sub/e", src_dir_fd=directory, dst_dir_fd=directory)
        os.mkdir("gone", dir_fd=directory)
        os.rmdir("gone", dir_fd=directory)
        os.close(directory)
        with (sub / "e").open("ab") as file:
            file.write(b"appended")
        (sub / "b").write_bytes(b"new")
        (sub / "f").touch()
        (sub / "f").unlink()
        sub.rename(here / "moved")
        fd = os.open(here / "moved" / "e", os.O_WRONLY | os.O_APPEND)
        os.pwrite(fd, b"Linux appends this", 3)
        os.close(fd)
        os.sync()


class Maps(Lines):
    def write(self, line):
        os.ftruncate(self.fd, 4096)
        mmap.mmap(self.fd, 4096)[:4] = b"abc\n"


class WritesUnseen(Lines):
    def write(self, line):
        fd = os.open(self.directory / "lines", os.O_RDWR)
        libc = ctypes.CDLL(None)
        number = {"x86_64": 1, "aarch64": 64}[os.uname().machine]
        libc.syscall(number, fd, line, len(line))  # write, not through libc's write
        os.close(fd)


class LinksOut(Lines):
    def write(self, line):
        (self.directory / "link").symlink_to("elsewhere")


class Hangs(Lines):
    seconds = 0.3

    def write(self, line):
        threading.Event().wait()


class Dies(Lines):
    def write(self, line):
        os._exit(7)


class WritesInAThread(Lines):
    """A thread writes all the time: the record is in order, and whole when the process ends."""

    def open(self, directory):
        super().open(directory)
        threading.Thread(target=self.count, daemon=True).start()

    def count(self):
        fd = os.open(self.directory / "count", os.O_WRONLY | os.O_CREAT)
        for number in range(1_000_000):
            os.pwrite(fd, b"%07d" % number, 0)
            time.sleep(0.0005)
