"""What is measured: qindex and SQLite here, other packages in rivals.py, all with the same verbs.

A work calls the verbs as plain attributes (`publish = system.publish`), so that an adapter may hand
out the bound method of the package itself and adds no call of its own.
"""

import importlib
import importlib.metadata
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar


class System:
    """One queue in one directory. `durable` asks that sync() survives a power cut."""

    name: ClassVar[str]
    settings: ClassVar[str]
    on_kill9: ClassVar[str]
    on_power_cut: ClassVar[str]
    kill9_safe: ClassVar[bool] = True
    package: ClassVar[str | None] = None  # what must be installed, None for the standard library
    module: ClassVar[str | None] = None
    can_be_durable: ClassVar[bool] = True
    commit_is_sync: ClassVar[bool] = False  # where durable, each call is a transaction and a sync
    fills_fast: ClassVar[bool] = True  # a million messages in some seconds
    sorts: ClassVar[bool] = False  # by due times and by priorities: has the next four

    publish: Callable[[bytes], object]
    get: Callable[[], Any]
    # None where get() already removed the message: a consumer that dies takes it along.
    ack: Callable[[Any], object] | None = None

    publish_due: Callable[..., object]  # (body, due=seconds since 1970)
    publish_priority: Callable[..., object]  # (body, priority=0 to 255)
    get_first: Callable[[], Any]  # the earliest, or that of the highest priority
    ack_first: Callable[[Any], object]

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        raise NotImplementedError

    def publish_many(self, bodies: Sequence[bytes]) -> object:
        """Packages without batches are called once per message."""
        publish = self.publish
        for body in bodies:
            publish(body)
        return None

    def get_many(self, count: int) -> list[Any]:
        get = self.get
        return [get() for _ in range(count)]

    def ack_many(self, messages: Iterable[Any]) -> object:
        if self.ack is not None:
            for message in messages:
                self.ack(message)
        return None

    def publish_with_headers(self, body: bytes, headers: dict[str, Any]) -> object:
        """A package without headers has them in front of the body."""
        encoded = json.dumps(headers).encode()
        return self.publish(len(encoded).to_bytes(4, "big") + encoded + body)

    def get_with_headers(self) -> Any:
        message = self.get()
        whole = memoryview(self.body(message))
        end = 4 + int.from_bytes(whole[:4], "big")
        json.loads(bytes(whole[4:end]))
        bytes(whole[end:])
        return message

    def get_leased(self) -> Any:
        """A package without leases gives what it gives."""
        return self.get()

    def publish_durably(self, body: bytes) -> object:
        self.publish(body)
        return self.sync()

    def sync(self) -> object:
        """After this everything published before survives a power cut (only if durable=True)."""
        raise NotImplementedError

    def body(self, message: Any) -> bytes:
        raise NotImplementedError

    def compact(self) -> None:
        raise NotImplementedError(f"{self.name} has nothing to compact with")

    def fill_journal(self, body: bytes) -> int:
        """Publish until recovery has most to replay; returns how many messages that took."""
        return 0

    def close(self) -> None:
        raise NotImplementedError


class Qindex(System):
    name = "qindex"
    settings = "defaults (group commit every 5 ms)"
    on_kill9 = "keeps all"
    on_power_cut = "loses at most what no sync covered (some ms); nothing once confirmed"
    package = "qindex"
    module = "qindex"
    sorts = True

    JOURNAL_ENTRIES_MAX = 65536

    def __init__(self, directory: Path, *, durable: bool = False, **options: Any) -> None:
        qindex = importlib.import_module("qindex")
        self.store = qindex.open(directory / "store", **options)
        self.queue = self.store.queue("bench")
        self.publish = self.queue.publish
        self.get = self.queue.get
        self.ack = self.queue.ack
        self.publish_due = self.publish_priority = self.queue.publish
        self.get_first, self.ack_first = self.queue.get, self.queue.ack
        # Instance attributes in place of the loops above: the works call the package directly.
        self.publish_many = self.queue.publish_many  # type: ignore[method-assign]
        self.get_many = self.queue.get_many  # type: ignore[method-assign]
        self.ack_many = self.queue.ack_many  # type: ignore[method-assign]
        self.sync = self.queue.sync  # type: ignore[method-assign]

    def publish_with_headers(self, body: bytes, headers: dict[str, Any]) -> object:
        return self.queue.publish(body, headers=headers)

    def get_with_headers(self) -> Any:
        message = self.queue.get()
        _ = message.headers, message.body
        return message

    def get_leased(self) -> Any:
        return self.queue.get(lease=30)

    def publish_durably(self, body: bytes) -> object:
        return self.queue.publish(body, confirm=True)

    def body(self, message: Any) -> bytes:
        return bytes(message.body)

    def compact(self) -> None:
        self.queue.flush()
        self.store.compact()

    def fill_journal(self, body: bytes) -> int:
        """Recovery replays at most one journal: leave one that is as full as it gets."""
        published = 0
        nearly_full = self.JOURNAL_ENTRIES_MAX - 16
        while self.queue.dirty_count < nearly_full and published < self.JOURNAL_ENTRIES_MAX:
            self.queue.publish(body)
            published += 1
        return published

    def close(self) -> None:
        self.store.close()


