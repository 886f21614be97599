"""The door to directories that somebody else wrote: a dead broker's, on a disk that may be dying.

Rules of this file: nothing is written; below the directory that the user named no symbolic link is
followed and only regular files are opened; a sector that cannot be read becomes zeros and a
`Finding`, so that what stands behind it is still found.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import weakref
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Generic, Literal, TypeVar

from qindex.words import many

Severity = Literal["damage", "suspected", "note"]
Record = TypeVar("Record")

FINDINGS_PER_FILE_MAX: Final = 1000
OPEN_FILES_MAX: Final = 16
BLOCK_BYTES_MAX: Final = 1 << 20
BODY_BYTES_MAX: Final = 128 << 20  # a message with more is not read

_SECTOR: Final = 4096
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY


class UnknownFormat(ValueError):
    """The directory is not one that qindex can read."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about the directory that its owner should know: what, in which file, and where.

    damage: bytes are wrong or missing. suspected: the files are in a state that a loss would leave,
    but that a healthy broker may leave, too. note: it explains itself, and nothing is missing.
    """

    kind: str
    where: str  # the file, relative to the directory that was opened
    offset: int
    text: str
    severity: Severity = "damage"
    about: str = ""  # whose file it is: "queue orders", if that is known

    @property
    def place(self) -> str:
        """For people: whose it is and the file's own name; its whole path if nobody's."""
        name = self.where.rpartition("/")[2]
        if not self.about:
            return self._file
        return f"{self.about}, {name} at byte {self.offset}" if "." in name else self.about

    @property
    def _file(self) -> str:
        return f"{self.where} at byte {self.offset}" if self.where else "the directory"

    def __str__(self) -> str:
        about = f"{self.about}: " if self.about else ""
        return f"{self.severity}: {about}{self._file}: {self.text}"


class Findings:
    """A list that cannot be flooded; what is met again stands in it once."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self._seen: set[Finding] = set()
        self._count_by_file: Counter[str] = Counter()

    def copy(self) -> Findings:
        """As it is now; see take()."""
        other = Findings()
        other.take(self)
        return other

    def take(self, other: Findings) -> None:
        """Becomes what the other is: what was found since copy() is forgotten."""
        self.kept[:] = other.kept
        self._seen = set(other._seen)
        self._count_by_file = Counter(other._count_by_file)

    def worsen(self, folder: str) -> None:
        """Notes about files in this folder were no notes: something that was in them is missing."""
        for index, finding in enumerate(self.kept):
            if finding.severity == "note" and finding.where.startswith(f"{folder}/"):
                self.kept[index] = replace(finding, severity="damage")

    def first(self, at: int, finding: Finding) -> None:
        """One that explains others: it stands at `at`, before them."""
        self._add(finding)
        if self.kept and self.kept[-1] == finding:
            self.kept.insert(at, self.kept.pop())

    def damage(self, kind: str, where: str, offset: int, text: str) -> None:
        self._add(Finding(kind, where, offset, text, "damage"))

    def suspected(self, kind: str, where: str, offset: int, text: str) -> None:
        self._add(Finding(kind, where, offset, text, "suspected"))

    def note(self, kind: str, where: str, offset: int, text: str) -> None:
        self._add(Finding(kind, where, offset, text, "note"))

    def take_all(self, others: Findings) -> None:
        """Those of another list about the same directory."""
        for finding in others.kept:
            self._add(finding)

    def take_over(self, others: Findings, place: str) -> None:
        """Those of another directory, which is called `place` here."""
        for finding in others.kept:
            self._add(replace(finding, where=f"{place}/{finding.where}"))

    def _add(self, finding: Finding) -> None:
        count = self._count_by_file[finding.where]
        if count > FINDINGS_PER_FILE_MAX or finding in self._seen:
            return
        self._count_by_file[finding.where] = count + 1
        if count == FINDINGS_PER_FILE_MAX:
            text = (
                f"more than {FINDINGS_PER_FILE_MAX} findings in this file: the rest is not listed"
            )
            finding = Finding("too many", finding.where, finding.offset, text)
        self._seen.add(finding)
        self.kept.append(finding)


