"""One run of the consumer that `qindex bisect` looks at: what it is fed, and how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import IO, Final, NamedTuple

import qindex
from qindex.arguments import encode_headers
from qindex.buffers import REASONS
from qindex.look.messages import STATES, Found
from qindex.look.screen import CommandError

OUTPUT_BYTES_MAX: Final = 4096
CANNOT_JUDGE, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
_HEAD: Final = Struct(">QQQQIHhBBBII")  # what a Found holds beside its queue, table and body
_NO_PRIORITY: Final = -1


class Spool:
    """The messages of one queue in a temporary file, so that all runs see the same ones.

    Memory holds 8 bytes per message.
    """

    def __init__(self, folder: Path, queue: str) -> None:
        self.queue = queue
        self._file = (folder / "messages").open("w+b")
        self._offsets = array("Q")

    def __len__(self) -> int:
        return len(self._offsets)

    def close(self) -> None:
        self._file.close()

    def add(self, found: Found) -> None:
        table = encode_headers(found.table) if isinstance(found.table, dict) else found.table
        self._offsets.append(self._file.seek(0, os.SEEK_END))
        head = _HEAD.pack(
            found.req_id,
            found.expiry_us,
            found.due_us,
            found.published_us,
            found.delivery_count,
            found.part,
            _NO_PRIORITY if found.priority is None else found.priority,
            STATES.index(found.state) << 1 | found.redelivered,
            REASONS.index(found.dead),
            found.persistent,
            len(table),
            len(found.body),
        )
        self._file.write(head + table + found.body)

    def read(self, positions: Sequence[int]) -> Iterator[Found]:
        """The messages at these positions, in the order in which they were added."""
        for position in positions:
            self._file.seek(self._offsets[position])
            head = _HEAD.unpack(self._file.read(_HEAD.size))
            (req_id, expiry_us, due_us, published_us, deliveries, part, priority, state, dead,
             persistent, table, body) = head  # fmt: skip
            yield Found(
                self.queue,
                req_id,
                STATES[state >> 1],
                bool(state & 1),
                deliveries,
                bool(persistent),
                expiry_us,
                self._file.read(table),
                self._file.read(body),
                part,
                None if priority == _NO_PRIORITY else priority,
                due_us,
                REASONS[dead],
                published_us,
            )


class Outcome(NamedTuple):
    died: bool
    how: str
    output: str  # the end of what it wrote


class Consumer:
    """A command, and how messages get to it: feed is jsonl, bodies, lengths or store."""

    def __init__(self, spool: Spool, command: str, feed: str, seconds: float, alive_ok: bool):
        self._spool = spool
        self._command = command
        self._feed = feed
        self._seconds = seconds
        self._alive_ok = alive_ok

    def run(self, positions: Sequence[int]) -> Outcome:
        """Feeds it these messages, waits for its end, and leaves nothing behind."""
        with tempfile.TemporaryDirectory(prefix="qindex-bisect-") as name:
            folder = Path(name)
            environment = {
                **os.environ,
                "QINDEX_QUEUE": self._spool.queue,
                "QINDEX_COUNT": str(len(positions)),
            }
            if self._feed == "store":
                environment["QINDEX_STORE"] = str(folder / "store")
                self._make_store(folder / "store", positions)
            with (folder / "stdin").open("w+b") as stdin, (folder / "out").open("w+b") as out:
                if self._feed != "store":
                    self._write(stdin, positions)
                    stdin.seek(0)
                code = self._wait(stdin, out, environment)
                size = out.seek(0, os.SEEK_END)
                out.seek(max(0, size - OUTPUT_BYTES_MAX))
                output = out.read().decode(errors="backslashreplace")
        return self._judge(code, output)

    def _make_store(self, path: Path, positions: Sequence[int]) -> None:
        with qindex.open(path, sync="never", expire=False) as store:
            queue = store.queue(self._spool.queue)
            for found in self._spool.read(positions):
                queue.publish(
                    found.body,
                    headers=found.headers or None,
                    persistent=found.persistent,
                    expires_at=found.expires_at,
                    priority=found.priority or 0,
                )

    def _write(self, stdin: IO[bytes], positions: Sequence[int]) -> None:
        for found in self._spool.read(positions):
            stdin.write(fed(found, self._feed))

    def _wait(self, stdin: IO[bytes], out: IO[bytes], environment: dict[str, str]) -> int | None:
        """The exit status, negative for a signal; None: it was stopped because time was over."""
        process = subprocess.Popen(
            ["/bin/sh", "-c", self._command],
            stdin=stdin,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            return process.wait(self._seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)  # and what it started
                process.wait()

    def _judge(self, code: int | None, output: str) -> Outcome:
        if code is None:
            how = f"still ran after {self._seconds:g} s"
            return Outcome(not self._alive_ok, how, output)
        if code == CANNOT_JUDGE:
            raise CommandError("the command ended with 125: it says that it cannot judge")
        if code in (NOT_EXECUTABLE, NOT_FOUND):
            last = output.strip().rpartition("\n")[2]
            raise CommandError(f"the command cannot be run: {last}")
        # A shell says 128 + n when what it ran was killed by signal n.
        number = -code if code < 0 else code - 128 if 128 < code < 160 else 0
        if number:
            with suppress(ValueError):
                return Outcome(True, f"killed by {signal.Signals(number).name}", output)
        return Outcome(code != 0, f"exit status {code}", output)


def fed(found: Found, feed: str) -> bytes:
    """A message as it goes to stdin."""
    if feed == "jsonl":
        import json

        from qindex.look.screen import plain

        return json.dumps(plain(found.as_json())).encode() + b"\n"
    if feed == "lengths":
        return len(found.body).to_bytes(4, "big") + found.body
    return found.body + b"\n"
