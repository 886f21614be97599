"""Cut the power of real file systems, fill real disks, and make their writes and syncs fail.

    python tools/disks.py                      everything that can be tried here
    python tools/disks.py cut ext4 xfs         power cuts, of these file systems
    python tools/disks.py groups               power cuts under many queues of format 2
    python tools/disks.py turns                power cuts while message files are written over
    python tools/disks.py sync --times 100     so many failing syncs of each file system
    python tools/disks.py full                 full disks: an image of 4 MB, a tmpfs
    python tools/disks.py --canary             a worker that lies must be noticed

A worker publishes, acks and syncs on a file system in an image, and reports what it did.

cut   At a random moment the file system is shut down (the ioctl that ext4 and xfs answer; with and
      without its log), so that what was not synced is gone; then it is mounted anew. btrfs does
      not answer that ioctl: its image lies on an ext4 that loses power under it. What the store
      shows must agree with what was reported: confirmed messages with their bytes, no ack that was
      synced taken back, the survivors of the others a prefix, no damage, and the same when it is
      opened once more.
groups The same with commits of many queues, transactions, moves and data of the store: a
      transaction is there as a whole or not at all, and a message is in one queue.
turns The same as cut with messages that go soon, so that message files are written over.
sync  The image is a FUSE disk under a loop device, which fails one to three writes or flushes at a
      random moment and works again afterwards. ext4, xfs and btrfs report such a failure once: the
      next fsync succeeds, and the data are gone. So the worker's handle has to refuse everything
      behind a failed sync (H13); and what is confirmed has to be there for who opens the store
      next, at once, while the cache may hold more than the disk, and after the file system was
      mounted anew (H12).
full  Publishes are refused, acks go on, the next open has everything.

Needs root, loop devices, mkfs and /dev/fuse. Exit code 0: all passed, or could not be tried, which
is said; 1: something was lost, or went on.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import disks_many
from disks_account import KNOBS, REFUSED, WENT_ON, Account, body_of, work, work_on
from disks_account import look as look_at_one
from disks_mounted import (
    LOG_FLUSH,
    MEBIBYTES,
    NO_LOG_FLUSH,
    FailingDisk,
    Image,
    Impossible,
    failing_image,
    file_system,
)

import qindex
from qindex.cli.torture.kill import read_until

LIVES_MAX = 4  # for each sync that is to fail: not each failed request reaches one
PATIENCE = 3.0  # seconds that a failure may take to reach the worker


def start(store: Path, seed: int, lies: bool, *more: str) -> tuple[subprocess.Popen[bytes], int]:
    """A worker, and the file descriptor of what it reports."""
    command = [sys.executable, __file__, "--worker", str(store), str(seed), *more]
    command += ["--canary"] if lies else []
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert worker.stdout is not None
    return worker, worker.stdout.fileno()


def end(worker: subprocess.Popen[bytes]) -> bytes:
    """Kills it. What it reported since it was read last."""
    assert worker.stdout is not None
    worker.kill()
    after = worker.stdout.read()
    worker.stdout.close()
    worker.wait()
    return after


# ---- power cuts ----


def life_until_cut(
    image: Image, seed: int, dice: random.Random, lies: bool, plays: str, seconds: float
) -> bytes:
    """A worker's life until the power is cut; its report."""
    report = bytearray()
    worker, pipe = start(image.mounted / "store", seed, lies, "--plays", plays)
    try:
        if dice.random() > 0.15:  # else the power goes while it opens, or before
            report += os.read(pipe, 1 << 16)
        deadline = time.monotonic() + dice.uniform(0, seconds)
        report += read_until(pipe, deadline)
        # What is reported from here on may be of the time after the cut: it is not believed.
        image.cut(dice.choice([LOG_FLUSH, NO_LOG_FLUSH]))
    finally:
        after = end(worker)
    return bytes(report) + meant_only(bytes(report), after)


def meant_only(report: bytes, after: bytes) -> bytes:
    """Of what came behind the cut: publishes and acks count as tried, no sync as done."""
    kept = bytearray()
    lines = (report.rpartition(b"\n")[2] + after).split(b"\n")[:-1]
    skip = len(report.rpartition(b"\n")[2])
    for line in lines:
        if not line.startswith((b'["sync', b'["ready')):
            kept += line[skip:] + b"\n"
        elif skip:
            kept += line[skip:] + b"\n"  # its beginning is in the report already
        skip = 0
    return bytes(kept)


