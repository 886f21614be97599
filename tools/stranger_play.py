"""A store and its models: each call is made on both. For strangers.py."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from stranger_model import EXPIRED, FUTURE, LATE, PAST, RULES, Difference, Kept, Model

import qindex

Call = tuple[str, int, Any]


def about(due: float | None) -> float | None:
    """A moment of a call is told to some microseconds only: 1.0 stands for all of them."""
    return due if due is None or due <= PAST[-1] or due >= FUTURE[0] else 1.0


class Play:
    """A store and its model. `call()` makes the next call on both, or tells the difference."""

    def __init__(self, path: Path, seed: int, options: dict[str, Any]) -> None:
        self.path, self.options = path, options
        self.dice = random.Random(seed)
        self.models = [Model(dict(rules)) for rules in RULES]
        self.last: list[Any] = []
        self.began = time.time()

    def open(self) -> None:
        self.store = qindex.open(self.path, **self.options)
        self.queues = [self.store.queue(f"q{n}", **rules) for n, rules in enumerate(RULES)]
        for queue in self.queues:
            queue.expire()

    # --- choosing -------------------------------------------------------------------------------

    def choose(self) -> Call:
        dice, number = self.dice, self.dice.randrange(len(RULES))
        model = self.models[number]
        unacked = [m.req_id for m in model.kept.values() if m.state == "unacked"]
        others = [m.req_id for m in model.kept.values() if m.state != "unacked"]
        verb = dice.choices(
            ["publish", "many", "fan out", "get", "newest", "get many", "ack", "nack", "reject",
             "later", "reschedule", "delete", "redrive", "purge", "peek", "keep"],
            [30, 5, 3, 22, 3, 3, 14, 8, 5, 6, 8, 3, 3, 0.4, 3, 1.5],
        )[0]  # fmt: skip
        what: Any = None
        if verb in ("publish", "many", "fan out"):
            how: dict[str, Any] = {}
            if dice.random() < 0.4:
                how["priority"] = dice.randrange(3)
            if dice.random() < 0.35:
                how["due"] = dice.choice(PAST * 2 + FUTURE)
            if dice.random() < 0.2:
                how["expires_at"] = dice.choice((EXPIRED, LATE))
            size = dice.choice((0, 1, 9, 30, 90))
            what = (bytes(dice.choices(b"abcdefgh", k=size)), dice.randint(1, 5), how)
        elif verb in ("ack", "nack", "reject", "later"):
            what = dice.choice(unacked) if unacked else dice.choice(others or [0])
            what = (what, dice.choice(PAST + FUTURE))
        elif verb in ("reschedule", "delete", "peek"):
            what = dice.choice(others) if others else dice.choice(unacked or [0])
            what = (what, dice.choice((None, *PAST, *FUTURE)))
        elif verb in ("redrive", "get many"):
            what = dice.choice((1, 2, 100))
        elif verb == "purge":
            what = dice.choice(("ready", "delayed", "dead", "all"))
        elif verb == "keep":
            what = dice.choice(("flush", "sync", "compact", "check"))
        return verb, number, what

    # --- the store ------------------------------------------------------------------------------

    def do(self, call: Call) -> Any:
        verb, number, what = call
        queue = self.queues[number]
        try:
            return self._do(verb, queue, what)
        except qindex.QindexError as error:
            return type(error).__name__

    def _do(self, verb: str, queue: qindex.Queue, what: Any) -> Any:  # noqa: C901
        if verb == "publish":
            return [queue.publish(what[0], **what[2])]
        if verb == "many":
            return list(queue.publish_many([what[0]] * what[1], **what[2]))
        if verb == "fan out":
            return self.store.publish(["q0", "q1"], what[0], **what[2])
        if verb in ("get", "newest", "get many"):
            if verb == "get many":
                found: list[Any] = queue.get_many(what)
            else:
                one = queue.get() if verb == "get" else queue.get_newest()
                found = [] if one is None else [one]
            return [(m.req_id, m.body, m.delivery_count, m.priority) for m in found]
        if verb in ("ack", "nack", "reject", "later"):
            call = {"ack": queue.ack, "nack": queue.nack}.get(verb)
            if call is not None:
                return call(what[0])
            if verb == "reject":
                return queue.nack(what[0], requeue=False)
            return queue.nack(what[0], due=what[1])
        if verb == "reschedule":
            queue.reschedule(what[0], **({} if what[1] is None else {"due": what[1]}))
            shown = queue.peek(what[0])
            return None if shown is None else shown.due
        if verb == "delete":
            return queue.delete(what[0])
        if verb == "redrive":
            return queue.redrive(what)
        if verb == "purge":
            return queue.purge(state=what)
        if verb == "peek":
            shown = queue.peek()
            return None if shown is None else (shown.req_id, shown.due)
        if what == "check":
            return [str(f) for f in self.store.check() if f.severity == "damage"]
        return {"flush": queue.flush, "sync": queue.sync, "compact": self._compact}[what]()

    def _compact(self) -> None:
        self.store.compact()

    # --- the model ------------------------------------------------------------------------------

    def follow(self, call: Call, result: Any) -> None:
        """Brings the model to where the store is; Difference if the guide says otherwise."""
        verb, number, what = call
        model = self.models[number]
        if verb in ("publish", "many"):
            bodies = [what[0]] * (what[1] if verb == "many" else 1)
            self._published(model, model.publish(bodies, what[2]), result)
        elif verb == "fan out":
            both = [each.publish([what[0]], what[2]) for each in self.models[:2]]
            for each, made, req_id in zip(self.models, both, result, strict=False):
                each.add(made, [req_id])  # type: ignore[arg-type]
        elif verb == "get many":
            self._got_many(model, what, result)
        elif verb in ("get", "newest"):
            message = model.next(newest=verb == "newest")
            self._same(result, [] if message is None else [self._row(model, message)])
        elif verb == "keep":
            self._same(result or None, None)
        elif verb == "redrive":
            dead = sorted(m.req_id for m in model.kept.values() if m.state == "dead")[:what]
            self._same(result, len(dead))
            for req_id in dead:
                model.redrive(model.kept[req_id])
        elif verb == "purge":
            gone = model.in_state(what)
            self._same(result, len(gone))
            for req_id in gone:
                del model.kept[req_id]
        elif verb == "peek":
            first = model.next()
            wanted = None if first is None else (first.req_id, about(first.shown_due()))
            self._same(result if result is None else (result[0], about(result[1])), wanted)
        else:
            self._about_one(model, verb, what, result)

    def _row(self, model: Model, message: Kept) -> tuple[Any, ...]:
        model.deliver(message)
        return message.req_id, message.body, message.count, message.priority

    def _got_many(self, model: Model, count: int, rows: list[Any]) -> None:
        wanted = model.waiting()[:count]
        if wanted and not rows:
            raise Difference("get_many() gave none")
        self._same(rows, [self._row(model, message) for message in wanted[: len(rows)]])

    def _published(self, model: Model, made: list[Kept] | str, result: Any) -> None:
        if isinstance(made, str) or isinstance(result, str):
            self._same(result, made)
        else:
            model.add(made, result)

    def _about_one(self, model: Model, verb: str, what: Any, result: Any) -> None:  # noqa: C901
        message = model.kept.get(what[0])
        if message is None:
            if result not in ("AlreadyAcked", "UnknownMessage"):
                raise Difference(f"of no message: {result!r}")
            return
        if verb in ("ack", "nack", "reject", "later"):
            if message.state != "unacked":
                self._same(result, "UnknownMessage")
                return
            self._same(result, None)
            if verb == "ack":
                del model.kept[message.req_id]
            elif verb == "reject":
                model.leave(message, "rejected")
            else:
                model.give_back(message, what[1] if verb == "later" else None)
                model.expire()
        elif message.state == "unacked":
            self._same(result, "MessageDelivered")
        elif verb == "delete":
            self._same(result, None)
            del model.kept[message.req_id]
        elif what[1] is not None and (message.state == "dead" or message.taken_back):
            self._same(result, "DeadLetter")
        elif what[1] is not None:
            self._same(result, what[1])
            message.due, message.keeps_no_time = what[1], False
        elif message.state == "dead":
            self._same(result, None)
            model.redrive(message)
        elif message.timed and not message.taken_back:
            if not isinstance(result, float) or not self.began - 1 < result < time.time() + 1:
                raise Difference(f"rescheduled without a time: due {result!r}")
            message.due, message.keeps_no_time = result, False
        elif not message.taken_back:
            self._same(result, None)
            message.due = None

    def _same(self, found: Any, wanted: Any) -> None:
        if found != wanted:
            raise Difference(f"the store: {found!r}\nthe guide: {wanted!r}")

    # --- both -----------------------------------------------------------------------------------

    def call(self) -> None:
        call = self.choose()
        self.last = [*self.last[-40:], call]
        result = self.do(call)
        if call[0] in ("publish", "many", "fan out", "nack", "later"):
            for queue in self.queues[:2] if call[0] == "fan out" else [self.queues[call[1]]]:
                queue.expire()
        self.follow(call, result)
        self.compare(call[1])

    def compare(self, number: int) -> None:
        queue, model = self.queues[number], self.models[number]
        ready, unacked, delayed, dead = model.counts()
        found = (queue.ready, queue.unacked, queue.delayed, queue.dead)
        self._same(found, (ready, unacked, delayed, dead))
        times = [m.due for m in model.kept.values() if m.state == "waiting" and m.is_delayed()]
        self._same(queue.next_due, min(times, default=None))

    def contents(self) -> list[list[tuple[Any, ...]]]:
        """All that is there, of every queue."""
        return [
            sorted(
                (
                    *(m.req_id, m.body, m.dead, m.delivery_count, m.priority),
                    None if m.dead else about(m.due),
                )
                for m in queue.browse()
            )
            for queue in self.queues
        ]

    def wanted(self, models: list[Model]) -> list[list[tuple[Any, ...]]]:
        return [
            sorted(
                (m.req_id, m.body, m.dead, m.count, m.priority, about(m.shown_due()))
                for m in model.kept.values()
            )
            for model in models
        ]
