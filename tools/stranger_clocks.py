"""A wall clock that is set forward and back, on a simulated disk. For strangers.py.

Written from docs/guide (expiry, delay, leases): times of messages follow the wall clock, in an open
store too; what has expired once never comes back; a lease ends after so many seconds that have
passed, whatever the clock says.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stranger_model import Difference

import qindex
from qindex.testing import SimulatedDisk, abandon

NOW = 1_780_000_000.0


@dataclass
class Timed:
    body: bytes
    due: float = 0.0
    expires: float | None = None
    lease_until: float | None = None  # by the clock that does not step; it is unacked until then
    is_out: bool = False


class World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.wall, self.steady = NOW, 0.0
        self.disk = SimulatedDisk(seed=seed, wall=NOW)
        self.kept: dict[int, Timed] = {}
        self.store: Any = None
        self.last: list[Any] = []

    def open(self) -> None:
        self.store = qindex.open("/", disk=self.disk, segment_entries=16, max_journal_entries=40)
        self.queue = self.store.queue("a")
        for timed in self.kept.values():
            timed.is_out, timed.lease_until = False, None

    def step(self) -> None:
        dice, queue = self.dice, self.queue
        verb = dice.choices(
            ["publish", "get", "ack", "nack", "set", "pass", "reopen"], [40, 25, 10, 6, 10, 12, 2]
        )[0]
        self.last = [*self.last[-30:], (verb, self.wall - NOW, self.steady)]
        out = [req_id for req_id, timed in self.kept.items() if timed.is_out]
        if verb == "publish":
            self.publish()
        elif verb == "get":
            self.get(dice.choice((None, None, 5, 60)))
        elif verb in ("ack", "nack") and out:
            req_id = dice.choice(out)
            if verb == "ack":
                queue.ack(req_id)
                del self.kept[req_id]
            else:
                queue.nack(req_id)
                self.kept[req_id].is_out, self.kept[req_id].lease_until = False, None
        elif verb == "set":
            self.wall += dice.choice((-86_400, -3600, -30, 30, 3600, 86_400, 10 * 365 * 86_400))
            self.wall = max(self.wall, NOW - 5 * 86_400)
            if dice.random() < 0.3:
                self.wall = NOW + self.steady
            self.disk.set_wall(self.wall)
        elif verb == "pass":
            seconds = dice.choice((1, 4, 20, 300))
            self.disk.advance(seconds)
            self.wall, self.steady = self.wall + seconds, self.steady + seconds
        elif verb == "reopen":
            self.end()
            self.open()
        self.expire()
        self.compare()

    def end(self) -> None:
        how = self.dice.choice(("close", "kill", "power cut"))
        self.expire()
        if how == "close":
            self.store.close()
            return
        self.store.sync()
        left = self.disk.kill() if how == "kill" else self.disk.power_cut(self.dice.randrange(99))
        abandon(self.store)
        self.disk = left
        self.disk.set_wall(self.wall)

    def publish(self) -> None:
        span = self.dice.choice((10, 100, 3000, 90_000, 400 * 86_400))
        how: dict[str, float] = {}
        timed = Timed(b"%d" % len(self.last))
        kind = self.dice.choice(("plain", "ttl", "expires_at", "delay", "due", "both"))
        if kind in ("ttl", "both"):
            how["ttl"], timed.expires = span, self.wall + span
        if kind == "expires_at":
            how["expires_at"] = timed.expires = self.wall + span * self.dice.choice((-1, 1))
        if kind in ("delay", "both"):
            how["delay"], timed.due = span / 2, self.wall + span / 2
        if kind == "due":
            how["due"] = timed.due = self.wall + span * self.dice.choice((-1, 1))
        self.kept[self.queue.publish(timed.body, **how)] = timed

    def get(self, lease: float | None) -> None:
        message = self.queue.get(lease=lease)
        self.expire()  # what the get met on its way
        ready = {req_id for req_id, timed in self.kept.items() if self.is_ready(timed)}
        if message is None:
            if ready:
                raise Difference(f"get() gave nothing, and {sorted(ready)} are ready")
            return
        if message.req_id not in ready:
            raise Difference(f"get() gave {message.req_id}: {self.kept.get(message.req_id)}")
        timed = self.kept[message.req_id]
        timed.is_out = True
        timed.lease_until = None if lease is None else self.steady + lease

    def is_ready(self, timed: Timed) -> bool:
        return not timed.is_out and timed.due <= self.wall

    def expire(self) -> None:
        """What has expired is gone for good, but for what a consumer has."""
        for timed in self.kept.values():
            if timed.lease_until is not None and timed.lease_until <= self.steady:
                timed.is_out, timed.lease_until = False, None
        self.queue.ready  # noqa: B018 - leases end when somebody looks
        self.queue.expire()
        for req_id, timed in list(self.kept.items()):
            if not timed.is_out and timed.expires is not None and timed.expires <= self.wall:
                del self.kept[req_id]

    def compare(self) -> None:
        queue, kept = self.queue, self.kept.values()
        found = (queue.ready, queue.unacked, queue.delayed)
        out = sum(timed.is_out for timed in kept)
        ready = sum(map(self.is_ready, kept))
        if found != (wanted := (ready, out, len(kept) - out - ready)):
            raise Difference(f"ready, unacked, delayed: {found}; the guide: {wanted}")
        bodies = sorted(message.body for message in queue.browse())
        if bodies != sorted(timed.body for timed in kept):
            raise Difference(f"there: {bodies}; the guide: {sorted(t.body for t in kept)}")


def run_clocks(_folder: Path, steps: int, seed: int) -> str:
    done = 0
    while done < steps:
        world = World(seed)
        try:
            world.open()
            for _ in range(min(400, steps - done)):
                world.step()
                done += 1
            world.store.close()
        except Difference as difference:
            calls = "\n".join(map(str, world.last))
            raise SystemExit(f"seed {seed}, behind\n{calls}\n{difference}") from None
        seed += 1
    return f"{done:,} steps of clocks: as the guide says"