class Source:
    """One regular file, read at offsets. `size` is what it was when it was opened."""

    __slots__ = ("__weakref__", "_close", "_fd", "_findings", "size", "where")

    def __init__(self, fd: int, where: str, size: int, findings: Findings) -> None:
        self._fd = fd
        self._findings = findings
        self._close = weakref.finalize(self, os.close, fd)
        self.where = where
        self.size = size

    def close(self) -> None:
        self._close()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, offset: int, count: int) -> bytes:
        """`count` bytes, fewer only at the end of the file."""
        count = min(count, self.size - offset)
        if count <= 0:
            return b""
        try:
            data = os.pread(self._fd, count, offset)
        except OSError:
            return self._read_in_pieces(offset, count)
        return data if len(data) == count else self._read_in_pieces(offset, count)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """As read(), but into a buffer that is used again: how many bytes. Twice as fast."""
        count = min(len(buffer), self.size - offset)
        if count <= 0:
            return 0
        try:
            if os.preadv(self._fd, [buffer[:count]], offset) == count:
                return count
        except OSError:
            pass
        data = self._read_in_pieces(offset, count)
        buffer[: len(data)] = data
        return len(data)

    def fill(self, offset: int, buffer: memoryview) -> bool:
        """Reads a whole buffer; False if that cannot be done at once. Nothing is found then."""
        try:
            return os.preadv(self._fd, [buffer], offset) == len(buffer)
        except OSError:
            return False

    def capped(self, bytes_max: int) -> int:
        """Its size; of a longer file `bytes_max`, and a finding."""
        if self.size > bytes_max:
            text = f"{self.size} bytes, more than {bytes_max}: the rest is not read"
            self._findings.damage("too long", self.where, bytes_max, text)
        return min(self.size, bytes_max)

    def blocks(self, offset: int, *, overlap: int = 0) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) to the end of the file; each block shows `overlap` bytes of the next.

        The first block is small and the next ones grow, so that looking for something near costs
        little: a file with a thousand bad records is not read a thousand times.
        """
        size = _SECTOR
        while offset < self.size:
            yield offset, self.read(offset, size + overlap)
            offset += size
            size = min(size * 2, BLOCK_BYTES_MAX)

    def zeros_end(self, offset: int) -> int:
        """The first byte at or behind `offset` that is not zero; the end of the file if none is."""
        for start, block in self.blocks(offset):
            rest = block.lstrip(b"\0")
            if rest:
                return start + len(block) - len(rest)
        return self.size

    def _read_in_pieces(self, offset: int, count: int) -> bytes:
        """After an error or a short read: sector by sector, zeros for what cannot be read."""
        pieces = []
        end = offset + count
        while offset < end:
            size = min(_SECTOR - offset % _SECTOR, end - offset)
            try:
                data = os.pread(self._fd, size, offset)
            except OSError as error:
                text = f"{many(size, 'byte')} cannot be read: {error.strerror}"
                self._findings.damage("unreadable", self.where, offset, text)
                data = bytes(size)
            if not data:
                self.size = offset  # the file became shorter while it was read
                break
            pieces.append(data)
            offset += len(data)
        return b"".join(pieces)


class Walk(ABC, Generic[Record]):
    """From record to record in a file that has nothing but them, and on behind damage.

    `last` is held back until what follows it makes sense.
    """

    def __init__(self, source: Source, findings: Findings) -> None:
        self.source = source
        self.findings = findings
        self.last: Record | None = None

    def records(self) -> Iterator[Record]:
        """All that make sense, in order."""
        pos = 0
        while pos < self.source.size:
            pos = yield from self.run(pos)
            if pos < self.source.size:
                settled, pos = self.way_on(pos)
                yield from settled
        if self.last is not None:
            yield self.last

    @abstractmethod
    def run(self, base: int) -> Generator[Record, None, int]:
        """Records up to where they make no sense, or to the end of the file: where."""

    @abstractmethod
    def way_on(self, pos: int) -> tuple[list[Record], int]:
        """Behind `pos`, where no record makes sense: what was settled, and where to go on."""


class Tree:
    """A directory and what is below it; places in it are given as `a/b/c`."""

    def __init__(self, path: str | os.PathLike[str], findings: Findings) -> None:
        self.path = Path(path)
        self.findings = findings
        self._fd = os.open(self.path, _FOLDER)
        self._close = weakref.finalize(self, os.close, self._fd)
        self._open_files: OrderedDict[str, Source] = OrderedDict()

    def close(self) -> None:
        for source in self._open_files.values():
            source.close()
        self._open_files.clear()
        self._close()

    def folders(self, where: str = "") -> list[str]:
        with self._folder_fd(where) as fd, os.scandir(fd) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def folders_if_any(self, where: str) -> list[str]:
        """The same; none if the place cannot be listed."""
        try:
            return self.folders(where)
        except OSError:
            return []

    def files(self, where: str = "") -> list[str]:
        with self._folder_fd(where) as fd, os.scandir(fd) as entries:
            return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))

    def size(self, where: str) -> int:
        """Of a file; 0 if it cannot be opened."""
        source = self.try_open(where)
        if source is None:
            return 0
        with source:
            return source.size

    def bytes_below(self, where: str) -> int:
        """The sizes of all regular files in a directory and below it, added up."""
        total, folders = 0, [where]
        while folders:
            folder = folders.pop()
            try:
                with self._folder_fd(folder) as fd, os.scandir(fd) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(f"{folder}/{entry.name}")
                        elif entry.is_file(follow_symlinks=False):
                            total += entry.stat(follow_symlinks=False).st_size
            except OSError as error:
                self.findings.damage("missing", folder, 0, f"cannot be listed: {error.strerror}")
        return total

    @contextlib.contextmanager
    def _folder_fd(self, where: str) -> Iterator[int]:
        """Walks down name by name: O_NOFOLLOW guards only the last name of a path."""
        fd = os.dup(self._fd)
        try:
            for name in filter(None, where.split("/")):
                above, fd = fd, os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
                os.close(above)  # Last: an interrupt behind it must not close it once more.
            yield fd
        finally:
            os.close(fd)

    def open(self, where: str) -> Source:
        folder, _, name = where.rpartition("/")
        with self._folder_fd(folder) as folder_fd:
            return self._open_in(folder_fd, name, where)

    def _open_in(self, folder_fd: int, name: str, where: str) -> Source:
        fd = os.open(name, _READ, dir_fd=folder_fd)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "not a regular file", where)
        return Source(fd, where, found.st_size, self.findings)

    def sources(self, where: str, wants: Callable[[str], bool]) -> Iterator[Source]:
        """The files of a folder that are wanted, by name, each opened when its turn comes.

        The way there is walked once. What cannot be opened is a finding.
        """
        with self._folder_fd(where) as fd:
            with os.scandir(fd) as entries:
                names = sorted(entry.name for entry in entries if wants(entry.name))
            for name in names:
                source = self._tried(f"{where}/{name}", partial(self._open_in, fd, name))
                if source is not None:
                    yield source

    def try_open(self, where: str) -> Source | None:
        """None, and a finding, if the file is there but cannot be opened."""
        return self._tried(where, self.open)

    def _tried(self, where: str, opens: Callable[[str], Source]) -> Source | None:
        try:
            return opens(where)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.findings.damage("unreadable", where, 0, f"cannot be opened: {error.strerror}")
            return None

    def read(self, where: str, bytes_max: int) -> bytes | None:
        """A whole small file; None if it is not there."""
        source = self.try_open(where)
        if source is None:
            return None
        with source:
            return source.read(0, source.capped(bytes_max))

    def kept_open(self, where: str) -> Source | None:
        """Like try_open(), for files that are read a little at a time; the tree closes them."""
        source = self._open_files.get(where)
        if source is None:
            source = self.try_open(where)
            if source is None:
                return None
            self._open_files[where] = source
            if len(self._open_files) > OPEN_FILES_MAX:
                self._open_files.popitem(last=False)[1].close()
        self._open_files.move_to_end(where)
        return source
