"""DiskQueue in the files of NSQ's original, byte for byte: it and nsqd can take each other's over.

::

    NAME.diskqueue.000003.dat    size:32 | body, one behind the other
    NAME.diskqueue.meta.dat      "DEPTH\nREADFILE,READPOS\nWRITEFILE,WRITEPOS\n"

A file is rolled before the message that would make it too long, and removed when all of it was got.
The metadata are written at each sync, when a file is begun or finished, and at the end: to another
name, synced, renamed. What differs from the original: the directory is synced, too; metadata are on
disk before the file that they do not need any more is removed; where they are missing or make no
sense, what the files have is got instead of being written over; messages that were written after
the metadata are in the depth. What is the same: after a kill, messages that were got since the last
sync come again; a file in which a record makes no sense is called .bad and left behind, and what
was in it stays in the depth until the end is reached.
"""

from __future__ import annotations

import os
import random
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from qindex.brokers.nsq.directory import data_name, data_number, meta_name, parse_meta
from qindex.brokers.nsq.file import records_behind
from qindex.errors import StoreClosed
from qindex.lines import say

_SIZE: Final = struct.Struct(">I")
_WINDOW_BYTES: Final = 64 << 10
_META_BYTES_MAX: Final = 128
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW

Place: TypeAlias = tuple[int, int]


