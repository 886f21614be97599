"""Many queues with hostile names, transactions, moves, dead letters that move. For strangers.py.

Written from docs/guide (queues, transactions, dead letters, many queues). The model is a list of
rows for each queue: a message is in exactly one queue, at its place, whatever has died since.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stranger_model import Difference

import qindex

NAMES: Final = [
    *("", "\0", "\ud800", "\\u{d800}", "q\udcff", "q\\x{ff}", "a/b", "..", "../store.meta", "LOCK"),
    *("\n", " ", "é" * 300, "x" * 65_535, "\x1b[31mred", "queues", "con", "[x]*", "'; --", "💥"),
]
DEAD: Final = "dead letters \u202e"
OPTIONS: Final[list[dict[str, Any]]] = [
    {"format": 2, "max_open_files": 24, "max_journal_entries": 60, "segment_entries": 16},
    {"format": 2, "max_open_files": 40, "sync": "never", "embed_below": 30, "idle": 0.01},
    {"format": 2, "keep_history": 1 << 15, "max_journal_entries": 30, "io": "pwrite"},
]

Call = tuple[str, Any]


@dataclass
class Row:
    req_id: int
    body: bytes
    count: int = 0
    state: str = "waiting"  # unacked, dead

    def seen(self) -> tuple[Any, ...]:
        return self.req_id, self.body, self.count, self.state == "dead"


class Crowd:
    """A store and what should be in it."""

    def __init__(self, path: Path, seed: int, options: dict[str, Any], count: int = 120) -> None:
        self.path, self.options = path, options
        self.dice = random.Random(seed)
        self.names = [*NAMES, *(f"queue {i}" for i in range(count - len(NAMES)))]
        self.rows: dict[str, list[Row]] = {DEAD: []}
        self.last: list[Any] = []
        self.made = 0
        self.held: dict[tuple[str, int], qindex.Message] = {}

    def rules_of(self, name: str) -> dict[str, Any]:
        """A third keeps dead letters, a third sends them away, and a third drops them."""
        which = 2 if name == DEAD else self.names.index(name) % 3
        return ({"dead_letters": True}, {"dead_letters": DEAD}, {})[which]

    def open(self) -> None:
        self.held = {}
        self.store = qindex.open(self.path, **self.options)
        if DEAD not in self.store:
            self.store.queue(DEAD)

    def queue(self, name: str) -> qindex.Queue:
        return self.store.queue(name, **self.rules_of(name))

    # --- choosing: only from what the model has --------------------------------------------------

    def choose(self) -> Call:
        dice = self.dice
        name = dice.choice([*self.names, *self.rows])
        verb = dice.choices(
            ["publish", "get", "ack", "nack", "reject", "transaction", "move", "delete", "keep"],
            [30, 30, 12, 6, 6, 16, 8, 0.6, 2],
        )[0]
        if verb == "publish":
            return verb, (name, [self.body() for _ in range(dice.choice((1, 1, 1, 4)))])
        if verb in ("ack", "nack", "reject"):
            return verb, dice.choice(list(self.held)) if self.held else ("", 0)
        if verb == "transaction":
            return verb, self.changes()
        if verb == "move":
            waiting = [row.req_id for row in self.rows.get(name, []) if row.state != "unacked"]
            some = dice.sample(waiting, min(len(waiting), dice.randint(1, 3)))
            return verb, (name, some, self.other(name))
        if verb == "keep":
            return verb, dice.choice(("sync", "compact", "check", "names"))
        return verb, name

    def body(self) -> bytes:
        self.made += 1
        return b"%d." % self.made + bytes(self.dice.choice((0, 0, 20, 5000)))

    def other(self, name: str) -> str:
        return self.dice.choice([each for each in self.rows if each != name] or [DEAD])

    def changes(self) -> list[tuple[Any, ...]]:
        """Each message at most once."""
        found: list[tuple[Any, ...]] = []
        held = self.dice.sample(list(self.held), min(len(self.held), 3))
        for _ in range(self.dice.randint(1, 5)):
            kind = self.dice.choice(("publish", "publish", "ack", "move", "move"))
            if kind == "publish":
                found.append((kind, self.other("no queue"), self.body()))
            elif held:
                name, req_id = held.pop()
                found.append((kind, name, req_id, self.other(name)))
        if self.dice.random() < 0.08:
            found.append(("publish", "nobody's queue", self.body()))  # so nothing happens
        return found

    # --- the store -------------------------------------------------------------------------------

    def do(self, call: Call) -> Any:
        try:
            return self._do(*call)
        except qindex.QindexError as error:
            return type(error).__name__

    def _do(self, verb: str, what: Any) -> Any:  # noqa: C901
        store = self.store
        if verb == "publish":
            queue = self.queue(what[0])
            return list(queue.publish_many(what[1]))
        if verb == "get":
            message = self.queue(what).get()
            if message is None:
                return None
            self.held[what, message.req_id] = message
            return message.req_id, message.body, message.delivery_count
        if verb in ("ack", "nack", "reject"):
            held = self.held.get(what)
            if held is None:
                return "nothing held"
            if verb == "ack":
                return store.ack(held)
            held.nack(requeue=verb == "nack")
            goes = verb == "reject" and self.rules_of(what[0]).get("dead_letters") == DEAD
            # It is there when the call returns; a browse says its ReqId.
            shown = (m for m in store.queue(DEAD).browse() if m.body == held.body)
            return [(m.req_id, m.delivery_count) for m in shown] if goes else None
        if verb == "transaction":
            with store.transaction() as transaction:
                for kind, name, *rest in what:
                    if kind == "publish":
                        transaction.publish(name, rest[0])
                    elif kind == "ack":
                        transaction.ack(self.held[name, rest[0]])
                    else:
                        transaction.move(self.held[name, rest[0]], rest[1])
            return transaction.req_ids
        if verb == "move":
            return store.move(what[1], to=what[2], queue=what[0]) if what[1] else "nothing"
        if verb == "delete":
            return None if what == DEAD else store.delete_queue(what)
        if what == "names":
            return sorted(store.queues())
        if what == "check":
            return [str(f) for f in store.check() if f.severity == "damage"]
        return {"sync": store.sync, "compact": lambda: store.compact() and None}[what]()

    # --- the model -------------------------------------------------------------------------------

    def follow(self, call: Call, result: Any) -> None:
        verb, what = call
        if verb == "publish":
            self.add(what[0], zip(result, what[1], strict=True))
        elif verb == "get":
            row = next((r for r in self.rows.setdefault(what, []) if r.state == "waiting"), None)
            if row is not None:
                row.state, row.count = "unacked", row.count + 1
            self.same(result, None if row is None else (row.req_id, row.body, row.count))
        elif verb in ("ack", "nack", "reject"):
            if result == "nothing held":
                return
            self.held.pop(what, None)
            self.settle(verb, *what, result)
        elif verb == "transaction":
            self.transact(what, result)
        elif verb == "move":
            if what[1]:
                self.moved(what[0], what[1], what[2], list(result))
        elif verb == "delete":
            if what != DEAD:
                self.same(result, None if what in self.rows else "QueueMissing")
                self.rows.pop(what, None)
                self.held = {key: m for key, m in self.held.items() if key[0] != what}
        elif what == "names":
            self.same(result, sorted(self.rows))
        else:
            self.same(result or None, None)

    def add(self, name: str, news: Any) -> None:
        rows = self.rows.setdefault(name, [])
        for req_id, body in news:
            if rows and req_id <= rows[-1].req_id:
                raise Difference(f"ReqId {req_id} behind {rows[-1].req_id} in {name!r}")
            rows.append(Row(req_id, body))

    def take(self, name: str, req_id: int) -> Row:
        (row,) = (row for row in self.rows[name] if row.req_id == req_id)
        self.rows[name].remove(row)
        return row

    def settle(self, verb: str, name: str, req_id: int, result: Any) -> None:
        (row,) = (row for row in self.rows[name] if row.req_id == req_id)
        goes = verb == "reject" and self.rules_of(name).get("dead_letters") == DEAD
        if not goes:
            self.same(result, None)
        if verb == "nack":
            row.state = "waiting"
            return
        to = self.rules_of(name).get("dead_letters") if verb == "reject" else None
        if to is True:
            row.state = "dead"
            return
        self.rows[name].remove(row)
        if goes:
            if isinstance(result, str) or [count for _, count in result] != [row.count]:
                raise Difference(f"the dead letter {row.body[:9]!r} is there: {result!r}")
            self.rows[DEAD].append(Row(result[0][0], row.body, row.count))

    def moved(self, name: str, req_ids: list[int], to: str, news: list[int]) -> None:
        self.same(len(news), len(req_ids))
        for req_id, new in zip(req_ids, news, strict=True):
            row = self.take(name, req_id)
            self.add(to, [(new, row.body)])
            self.rows[to][-1].count = row.count
            self.held.pop((name, req_id), None)

    def transact(self, changes: list[tuple[Any, ...]], result: Any) -> None:
        if any(change[1] == "nobody's queue" for change in changes):
            self.same(result, "QueueMissing")
            return
        if isinstance(result, str):
            raise Difference(f"the transaction: {result}")
        news = iter(result)
        for kind, name, *rest in changes:
            if kind == "publish":
                self.add(name, [(next(news), rest[0])])
            elif kind == "ack":
                self.take(name, rest[0])
                self.held.pop((name, rest[0]), None)
            else:
                self.moved(name, rest[:1], rest[1], [next(news)])

    def same(self, found: Any, wanted: Any) -> None:
        if found != wanted:
            raise Difference(f"the store: {found!r}\nthe guide: {wanted!r}")

    # --- both ------------------------------------------------------------------------------------

    def call(self) -> None:
        call = self.choose()
        self.last = [*self.last[-20:], call]
        self.follow(call, self.do(call))

    def contents(self) -> dict[str, list[tuple[Any, ...]]]:
        found = {}
        for name in self.store.queues():
            messages = self.queue(name).browse()
            rows = [(m.req_id, m.body, m.delivery_count, m.dead is not None) for m in messages]
            found[name] = sorted(rows)
        return found

    def restart(self) -> None:
        """Nobody has anything any more."""
        for rows in self.rows.values():
            for row in rows:
                row.state = "waiting" if row.state == "unacked" else row.state

    def wanted(self) -> dict[str, list[tuple[Any, ...]]]:
        return {name: [row.seen() for row in rows] for name, rows in self.rows.items()}

    def compare(self) -> None:
        found, wanted = self.contents(), self.wanted()
        for name in {*found, *wanted}:
            if found.get(name) != wanted.get(name):
                lacks = [r for r in wanted.get(name, []) if r not in found.get(name, [])]
                more = [r for r in found.get(name, []) if r not in wanted.get(name, [])]
                told = f"missing {lacks[:4]!r:.300}, too many {more[:4]!r:.300}"
                raise Difference(f"{name[:40]!r}: {told} ({name in found}, {name in wanted})")

    # --- after a kill ----------------------------------------------------------------------------

    def after_kill(self, last: Call | None) -> None:
        """All that was told is there, and the last call has happened, or it has not."""
        self.open()
        damage = [str(f) for f in self.store.check() if f.severity == "damage"]
        found = self.contents()
        self.store.close()
        self.same(damage, [])
        differences = []
        for happened in (False, True) if last is not None else (False,):
            other = copy.copy(self)
            other.rows = copy.deepcopy(self.rows)
            try:
                if happened and last is not None:
                    other.imagine(last, found)
                other.restart()
                other.contents = lambda: found  # type: ignore[method-assign]
                other.compare()
            except Difference as difference:
                differences.append(str(difference))
                continue
            self.rows = other.rows
            return
        raise Difference(f"after the kill in {last!r:.600}: " + "\nor ".join(differences))

    def imagine(self, call: Call, found: dict[str, list[tuple[Any, ...]]]) -> None:
        """The model behind a call whose result nobody has got: new ReqIds are those that came."""
        verb, what = call
        news = {
            name: iter([row for row in rows if row[0] not in self.known(name)])
            for name, rows in found.items()
        }

        def new(name: str) -> int:
            row = next(news.get(name, iter(())), None)
            if row is None:
                raise Difference(f"{name[:40]!r} has not got what the call brings")
            return int(row[0])

        if verb == "publish":
            if what[0] in found and what[0] not in self.rows and not found[what[0]]:
                self.rows[what[0]] = []  # created, and no more
                return
            self.add(what[0], [(new(what[0]), body) for body in what[1]])
        elif verb == "get" and what in found and what not in self.rows:
            self.rows[what] = []
        elif verb == "get":
            row = next((r for r in self.rows.get(what, []) if r.state == "waiting"), None)
            if row is not None:
                row.state, row.count = "unacked", row.count + 1
        elif verb == "transaction":
            places = [c[1] if c[0] == "publish" else c[3] for c in what if c[0] != "ack"]
            missing = "nobody's queue" in places
            self.transact(what, "QueueMissing" if missing else [new(name) for name in places])
        elif verb == "move" and what[1]:
            self.moved(what[0], what[1], what[2], [new(what[2]) for _ in what[1]])
        elif verb == "delete" and what != DEAD:
            self.rows.pop(what, None)
        elif verb in ("ack", "nack", "reject") and what[0] in self.rows:
            self.imagine_settled(verb, what, found, new)

    def known(self, name: str) -> set[int]:
        return {row.req_id for row in self.rows.get(name, [])}

    def imagine_settled(self, verb: str, what: Any, found: Any, new: Any) -> None:
        name, req_id = what
        if verb != "reject" or self.rules_of(name).get("dead_letters") != DEAD:
            self.settle(verb, name, req_id, None)
            return
        row = self.take(name, req_id)
        if any(r[0] == req_id for r in found[name]):  # dead, and it moves later
            self.rows[name] = sorted([*self.rows[name], row], key=lambda r: r.req_id)
            row.state = "dead"
            return
        self.rows[DEAD].append(Row(new(DEAD), row.body, row.count))