def cut_power(kind: str, cuts: int, seed: int, lies: bool = False, plays: str = "one") -> str:
    """So many cuts of one file system. AssertionError if something is wrong."""
    dice = random.Random(seed)
    many = plays == "many"
    account: Any = disks_many.Account() if many else Account()
    look: Callable[[Path], tuple[Any, list[str]]] = disks_many.look if many else look_at_one
    seconds = 1.0 if plays == "turns" else 0.08
    operations, begin = 0, time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="qindex-power-") as folder,
        file_system(kind, MEBIBYTES[kind], Path(folder)) as image,
    ):
        for number in range(cuts):
            operations += account.follow(
                life_until_cut(image, seed * 1000 + number + 1, dice, lies, plays, seconds)
            )
            image.unmount()
            image.mount()
            found, damage = look(image.mounted / "store")
            wrong = damage + account.check(found)
            if dice.random() < 0.3:  # a cut right after an open takes nothing back
                image.cut(NO_LOG_FLUSH)
                image.unmount()
                image.mount()
                again, damage = look(image.mounted / "store")
                wrong += damage
                if again != found:
                    wrong.append("a cut right after an open took something back")
            if wrong and lies:
                raise AssertionError(str(wrong))
            if wrong:
                shutil.copytree(image.mounted / "store", kept := tempfile.mkdtemp() + "/store")
                raise AssertionError(f"cut {number}, seed {seed}, copy in {kept}: {wrong}")
            account.rebase(found)
    rate = cuts / (time.monotonic() - begin)
    said = f"{cuts} cuts survived, {rate:.1f} a second, {operations} operations"
    if plays != "turns":
        return said
    assert account.over > 0, f"no message file was written over: {said}"
    return f"{said}, {account.over} message files written over"


# ---- full disks ----


