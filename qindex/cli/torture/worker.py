"""The victim of `qindex torture`: plays random operations on a store until it is killed.

    python -m qindex.cli.torture.worker DIRECTORY SEED OPTIONS(JSON)

Before each operation a line of JSON says what is meant, after it one says what came of it. A line
is written to the pipe before the next step, so what the parent has read is what this process knew.

Half of the lives have two or three threads, which say who they are; half pause between operations,
so that queues go idle, and are met by the next operation while they go to sleep.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
import traceback
import zlib
from collections.abc import Callable

import qindex

QUEUES = ["a", "b", "c"]
BACKLOG_MAX = 150  # above it, the dice prefer acks
PAUSE_MAX = 0.05  # seconds: a queue goes idle, is flushed and put to sleep in less
SIZES = [0, 24, 40, 63, 64, 300, 1500]  # of bodies; 24 bytes hold every tag

pipe = threading.Lock()


def body_of(tag: int, size: int) -> bytes:
    """The one body that belongs to a tag."""
    start = b"%d|" % tag
    filler = random.Random(tag).randbytes(max(0, size - len(start)))  # noqa: S311
    return (start + filler)[:size]


def say(**line: object) -> None:
    """A whole line, in one piece whoever else speaks."""
    data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
    with pipe:
        while data:
            data = data[os.write(1, data) :]


class Player:
    """One thread. It settles only what it took itself.

    Beside others it does without what a ledger could not tell apart: two empty bodies, and what a
    purge met of that which came at the same time.
    """

    def __init__(self, store: qindex.Store, seed: int, thread: int, *, threads: int) -> None:
        self.dice = random.Random(f"{seed} {thread}")  # noqa: S311
        self.thread = thread
        self.tag = seed * 1_000_000 + thread * 300_000
        self.store = store
        self.queues = {name: store.queue(name) for name in QUEUES}
        self.out: dict[str, list[int]] = {name: [] for name in QUEUES}
        self.sizes = SIZES if threads == 1 else SIZES[1:]
        self.upkeeps = [
            "flush",
            "flush",
            "sync",
            "sync",
            "compact",
        ]  # which takes by far the longest
        self.upkeeps += ["purge"] if threads == 1 else []

    def say(self, **line: object) -> None:
        say(thread=self.thread, **line)

    def new_bodies(self, count: int) -> list[tuple[int, int]]:
        first = self.tag
        self.tag += count
        return [(first + i, self.dice.choice(self.sizes)) for i in range(count)]

    def play(self, *, pauses: bool) -> None:
        """Until the process is killed; an error ends it, as that of a lone thread would."""
        try:
            while True:
                self.step()
                if pauses and self.dice.random() < 0.5:
                    time.sleep(self.dice.uniform(0, PAUSE_MAX))
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def step(self) -> None:
        name = self.dice.choice(QUEUES)
        full = len(self.queues[name]) > BACKLOG_MAX
        chances: dict[Callable[[str], None], int] = {
            self.publish: 1 if full else 20,
            self.publish_many: 1 if full else 6,
            self.fan_out: 1 if full else 5,
            self.get: 20,
            self.get_many: 8,
            self.ack: 30 if full else 15,
            self.nack: 3,
            self.upkeep: 3,
        }
        self.dice.choices(list(chances), list(chances.values()))[0](name)

    def publish(self, name: str) -> None:
        [(tag, size)] = self.new_bodies(1)
        persistent = self.dice.random() < 0.85
        headers = {"tag": tag} if self.dice.random() < 0.3 else None
        self.say(op="publish", queues=[name], bodies=[[tag, size]], persistent=persistent)
        req_id = self.queues[name].publish(
            body_of(tag, size), persistent=persistent, headers=headers
        )
        self.say(ids=[[req_id]])

    def publish_many(self, name: str) -> None:
        bodies = self.new_bodies(self.dice.randrange(1, 40))
        self.say(op="publish", queues=[name], bodies=bodies, persistent=True)
        self.say(ids=[list(self.queues[name].publish_many([body_of(*body) for body in bodies]))])

    def fan_out(self, _name: str) -> None:
        names = self.dice.sample(QUEUES, self.dice.randrange(1, 4))
        [(tag, size)] = self.new_bodies(1)
        self.say(op="publish", queues=names, bodies=[[tag, size]], persistent=True)
        self.say(ids=[[req_id] for req_id in self.store.publish(names, body_of(tag, size))])

    def get(self, name: str) -> None:
        self.say(op="get", queue=name, count=1)
        message = self.queues[name].get()
        self.took(name, [message] if message else [])

    def get_many(self, name: str) -> None:
        count = self.dice.randrange(1, 25)
        self.say(op="get", queue=name, count=count)
        self.took(name, self.queues[name].get_many(count))

    def took(self, name: str, messages: list[qindex.Message]) -> None:
        self.out[name] += [message.req_id for message in messages]
        self.say(
            got=[[m.req_id, zlib.crc32(m.body), m.delivery_count, m.redelivered] for m in messages]
        )

    def some_out(self, name: str) -> list[int]:
        out = self.out[name]
        self.dice.shuffle(out)
        count = self.dice.choice([1, 1, 3, len(out)])
        taken, self.out[name] = out[:count], out[count:]
        return taken

    def ack(self, name: str) -> None:
        taken = self.some_out(name)
        if not taken:
            return
        self.say(op="ack", queue=name, ids=taken)
        if len(taken) == 1:
            self.queues[name].ack(taken[0])
        elif self.dice.random() < 0.2:
            self.queues[name].nack_many(taken, requeue=False)
        else:
            self.queues[name].ack_many(taken)
        self.say(done=True)

    def nack(self, name: str) -> None:
        taken = self.some_out(name)
        if taken:
            self.say(op="nack", queue=name, ids=taken)
            self.queues[name].nack_many(taken)
            self.say(done=True)

    def upkeep(self, name: str) -> None:
        verb = self.dice.choice(self.upkeeps)
        self.say(op=verb, queue=name)
        if verb == "compact":
            self.store.compact()
        elif verb == "purge":
            self.queues[name].purge(state="all")
        else:
            getattr(self.queues[name], verb)()
        self.say(done=True)


def main() -> None:
    directory, seed, options = sys.argv[1:]
    dice = random.Random(seed)  # noqa: S311
    threads, pauses = dice.choice([1, 1, 2, 3]), dice.random() < 0.5
    sys.setswitchinterval(dice.choice([0.005, 0.0005, 0.00001]))
    store = qindex.open(directory, **json.loads(options))
    players = [Player(store, int(seed), thread, threads=threads) for thread in range(threads)]
    say(op="ready")
    say(done=True)
    for player in players[1:]:
        threading.Thread(target=player.play, kwargs={"pauses": pauses}).start()
    players[0].play(pauses=pauses)


if __name__ == "__main__":
    main()
