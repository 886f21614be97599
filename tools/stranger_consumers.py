"""Consumers, events and counters, against a model from docs/guide. For strangers.py.

Written from the pages on consumers, monitoring, limits and dead letters: whose turn it is and how
many a consumer may have; what it gives back; each event that a call has to tell, and how many were
missed; each counter, in this session and in the store's life. Time passes on a simulated disk; with
a real one the program is killed, with either surface in turn.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from stranger_counted import HIGH, LOW, NAMES, RULES, SMALL, Counted, Kept, as_counter, same
from stranger_kills import killed, write
from stranger_model import Difference

import qindex
from qindex import aio
from qindex.testing import SimulatedDisk
from qindex.testing.simulated import tick


class Awaited:
    """Something of qindex.aio as a program without an event loop sees it."""

    def __init__(self, thing: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._thing, self._loop = thing, loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._thing, name)
        return partial(self._call, value) if callable(value) else value

    def _call(self, verb: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        made = verb(*arguments, **options)
        if inspect.isawaitable(made):
            made = self._loop.run_until_complete(_result_of(made))
        elif inspect.isasyncgen(made):
            made = self._loop.run_until_complete(_all_of(made))
        is_ours = isinstance(made, (aio.Queue, aio.Consumer, aio.Events))
        return Awaited(made, self._loop) if is_ours else made

    def _end(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def _result_of(made: Awaitable[Any]) -> Any:
    return await made


async def _all_of(made: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in made]


class Shop(Counted):
    """A store, a consumer and two listeners, and the model of them. `call()` plays on both."""

    def __init__(self, path: Path, seed: int, *, simulated: bool) -> None:
        super().__init__()
        self.path = path
        self.dice = random.Random(seed)
        self.disk = SimulatedDisk(seed=seed, wall=1_780_000_000.0) if simulated else None
        self.last: list[Any] = []
        self.awaited = False  # by qindex.aio

    # --- the store ------------------------------------------------------------------------------

    def open(self) -> None:
        options: dict[str, Any] = {"format": 2, "segment_entries": 16, "max_journal_entries": 60}
        self.store: Any
        if self.disk is None and self.awaited:
            loop = asyncio.new_event_loop()
            opening = aio.open(self.path, idle=0.05, **options)
            self.store = Awaited(loop.run_until_complete(_result_of(opening)), loop)
        elif self.disk is None:
            self.store = qindex.open(self.path, idle=0.05, **options)
        else:
            self.store = qindex.open("/", disk=self.disk, sync_interval=3600, **options)
        self.real = {name: self.store.queue(name, **RULES[name]) for name in NAMES}
        for queue in self.real.values():
            queue.ready  # noqa: B018 - what was tried too often leaves with the first look
        self.real["plain"].purge(state="all")
        self.listener = self.store.events(marks={"plain": (HIGH, LOW)})
        self.slow = self.store.events(room=SMALL)
        self.consumer = self.store.consumer([])
        self.held: dict[tuple[str, int], qindex.Message] = {}  # that `other` or the consumer has

    def begin(self) -> None:
        """The model of what is there now."""
        self.fresh()
        for name, model in self.queues.items():
            counters = self.real[name].stats().counters
            now = as_counter(counters.since_open)
            life = as_counter(counters.lifetime)
            if life - now != model.saved:
                raise Difference(f"{name}: {life - now} of earlier sessions, not {model.saved}")
            if model.exact is not None and counters.exact is not model.exact:
                raise Difference(f"{name}: its counts say exact={counters.exact}")
            model.exact, model.counts, model.is_above = counters.exact, now, False
            model.kept = {m.req_id: self._kept(name, m) for m in self.real[name].browse()}

    def _kept(self, name: str, m: qindex.Message) -> Kept:
        old = self.queues[name].kept.get(m.req_id, Kept(0, 0))
        if old.due is not None and old.state != "delayed":
            self.again.add((name, m.req_id))
        state = "dead" if m.dead else "delayed" if old.state == "delayed" else "ready"
        kept = Kept(m.req_id, len(m.body), m.delivery_count, state)
        kept.due, kept.expires = old.due, old.expires
        return kept

    def end(self) -> None:
        self.store.close()
        if isinstance(self.store, Awaited):
            self.store._end()
        for model in self.queues.values():
            model.saved = model.saved + model.counts

    def killed(self, last: tuple[Any, ...] | None) -> None:
        """What is there behind a kill within that call: all else is as the model has it."""
        self.open()
        for name, model in self.queues.items():
            if model.counts:
                model.exact = False
            elif model.exact:
                model.exact = None
            anywhere = last is not None and last[0] in ("get", "anew")
            if name == "plain" or anywhere or (last is not None and name in str(last)):
                continue
            found = {m.req_id: (m.dead is not None, m.delivery_count) for m in self._all(name)}
            left = self._left(model)
            same(sorted(found.items() - left.items()), sorted(left.items() - found.items()))
        self.begin()
        self.end()

    def _all(self, name: str) -> list[qindex.Message]:
        return list(self.real[name].browse())

    # --- choosing -------------------------------------------------------------------------------

    def choose(self) -> tuple[Any, ...]:
        dice, name = self.dice, self.dice.choice(NAMES)
        verb = dice.choices(
            ["publish", "many", "fan out", "get", "other", "ack", "nack", "reject", "aside", "set",
             "pause", "anew", "purge", "pass", "look"],
            [30, 6, 4, 34, 6, 14, 8, 6, 4, 6, 3, 2, 1, 8 if self.disk else 0, 5],
        )[0]  # fmt: skip
        if verb in ("ack", "nack", "reject", "aside"):
            out = [
                (each, m.req_id)
                for each, model in self.queues.items()
                for m in model.kept.values()
                if m.state == "out"
            ]
            return (verb, dice.choice(out)) if out else ("look", None)
        if verb == "publish":
            how = {}
            if self.disk and name in ("plain", "full") and dice.random() < 0.4:
                how = dice.choice(({"ttl": 40}, {"delay": 25}))
            return verb, name, dice.randrange(40), how
        if verb == "many":
            return verb, name, dice.randrange(40), dice.randint(1, 9)
        if verb == "fan out":
            return verb, dice.sample(NAMES, 3), dice.randrange(40)
        if verb == "set":
            inside = [each for each in NAMES if each in self.names]
            outside = [each for each in NAMES if each not in self.names]
            adds = bool(outside) and (not inside or dice.random() < 0.7)
            return verb, adds, dice.sample(outside if adds else inside, 1)
        if verb == "anew":
            lease = 30 if self.disk and dice.random() < 0.5 else None
            return verb, dice.random() < 0.6, dice.choice((None, 1, 2, 4)), lease
        if verb == "pass":
            return verb, dice.choice((5, 20, 60))
        return verb, name

    def do(self, call: tuple[Any, ...]) -> Any:
        verb, what = call[0], call[1]
        try:
            return getattr(self, "_do_" + verb.replace(" ", "_"))(what, *call[2:])
        except qindex.QindexError as error:
            return type(error).__name__

    def _do_publish(self, name: str, size: int, how: dict[str, Any]) -> Any:
        return self.real[name].publish(b"x" * size, **how)

    def _do_many(self, name: str, size: int, count: int) -> Any:
        return list(self.real[name].publish_many([b"x" * size] * count))

    def _do_fan_out(self, names: list[str], size: int) -> Any:
        return self.store.publish(names, b"x" * size, on_full="skip")

    def _do_get(self, _name: str) -> Any:
        return self._hold(self.consumer.get())

    def _do_other(self, name: str) -> Any:
        return self._hold(self.real[name].get())

    def _hold(self, message: qindex.Message | None) -> Any:
        if message is None:
            return None
        self.held[message.queue, message.req_id] = message
        return message.queue, message.req_id, message.delivery_count, message.redelivered

    def _do_ack(self, which: tuple[str, int]) -> Any:
        self.consumer.ack(self.held.pop(which))

    def _do_nack(self, which: tuple[str, int]) -> Any:
        self.consumer.nack(self.held.pop(which))
        self._expire()

    def _expire(self) -> None:
        """Now, and not within about a second."""
        for queue in self.real.values() if self.disk else ():
            queue.expire()

    def _do_reject(self, which: tuple[str, int]) -> Any:
        self.consumer.nack(self.held.pop(which), requeue=False)

    def _do_aside(self, which: tuple[str, int]) -> Any:
        """Without the consumer, which may have it."""
        self.held.pop(which).ack()

    def _do_set(self, adds: bool, names: list[str]) -> Any:
        (self.consumer.add if adds else self.consumer.remove)(names)

    def _do_pause(self, _name: str) -> Any:
        (self.consumer.resume if self.consumer.paused else self.consumer.pause)()

    def _do_anew(self, fair: bool, prefetch: int | None, lease: float | None) -> Any:
        names = self.consumer.queues
        self.consumer.close()
        self.consumer = self.store.consumer(names, fair=fair, prefetch=prefetch, lease=lease)
        self._expire()

    def _do_purge(self, name: str) -> Any:
        return self.real[name].purge()

    def _do_pass(self, seconds: float) -> Any:
        assert self.disk is not None
        self.disk.advance(seconds)
        tick(self.store)  # what the background thread does, on a disk without threads
        for queue in self.real.values():
            queue.ready  # noqa: B018 - leases end when somebody looks
            queue.expire()

    def _do_look(self, _name: str) -> Any:
        return [(m.queue, m.req_id) for m in self.consumer.unacked]

    # --- both -----------------------------------------------------------------------------------

    def call(self) -> None:
        call = self.choose()
        self.last = [*self.last[-30:], call]
        result = self.do(call)
        self.follow(call, result)
        self.compare()

    def compare(self) -> None:
        """Events, counters, states and the consumer's figures behind a call."""
        plain = self.queues["plain"]
        if plain.waiting() >= HIGH and not plain.is_above:
            plain.is_above = True
            self.events.append(("above", "plain", None, None))
        elif plain.waiting() < LOW and plain.is_above:
            plain.is_above = False
            self.events.append(("below", "plain", None, None))
        found = []
        while (event := self.listener.get()) is not None:
            if event.kind == "ready" and (event.queue, event.req_id) in self.again:
                self.told += 1
            else:
                found.append((event.kind, event.queue, event.req_id, event.why))
        same(sorted(found, key=repr), sorted(self.events, key=repr))
        self.told += sum(event[0] not in ("above", "below") for event in self.events)
        self.events = []
        if self.dice.random() < 0.2:
            self._compare_missed()
        for name, model in self.queues.items():
            stats = self.real[name].stats()
            states = Counter(m.state for m in model.kept.values())
            wanted = (states["ready"], states["out"], states["delayed"], states["dead"])
            same((stats.ready, stats.unacked, stats.delayed, stats.dead), wanted)
            same(as_counter(stats.counters.since_open), +model.counts)
            same(as_counter(stats.counters.lifetime), model.saved + model.counts)
        same(self.consumer.queues, self.names)

    def _compare_missed(self) -> None:
        """The newest events are kept, and it says how many others there were."""
        got, missed = 0, 0
        while (event := self.slow.get()) is not None:
            if event.kind == "missed":
                missed = event.count
            else:
                got += 1
        same((got, missed), (min(self.told, SMALL), max(0, self.told - SMALL)))
        self.told = 0


