"""Kill a busy process with SIGKILL, again and again, and hold recovery to what was reported.

    pytest tests/crash                                 100 rounds, or QINDEX_KILL_ROUNDS
    python tests/crash/test_kill9.py --rounds 10000    as many as you like; --seed repeats a run

Each round lets a worker process work on the store of the rounds before it, kills it at a random
moment (also while it recovers), reopens the store here and checks every invariant of the engine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # also when run as a script

from helpers import crash, damage, files_of  # noqa: E402
from ledger import Ledger  # noqa: E402
from worker import QUEUES  # noqa: E402

import qindex  # noqa: E402

ROUNDS = int(os.environ.get("QINDEX_KILL_ROUNDS", "100"))
ROUNDS_PER_STORE = 20
FILE_SIZE = 4096
SEGMENT = re.compile(r"\d+\.(idx|alt)")
BIGGEST_MESSAGE = 2048
JOURNAL_MAX = 512 * 1024  # both files of a queue, with small knobs


def knobs(dice: random.Random) -> dict[str, object]:
    return {
        "segment_entries": 16,
        "max_journal_entries": dice.choice([8, 24, 100]),
        "message_file_size": FILE_SIZE,
        "embed_below": dice.choice([0, 64, 400]),
        "io": dice.choice(["mmap", "pwrite"]),
        "idle": dice.choice([0.005, 1.0]),
        "sync": dice.choice(["group", "group", "never", "always"]),
    }


def live_and_die(directory: Path, seed: int, options: dict[str, object], dice) -> bytes:
    """One worker's life; what it had reported when it was killed."""
    worker = subprocess.Popen(
        [sys.executable, str(HERE / "worker.py"), str(directory), str(seed), json.dumps(options)],
        stdout=subprocess.PIPE,
    )
    assert worker.stdout is not None
    report, pipe = bytearray(), worker.stdout.fileno()
    if dice.random() < 0.2:  # while it starts or recovers
        deadline = time.monotonic() + dice.uniform(0.03, 0.12)
    else:
        report += os.read(pipe, 1 << 16)  # it is ready
        deadline = time.monotonic() + dice.uniform(0, 0.05)
    while (left := deadline - time.monotonic()) > 0:
        if select.select([pipe], [], [], left)[0]:
            data = os.read(pipe, 1 << 16)
            if not data:
                break
            report += data
    worker.kill()
    report += worker.stdout.read()
    worker.stdout.close()
    assert worker.wait() == -9, "the worker failed before it was killed"
    return bytes(report)


def shown(store: qindex.Store) -> dict[str, list[tuple[int, bytes]]]:
    return {name: [(m.req_id, m.body) for m in store.queue(name).browse()] for name in QUEUES}


def check_recovery(directory: Path, ledger: Ledger, options: dict[str, object], dice) -> None:
    """Open after the kill: every invariant of the rules, and once more after another crash."""
    store = qindex.open(directory, **options)
    found = shown(store)
    ledger.remember_ready()
    ledger.killed()
    for name in QUEUES:
        ledger.reconcile(name, found[name])
    store.check()
    assert not damage(store), damage(store)
    for name in QUEUES:
        queue = store.queue(name)
        assert len(queue) == queue.ready == len(found[name])
        assert queue.unacked == 0
        for message in queue.browse():
            if ledger.queues[name].live[message.req_id].deliveries:
                assert message.redelivered, f"{message} was delivered before the kill"
    if dice.random() < 0.3:
        crash(store)
        store = qindex.open(directory, **options)
        assert shown(store) == found, "recovering twice must show what recovering once showed"
    check_space(store, directory)
    if dice.random() < 0.3:
        store.close()
        with qindex.open(directory, read_only=True) as reader:
            assert shown(reader) == found
    else:
        crash(store)


def check_space(store: qindex.Store, directory: Path) -> None:
    for name in QUEUES:
        store.queue(name).flush()
    store.compact()
    store.sync()
    files = files_of(directory)
    messages = sum(len(data) for name, data in files.items() if name.endswith(".qms"))
    live = store.stats().live_bytes
    assert messages <= 2 * live + 2 * FILE_SIZE + BIGGEST_MESSAGE, "garbage piles up"
    segments = {
        f"queues/{Path(name).parent.name}/{Path(name).name}"
        for name in files
        if SEGMENT.fullmatch(Path(name).name)
    }
    most = sum(len({m.req_id // 16 for m in store.queue(n).browse()}) for n in QUEUES)
    assert len(segments) <= most, "dead segments stay"
    known = ("LOCK", "store.meta", "queue.meta", "journal.jif", "journal.alt")
    strange = [
        name
        for name in files
        if not (SEGMENT.fullmatch(Path(name).name) or name.endswith(".qms"))
        and Path(name).name not in known
    ]
    assert not strange
    journals = sum(len(data) for name, data in files.items() if "journal." in name)
    assert journals <= len(QUEUES) * JOURNAL_MAX


def drain(directory: Path, ledger: Ledger) -> None:
    """The end of a store: everything comes out in order, once, unaltered, and leaves no body."""
    with qindex.open(directory, segment_entries=16) as store:
        for name in QUEUES:
            queue, live = store.queue(name), ledger.queues[name].live
            messages = []
            while batch := queue.get_many(50):
                messages += batch
                queue.ack_many(batch)
            assert [(m.req_id, m.body) for m in messages] == [
                (req_id, entry.body) for req_id, entry in live.items()
            ]
            assert queue.publish(b"") >= ledger.queues[name].next_id
            queue.ack(queue.get())
            queue.flush()
        store.compact()
        assert store.stats().live_references == 0


def play(rounds: int, seed: int, base: Path, progress=lambda *_: None) -> Ledger:
    dice = random.Random(seed)
    ledger = Ledger(QUEUES)
    total = 0
    for number in range(rounds):
        if number % ROUNDS_PER_STORE == 0:
            directory = base / f"store-{number // ROUNDS_PER_STORE}"
            ledger = Ledger(QUEUES)
        where = f"round {number} of --rounds {rounds} --seed {seed} in {directory}"
        try:
            options = knobs(dice)
            report = live_and_die(directory, seed * 100_000 + number, options, dice)
            before = ledger.operations
            ledger.follow(report)
            total += ledger.operations - before
            check_recovery(directory, ledger, options, dice)
            if number % ROUNDS_PER_STORE == ROUNDS_PER_STORE - 1:
                drain(directory, ledger)
                shutil.rmtree(directory)
        except Exception as error:
            error.add_note(f"{where}; in doubt: {ledger.doubt}")
            raise
        progress(number + 1, total)
    return ledger


def test_nothing_reported_is_lost_doubled_or_altered_by_kill_9(tmp_path):
    play(ROUNDS, 1, tmp_path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--keep", metavar="DIR", help="work here and keep what is left")
    arguments = parser.parse_args()
    base = Path(arguments.keep or tempfile.mkdtemp(prefix="qindex-kill9-"))
    base.mkdir(exist_ok=True)

    def progress(rounds: int, operations: int) -> None:
        print(f"\r{rounds} kills survived, {operations} operations", end="", flush=True)

    print(f"seed {arguments.seed}, stores in {base}")
    play(arguments.rounds, arguments.seed, base, progress)
    print()
    if not arguments.keep:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
