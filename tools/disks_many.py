"""What plays on many queues of a disk whose power disks.py cuts, and the account of what is left.

Format 2: group commits, transactions, moves and the mappings of the store. disks_account.py does
the same with one queue of format 1.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import disks_account
from disks_account import body_of, say

import qindex

KNOBS: dict[str, Any] = {**disks_account.KNOBS, "format": 2}
QUEUES = [f"q{number}" for number in range(9)]  # more than a sync of queues one by one is for
KEYS = [f"k{number}" for number in range(5)]
LIVE_MAX = 400

State = str | None  # the queue that a message is in, the value that a key has; None: it is gone
Change = tuple[str, State]  # of what: the number of a message, or a key


def number_of(body: bytes) -> str:
    return body.partition(b"|")[0].decode()


# ---- the worker ----


class Worker:
    """Plays until it is killed. Says what it will change, changes it, says so."""

    def __init__(self, store: qindex.Store, seed: int) -> None:
        self.store = store
        self.dice = random.Random(seed)
        self.next = seed * 1_000_000
        self.queues = [store.queue(name) for name in QUEUES]

    def bodies(self, count: int) -> list[int]:
        self.next += count
        return list(range(self.next - count, self.next))

    def some(self, most: int) -> list[qindex.Message]:
        return self.dice.choice(self.queues).get_many(self.dice.randint(1, most))

    def publish(self) -> None:
        queue, numbers = self.dice.choice(self.queues), self.bodies(self.dice.choice([1, 1, 8]))
        say("try", "whole", [(str(n), queue.name) for n in numbers])
        queue.publish_many([body_of(n) for n in numbers])
        say("did")

    def ack(self) -> None:
        messages = self.some(6)
        say("try", "parts", [(number_of(m.body), None) for m in messages])
        self.store.ack_many(messages)
        say("did")

    def move(self) -> None:
        messages, to = self.some(4), self.dice.choice(QUEUES)
        messages = [m for m in messages if m.queue != to]
        say("try", "whole", [(number_of(m.body), to) for m in messages])
        self.store.move(messages, to=to)
        say("did")

    def transact(self) -> None:
        confirmed = self.dice.random() < 0.3
        new = [(n, self.dice.choice(QUEUES)) for n in self.bodies(self.dice.randint(1, 6))]
        acked, (key, value) = self.some(4), (self.dice.choice(KEYS), str(self.next))
        changes: list[Change] = [(str(n), name) for n, name in new]
        changes += [(number_of(m.body), None) for m in acked]
        say("try", "whole", changes)
        with self.store.transaction(confirm=confirmed) as transaction:
            for number, name in new:
                transaction.publish(name, body_of(number))
            for message in acked:
                transaction.ack(message)
        say("did")
        if confirmed:
            say("synced_last")
        say("try", "whole", [(key, value)])
        self.store.data[key.encode()] = value.encode()
        say("did")

    def sync(self, lies: bool) -> None:
        say("sync")
        if not lies:
            self.store.sync()
        say("synced")

    def play(self, lies: bool) -> None:
        say("ready")
        while True:
            depth = sum(len(queue) for queue in self.queues)
            verbs = [self.publish, self.ack, self.move, self.transact]
            weights = [40 if depth < LIVE_MAX else 0, 25, 8, 15 if depth < LIVE_MAX else 0]
            if self.dice.random() < 0.12:
                self.sync(lies)
            elif self.dice.random() < 0.02:
                self.dice.choice(self.queues).flush()
            elif self.dice.random() < 0.01:
                self.store.compact()
            else:
                self.dice.choices(verbs, weights)[0]()


def work(directory: str, seed: int, lies: bool) -> None:
    """One that lies says that it synced and does not: whoever checks must notice."""
    Worker(qindex.open(directory, **KNOBS), seed).play(lies)


# ---- what it must have left ----


@dataclass
class Found:
    """What a store shows, and what it reports as damage."""

    states: dict[str, State] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)


@dataclass
class Account:
    """What was reported: the states of each message and key, and from which on they are durable."""

    states: dict[str, list[tuple[int, State]]] = field(default_factory=dict)  # (operation, state)
    durable: dict[str, int] = field(default_factory=dict)  # index of the state
    whole: dict[int, list[str]] = field(default_factory=dict)  # operations that are all or nothing

    def follow(self, report: bytes) -> int:
        operations = 0
        last: list[str] = []
        synced: dict[str, int] = {}
        for line in report.split(b"\n")[:-1]:
            word, *rest = json.loads(line)
            operations += 1
            if word == "try":
                how, changes = rest
                last = [what for what, _ in changes]
                if how == "whole":
                    self.whole[operations] = last
                for what, state in changes:
                    self.states.setdefault(what, [(0, None)]).append((operations, state))
            elif word == "sync":
                synced = {what: len(states) - 1 for what, states in self.states.items()}
            elif word == "synced":
                self.durable.update(synced)
            elif word == "synced_last":
                self.durable.update({what: len(self.states[what]) - 1 for what in last})
        return operations

    def check(self, found: Found) -> list[str]:
        wrong = [f"message {what} is there twice" for what in found.doubled]
        wrong += [f"message {what} was altered" for what in found.altered]
        wrong += [
            f"message {what} was never published" for what in found.states.keys() - self.states
        ]
        shown: dict[str, list[int]] = {}  # the operations behind which it is as it was found
        for what, states in self.states.items():
            state = found.states.get(what)
            possible = states[self.durable.get(what, 0) :]
            shown[what] = [operation for operation, known in possible if known == state]
            if not shown[what]:
                wrong.append(f"{what} is {state}, and may be one of {possible}")
        for operation, of in self.whole.items():
            done = [what for what in of if shown[what] and min(shown[what]) >= operation]
            not_done = [what for what in of if shown[what] and max(shown[what]) < operation]
            if done and not_done:
                wrong.append(f"{done[0]} was changed and {not_done[0]} was not, in one operation")
        return wrong + self.gaps(found)

    def gaps(self, found: Found) -> list[str]:
        """Of what was published to a queue, what is left of the unsynced is a prefix."""
        first_missing: dict[State, str] = {}
        wrong = []
        for what, states in self.states.items():
            if states[0] != (0, None) or what in KEYS:
                continue
            queue = states[1][1]
            if what in found.states and queue in first_missing:
                wrong.append(f"no prefix: {first_missing[queue]} is gone, {what} is there")
            elif what not in found.states and all(state for _, state in states[1:]):
                first_missing.setdefault(queue, what)
        return wrong

    def rebase(self, found: Found) -> None:
        """An open is a barrier: what it showed is durable."""
        self.states = {what: [(1, state)] for what, state in found.states.items()}
        self.durable = dict.fromkeys(found.states, 0)
        self.whole = {}


def shown_by(directory: str) -> Found:
    store = qindex.open(directory, **KNOBS)
    found = Found()
    for name in store.queues():
        for message in store.queue(name).browse():
            number = number_of(message.body)
            (found.doubled if number in found.states else []).append(number)
            (found.altered if message.body != body_of(int(number)) else []).append(number)
            found.states[number] = name
    found.states.update((key.decode(), value.decode()) for key, value in store.data.items())
    store.check()
    found.damage = [str(f) for f in store.findings if f.severity == "damage"]
    return found


def look(path: Path) -> tuple[Found, list[str]]:
    """What the store shows, and what it reports as damage; left as a crash would leave it."""
    found: Found = disks_account.in_a_process(
        "import disks_many; give(disks_many.shown_by(sys.argv[1]))", path
    )
    return found, found.damage
