"""Kill a busy process with SIGKILL, again and again, and hold recovery to what it had reported.

Each round lets a worker (worker.py) work on the store of the rounds before it, kills it at a
random moment (also while it recovers), reopens the store here and checks every invariant.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import qindex
from qindex._core import lib
from qindex.cli.torture.ledger import Broken, Ledger, require
from qindex.cli.torture.worker import QUEUES

ROUNDS_PER_STORE: Final = 20
READY_SECONDS: Final = 60.0
FILE_SIZE: Final = 4096
BIGGEST_MESSAGE: Final = 2048
JOURNALS_MAX: Final = 512 * 1024  # both files of a queue, with small knobs
SEGMENT: Final = re.compile(r"\d+\.(idx|alt)")
MESSAGES: Final = re.compile(r"\d+\.(qms|new)")  # .new: empty, to be written over
KNOWN_FILES: Final = ("LOCK", "store.meta", "catalog", "queue.meta", "journal.jif", "journal.alt")
LOG: Final = re.compile(r"[1-9][0-9]*\.log")
LOGS_MAX: Final = 4  # commit logs; there are no more without data of one's own

Progress = Callable[[int, int], None]


def knobs(dice: random.Random) -> dict[str, Any]:
    """So small that twenty publishes cross segments, flushes and message files."""
    return {
        "segment_entries": 16,
        "max_journal_entries": dice.choice([8, 24, 100]),
        "message_file_size": FILE_SIZE,
        "embed_below": dice.choice([0, 64, 400]),
        "io": dice.choice(["auto", "pwrite"]),
        "idle": dice.choice([0.002, 0.005, 1.0]),
        "sync": dice.choice(["group", "group", "never", "always"]),
    }


def child_environment() -> Mapping[str, str]:
    """A child imports the same qindex as this process, wherever that came from."""
    home = str(Path(qindex.__file__).resolve().parents[1])
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def read_until(pipe: int, deadline: float) -> bytes:
    """What comes through a pipe until then (time.monotonic()), or until its other end is closed."""
    read = bytearray()
    while (left := deadline - time.monotonic()) > 0:
        if select.select([pipe], [], [], left)[0]:
            data = os.read(pipe, 1 << 16)
            if not data:
                break
            read += data
    return bytes(read)


def live_and_die(directory: Path, seed: int, options: dict[str, Any], dice: random.Random) -> bytes:
    """One worker's life; what it had reported when it was killed."""
    command = [sys.executable, "-P", "-m", "qindex.cli.torture.worker"]
    worker = subprocess.Popen(
        [*command, str(directory), str(seed), json.dumps(options)],
        stdout=subprocess.PIPE,
        env=child_environment(),
    )
    assert worker.stdout is not None  # noqa: S101 - for the type checker
    report, pipe = bytearray(), worker.stdout.fileno()
    try:
        if dice.random() < 0.2:  # while it starts or recovers
            deadline = time.monotonic() + dice.uniform(0.03, 0.3)
        else:
            ready = select.select([pipe], [], [], READY_SECONDS)[0]
            require(ready, f"the worker hangs: its store is not open after {READY_SECONDS:.0f} s")
            report += os.read(pipe, 1 << 16)
            deadline = time.monotonic() + dice.uniform(0, dice.choice([0.05, 0.5]))
        report += read_until(pipe, deadline)
    finally:
        worker.kill()
        report += worker.stdout.read()
        worker.stdout.close()
        code = worker.wait()
    require(code == -9, f"the worker ended by itself, with exit code {code}, before it was killed")
    return bytes(report)


def let_go(store: qindex.Store) -> None:
    """As a killed process would: no close, no sync, the lock is released."""
    store._closed = True
    lib.qi_store_abandon(store._handle)


def damage(store: qindex.Store) -> list[str]:
    return [str(finding) for finding in store.findings if finding.severity == "damage"]


def shown(store: qindex.Store) -> dict[str, list[tuple[int, bytes]]]:
    return {name: [(m.req_id, m.body) for m in store.queue(name).browse()] for name in QUEUES}


def check_recovery(
    directory: Path, ledger: Ledger, options: dict[str, Any], dice: random.Random
) -> None:
    """Open after the kill: every invariant of the rules, and once more after another crash."""
    store = qindex.open(directory, **options)
    found = shown(store)
    for name in QUEUES:
        ledger.reconcile(name, found[name])
    store.check()
    require(not damage(store), f"damage: {damage(store)}")
    for name in QUEUES:
        _check_queue(store.queue(name), len(found[name]), ledger)
    if dice.random() < 0.3:
        let_go(store)
        store = qindex.open(directory, **options)
        require(shown(store) == found, "recovering twice shows something else than once")
    _check_space(store, directory)
    if dice.random() < 0.3:
        store.close()
        with qindex.open(directory, read_only=True) as reader:
            require(shown(reader) == found, "a reader sees something else than the writer")
    else:
        let_go(store)


