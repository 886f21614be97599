"""The model of a consumer, its events and its counters. For stranger_consumers.py."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any, Final

from stranger_model import Difference

RULES: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "dead": {"dead_letters": True, "max_deliveries": 3},
    "tries": {"max_deliveries": 2},
    "head": {"max_messages": 6, "overflow": "drop-head"},
    "bury": {"max_messages": 6, "overflow": "dead-letter", "dead_letters": True},
    "full": {"max_messages": 4},
}
HIGH, LOW = 7, 4  # the mark of "plain"
SMALL: Final = 3  # events that the second listener keeps
NAMES: Final = list(RULES)


@dataclass
class Kept:
    req_id: int
    size: int
    count: int = 0
    state: str = "ready"  # out, dead, delayed, gone
    owner: str = ""  # of one that is out: consumer, other
    until: float | None = None  # of its lease
    due: float | None = None  # it was published with a delay
    expires: float | None = None


@dataclass
class Queue:
    name: str
    kept: dict[int, Kept] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    saved: Counter[str] = field(default_factory=Counter)  # by the last close
    exact: bool | None = True  # None: a session that did nothing here had no end
    is_above: bool = False

    @property
    def rules(self) -> dict[str, Any]:
        return RULES[self.name]

    def waiting(self) -> int:
        return sum(m.state != "dead" for m in self.kept.values())

    def ready(self) -> list[Kept]:
        """As get() gives them: those that were delayed first, by their times."""
        found = [m for m in self.kept.values() if m.state == "ready"]
        return sorted(found, key=lambda m: (m.due is None, m.due or 0, m.req_id))


class Counted:
    """What the guide says about a store, one consumer and two listeners."""

    def __init__(self) -> None:
        self.now = 0.0
        self.queues = {name: Queue(name) for name in NAMES}
        self.events: list[tuple[Any, ...]] = []  # that the call has to tell
        self.told = 0  # to the second listener, since it was asked last

    def fresh(self) -> None:
        """A new session."""
        self.names: list[str] = []
        self.start: int | None = 0
        self.fair, self.paused = True, False
        self.prefetch: int | None = None
        self.lease: float | None = None
        self.taken: list[tuple[str, int]] = []
        self.told, self.events = 0, []
        self.again: set[tuple[str, int]] = set()  # that are ready by their time once more

    def _left(self, model: Queue) -> dict[int, tuple[bool, int]]:
        """Without the process, what it had has been given back."""
        left = {}
        for m in model.kept.values():
            tries = model.rules.get("max_deliveries", 1 << 16)
            spent = m.state != "dead" and m.count >= tries
            if not spent or model.rules.get("dead_letters"):
                left[m.req_id] = (m.state == "dead" or spent, m.count)
        return left

    def follow(self, call: tuple[Any, ...], result: Any) -> None:
        getattr(self, "_follow_" + call[0].replace(" ", "_"))(*call[1:], result)

    def _follow_publish(self, name: str, size: int, how: dict[str, Any], result: Any) -> None:
        made = self._come(name, size, [result] if isinstance(result, int) else result, 1)
        for m in made:
            if "ttl" in how:
                m.expires = self.now + how["ttl"]
            if "delay" in how:
                m.state, m.due = "delayed", self.now + how["delay"]

    def _follow_many(self, name: str, size: int, count: int, result: Any) -> None:
        self._come(name, size, result, count)

    def _follow_fan_out(self, names: list[str], size: int, result: Any) -> None:
        for name, req_id in zip(names, result, strict=True):
            self._come(name, size, "QueueFull" if req_id is None else [req_id], 1)

    def _come(self, name: str, size: int, result: Any, count: int) -> list[Kept]:
        model = self.queues[name]
        most = model.rules.get("max_messages")
        over = max(0, model.waiting() + count - most) if most else 0
        drops = "overflow" in model.rules and count <= (most or 0)
        leaving = model.ready()[:over] if drops else []
        same(result == "QueueFull", len(leaving) < over)
        if result == "QueueFull":
            return []
        for m in leaving:
            self._leave(model, m, "full")
        made = [Kept(req_id, size) for req_id in result]
        model.kept.update({m.req_id: m for m in made})
        model.counts.update(published=count, published_bytes=count * size)
        return made

    def _leave(self, model: Queue, m: Kept, why: str) -> None:
        """A message leaves by itself, as its queue says."""
        m.owner, m.until = "", None
        model.counts.update(expired=int(why == "expired"))
        keeps = model.rules.get("dead_letters") and model.rules.get("overflow") != "drop-head"
        if keeps:
            m.state = "dead"
            model.counts.update(dead=1)
            self.events.append(("died", model.name, m.req_id, why))
            return
        m.state = "gone"
        del model.kept[m.req_id]
        model.counts.update(dropped=1)
        expired = why == "expired"
        event = ("expired", model.name, m.req_id, None)
        self.events.append(event if expired else ("dropped", model.name, m.req_id, why))

    def _follow_get(self, _name: str, result: Any) -> None:
        full = self.prefetch is not None and len(self._unacked()) >= self.prefetch
        ready = [name for name in self.names if self.queues[name].ready()]
        if full or self.paused or not ready:
            return same(result, None)
        if self.start is not None:
            order = self.names[self.start :] + self.names[: self.start]
            same(result and result[0], next(name for name in order if name in ready))
        elif result is None or result[0] not in ready:
            raise Difference(f"get() of a consumer: {result}, ready: {ready}")
        self._deliver(result, "consumer")
        self.taken = [each for each in self.taken if each != result[:2]] + [result[:2]]
        if self.fair:
            self.start = (self.names.index(result[0]) + 1) % len(self.names)
        return None

    def _follow_other(self, name: str, result: Any) -> None:
        if not self.queues[name].ready():
            return same(result, None)
        return self._deliver(result, "other")

    def _deliver(self, result: Any, owner: str) -> None:
        model = self.queues[result[0]]
        m = model.ready()[0]
        same(result[:3], (model.name, m.req_id, m.count + 1))
        before = m.count > 0
        if before and not result[3]:
            raise Difference(f"{result} was delivered before, and does not say so")
        m.state, m.owner, m.count = "out", owner, m.count + 1
        m.until = self.now + self.lease if owner == "consumer" and self.lease else None
        counts = {"delivered": 1, "delivered_bytes": m.size, "redelivered": int(before)}
        model.counts.update(counts)

    def _unacked(self) -> list[tuple[str, int]]:
        """What the consumer has, in the order of taking."""
        out = {
            (name, m.req_id)
            for name, model in self.queues.items()
            for m in model.kept.values()
            if m.state == "out" and m.owner == "consumer"
        }
        return [each for each in self.taken if each in out]

    def _one(self, which: tuple[str, int], result: Any) -> tuple[Queue, Kept]:
        same(result, None)
        model = self.queues[which[0]]
        return model, model.kept[which[1]]

    def _follow_ack(self, which: tuple[str, int], result: Any) -> None:
        model, m = self._one(which, result)
        del model.kept[m.req_id]
        model.counts.update(acked=1)

    _follow_aside = _follow_ack

    def _follow_nack(self, which: tuple[str, int], result: Any) -> None:
        model, m = self._one(which, result)
        model.counts.update(returned=1)
        self._back(model, m)

    def _back(self, model: Queue, m: Kept) -> None:
        m.state, m.owner, m.until = "ready", "", None
        if m.due is not None:
            self.again.add((model.name, m.req_id))
        if m.count >= model.rules.get("max_deliveries", 1 << 16):
            self._leave(model, m, "deliveries")
        elif m.expires is not None and m.expires <= self.now:
            self._leave(model, m, "expired")

    def _follow_reject(self, which: tuple[str, int], result: Any) -> None:
        model, m = self._one(which, result)
        if model.rules.get("dead_letters"):
            self._leave(model, m, "rejected")
        else:  # what a consumer's verb drops is no event
            del model.kept[m.req_id]
            model.counts.update(dropped=1)

    def _follow_set(self, adds: bool, names: list[str], result: Any) -> None:
        same(result, None)
        self.names = self.names + names if adds else [n for n in self.names if n not in names]
        self.start = None if self.fair else 0

    def _follow_pause(self, _name: str, result: Any) -> None:
        same(result, None)
        self.paused = not self.paused

    def _follow_anew(
        self, fair: bool, prefetch: int | None, lease: float | None, result: Any
    ) -> None:
        same(result, None)
        for name, req_id in self._unacked():
            self.queues[name].counts.update(returned=1)
            self._back(self.queues[name], self.queues[name].kept[req_id])
        self.taken = []
        self.fair, self.prefetch, self.lease, self.paused = fair, prefetch, lease, False
        self.start = 0

    def _follow_purge(self, name: str, result: Any) -> None:
        model = self.queues[name]
        gone = model.ready()
        same(result, len(gone))
        for m in gone:
            del model.kept[m.req_id]
        model.counts.update(purged=len(gone))

    def _follow_pass(self, seconds: float, result: Any) -> None:
        same(result, None)
        self.now += seconds
        for model in self.queues.values():
            for m in list(model.kept.values()):
                self._time_passed(model, m)

    def _time_passed(self, model: Queue, m: Kept) -> None:
        if m.state == "out" and m.until is not None and m.until <= self.now:
            self.events.append(("lease ended", model.name, m.req_id, None))
            model.counts.update(leases_ended=1)
            self._back(model, m)
        elif m.state == "delayed" and m.due is not None and m.due <= self.now:
            self.events.append(("ready", model.name, m.req_id, None))
            m.state = "ready"
        if m.state == "ready" and m.expires is not None and m.expires <= self.now:
            self._leave(model, m, "expired")

    def _follow_look(self, _name: str | None, result: Any) -> None:
        same(result, self._unacked())


def same(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise Difference(f"the store: {found!r}\nthe guide: {wanted!r}")


def as_counter(counts: Any) -> Counter[str]:
    return +Counter({each.name: getattr(counts, each.name) for each in fields(counts)})
