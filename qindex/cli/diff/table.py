"""What differs between two sets of messages, in a temporary SQLite file: little memory.

Alike pairs are counted only, and kept as runs (this many in a row have partners in a row), which
says where the order differs. `match` gives a partner to those that are left; the rest are queries.
In the file queues have their written names, because texts of SQLite are UTF-8.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from qindex.handle import Closing
from qindex.look.text import written_id
from qindex.names import unwritten, written

BATCH: Final = 5000
CACHE_KIB: Final = 32 * 1024
_SCHEMA: Final = """
CREATE TABLE m (id INTEGER PRIMARY KEY, side INT, queue TEXT, part INT, req_id INT, body BLOB,
                content BLOB, message_id TEXT, state TEXT, size INT, twin INT);
CREATE TABLE q (side INT, queue TEXT);
CREATE TABLE runs (queue TEXT, a INT, b INT, length INT);
"""
_BY_ID: Final = """
CREATE INDEX place ON m (side, queue, part, req_id);
UPDATE m SET twin = (SELECT o.id FROM m o WHERE o.side = 1 AND o.queue = m.queue
                     AND o.part = m.part AND o.req_id = m.req_id) WHERE side = 0 AND twin IS NULL;
"""
_BY_CONTENT: Final = """
CREATE TABLE n (id INTEGER PRIMARY KEY, side INT, queue TEXT, content BLOB, k INT);
INSERT INTO n SELECT id, side, queue, content,
    row_number() OVER (PARTITION BY side, queue, content ORDER BY id) FROM m
    WHERE twin IS NULL AND id NOT IN (SELECT twin FROM m WHERE twin IS NOT NULL);
CREATE INDEX occurrence ON n (side, queue, content, k);
UPDATE m SET twin = (SELECT o.id FROM n x JOIN n o ON o.side = 1 AND o.queue = x.queue
                     AND o.content = x.content AND o.k = x.k WHERE x.id = m.id)
    WHERE side = 0 AND twin IS NULL;
DROP TABLE n;
CREATE TABLE paired (id INTEGER PRIMARY KEY);
INSERT INTO paired SELECT twin FROM m WHERE twin IS NOT NULL;
CREATE TABLE rest (id INTEGER PRIMARY KEY, side INT, queue TEXT, message_id TEXT);
INSERT INTO rest SELECT min(id), side, queue, message_id FROM m
    WHERE message_id IS NOT NULL AND twin IS NULL AND id NOT IN (SELECT id FROM paired)
    GROUP BY side, queue, message_id HAVING count(*) = 1;
CREATE INDEX by_message_id ON rest (side, queue, message_id);
UPDATE m SET twin = (SELECT o.id FROM rest x JOIN rest o ON o.side = 1 AND o.queue = x.queue
                     AND o.message_id = x.message_id WHERE x.id = m.id)
    WHERE side = 0 AND twin IS NULL AND id IN (SELECT id FROM rest);