def _check_queue(queue: qindex.Queue, depth: int, ledger: Ledger) -> None:
    figures = (len(queue), queue.ready, queue.unacked)
    require(figures == (depth, depth, 0), f"{queue.name}: counters {figures}, {depth} are there")
    for message in queue.browse():
        was_out = ledger.queues[queue.name].live[message.req_id].deliveries
        require(message.redelivered or not was_out, f"{message} was delivered before the kill")


def _sizes(directory: Path) -> dict[Path, int]:
    """The files, with their sizes; a live store may remove some meanwhile."""
    sizes = {}
    for file in directory.rglob("*"):
        with suppress(FileNotFoundError):
            if file.is_file():
                sizes[file] = file.stat().st_size
    return sizes


def _check_space(store: qindex.Store, directory: Path) -> None:
    for name in QUEUES:
        store.queue(name).flush()
    store.compact()
    store.sync()
    files = _sizes(directory)
    stored = sum(size for file, size in files.items() if file.suffix == ".qms")
    live = store.stats().live_bytes
    bound = 2 * live + 2 * FILE_SIZE + BIGGEST_MESSAGE
    require(stored <= bound, f"garbage piles up: {stored} bytes, {live} are live")
    segments = [file for file in files if SEGMENT.fullmatch(file.name)]
    numbers = {file.with_suffix("") for file in segments}  # one that is written anew has two files
    most = sum(len({m.req_id // 16 for m in store.queue(n).browse()}) for n in QUEUES)
    require(len(numbers) <= most, "dead segments stay")
    logs = [file for file in files if LOG.fullmatch(file.name)]
    require(len(logs) <= LOGS_MAX, f"{len(logs)} commit logs")
    known = {file for file in files if MESSAGES.fullmatch(file.name) or file.name in KNOWN_FILES}
    known |= {*segments, *logs}
    strange = [str(file) for file in files if file not in known]
    require(not strange, f"files of unknown kinds: {strange}")
    journals = sum(size for file, size in files.items() if file.stem == "journal")
    require(journals <= len(QUEUES) * JOURNALS_MAX, f"{journals} bytes of journals")


def drain(directory: Path, ledger: Ledger) -> None:
    """The end of a store: everything comes out in order, once, unaltered, and leaves no body."""
    with qindex.open(directory, segment_entries=16) as store:
        for name in QUEUES:
            queue, live = store.queue(name), ledger.queues[name].live
            messages: list[qindex.Message] = []
            while batch := queue.get_many(50):
                messages += batch
                queue.ack_many(batch)
            wanted = [(req_id, entry.body) for req_id, entry in live.items()]
            require([(m.req_id, m.body) for m in messages] == wanted, "drained: order, bytes")
            new = queue.publish(b"")
            require(new >= ledger.queues[name].next_id, f"ReqId {new} was given before")
            queue.ack_many(queue.get_many(1))
            require(len(queue) == 0, f"{name}: {len(queue)} messages are left")
            queue.flush()
        store.compact()
        require(store.stats().live_references == 0, "bodies stay although all is acked")


class KillLoop:
    """Rounds on one store after the other; `rounds` and `operations` count what was survived."""

    def __init__(self, base: Path, seed: int) -> None:
        self.base = base
        self.seed = seed
        self.dice = random.Random(seed)  # noqa: S311
        self.ledger = Ledger(QUEUES)
        self.rounds = 0
        self.operations = 0

    @property
    def directory(self) -> Path:
        return self.base / f"store-{self.rounds // ROUNDS_PER_STORE}"

    def round(self) -> None:
        """One life, one death, one recovery. Broken, or an error of qindex, if it fails."""
        if self.rounds % ROUNDS_PER_STORE == 0:
            self.ledger = Ledger(QUEUES)
        directory = self.directory
        try:
            options = knobs(self.dice)
            seed = self.seed * 100_000 + self.rounds
            before = self.ledger.operations
            self.ledger.follow(live_and_die(directory, seed, options, self.dice))
            self.operations += self.ledger.operations - before
            check_recovery(directory, self.ledger, options, self.dice)
            if self.rounds % ROUNDS_PER_STORE == ROUNDS_PER_STORE - 1:
                drain(directory, self.ledger)
                shutil.rmtree(directory)
        except Exception as error:
            place = f"round {self.rounds} of seed {self.seed} in {directory}"
            error.add_note(f"{place}; in doubt: {self.ledger.doubt}")
            raise
        self.rounds += 1

    def finish(self) -> None:
        """The last store, which did not come to its end, is drained too."""
        if self.directory.exists():
            drain(self.directory, self.ledger)
            shutil.rmtree(self.directory)


def play(base: Path, seed: int, *, rounds: int, progress: Progress = lambda *_: None) -> KillLoop:
    """So many rounds; returns what was counted."""
    loop = KillLoop(base, seed)
    while loop.rounds < rounds:
        loop.round()
        progress(loop.rounds, loop.operations)
    loop.finish()
    return loop


__all__ = ["Broken", "KillLoop", "child_environment", "damage", "let_go", "play"]
