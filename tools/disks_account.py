"""What plays on a disk that disks.py harms, and the account of what it must have left."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import qindex  # noqa: E402

KNOBS = {"segment_entries": 64, "max_journal_entries": 200, "embed_below": 300}
KNOBS |= {"message_file_size": 1 << 16, "sync": "never"}
LIVE_MAX = 400
TURNS_LIVE_MAX = 60  # so few that message files become empty all the time, and are written over


def body_of(number: int) -> bytes:
    dice = random.Random(number)
    return b"%d|" % number + dice.randbytes(dice.choice([0, 20, 100, 900, 5000]))


# ---- the worker ----


REFUSED, WENT_ON = 3, 4  # how a worker ends whose sync failed


def say(*words: object) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


class WrittenOver:
    """Which message files have become empty ones, and then files of another number."""

    def __init__(self, store: Path) -> None:
        self._folder = store / "messages"
        self._empty: set[int] = set()  # inodes

    def count(self) -> int:
        """How many since it was asked last."""
        count = 0
        for entry in os.scandir(self._folder):
            if entry.name.endswith(".new"):
                self._empty.add(entry.inode())
            elif entry.inode() in self._empty:
                self._empty.remove(entry.inode())
                count += 1
        return count


def work(store: qindex.Store, seed: int, lies: bool, turns: bool = False) -> None:
    """Plays until it is killed, or the disk fails. Says what it will do, does it, says so.

    One that lies says that it synced and does not: whoever checks must notice. `turns`: what comes
    goes soon, in turn.
    """
    dice = random.Random(seed)
    queue = store.queue("q")
    held = [message.req_id for message in queue.get_many(LIVE_MAX)]
    number = seed * 1_000_000
    weights, most, acked = ([60, 25, 12, 3, 1], LIVE_MAX, 4)
    if turns:
        weights, most, acked = ([45, 45, 10, 0, 0], TURNS_LIVE_MAX, 40)
    over = WrittenOver(Path(store.path))
    say("ready")
    while True:
        verb = dice.choices(["publish", "ack", "sync", "flush", "compact"], weights)[0]
        if turns and (count := over.count()):
            say("over", count)
        if verb == "publish" and len(queue) < most:
            count = dice.choice([10, 30] if turns else [1, 1, 1, 10])
            numbers = list(range(number, number + count))
            number += count
            say("publish", numbers)
            ids = queue.publish_many([body_of(n) for n in numbers])
            say("published", list(ids))
        elif verb == "ack":
            held += [message.req_id for message in queue.get_many(acked + 1)]
            dice.shuffle(held)
            ids, held = held[:acked], held[acked:]
            say("ack", ids)
            queue.ack_many(ids)
            say("acked")
        elif verb in ("sync", "flush"):
            say("sync")
            if not lies:
                getattr(queue, verb)()
            say("synced")
        elif verb == "compact":
            store.compact()


def work_on(directory: str, seed: int, lies: bool) -> int:
    """Plays until something fails; then nothing may succeed. How it ends: see disks.py."""
    store = qindex.open(directory, **KNOBS)
    try:
        work(store, seed, lies=False)
    except (qindex.OutcomeUnknown, qindex.StoreFailed):
        if lies:
            say("synced")
    except qindex.QindexError:
        return 0  # nothing was changed, it says
    queue = store.queue("q")
    for verb in (lambda: queue.publish(b"late"), queue.sync, queue.flush):
        try:
            verb()
        except (qindex.OutcomeUnknown, qindex.StoreFailed):
            continue
        return WENT_ON
    return REFUSED


# ---- what it must have left ----


@dataclass
class Account:
    """What was reported; `durable` is how much of it no power cut may take."""

    numbers: dict[int, int] = field(default_factory=dict)  # ReqId -> message number
    durable: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)  # or maybe acked
    acked_durably: set[int] = field(default_factory=set)
    in_doubt: list[int] = field(default_factory=list)  # numbers of a publish without an answer
    highest: int = -1
    over: int = 0  # message files that were written over

    def follow(self, report: bytes) -> int:
        operations = 0
        meant: list[int] = []
        self.in_doubt = []
        settled: set[int] = set()  # acks that returned
        before: tuple[set[int], set[int]] = (set(), set())
        for line in report.split(b"\n")[:-1]:
            word, *rest = json.loads(line)
            operations += 1
            if word == "publish":
                meant = self.in_doubt = rest[0]
            elif word == "published":
                self.in_doubt = []
                self.numbers.update(zip(rest[0], meant, strict=True))
                self.highest = max(self.highest, *rest[0])
            elif word == "ack":
                meant = rest[0]
                self.acked.update(meant)
            elif word == "acked":
                settled.update(meant)
            elif word == "over":
                self.over += rest[0]
            elif word == "sync":
                before = (set(self.numbers), set(settled))
            elif word == "synced":
                self.durable |= before[0]
                self.acked_durably |= before[1]
        return operations

    def check(self, found: list[tuple[int, bytes]]) -> list[str]:
        """What is wrong with the messages that a store shows."""
        wrong = []
        shown = dict(found)
        if list(shown) != sorted(shown):
            wrong.append("the order is not kept")
        lost = sorted(self.durable - self.acked - shown.keys())
        if lost:
            wrong.append(f"{len(lost)} confirmed messages are lost, the first is {lost[0]}")
        back = sorted(self.acked_durably & shown.keys())
        if back:
            wrong.append(f"{len(back)} synced acks came back, the first is {back[0]}")
        doubtful = {body_of(number) for number in self.in_doubt}
        for req_id, body in found:
            if req_id in self.numbers:
                if body != body_of(self.numbers[req_id]):
                    wrong.append(f"message {req_id} was altered")
            elif body not in doubtful or req_id <= self.highest:
                wrong.append(f"message {req_id} was never published")
        new = [req_id for req_id in shown if req_id > self.highest]
        if new and len(new) != len(self.in_doubt):
            wrong.append(f"{len(new)} of a batch of {len(self.in_doubt)} are there")
        last = max(shown, default=-1)
        gaps = [i for i in self.numbers if i < last and i not in shown and i not in self.acked]
        if gaps:
            wrong.append(f"no prefix: {sorted(gaps)[0]} is gone, {last} is there")
        return wrong

    def rebase(self, found: list[tuple[int, bytes]]) -> None:
        """An open is a barrier: what it showed is durable."""
        highest = max([self.highest, *(req_id for req_id, _ in found)])
        numbers = {req_id: int(body.partition(b"|")[0]) for req_id, body in found}
        self.__init__(numbers, set(numbers), set(), set(), [], highest, self.over)  # type: ignore[misc]


def in_a_process(script: str, path: Path) -> Any:
    """What a script gives that opens a store; it is left as a crash would leave it."""
    whole = (
        "import sys, os, pickle\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "def give(what):\n"
        "    sys.stdout.buffer.write(pickle.dumps(what)); sys.stdout.flush(); os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", whole + script, str(path), str(Path(__file__).parent)],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        raise AssertionError(done.stderr.decode()[-2000:])
    return pickle.loads(done.stdout)  # noqa: S301 - from our own child


def shown_by(directory: str) -> tuple[list[tuple[int, bytes]], list[str]]:
    """What the store shows, and what it reports as damage."""
    store = qindex.open(directory, **KNOBS)
    found = [(message.req_id, message.body) for message in store.queue("q").browse()]
    store.check()
    return found, [str(f) for f in store.findings if f.severity == "damage"]


def look(path: Path) -> tuple[list[tuple[int, bytes]], list[str]]:
    """What a new process shows; left as a crash would leave it."""
    script = "import disks_account; give(disks_account.shown_by(sys.argv[1]))"
    found: tuple[list[tuple[int, bytes]], list[str]] = in_a_process(script, path)
    return found