class NsqFiles:
    """The files of one queue. A place is a file's number and an offset in it."""

    def __init__(
        self,
        name: str,
        path: str,
        max_bytes_per_file: int,
        sizes: range,
        sync_every: int,
        sync_timeout: float,
    ) -> None:
        if not name or "/" in name or "\0" in name:
            raise ValueError(f"{name!r} cannot be a part of a file's name")
        self._name = name
        self._path = Path(path)
        self._max_bytes = max_bytes_per_file
        self._sizes = sizes
        self._sync_every = sync_every
        self._lock = threading.RLock()
        self._depth = 0
        self._read_file = self._read_pos = 0
        self._write_file = self._write_pos = 0
        self._read_fd = self._write_fd = -1
        self._window = b""
        self._window_pos = 0
        self._given_back: list[tuple[Place, bytes]] = []  # before all others, by place
        self._taken: Place = (0, 0)  # the last one
        self._operations = 0
        self._sync_error: OSError | None = None
        self.damaged = 0
        self._restore()
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, args=[sync_timeout], daemon=True)
        self._ticker.start()

    # --- opening --------------------------------------------------------------------------------

    def _restore(self) -> None:
        numbers = self._numbers()
        meta, meta_path = None, self._meta_path
        if meta_path.is_file():
            with meta_path.open("rb") as file:
                meta = parse_meta(file.read(_META_BYTES_MAX))
        if meta is None or meta.read > meta.write:
            if numbers:  # the metadata were lost: all that is there counts, nothing is overwritten
                say("WARNING", "%s is missing or makes no sense: all is got once more", meta_path)
                self._read_file, self._write_file = numbers[0], numbers[-1] + 1
                self._depth = sum(self._records_behind(number, 0) for number in numbers)
            return
        self._depth = meta.depth
        self._read_file, self._read_pos = meta.read
        self._write_file, self._write_pos = meta.write
        size = self._file(meta.write[0]).stat().st_size if meta.write[0] in numbers else 0
        if size != self._write_pos or max(numbers, default=0) > self._write_file:
            # Written on after the metadata were: what is there is got, and a new file begun.
            for number in [n for n in numbers if n >= self._write_file]:
                pos = self._write_pos if number == self._write_file else 0
                self._depth += self._records_behind(number, pos)
            self._write_file = max([*numbers, self._write_file]) + 1
            self._write_pos = 0

    def _numbers(self) -> list[int]:
        """Of the data files that are there."""
        found = (data_number(self._name, file.name) for file in self._path.iterdir())
        return sorted(number for number in found if number is not None)

    def _records_behind(self, number: int, offset: int) -> int:
        return records_behind(self._path, data_name(self._name, number), offset)

    # --- putting --------------------------------------------------------------------------------

    def put(self, body: bytes) -> None:
        record = _SIZE.pack(len(body)) + body
        with self._lock:
            self._check()
            if self._write_pos > 0 and self._write_pos + len(record) > self._max_bytes:
                self._roll()
            if self._write_fd < 0:
                self._write_fd = os.open(self._file(self._write_file), _CREATE, 0o600)
            done = 0
            while done < len(record):  # after an error the next one writes over it
                done += os.pwrite(self._write_fd, record[done:], self._write_pos + done)
            self._write_pos += len(record)
            self._depth += 1
            self._count()

    def _roll(self) -> None:
        number, pos = self._write_file, self._write_pos
        self._write_file, self._write_pos = number + 1, 0
        try:
            self.sync()
            self._close_write_file()
        except BaseException:  # also a signal handler's: what is open is the old file
            self._write_file, self._write_pos = number, pos
            raise

    # --- getting --------------------------------------------------------------------------------

    def get(self) -> bytes | None:
        taken: Place | None = None
        try:
            with self._lock:
                self._check()
                if self._given_back:
                    (place, body), *rest = self._given_back
                    self._given_back, self._taken = rest, place
                    taken = place
                    if place[0] < self._read_file:
                        self.sync()
                        self._remove(place[0])
                else:
                    found = self._next()
                    if found is None:
                        return None
                    body, place = found, (self._read_file, self._read_pos)
                    end = place[1] + _SIZE.size + len(body)
                    # No call in between: a signal handler runs before all of it or behind them.
                    self._depth -= 1
                    self._read_pos = end
                    self._taken = taken = place
                    if place[0] < self._write_file and end >= self._read_size():
                        self._finish_file()
                    self._correct_at_end()
                self._count()
        except BaseException:
            if taken is not None:
                self._give_back(taken, body)
            raise
        return body

    def give_back(self, body: bytes) -> None:
        """What was taken last comes again, in its place."""
        self._give_back(self._taken, body)

    def _give_back(self, place: Place, body: bytes) -> None:
        """If its file is gone, it becomes one that has this message only."""
        with self._lock:
            is_gone = not self._file(place[0]).exists()
            if is_gone:
                place = place[0], 0
                with open(self._file(place[0]), "wb", opener=_private) as file:
                    file.write(_SIZE.pack(len(body)) + body)
                    file.flush()
                    os.fsync(file.fileno())
            self._given_back = sorted([*self._given_back, (place, body)])
            self._operations += 1
            if is_gone or self._ended.is_set():
                self.sync()

    def peek(self) -> bytes | None:
        with self._lock:
            return self._given_back[0][1] if self._given_back else self._next()

    def _next(self) -> bytes | None:
        """The next message; behind files that are finished, missing or damaged."""
        while (self._read_file, self._read_pos) < (self._write_file, self._write_pos):
            try:
                if self._read_fd < 0:
                    self._read_fd = os.open(self._file(self._read_file), _READ)
            except FileNotFoundError:
                self._tell_missing(self._read_file, self._read_file + 1)
                self._go_to_next_file()
                continue
            if self._read_file < self._write_file and self._read_pos >= self._read_size():
                self._finish_file()
                continue
            head = self._bytes(self._read_pos, _SIZE.size)
            size = _SIZE.unpack(head)[0] if len(head) == _SIZE.size else -1
            body = self._bytes(self._read_pos + _SIZE.size, size) if size in self._sizes else None
            if body is None or len(body) < size:
                self._set_aside()
                continue
            return body
        self._correct_at_end()
        return None

    def _bytes(self, pos: int, count: int) -> bytes:
        """Of the file that is read; fewer at its end."""
        start = pos - self._window_pos
        if start < 0 or start + count > len(self._window):
            wanted = max(count, _WINDOW_BYTES)
            if self._read_file == self._write_file:  # behind it are leftovers of a failed put
                wanted = min(wanted, self._write_pos - pos)
            self._window = os.pread(self._read_fd, wanted, pos)
            self._window_pos, start = pos, 0
        return self._window[start : start + count]

    def _read_size(self) -> int:
        return os.fstat(self._read_fd).st_size

    def _finish_file(self) -> None:
        """The metadata first: if they named a file that is gone, its successor's place was lost."""
        done = self._read_file
        self._go_to_next_file()
        self.sync()
        self._remove(done)

    def _remove(self, number: int) -> None:
        """A file of which all was got, unless a message was given back."""
        if all(place[0] != number for place, _ in self._given_back):
            self._file(number).unlink(missing_ok=True)

    def _go_to_next_file(self) -> None:
        self._close_read_file()
        following = [n for n in self._numbers() if self._read_file < n < self._write_file]
        done, self._read_file = self._read_file, following[0] if following else self._write_file
        self._read_pos = 0
        self._tell_missing(done + 1, self._read_file)

    def _tell_missing(self, first: int, end: int) -> None:
        """Of these files none is there. One that is called .bad was told when that was done."""
        if (
            first < end
            and not self._file(first).with_name(f"{self._file(first).name}.bad").exists()
        ):
            say("WARNING", "%s is missing, with its messages", self._file(first))
            self.damaged += 1

    def _set_aside(self) -> None:
        """Nobody knows where in the file the next message begins.

        A signal handler may end this anywhere: then the next verb does it again.
        """
        bad = self._file(self._read_file)
        if self._read_file == self._write_file:
            self._close_write_file()
            self._write_file, self._write_pos = self._write_file + 1, 0
        with suppress(FileNotFoundError):
            bad.rename(f"{bad}.bad")
        text = "%s makes no sense from byte %d on: it is called .bad now (qindex recover reads it)"
        say("WARNING", text, bad, self._read_pos)
        self._go_to_next_file()
        self.damaged += 1
        self._correct_at_end()
        self.sync()

    def _correct_at_end(self) -> None:
        """All was got, so whatever the depth was counted from: it is 0."""
        if (self._read_file, self._read_pos) >= (self._write_file, self._write_pos):
            self._depth = 0

    # --- syncing and ending ---------------------------------------------------------------------

    def depth(self) -> int:
        with self._lock:
            return max(self._depth, 0) + len(self._given_back)

    def _count(self) -> None:
        self._operations += 1
        if self._operations >= self._sync_every:
            self.sync()

    def _check(self) -> None:
        """A sync in the background that failed is told by the next verb."""
        if self._ended.is_set():
            raise StoreClosed(f"the queue {self._name!r} is closed")
        if self._sync_error is not None:
            error, self._sync_error = self._sync_error, None
            raise error

    def _tick(self, seconds: float) -> None:
        while not self._ended.wait(seconds):
            with self._lock:
                if self._operations and not self._ended.is_set():
                    try:
                        self.sync()
                    except OSError as error:
                        self._sync_error = error

    def sync(self) -> None:
        """Data, then metadata under another name, then their name."""
        with self._lock:
            if self._write_fd >= 0:
                os.fsync(self._write_fd)
            depth, read = self._depth + len(self._given_back), (self._read_file, self._read_pos)
            number, pos = self._given_back[0][0] if self._given_back else read
            text = f"{depth}\n{number},{pos}\n"
            text += f"{self._write_file},{self._write_pos}\n"
            draft = self._path / f"{self._meta_path.name}.{random.randrange(1 << 63)}.tmp"  # noqa: S311
            try:
                with open(draft, "xb", opener=_private) as file:
                    file.write(text.encode())
                    file.flush()
                    os.fsync(file.fileno())
                draft.rename(self._meta_path)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
            folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self._operations = 0

    def empty(self) -> None:
        with self._lock:
            self._drop_files()
            self._meta_path.unlink(missing_ok=True)
            self._operations = 0

    def _drop_files(self) -> None:
        """Goes on behind all files; their numbers are not used again."""
        self._close_read_file()
        self._close_write_file()
        self._given_back = []
        for number in self._numbers():
            if number <= self._write_file:
                self._file(number).unlink(missing_ok=True)
        self._write_file += 1
        self._read_file, self._read_pos, self._write_pos = self._write_file, 0, 0
        self._depth = 0

    def delete(self) -> None:
        """The original leaves its files where they are: nsqd empties a queue before."""
        self._end(self.empty)

    def close(self) -> None:
        self._end(self.sync)

    def _end(self, last: Callable[[], None]) -> None:
        """What another thread has put is before `last`, or refused."""
        try:
            with self._lock:
                self._ended.set()
                last()
        finally:
            self._ticker.join()
            self._close_files()

    def _close_files(self) -> None:
        with self._lock:
            self._close_read_file()
            self._close_write_file()

    def _close_read_file(self) -> None:
        # Forgotten, then closed: an interrupt in between must not lead to closing it twice.
        fd, self._read_fd, self._window, self._window_pos = self._read_fd, -1, b"", 0
        if fd >= 0:
            os.close(fd)

    def _close_write_file(self) -> None:
        fd, self._write_fd = self._write_fd, -1
        if fd >= 0:
            os.close(fd)

    def _file(self, number: int) -> Path:
        return self._path / data_name(self._name, number)

    @property
    def _meta_path(self) -> Path:
        return self._path / meta_name(self._name)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
