"""Adapters for other packages. Each does the same work in the way its own documentation shows."""

import importlib
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from systems import System


class Queuelib(System):
    """FifoDiskQueue: bodies reach the kernel, but its two positions are saved by close() alone."""

    name = "queuelib"
    settings = "FifoDiskQueue, as it is"
    on_kill9 = "loses all since open: its positions are saved by close() alone"
    kill9_safe = False
    on_power_cut = "no promise"
    package = "queuelib"
    module = "queuelib"
    can_be_durable = False

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        queuelib = importlib.import_module("queuelib")
        self._queue = queuelib.FifoDiskQueue(str(directory / "queue"))
        self.publish = self._queue.push
        self.get = self._queue.pop

    def body(self, message: Any) -> bytes:
        return bytes(message)

    def close(self) -> None:
        self._queue.close()


class QueuelibSaved(Queuelib):
    """The same with its positions saved after every call: what kill -9 safety costs there."""

    name = "queuelib, saved"
    settings = "FifoDiskQueue, info.json saved after each call or batch"
    on_kill9 = "keeps all, but for a kill within the rewrite of info.json"
    kill9_safe = True
    fills_fast = False

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        super().__init__(directory)
        self.publish = self._publish
        self.get = self._get

    def _save(self) -> None:
        self._queue._saveinfo(self._queue.info)

    def _publish(self, body: bytes) -> None:
        self._queue.push(body)
        self._save()

    def _get(self) -> Any:
        body = self._queue.pop()
        self._save()
        return body

    def publish_many(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._queue.push(body)
        self._save()

    def get_many(self, count: int) -> list[Any]:
        bodies = [self._queue.pop() for _ in range(count)]
        self._save()
        return bodies


class Lmdb(System):
    """Keys are big-endian counters: publish appends, get reads the next key, ack deletes it."""

    name = "LMDB"
    settings = "writemap, sync off, one transaction per call (sync on, no writemap where durable)"
    on_kill9 = "keeps all"
    on_power_cut = "may lose the whole file; nothing with sync on"
    package = "lmdb"
    module = "lmdb"
    commit_is_sync = True
    sorts = True

    MAP_BYTES = 8 << 30

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        lmdb = importlib.import_module("lmdb")
        options = {} if durable else {"writemap": True, "sync": False}
        self._env = lmdb.open(str(directory / "lmdb"), map_size=self.MAP_BYTES, **options)
        self._pack = struct.Struct(">Q").pack
        self._pack_sorted = struct.Struct(">QQ").pack
        self._next_id = self._last_id() + 1
        self._next_unread = self._pack(0)
        self.publish = self._publish
        self.get = self._get
        self.ack = self._ack
        self.publish_due, self.publish_priority = self._publish_due, self._publish_priority
        self.get_first, self.ack_first = self._get_first, self._ack

    def _last_id(self) -> int:
        with self._env.begin() as txn, txn.cursor() as cursor:
            return int.from_bytes(cursor.key(), "big") if cursor.last() else 0

    def _publish(self, body: bytes) -> None:
        with self._env.begin(write=True) as txn:
            txn.put(self._pack(self._next_id), body, append=True)
        self._next_id += 1

    def _publish_sorted(self, key: int, body: bytes) -> None:
        with self._env.begin(write=True) as txn:
            txn.put(self._pack_sorted(key, self._next_id), body)
        self._next_id += 1

    def _publish_due(self, body: bytes, *, due: float) -> None:
        self._publish_sorted(int(due * 1e6), body)

    def _publish_priority(self, body: bytes, *, priority: int) -> None:
        self._publish_sorted(255 - priority, body)

    def _get_first(self) -> Any:
        with self._env.begin() as txn, txn.cursor() as cursor:
            return cursor.item() if cursor.first() else None

    def _get(self) -> Any:
        with self._env.begin() as txn, txn.cursor() as cursor:
            if not cursor.set_range(self._next_unread):
                return None
            message = cursor.item()
        self._next_unread = message[0] + b"\0"
        return message

    def _ack(self, message: Any) -> None:
        with self._env.begin(write=True) as txn:
            txn.delete(message[0])

    def publish_many(self, bodies: Sequence[bytes]) -> None:
        pack, first = self._pack, self._next_id
        items = [(pack(first + i), body) for i, body in enumerate(bodies)]
        with self._env.begin(write=True) as txn, txn.cursor() as cursor:
            cursor.putmulti(items, append=True)
        self._next_id += len(items)

    def get_many(self, count: int) -> list[Any]:
        messages: list[Any] = []
        with self._env.begin() as txn, txn.cursor() as cursor:
            if cursor.set_range(self._next_unread):
                for _, message in zip(range(count), cursor, strict=False):
                    messages.append(message)
        if messages:
            self._next_unread = messages[-1][0] + b"\0"
        return messages

    def ack_many(self, messages: Iterable[Any]) -> None:
        with self._env.begin(write=True) as txn:
            for message in messages:
                txn.delete(message[0])

    def sync(self) -> None:
        """With sync on every commit has synced already."""

    def body(self, message: Any) -> bytes:
        return bytes(message[1])

    def close(self) -> None:
        self._env.close()


class PersistQueueFile(System):
    """persistqueue.Queue: a pickle per message, an info file renamed into place after each call."""

    name = "persist-queue, file"
    settings = "Queue, task_done() after each get"
    on_kill9 = "keeps all"
    on_power_cut = "no promise"
    package = "persist-queue"
    module = "persistqueue"
    can_be_durable = False
    fills_fast = False

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        persistqueue = importlib.import_module("persistqueue")
        path = directory / "queue"
        path.mkdir(exist_ok=True)
        self._queue = persistqueue.Queue(str(path), tempdir=str(path))
        self.publish = self._queue.put
        self.get = self._get
        self.ack = self._ack

    def _get(self) -> Any:
        return self._queue.get_nowait() if self._queue.info["size"] > 0 else None

    def _ack(self, message: Any) -> None:
        self._queue.task_done()

    def body(self, message: Any) -> bytes:
        return bytes(message)

    def close(self) -> None:
        self._queue.headf.close()
        self._queue.tailf.close()


class PersistQueueSqlite(System):
    """persistqueue.SQLiteQueue: WAL with SQLite's default of one fsync per commit, always."""

    name = "persist-queue, SQLite"
    settings = "SQLiteQueue(auto_commit=False), task_done() after each get"
    on_kill9 = "keeps all"
    on_power_cut = "keeps all: it commits and syncs in every call"
    package = "persist-queue"
    module = "persistqueue"
    fills_fast = False

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        persistqueue = importlib.import_module("persistqueue")
        self._queue = persistqueue.SQLiteQueue(str(directory / "queue"), auto_commit=False)
        self.publish = self._queue.put
        self.get = self._get
        self.ack = self._ack

    def _get(self) -> Any:
        return self._queue.get(block=False) if self._queue.size > 0 else None

    def _ack(self, message: Any) -> None:
        self._queue.task_done()

    def sync(self) -> None:
        """Every call has synced already."""

    def body(self, message: Any) -> bytes:
        return bytes(message)

    def close(self) -> None:
        self._queue.close()


class Huey(System):
    """huey.storage.SqliteStorage: its queue alone, without the tasks that huey puts into it."""

    name = "huey, SQLite"
    settings = "SqliteStorage, WAL, fsync=False (True where durable); no task, no worker"
    on_kill9 = "keeps all; what a worker has taken is gone"
    on_power_cut = "may lose the last commits; nothing with fsync=True"
    package = "huey"
    module = "huey.storage"
    commit_is_sync = True
    fills_fast = False

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        storage = importlib.import_module("huey.storage")
        self._queue = storage.SqliteStorage(filename=str(directory / "queue"), fsync=durable)
        self.publish = self._queue.enqueue
        self.get = self._queue.dequeue

    def sync(self) -> None:
        """With fsync=True every call has synced already."""

    def body(self, message: Any) -> bytes:
        return bytes(message)

    def close(self) -> None:
        self._queue.close()