def index_alone_bulk(directory: Path, count: int, batch: int, *, deep: bool) -> float:
    """Publish, deliver and ack `count` ids in batches through qindex.QueueIndex; in seconds.

    Not deep: each batch is delivered and acked before the next. Deep: all is published first.
    The only place that knows QueueIndex's names.
    """
    qindex = importlib.import_module("qindex")
    index = qindex.QueueIndex(directory / "index")
    batches = [batch] * (count // batch)
    start = time.perf_counter()
    if deep:
        published = [index.publish_many(size) for size in batches]
        for req_ids in published:
            index.deliver(req_ids)
            index.ack(req_ids)
    else:
        for size in batches:
            req_ids = index.publish_many(size)
            index.deliver(req_ids)
            index.ack(req_ids)
    seconds = time.perf_counter() - start
    index.close()
    return seconds


async def aio_cycles(directory: Path, body: bytes, count: int) -> float:
    """Publish, get and ack `count` messages in one task, each call awaited; in seconds."""
    aio = importlib.import_module("qindex.aio")
    async with aio.open(directory / "aio") as store:
        queue = await store.queue("bench")
        start = time.perf_counter()
        for _ in range(count):
            await queue.publish(body)
            await queue.ack(await queue.get())
        return time.perf_counter() - start


class Sqlite(System):
    """A table as a queue: get reads the next row, ack deletes it."""

    name = "SQLite"
    settings = "WAL, synchronous=NORMAL, one transaction per call (FULL where durable)"
    on_kill9 = "keeps all"
    on_power_cut = "loses what was not checkpointed; nothing with FULL"
    commit_is_sync = True
    sorts = True

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        self._db = sqlite3.connect(directory / "queue.sqlite", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        self._db.execute("CREATE TABLE IF NOT EXISTS queue (id INTEGER PRIMARY KEY, body BLOB)")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS sorted (key INTEGER, id INTEGER, body BLOB,"
            " PRIMARY KEY (key, id)) WITHOUT ROWID"
        )
        self._next_id = 0  # of the sorted ones
        self._last_id = 0
        self.publish = self._publish
        self.get = self._get
        self.ack = self._ack
        self.publish_due, self.publish_priority = self._publish_due, self._publish_priority
        self.get_first, self.ack_first = self._get_first, self._ack_first

    def _publish(self, body: bytes) -> object:
        return self._db.execute("INSERT INTO queue (body) VALUES (?)", (body,))

    def _publish_sorted(self, key: int, body: bytes) -> None:
        self._next_id += 1
        self._db.execute("INSERT INTO sorted VALUES (?, ?, ?)", (key, self._next_id, body))

    def _publish_due(self, body: bytes, *, due: float) -> None:
        self._publish_sorted(int(due * 1e6), body)

    def _publish_priority(self, body: bytes, *, priority: int) -> None:
        self._publish_sorted(255 - priority, body)

    def _get_first(self) -> Any:
        select = "SELECT key, id, body FROM sorted ORDER BY key, id LIMIT 1"
        return self._db.execute(select).fetchone()

    def _ack_first(self, message: Any) -> None:
        self._db.execute("DELETE FROM sorted WHERE key = ? AND id = ?", message[:2])

    def _get(self) -> Any:
        select = "SELECT id, body FROM queue WHERE id > ? ORDER BY id LIMIT 1"
        row = self._db.execute(select, (self._last_id,)).fetchone()
        if row is not None:
            self._last_id = row[0]
        return row

    def _ack(self, message: Any) -> object:
        return self._db.execute("DELETE FROM queue WHERE id = ?", (message[0],))

    def publish_many(self, bodies: Sequence[bytes]) -> None:
        insert = "INSERT INTO queue (body) VALUES (?)"
        self._in_one_transaction(insert, [(body,) for body in bodies])

    def get_many(self, count: int) -> list[Any]:
        select = "SELECT id, body FROM queue WHERE id > ? ORDER BY id LIMIT ?"
        rows = self._db.execute(select, (self._last_id, count)).fetchall()
        if rows:
            self._last_id = rows[-1][0]
        return rows

    def ack_many(self, messages: Iterable[Any]) -> None:
        delete = "DELETE FROM queue WHERE id = ?"
        self._in_one_transaction(delete, [(message[0],) for message in messages])

    def _in_one_transaction(self, statement: str, rows: list[tuple[Any]]) -> None:
        self._db.execute("BEGIN")
        self._db.executemany(statement, rows)
        self._db.execute("COMMIT")

    def sync(self) -> None:
        """With synchronous=FULL every commit has synced already."""

    def body(self, message: Any) -> bytes:
        return bytes(message[-1])

    def compact(self) -> None:
        self._db.execute("VACUUM")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._db.close()


def registry() -> dict[str, type[System]]:
    """All systems by key, in the order in which a round visits them."""
    import rivals

    return {
        "qindex": Qindex,
        "queuelib": rivals.Queuelib,
        "queuelib-saved": rivals.QueuelibSaved,
        "lmdb": rivals.Lmdb,
        "sqlite": Sqlite,
        "persistqueue-file": rivals.PersistQueueFile,
        "persistqueue-sqlite": rivals.PersistQueueSqlite,
        "huey": rivals.Huey,
    }


def version(system: type[System]) -> str | None:
    """The installed version, or None when the package is missing."""
    if system is Sqlite:
        return sqlite3.sqlite_version
    if system.package is None or system.module is None:
        return None
    try:
        importlib.import_module(system.module)
        return importlib.metadata.version(system.package)
    except ImportError:
        return None
