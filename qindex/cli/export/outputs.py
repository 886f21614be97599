"""What `qindex export` writes: JSON Lines, a Parquet file, or a folder of files.

Each output promises: what commit() returned for is still there when the process is killed, and
going on from its `state` leaves nothing twice. The caller saves the state after each commit().
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol
from urllib.parse import quote

from qindex.look.messages import Found, properties_of
from qindex.look.screen import CommandError, plain
from qindex.names import written
from qindex.private import make_folder, open_private, sync_folder

FOLDER_NAME_MAX: Final = 150
LIST: Final = "messages.jsonl"
EMPTY: Final = "%empty"
ROWS_PER_GROUP: Final = 65536
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Output(Protocol):
    """`state` belongs to the checkpoint: commit() writes into it, begin() goes on from it."""

    def begin(self, state: dict[str, Any]) -> None: ...

    def write(self, message: Found) -> None: ...

    def commit(self) -> None: ...

    def finish(self) -> None:
        """After the last commit(): the output is whole and durable when it returns."""
        ...

    def close(self) -> None: ...


class Lines:
    """A file of lines that goes on at a known length."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: BinaryIO
        self._opened = contextlib.ExitStack()

    def begin(self, state: dict[str, Any]) -> None:
        self.state = state
        length = state.setdefault("bytes", 0)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.file = self._opened.enter_context(os.fdopen(fd, "r+b", buffering=1 << 20))
        if os.fstat(fd).st_size < length:
            raise CommandError(
                f"{str(self.path)!r} is shorter than its checkpoint says: somebody changed it;"
                " delete both to start anew"
            )
        self.file.truncate(length)  # what was written behind the last commit is written again
        self.file.seek(length)
        sync_folder(self.path.parent)

    def add(self, value: dict[str, Any]) -> None:
        self.file.write(json.dumps(plain(value), allow_nan=False).encode("ascii") + b"\n")

    def commit(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())
        self.state["bytes"] = self.file.tell()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a full disk was told when it was written to
            self._opened.close()


class JsonLines(Lines):
    """One object per message."""

    def write(self, message: Found) -> None:
        self.add(message.as_json())

    def finish(self) -> None:
        pass


class Files:
    """A body per file, in a folder per queue; messages.jsonl says what they are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = Lines(path / LIST)
        self._folders: set[str] = set()

    def begin(self, state: dict[str, Any]) -> None:
        make_folder(self.path)
        self.lines.begin(state)

    def write(self, message: Found) -> None:
        folder = folder_name(message.queue)
        name = f"{message.req_id:019d}.body"
        if message.priority is not None:
            name = f"p{message.priority:03d}-{name}"
        if folder not in self._folders:
            make_folder(self.path / folder)
            self._folders.add(folder)
        with open_private(self.path / folder / name) as file:
            file.write(message.body)
        self.lines.add({**message.as_json(with_body=False), "file": f"{folder}/{name}"})

    def commit(self) -> None:
        self.lines.commit()

    def finish(self) -> None:
        pass

    def close(self) -> None:
        self.lines.close()


def folder_name(queue: str) -> str:
    """A queue's name as the name of a folder: two queues never have the same one.

    Percent-encoded, never a path, never hidden. The first dot is encoded where it leads, and in the
    name of the list that lies beside the folders. The empty name is "%empty", which no encoded name
    can be. What is longer than FOLDER_NAME_MAX is cut there, and ends with "~" and a hash.
    """
    name = quote(queue.encode("utf-8", "surrogatepass"), safe=" @+,=") or EMPTY
    if name.startswith(".") or name.lower() == LIST:
        name = name.replace(".", "%2E", 1)
    if len(name) > FOLDER_NAME_MAX:
        import hashlib

        digest = hashlib.blake2b(queue.encode("utf-8", "surrogatepass"), digest_size=16)
        name = f"{name[:FOLDER_NAME_MAX].rstrip('%')}~{digest.hexdigest()}"
    return name


class Parquet:
    """A row group per commit, each in a file of its own until all are joined: FILE.parts/."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise CommandError(
                "--parquet needs pyarrow: pip install 'qindex[parquet]', or use --jsonl"
            ) from None
        self.path = path
        self.parts = path.with_name(path.name + ".parts")
        self._arrow, self._parquet = pyarrow, parquet
        self._rows: list[dict[str, Any]] = []
        self.schema = pyarrow.schema(
            [
                ("queue", pyarrow.string()),
                ("req_id", pyarrow.int64()),
                ("priority", pyarrow.int16()),
                ("state", pyarrow.string()),
                ("dead", pyarrow.string()),
                ("due_at", pyarrow.timestamp("us", "UTC")),
                ("redelivered", pyarrow.bool_()),
                ("delivery_count", pyarrow.int64()),
                ("persistent", pyarrow.bool_()),
                ("expires_at", pyarrow.timestamp("us", "UTC")),
                ("published_at", pyarrow.timestamp("us", "UTC")),
                ("headers", pyarrow.string()),
                ("properties", pyarrow.string()),
                ("entry", pyarrow.int64()),
                ("body", pyarrow.binary()),
            ]
        )

    def begin(self, state: dict[str, Any]) -> None:
        self.state = state
        state.setdefault("parts", 0)
        make_folder(self.parts)

    def write(self, message: Found) -> None:
        headers = message.headers
        properties = properties_of(headers)
        self._rows.append(
            {
                "queue": written(message.queue),
                "req_id": message.req_id,
                "priority": message.priority,
                "state": message.state,
                "dead": message.dead,
                "due_at": _moment(message.due_us),
                "redelivered": message.redelivered,
                "delivery_count": message.delivery_count,
                "persistent": message.persistent,
                "expires_at": _moment(message.expiry_us),
                "published_at": _moment(message.published_us),
                "headers": json.dumps(plain(headers)) if headers else None,
                "properties": json.dumps(plain(properties)) if properties else None,
                "entry": message.entry,
                "body": message.body,
            }
        )

    def commit(self) -> None:
        if not self._rows:
            return
        number = self.state["parts"]
        draft = self.parts / "draft"
        table = self._arrow.Table.from_pylist(self._rows, schema=self.schema)
        with open_private(draft) as file:
            self._parquet.write_table(table, file, ROWS_PER_GROUP, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._part(number))
        sync_folder(self.parts)
        self._rows = []
        self.state["parts"] = number + 1

    def _part(self, number: int) -> Path:
        return self.parts / f"{number:06d}.parquet"

    def finish(self) -> None:
        """Joins the row groups. Memory: one of them; if it is cut off, it is done again."""
        draft = self.parts / "draft"
        with open_private(draft) as file:
            with self._parquet.ParquetWriter(file, self.schema, compression="zstd") as writer:
                for number in range(self.state["parts"]):
                    with self._part(number).open("rb") as part:
                        writer.write_table(self._read(part))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        sync_folder(self.path.parent)
        shutil.rmtree(self.parts)

    def _read(self, part: BinaryIO) -> Any:
        """In this thread: one of Arrow's own that still has a file of Python's when the process
        ends is unwound by Python, which C++ takes for a crash ("terminate called ...", SIGABRT)."""
        table = self._parquet.ParquetFile(part, pre_buffer=False).read(use_threads=False)
        if table.schema.equals(self.schema):
            return table
        # A version without the column `entry` began this export.
        return self._arrow.Table.from_pylist(table.to_pylist(), schema=self.schema)

    def close(self) -> None:
        self._rows = []


def _moment(microseconds: int) -> datetime | None:
    """Since 1970; 0: none."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds) if microseconds else None
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
