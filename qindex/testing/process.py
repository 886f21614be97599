"""The ground of foreign queues: a process of their own, whose I/O is recorded and then replayed.

The queue runs below a preloaded library that writes down each change and sync of its files. What
kill -9 or a power cut leaves is built from that record, in a fresh directory for the next life.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import inspect
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from qindex.testing.adapter import Adapter, Answer
from qindex.testing.child import Line
from qindex.testing.disk import File, Op
from qindex.testing.ground import CallFailed, CallHung, Ground, Unrecordable

_LINE: Final = struct.Struct("<c3xII4xQQQ")
_KINDS: Final[dict[bytes, Any]] = {
    b"c": "create",
    b"m": "mkdir",
    b"w": "write",
    b"t": "resize",
    b"r": "rename",
    b"l": "link",
    b"u": "unlink",
    b"d": "rmdir",
    b"s": "sync",
    b"S": "syncdir",
    b"A": "syncall",
}
# SQLite's shared memory: mapped, rebuilt by whoever opens the database first, never needed.
_SCRATCH: Final = "-shm"


class Nursery:
    """The process that a queue's lives are forked from. One per adapter, kept until exit."""

    def __init__(self, adapter: type[Adapter]) -> None:
        origin = _origin(adapter)
        self.seconds = adapter.seconds
        ours, theirs = socket.socketpair()
        preload = " ".join(filter(None, [_recorder(), os.environ.get("LD_PRELOAD")]))
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "qindex.testing.child", str(theirs.fileno())],
                env={**os.environ, "LD_PRELOAD": preload, "PYTHONPATH": os.pathsep.join(sys.path)},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self.socket = ours
        self.line = Line(ours)
        try:
            self.line.say(**origin, path=sys.path)
            answer = self.line.hear()
        except OSError:  # nobody is there any more
            answer = None
        answer = answer or {"error": "the process ended; what it said is on stderr"}
        if "error" in answer:
            self.close()
            raise ImportError(f"{adapter.__name__} cannot be loaded: {answer['error']}")

    def ask(self, seconds: float | None, **message: Any) -> dict[str, Any]:
        """Say something and wait for the answer. Raises TimeoutError."""
        self.socket.settimeout(seconds)
        self.line.say(**message)
        answer = self.line.hear()
        if answer is None:
            raise CallFailed("the queue's process is gone")
        return answer

    def close(self) -> None:
        """The process ends when it has nobody to talk to."""
        with contextlib.suppress(OSError):  # what was not read is still to be sent
            self.line.stream.close()
        self.socket.close()
        self.process.wait()


_nurseries: dict[type[Adapter], Nursery] = {}


@atexit.register
def _close_nurseries() -> None:
    while _nurseries:
        _nurseries.popitem()[1].close()


def _recorder() -> str:
    spec = importlib.util.find_spec("qindex.testing._record")
    if spec is None or spec.origin is None:
        raise ImportError("qindex.testing._record is missing: install qindex again, on Linux")
    return spec.origin


def _origin(adapter: type[Adapter]) -> dict[str, str]:
    """Where the other process finds the adapter."""
    name = adapter.__qualname__
    if "<locals>" in name:
        raise ValueError(f"{name} must stand at the top level of a module")
    try:
        file = os.path.realpath(inspect.getfile(adapter))
    except (OSError, TypeError):
        raise ValueError(f"{name} must stand in a file, so that a process can load it") from None
    return {"module": adapter.__module__, "file": file, "name": name}