def fill(kind: str) -> str:
    """A disk of 4 MB: publishes are refused, acks go on, the next open has everything."""
    with (
        tempfile.TemporaryDirectory(prefix="qindex-full-") as folder,
        file_system(kind, 4, Path(folder)) as image,
    ):
        path, count, refused = image.mounted / "store", 0, ""
        with qindex.open(path, **KNOBS) as store:
            queue = store.queue("q")
            while not refused:
                try:
                    queue.publish(body_of(count))
                    count += 1
                except qindex.DiskFull as error:
                    refused = str(error)
            (image.mounted / "others").write_bytes(b"")  # the last inode is not ours
            first = queue.get_many(count // 2)
            queue.ack_many(first)
            queue.sync()
        with qindex.open(path, **KNOBS) as store:
            queue = store.queue("q")
            bodies = [message.body for message in queue.browse()]
            assert bodies == [body_of(n) for n in range(len(first), count)], "lost or altered"
            store.check()
            assert not [f for f in store.findings if f.severity == "damage"], store.findings
            queue.purge()
            queue.flush()
            store.compact()
            queue.publish(b"there is room again", confirm=True)
    return f"refused after {count} messages, half acked, all others there, room again"


# ---- syncs that fail ----


def life_until_failure(
    store: Path, disk: FailingDisk, seed: int, lies: bool
) -> tuple[bytes, int | None]:
    """A worker's report and how it ended; None: it was killed, because nothing reached it."""
    dice = random.Random(seed)
    worker, pipe = start(store, seed, lies, "--fails")
    report = bytearray(os.read(pipe, 1 << 16))
    report += read_until(pipe, time.monotonic() + dice.uniform(0, 0.08))
    what = dice.choice([(True, False), (False, True), (True, True)])
    disk.fail(dice.choice([1, 1, 2, 3]), writes=what[0], flushes=what[1])
    deadline = time.monotonic() + PATIENCE
    while worker.poll() is None and time.monotonic() < deadline:
        report += read_until(pipe, time.monotonic() + 0.02)
    disk.fail(0, writes=False, flushes=False)
    code = worker.poll()
    report += end(worker)
    return bytes(report), code


def is_writable(folder: Path) -> bool:
    """A file system that lost its own journal is read-only until it is mounted anew."""
    try:
        (folder / "probe").write_bytes(b"")
    except OSError:
        return False
    return True


def fail_syncs(kind: str, times: int, seed: int, lies: bool = False) -> str:
    """So many failures on one file system. AssertionError if something is wrong."""
    account, ends = Account(), Counter[int | None]()
    with failing_image(kind) as (image, disk):
        store = image.mounted / "store"
        for number in range(LIVES_MAX * times):
            if ends[REFUSED] == times:
                break
            report, code = life_until_failure(store, disk, seed * 1000 + number + 1, lies)
            ends[code] += 1
            account.follow(report)
            wrong = ["a handle went on behind a failed sync"] if code == WENT_ON else []
            if number % 2 and is_writable(image.mounted):
                wrong += judge_at_once(account, store)
            image.unmount()
            image.mount()
            wrong += judge(account, store)
            if wrong and not lies:
                shutil.copytree(store, kept := tempfile.mkdtemp() + "/store")
                wrong.append(f"number {number}, seed {seed}, copy in {kept}")
            if wrong:
                raise AssertionError(str(wrong))
    assert ends[REFUSED] > 0, f"no failure reached the store: {ends}"
    return f"{ends[REFUSED]} times a sync failed, in {ends.total()} lives"


def judge(account: Account, store: Path) -> list[str]:
    """What is wrong with what a new process shows; that is durable from then on (H12)."""
    found, damage = look_at_one(store)
    wrong = damage + account.check(found)
    account.rebase(found)
    return wrong


def judge_at_once(account: Account, store: Path) -> list[str]:
    """Without mounting anew. The open may be the first that hears of a failure: then it fails."""
    try:
        return judge(account, store)
    except AssertionError as error:
        if re.search(r"DiskError|OutcomeUnknown|StoreFailed", str(error)):
            return []
        raise


# ---- all of them ----

TRIALS: dict[str, tuple[str, list[str], Callable[[str, int, int], str]]] = {
    "cut": ("power cut", list(MEBIBYTES), cut_power),
    "groups": (
        "power cut, many queues",
        list(MEBIBYTES),
        lambda kind, cuts, seed: cut_power(kind, cuts, seed, plays="many"),
    ),
    "turns": (
        "power cut, files written over",
        list(MEBIBYTES),
        lambda kind, cuts, seed: cut_power(kind, cuts, seed, plays="turns"),
    ),
    "full": ("full", ["ext4", "tmpfs"], lambda kind, _times, _seed: fill(kind)),
    "sync": ("failing syncs", list(MEBIBYTES), fail_syncs),
}


def tried(trial: str, wanted: list[str], times: int, seed: int) -> Iterator[tuple[str, bool, str]]:
    title, possible, run = TRIALS[trial]
    for kind in wanted or possible:
        if kind not in possible:
            continue
        try:
            yield f"{title} {kind}", True, run(kind, times, seed)
        except Impossible as why:
            yield f"{title} {kind}", True, f"NOT TRIED: {why}"
        except (AssertionError, qindex.QindexError) as error:
            yield f"{title} {kind}", False, str(error)


def canary(lying: Callable[[], str]) -> bool:
    try:
        said = lying()
    except AssertionError as error:
        print(f"the canary was found: {str(error)[:200]}")
        return True
    except Impossible as why:
        print(f"the canary: NOT TRIED: {why}")
        return True
    print(f"the canary was NOT found: {said}")
    return False


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words = [*TRIALS, *MEBIBYTES]
    parser.add_argument("what", nargs="*", choices=[*words, []], metavar="WHAT")
    parser.add_argument("--times", type=int, default=40, help="cuts, or failing syncs, of each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--canary", action="store_true", help="a worker that lies must be noticed")
    parser.add_argument("--worker", nargs=2, metavar=("DIR", "SEED"), help=argparse.SUPPRESS)
    parser.add_argument("--plays", default="one", help=argparse.SUPPRESS)
    parser.add_argument("--fails", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return play(options)
    wanted = [trial for trial in TRIALS if trial in options.what] or list(TRIALS)
    if options.canary:
        lies = {"cut": lambda: cut_power("ext4", 40, options.seed, lies=True)}
        lies["groups"] = lambda: cut_power("ext4", 40, options.seed, lies=True, plays="many")
        lies["turns"] = lambda: cut_power("ext4", 40, options.seed, lies=True, plays="turns")
        lies["sync"] = lambda: fail_syncs("ext4", 60, options.seed, lies=True)
        return 0 if all(canary(lies[trial]) for trial in wanted if trial in lies) else 1
    kinds = [kind for kind in MEBIBYTES if kind in options.what]
    passed = True
    for trial in wanted:
        for label, good, text in tried(trial, kinds, options.times, options.seed):
            print(f"{label}: {'' if good else 'FAILED: '}{text}", flush=True)
            passed &= good
    return 0 if passed else 1


def play(options: argparse.Namespace) -> int:
    directory, seed = options.worker[0], int(options.worker[1])
    if options.plays == "many":
        disks_many.work(directory, seed, options.canary)
    if not options.fails:
        turns = options.plays == "turns"
        knobs = {**KNOBS, "sync": "group"} if turns else KNOBS
        work(qindex.open(directory, **knobs), seed, options.canary, turns)
    code = work_on(directory, seed, options.canary)
    sys.stdout.flush()
    os._exit(code)  # as a crash would leave it: no close


if __name__ == "__main__":
    sys.exit(main())
