"""The hands of the demo: unpack the node, run and kill the writer, drain a queue."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, perf_counter_ns, sleep
from typing import Final

import qindex
from qindex.cli.demo.writer import PUBLISHES_PER_ROUND, digest_of
from qindex.look.screen import CommandError
from qindex.private import FILE_MODE, FOLDER_MODE, make_folder

ROUNDS_MIN: Final = 20
PATIENCE_SECONDS: Final = 60.0
KILL_SPREAD_NS: Final = 3_000_000
PIPE_BYTES: Final = 1 << 20
GETS_PER_BATCH: Final = 1000


def unpack(archive: Path, folder: Path) -> int:
    """Unpacks it there, into a folder of its own; returns the bytes of its files.

    For archives of our own.
    """
    make_folder(folder)
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):  # not before 3.11.4, which Debian 12 has not
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(folder)  # noqa: S202
        members = tar.getmembers()
    for path in folder.rglob("*"):
        path.chmod(FOLDER_MODE if path.is_dir() else FILE_MODE)
    return sum(member.size for member in members)


class Writer:
    """The process of writer.py, and what it reported."""

    def __init__(self, store: Path, queue: str) -> None:
        # The same qindex as here, wherever it was imported from; -P: not from the current folder.
        home = str(Path(qindex.__file__).resolve().parents[1])
        paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed behind the kill
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "qindex.cli.demo.writer", str(store), queue],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        self._pipe = self._process.stdout

    def run_and_kill(
        self, run_seconds: float, progress: Callable[[int], None]
    ) -> tuple[bytes, float]:
        """Lets it run, and at least some rounds; kills it; returns its report and its time."""
        try:
            chunks, rounds, started = [self._first_line()], 0, perf_counter()
            stop_at = started + run_seconds
            give_up_at = started + PATIENCE_SECONDS
            while perf_counter() < stop_at or rounds < ROUNDS_MIN:
                if perf_counter() > give_up_at:
                    raise CommandError(f"the writer is too slow: {rounds} rounds in a minute", 1)
                chunk = self._read(0.05)
                rounds += chunk.count(b"p")
                chunks.append(chunk)
                progress(rounds * PUBLISHES_PER_ROUND)
            sleep(perf_counter_ns() % KILL_SPREAD_NS / 1e9)  # anywhere, not just behind a report
            self._process.send_signal(signal.SIGKILL)
            seconds = perf_counter() - started
            while chunk := self._read(None):
                chunks.append(chunk)
            if self._process.wait() != -signal.SIGKILL:
                raise self._ended_by_itself()
        finally:
            self._process.kill()
            self._process.wait()
            self._pipe.close()
            self._errors.close()
        return b"".join(chunks), seconds

    def _first_line(self) -> bytes:
        line = self._read(PATIENCE_SECONDS)
        if not line.startswith(b"r\n"):
            raise CommandError(f"the writer did not start: {line!r}", 1)
        return line

    def _read(self, timeout: float | None) -> bytes:
        """What the pipe has; empty at the timeout, or (without one) at its end."""
        fd = self._pipe.fileno()
        if timeout is not None and not select.select([fd], [], [], timeout)[0]:
            return b""
        chunk = os.read(fd, PIPE_BYTES)
        if not chunk and timeout is not None:
            self._process.wait()
            raise self._ended_by_itself()
        return chunk

    def _ended_by_itself(self) -> CommandError:
        self._errors.seek(0)
        told = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        why = told[-1] if told else f"exit code {self._process.returncode}"
        return CommandError(f"the writer ended by itself: {why}", 1)


def drain(
    queue: qindex.Queue, progress: Callable[[int], None]
) -> tuple[list[tuple[int, str]], float]:
    """Gets and acks all that is ready, one call each; ReqIds and digests, and the calls' time."""
    done: list[tuple[int, str]] = []
    seconds = 0.0
    while True:
        batch: list[qindex.Message] = []
        started = perf_counter()
        while len(batch) < GETS_PER_BATCH and (message := queue.get()) is not None:
            queue.ack(message)
            batch.append(message)
        seconds += perf_counter() - started
        done += [(message.req_id, digest_of(message.body)) for message in batch]
        progress(len(done))
        if len(batch) < GETS_PER_BATCH:
            return done, seconds