def run_consumers(folder: Path, steps: int, seed: int) -> str:
    """Without kills, on a simulated disk whose clock goes on."""
    done = 0
    while done < steps:
        shop = Shop(folder / f"shop{seed}", seed, simulated=True)
        try:
            for _ in range(3):
                shop.open()
                shop.begin()
                for _ in range(min(200, steps - done)):
                    shop.call()
                    done += 1
                shop.end()
        except Difference as difference:
            calls = "\n".join(map(str, shop.last))
            raise SystemExit(f"seed {seed}, behind\n{calls}\n{difference}") from None
        seed += 1
    return f"{done:,} calls with a consumer: as the guide says"


def run_kills(folder: Path, kills: int, seed: int) -> str:
    """A child writes each call before it and its result behind it, and compares for itself."""
    done = 0
    for number in range(kills):
        if number % 20 == 0:
            shop = Shop(folder / f"killed{seed + number}", seed + number, simulated=False)
            shop.open()
            shop.begin()
            shop.end()
        shop.awaited = number % 2 == 1
        start = shop.dice.randrange(1 << 30)
        log, last = killed(shop.path, shop.dice.uniform(0.1, 0.6), partial(_play, shop, start))
        try:
            for call, result in log:
                if call == "begin":
                    shop.queues, shop.names = result, []
                    shop.fresh()
                else:
                    shop.last = [*shop.last[-30:], call]
                    shop.follow(call, result)
            shop.killed(last if last != "begin" else ("anew",))
        except Difference as difference:
            calls = "\n".join(map(str, [*shop.last, last]))
            raise SystemExit(f"{shop.path.name}, behind\n{calls}\n{difference}") from None
        done += len(log)
    return f"{kills} kills within {done:,} calls with a consumer: as the guide says"


def _play(shop: Shop, start: int, fd: int) -> None:
    try:
        shop.dice = random.Random(start)
        write(fd, b"C", "begin")
        shop.open()
        shop.begin()
        write(fd, b"R", shop.queues)
        while True:
            call = shop.choose()
            write(fd, b"C", call)
            result = shop.do(call)
            shop.last = [*shop.last[-20:], call]
            write(fd, b"R", result)
            shop.follow(call, result)
            shop.compare()
    except BaseException as error:
        os.write(fd, f"{error!r} behind {shop.last[-5:]!r:.2000}".encode())
        os._exit(1)