class ProcessGround(Ground):
    """Lives are forks of a nursery; files are in a temporary directory."""

    def __init__(self, adapter: type[Adapter]) -> None:
        super().__init__(adapter)
        if adapter not in _nurseries:
            _nurseries[adapter] = Nursery(adapter)
        self.nursery = _nurseries[adapter]
        self.base = Path(tempfile.mkdtemp(prefix="qindex-testing-"))
        self.place = str(self.base / "queue")
        self.scratch: set[int] = set()
        self.pid = 0
        self.record: Path | None = None
        self.read = 0  # bytes of the record that were taken

    def dispose(self) -> None:
        try:
            super().dispose()
        finally:
            shutil.rmtree(self.base, ignore_errors=True)

    # --- lives ---------------------------------------------------------------------------------

    def _start(self, *, recorded: bool) -> None:
        numbers = self._make_files()
        self.record = self.base / "record" if recorded else None
        if self.record is not None:
            self.disk.bind(numbers)
            self.record.unlink(missing_ok=True)
            self.read, self.scratch = 0, set()
        record = None if self.record is None else str(self.record)
        answer = self.nursery.ask(None, root=self.place, record=record)
        self.pid = answer.get("pid", 0)
        if not self.pid:
            raise CallFailed(f"the queue's process ended at once: {answer}")

    def _make_files(self) -> dict[str, int]:
        """Write what is on the disk into the directory; return the files' inodes."""
        root, made, numbers = Path(self.place), dict[File, str](), dict[str, int]()
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(mode=0o700)
        for path, entry in sorted(self.disk.names.items()):
            target = root / path
            if entry is None:
                target.mkdir()
                continue
            if entry in made:
                os.link(root / made[entry], target)
            else:
                target.write_bytes(entry.now)
                made[entry] = path
            numbers[path] = target.stat().st_ino
        return numbers

    def _call(self, verb: str, *arguments: object) -> Answer:
        if not self.pid:
            raise CallFailed("the queue's process is dead")
        try:
            answer = self.nursery.ask(self.nursery.seconds, verb=verb, arguments=arguments)
        except TimeoutError:
            self._kill()
            raise CallHung(f"{verb} did not return in {self.nursery.seconds} seconds") from None
        if "ended" in answer:
            self.pid = 0
            code = os.waitstatus_to_exitcode(answer["ended"])
            raise CallFailed(f"the process died in it, exit code {code}")
        if "error" in answer:
            raise CallFailed(answer["error"].replace(self.place, "..."))
        return answer["answer"]

    def _stop(self, *, check: bool) -> None:
        if self.pid:
            self.nursery.ask(self.nursery.seconds, verb="hold", arguments=[])
            self._kill()
        if check and self.record is not None:
            for op in self._take_ops():
                self.disk.apply(op)
            self._compare()

    def _kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.pid = 0
        # A hanging read has broken the stream object; the socket is as good as before.
        with contextlib.suppress(OSError):
            self.nursery.line.stream.close()
        self.nursery.socket.settimeout(None)
        self.nursery.line = Line(self.nursery.socket)
        while "ended" not in (self.nursery.line.hear() or {"ended": None}):
            pass  # an answer that came too late

    # --- the record ----------------------------------------------------------------------------

    def _take_ops(self) -> list[Op]:
        if self.record is None:
            return []
        with self.record.open("rb") as file:
            file.seek(self.read)
            data = file.read()
        ops: list[Op] = []
        at = 0
        while at + _LINE.size <= len(data):
            kind, from_size, to_size, number, offset, size = _LINE.unpack_from(data, at)
            if at + _LINE.size + from_size + to_size + size > len(data):
                break  # a thread of the queue is writing it right now
            at += _LINE.size
            path, at = os.fsdecode(data[at : at + from_size]), at + from_size
            to, at = os.fsdecode(data[at : at + to_size]), at + to_size
            body, at = data[at : at + size], at + size
            ops += self._understand(kind, Op("sync", number, path, to, offset, body))
        self.read += at
        return ops

    def _understand(self, kind: bytes, op: Op) -> list[Op]:
        if kind == b"M" and not op.path.endswith(_SCRATCH):
            raise Unrecordable(f"the queue maps {op.path} for writing; stores are not seen")
        if kind == b"?":
            raise Unrecordable(f"the queue makes a link, or moves {op.path} in or out of its place")
        if kind == b"c" and op.path.endswith(_SCRATCH):
            self.scratch.add(op.number)
        elif kind == b"c":
            self.scratch.discard(op.number)  # an inode that is used again
        if op.path.endswith(_SCRATCH) or (op.number in self.scratch and kind in b"cwts"):
            return []
        if kind == b"M":
            return []
        path = "" if kind == b"s" else op.path
        return [Op(_KINDS[kind], op.number, path, op.to, op.offset, op.data)]

    def _compare(self) -> None:
        """The files must be what the record makes of them: else something was not seen."""
        root, expected = Path(self.place), self.disk.files()
        found: dict[str, bytes | None] = {}
        for file in sorted(root.rglob("*")):
            if not file.name.endswith(_SCRATCH):
                found[str(file.relative_to(root))] = file.read_bytes() if file.is_file() else None
        for path in sorted(expected.keys() | found.keys()):
            if expected.get(path, 0) != found.get(path, 0):
                raise Unrecordable(f"{path} was changed in a way that the harness does not see")
