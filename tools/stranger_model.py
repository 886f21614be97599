"""A queue as docs/guide tells of it: a list that is sorted for each question. For strangers.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

PAST: Final = (0, 0.5, 5, 1_000_000_000)  # times that are over
FUTURE: Final = (4_102_444_800, 4_133_980_800)
EXPIRED: Final = 1_000_000_000
LATE: Final = 4_102_444_800


class Difference(Exception):
    """The store did not do what the guide says."""


class EitherWhy(str):
    """Of a message that had expired when its last delivery ended with the process: either may be
    found first, and the guide does not say which."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str(other) in ("expired", "deliveries")

    __hash__ = str.__hash__


@dataclass
class Kept:
    """A message as the guide tells its life."""

    req_id: int
    seq: int  # the order of publishing
    body: bytes
    priority: int
    expires: float | None
    timed: bool  # published with a time
    due: float | None
    count: int = 0  # deliveries
    state: str = "waiting"  # unacked, dead
    dead: str | None = None
    taken_back: bool = False  # and not delivered since
    tries_end: int | None = None  # without a delivery more it is a dead letter: at this count
    keeps_no_time: bool = False  # taken back once: its time is gone

    def order(self) -> tuple[Any, ...]:
        if self.taken_back or (self.keeps_no_time and self.timed):
            return (-self.priority, 0, 0.0, self.req_id)
        if self.due is not None:
            return (-self.priority, 1, self.due, self.req_id)
        return (-self.priority, 2, 0.0, self.seq)

    def newest_order(self) -> tuple[Any, ...]:
        place = self.order()
        return (-self.priority, 0, -self.seq) if place[1] == 2 else (-self.priority, 1, *place[1:])

    def shown_due(self) -> float | None:
        return None if self.state == "dead" or self.order()[1] == 0 else self.due

    def is_delayed(self) -> bool:
        return self.due in FUTURE and not self.taken_back

    def is_expired(self) -> bool:
        return self.expires == EXPIRED and not self.taken_back

    def is_used_up(self) -> bool:
        return self.tries_end is not None and self.count >= self.tries_end and not self.taken_back


@dataclass
class Model:
    """A queue with its rules."""

    rules: dict[str, Any]
    kept: dict[int, Kept] = field(default_factory=dict)
    seq: int = 0

    def waiting(self) -> list[Kept]:
        found = [m for m in self.kept.values() if m.state == "waiting" and not m.is_delayed()]
        return sorted(found, key=Kept.order)

    def counts(self) -> tuple[int, int, int, int]:
        states = [m.state for m in self.kept.values()]
        delayed = sum(m.state == "waiting" and m.is_delayed() for m in self.kept.values())
        waiting = states.count("waiting") - delayed
        return waiting, states.count("unacked"), delayed, states.count("dead")

    def in_state(self, state: str) -> list[int]:
        """The ReqIds of those that purge(state=...) takes."""
        by_state: dict[str, list[int]] = {"ready": [], "delayed": [], "dead": []}
        for m in self.kept.values():
            if m.state == "dead":
                by_state["dead"].append(m.req_id)
            elif m.state == "waiting":
                by_state["delayed" if m.is_delayed() else "ready"].append(m.req_id)
        by_state["all"] = [req_id for req_ids in by_state.values() for req_id in req_ids]
        return by_state[state]

    def leave(self, message: Kept, why: str) -> None:
        """By itself, or because it must."""
        if self.rules.get("dead_letters"):
            message.state, message.dead, message.taken_back = "dead", why, False
        else:
            del self.kept[message.req_id]

    def expire(self) -> None:
        for message in list(self.kept.values()):
            if message.state == "waiting" and message.is_expired():
                self.leave(message, "expired")

    def room(self, news: int, size: int) -> list[Kept] | None:
        """What has to leave before so many messages of so many bytes; None: they are refused."""
        count_max, bytes_max = self.rules.get("max_messages"), self.rules.get("max_bytes")
        alive = [m for m in self.kept.values() if m.state != "dead"]
        count, total = len(alive) + news, sum(len(m.body) for m in alive) + news * size
        order = sorted(
            (m for m in alive if m.state == "waiting" and not m.is_delayed() and not m.taken_back),
            key=lambda m: (m.priority, m.due is not None, m.due or 0, m.req_id),
        )
        gone = []
        for message in [*order, None]:
            if (count_max is None or count <= count_max) and (
                bytes_max is None or total <= bytes_max
            ):
                return gone
            if message is None or self.rules.get("overflow", "reject") == "reject":
                return None
            gone.append(message)
            count, total = count - 1, total - len(message.body)
        return None

    def publish(self, bodies: list[bytes], how: dict[str, Any]) -> list[Kept] | str:
        gone = self.room(len(bodies), len(bodies[0]))
        if gone is None:
            return "QueueFull"
        for message in gone:
            if self.rules["overflow"] == "dead-letter":
                self.leave(message, "full")
            else:
                del self.kept[message.req_id]
        made = []
        for body in bodies:
            self.seq += 1
            made.append(
                Kept(
                    -1,
                    self.seq,
                    body,
                    how.get("priority", 0),
                    how.get("expires_at"),
                    "due" in how,
                    how.get("due"),
                    tries_end=self.rules.get("max_deliveries"),
                )
            )
        return made

    def add(self, made: list[Kept], req_ids: list[int]) -> None:
        for message, req_id in zip(made, req_ids, strict=True):
            if req_id in self.kept:
                raise Difference(f"ReqId {req_id} was given twice")
            message.req_id = req_id
            self.kept[req_id] = message
        self.expire()

    def next(self, *, newest: bool = False) -> Kept | None:
        order = self.waiting()
        if newest:
            order.sort(key=Kept.newest_order)
        return next(iter(order), None)

    def deliver(self, message: Kept) -> None:
        message.state, message.count, message.taken_back = "unacked", message.count + 1, False

    def give_back(self, message: Kept, due: float | None = None) -> None:
        message.state = "waiting"
        if due is not None:
            message.due, message.keeps_no_time = due, False
        elif not message.timed:
            message.due = None
        if message.is_used_up():
            self.leave(message, "deliveries")

    def redrive(self, message: Kept) -> None:
        message.state, message.dead, message.taken_back = "waiting", None, True
        message.due = None
        message.keeps_no_time = message.timed
        tries = self.rules.get("max_deliveries")
        if tries:
            message.tries_end = (message.count // tries + 1) * tries

    def restart(self) -> None:
        for message in list(self.kept.values()):
            if message.state == "unacked":
                self.give_back(message)
                if message.state == "dead" and message.is_expired():
                    message.dead = EitherWhy("expired")
        self.expire()


RULES: Final[list[dict[str, Any]]] = [
    {},
    {"max_deliveries": 3, "dead_letters": True},
    {"max_messages": 12, "overflow": "drop-head"},
    {"max_messages": 10, "overflow": "dead-letter", "dead_letters": True, "max_deliveries": 2},
    {"max_bytes": 300, "overflow": "drop-head", "dead_letters": True},
    {"max_messages": 8, "max_deliveries": 4},
]