"""
_PAIRS: Final = "m a JOIN m b ON b.id = a.twin WHERE a.side = 0"
_ONLY_B: Final = "m b WHERE b.side = 1 AND NOT EXISTS (SELECT 1 FROM twins WHERE twins.id = b.id)"


class Row(NamedTuple):
    """A message; `number` counts those of its side, queue after queue."""

    side: int
    number: int
    queue: str
    part: int
    req_id: int
    body: bytes
    content: bytes
    message_id: str | None
    state: str
    size: int

    @property
    def id(self) -> int:
        return self.number * 2 + self.side


@dataclass(slots=True)
class QueueDiff:
    """`state` and `body` count pairs that differ; in both counts as body."""

    name: str
    only_in: str = ""  # A or B: the queue is not in the other one
    alike: int = 0
    only_a: int = 0
    only_b: int = 0
    state: int = 0
    body: int = 0
    order: int = 0

    @property
    def differs(self) -> bool:
        counts = (self.only_a, self.only_b, self.state, self.body, self.order)
        return bool(self.only_in or any(counts))

    def as_json(self) -> dict[str, Any]:
        told = asdict(self)
        told["queue"] = told.pop("name")
        for name in ("state", "body", "order"):
            told[f"{name}_differs"] = told.pop(name)
        return {**told, "differs": self.differs}


@dataclass(frozen=True, slots=True)
class Difference:
    """`req_id` is that in A, or in B if it is only there; `other` that of its partner in B."""

    what: str
    queue: str
    req_id: int
    other: int | None
    size: int
    detail: str

    def as_json(self) -> dict[str, Any]:
        told = asdict(self)
        told["other_req_id"], told["body_bytes"] = told.pop("other"), told.pop("size")
        ids = {name: written_id(told[name]) for name in ("req_id", "other_req_id")}
        return {**told, **ids}


class Table(Closing):
    """Use it in `with`: the file goes at the end."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="qindex-diff-")
        self._db = sqlite3.connect(Path(self._folder.name) / "messages", isolation_level=None)
        self._db.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = FILE;"
            f"PRAGMA cache_size = -{CACHE_KIB}; BEGIN;"
        )
        self._db.executescript(_SCHEMA)
        self._rows: list[tuple[Any, ...]] = []
        self._alike: Counter[str] = Counter()
        self._run: tuple[str, int, int, int] | None = None

    def close(self) -> None:
        self._db.close()
        self._folder.cleanup()

    def add_queues(self, side: int, names: Iterable[str]) -> None:
        self._db.executemany(
            "INSERT INTO q VALUES (?, ?)", [(side, written(name)) for name in names]
        )

    def add_alike(self, queue: str, a: int, b: int) -> None:
        """One more pair without a difference: the numbers of both, in the order of one side."""
        self._alike[queue] += 1
        if self._run is not None:
            name, first, partner, length = self._run
            if (queue, a - first, b - partner) == (name, length, length):
                self._run = name, first, partner, length + 1
                return
            self._db.execute("INSERT INTO runs VALUES (?, ?, ?, ?)", self._run)
        self._run = queue, a, b, 1

    def add(self, row: Row, *, partner: Row | None = None) -> None:
        """A message that differs from its partner, or that has none so far."""
        twin = None if partner is None else partner.id
        self._rows.append((row.id, row.side, *row[2:], twin))
        if len(self._rows) == BATCH:
            self._write()

    def _write(self) -> None:
        self._db.executemany("INSERT INTO m VALUES (?,?,?,?,?,?,?,?,?,?,?)", self._rows)
        self._rows.clear()

    def match(self, *, by_id: bool) -> None:
        """Once, when all messages are added. Cost: some sorts of those that are not alike."""
        self._write()
        if self._run is not None:
            self._db.execute("INSERT INTO runs VALUES (?, ?, ?, ?)", self._run)
        self._db.executescript(_BY_ID if by_id else _BY_CONTENT)
        self._db.executescript(
            "CREATE TABLE twins (id INTEGER PRIMARY KEY);"
            "INSERT INTO twins SELECT twin FROM m WHERE twin IS NOT NULL;"
            "INSERT INTO runs SELECT queue, id / 2, twin / 2, 1 FROM m WHERE twin IS NOT NULL;"
        )

    def queues(self) -> list[QueueDiff]:
        """All queues of both sides, by name."""
        sides: dict[str, set[int]] = {}
        for side, name in self._db.execute("SELECT side, queue FROM q"):
            sides.setdefault(name, set()).add(side)
        queues = {name: QueueDiff(name) for name in sorted(sides)}
        for name, there in sides.items():
            if len(there) == 1:
                queues[name].only_in = "AB"[there.pop()]
        for column, condition in (
            ("alike", "a.content = b.content AND a.state = b.state"),
            ("state", "a.content = b.content AND a.state != b.state"),
            ("body", "a.content != b.content"),
        ):
            self._count(queues, column, f"a.queue, count(*) FROM {_PAIRS} AND {condition}", "a")
        for name, number in self._alike.items():
            queues[name].alike += number
        only_a = "a.queue, count(*) FROM m a WHERE a.side = 0 AND a.twin IS NULL"
        self._count(queues, "only_a", only_a, "a")
        self._count(queues, "only_b", f"b.queue, count(*) FROM {_ONLY_B}", "b")
        breaks = (
            "a.queue, count(*) FROM (SELECT queue, b < lag(b + length - 1) OVER"
            " (PARTITION BY queue ORDER BY a) AS back FROM runs) a WHERE a.back"
        )
        self._count(queues, "order", breaks, "a")
        return [replace(queue, name=unwritten(queue.name)) for queue in queues.values()]

    def _count(self, queues: dict[str, QueueDiff], column: str, query: str, of: str) -> None:
        for name, number in self._db.execute(f"SELECT {query} GROUP BY {of}.queue"):
            setattr(queues[name], column, number)

    def differences(self) -> Iterator[Difference]:
        """By queue and order; all of them."""
        query = f"""
            SELECT a.queue, a.id, 0, a.req_id, NULL, a.size, a.state, NULL, 0, 0
                FROM m a WHERE a.side = 0 AND a.twin IS NULL
            UNION ALL
            SELECT b.queue, b.id, 1, b.req_id, NULL, b.size, b.state, NULL, 0, 0 FROM {_ONLY_B}
            UNION ALL
            SELECT a.queue, a.id, 2, a.req_id, b.req_id, a.size, a.state, b.state,
                a.body != b.body, a.content != b.content
                FROM {_PAIRS} AND (a.content != b.content OR a.state != b.state)
            ORDER BY 1, 2"""  # noqa: S608
        for row in self._db.execute(query):
            queue, _, kind, req_id, other, size, state, state_b, bodies, contents = row
            parts = []
            if kind < 2:
                parts.append(state or "live")
            if bodies:
                parts.append("the bodies differ")
            elif contents:
                parts.append("headers or properties differ")
            if kind == 2 and state != state_b:
                parts.append(f"{state} in A, {state_b} in B")
            what = ("only in A", "only in B", "differs")[kind]
            yield Difference(what, unwritten(queue), req_id, other, size, "; ".join(parts))
