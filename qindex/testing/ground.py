"""What a queue under test stands on: lives, kills and power cuts. Two of them are here.

A *life* is one opening of the queue, up to its close or crash. ``Ground`` keeps a Disk beside the
queue, fed with the operations of each call; from it the files of the next life are made.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from qindex.testing.adapter import Adapter, Answer, Stand
from qindex.testing.disk import Disk, Op, change_bytes

if TYPE_CHECKING:
    from qindex.testing.promise import Crash


class CallFailed(Exception):
    """The queue raised; the text is its exception's."""


class CallHung(Exception):
    """The queue did not answer in time; it was killed."""


class Unrecordable(Exception):
    """The harness cannot see all that this queue writes."""


class Ground(ABC):
    """One queue under test and the disk below it. Used by one Run, from one thread."""

    def __init__(self, adapter: type[Adapter]) -> None:
        self.adapter = adapter
        self.disk = Disk(adapter.disk)
        self.ops: list[Op] = []  # of the last call, for whoever wants to look
        self.alive = False

    # --- what a kind of ground does --------------------------------------------------------------

    @abstractmethod
    def _start(self, *, recorded: bool) -> None:
        """Make the files of self.disk real and begin a life on them; the queue is not open yet."""

    @abstractmethod
    def _call(self, verb: str, *arguments: object) -> Answer:
        """One call. Raises CallFailed, CallHung."""

    @abstractmethod
    def _take_ops(self) -> list[Op]:
        """What was done to the disk since this was asked last, in order."""

    @abstractmethod
    def _stop(self, *, check: bool) -> None:
        """The life ends: the process is killed if it still runs.

        With `check` raises Unrecordable if the files are not as the operations made them.
        """

    def dispose(self) -> None:
        """Let go of everything. Nothing may be called afterwards."""
        if self.alive:
            self._stop(check=False)
            self.alive = False

    # --- what a Run uses -------------------------------------------------------------------------

    def begin(self) -> None:
        """A new life; the verb "open" comes next."""
        self._start(recorded=True)
        self.alive = True

    def call(self, verb: str, *arguments: object) -> Answer:
        """One call, and what it did to the disk."""
        answer = self._call(verb, *arguments)
        self.ops = self._take_ops()
        for op in self.ops:
            self.disk.apply(op)
        return answer

    def end(self) -> None:
        """The life ends after close()."""
        self.alive = False
        self._stop(check=True)

    def crash(self, kind: Crash, seed: int) -> None:
        """Kill the queue between two calls, or cut the power."""
        if self.alive:
            self.alive = False
            self._stop(check=True)
        if kind == "power":
            self.disk.power_cut(seed)

    def crash_during(self, kind: Crash, seed: int, at: int, verb: str, *arguments: object) -> int:
        """The same in the middle of a call: after its first `at` operations on the disk.

        If it has fewer, counting goes on from none. Returns how many were done. What the call
        answers, nobody knows: the whole call runs, and then the disk is taken back.
        """
        before = copy.deepcopy(self.disk)
        try:
            self.call(verb, *arguments)
        except CallFailed:
            self.ops = self._take_ops()
            for op in self.ops:
                self.disk.apply(op)
        self.crash("kill", 0)
        self.disk, done = before, self.ops[: at % (len(self.ops) + 1)]
        for op in done:
            self.disk.apply(op)
        if kind == "power":
            self.disk.power_cut(seed)
        return len(done)

    def look(self, limit: int) -> list[Answer]:
        """What the queue shows: a copy of it is opened and emptied with get(). No life may be on.

        Never more than `limit` messages. Raises CallFailed, CallHung.
        """
        self._start(recorded=False)
        try:
            self._call("open", self.place)
            shown: list[Answer] = self._call("drain", limit)
            return shown
        finally:
            self._stop(check=False)

    place: str = ""  # what the adapter's open() is told


class MemoryDisk:
    """Files of a queue that does its I/O through an object: one directory, in memory.

    What was written is seen at once and outlives a kill; a power cut may take what was not synced.
    """

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.view = {name: bytearray(data) for name, data in (files or {}).items()}
        self.numbers = {name: number for number, name in enumerate(self.view, 1)}
        self.last = len(self.numbers)
        self.log: list[Op] = []

    def names(self) -> list[str]:
        """The names of all files, sorted."""
        return sorted(self.view)

    def read(self, name: str) -> bytes:
        """The whole file; b"" if it is not there."""
        return bytes(self.view.get(name, b""))

    def append(self, name: str, data: bytes) -> None:
        """Add to the end of the file, which is created if need be."""
        self.write(name, len(self.view.get(name, b"")), data)

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Put bytes somewhere into the file, which is created if need be."""
        number = self._number(name)
        self._do(Op("write", number, offset=offset, data=data))
        change_bytes(self.view[name], (offset, data))

    def resize(self, name: str, size: int) -> None:
        """Cut the file, or fill it up with zeros."""
        self._do(Op("resize", self._number(name), offset=size))
        change_bytes(self.view[name], size)

    def sync(self, name: str) -> None:
        """The file's bytes are safe; its name is after sync_names()."""
        self._do(Op("sync", self._number(name)))

    def sync_names(self) -> None:
        """All names are safe."""
        self._do(Op("syncdir", path=""))

    def rename(self, name: str, to: str) -> None:
        """Give the file another name; what had it is gone."""
        self._do(Op("rename", path=name, to=to))
        self.view[to] = self.view.pop(name)
        self.numbers[to] = self.numbers.pop(name)

    def remove(self, name: str) -> None:
        """The name goes."""
        self._do(Op("unlink", path=name))
        del self.view[name], self.numbers[name]

    def _number(self, name: str) -> int:
        if name not in self.view:
            self.last += 1
            self.view[name], self.numbers[name] = bytearray(), self.last
            self._do(Op("create", self.last, name))
        return self.numbers[name]

    def _do(self, op: Op) -> None:
        self.log.append(op)


class MemoryAdapter(Adapter):
    """An adapter of a queue that writes to `self.files`, a MemoryDisk; nothing touches a real disk.

    For queues with a storage that can be replaced, and for toys. Runs in this process: fast, and
    without a limit on time.
    """

    files: MemoryDisk


class MemoryGround(Ground):
    """The ground of a MemoryAdapter."""

    def _start(self, *, recorded: bool) -> None:
        files = MemoryDisk({p: data or b"" for p, data in self.disk.files().items()})
        if recorded:
            self.disk.bind(files.numbers)
        self.memory = files

        def prepare(queue: Adapter) -> None:
            assert isinstance(queue, MemoryAdapter)  # noqa: S101
            queue.files = files

        self.stand = Stand(self.adapter, prepare)

    def _call(self, verb: str, *arguments: object) -> Answer:
        try:
            return self.stand.call(verb, *arguments)
        except Exception as error:
            raise CallFailed(f"{type(error).__name__}: {error}") from error

    def _take_ops(self) -> list[Op]:
        ops, self.memory.log = self.memory.log, []
        return ops

    def _stop(self, *, check: bool) -> None:
        del self.stand
