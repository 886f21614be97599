"""Writes and syncs that fail on real file systems, and a process that lives on.

    python tools/failing_sync.py                         every file system that can be tried here
    python tools/failing_sync.py ext4 xfs --times 100    so often on each
    python tools/failing_sync.py --canary                a worker that takes a failed sync for done

The image of the file system is a FUSE disk under a loop device, which fails one to three writes or
flushes at a random moment and works again afterwards. Here ext4, xfs and btrfs all report such a
failure once: the next fsync succeeds, and the data are gone. So the worker's handle has to refuse
everything behind a failed sync (H13); and what is confirmed has to be there for who opens the store
next, at once, while the cache may hold more than the disk, and after the file system was mounted
anew (H12). Needs root and /dev/fuse. Exit code 0: all passed, or could not be tried, which is said;
1: something was lost, or went on.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from failing_disk import FailingDisk, failing_disk
from powercut import KNOBS, Account, look, say, work  # puts the root into sys.path
from powercut_disks import MEBIBYTES, Image, Impossible

import qindex
from qindex.cli.torture_kill import read_until

LIVES_MAX = 4  # for each sync that is to fail: not each failed request reaches one
PATIENCE = 3.0  # seconds that a failure may take to reach the worker
REFUSED, WENT_ON = 3, 4  # how a worker ends


# ---- the worker ----


def work_on(directory: str, seed: int, lies: bool) -> int:
    """As powercut's, until something fails; then nothing may succeed."""
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


def one_life(store: Path, disk: FailingDisk, seed: int, lies: bool) -> tuple[bytes, int | None]:
    """A worker's report and how it ended; None: it was killed, because nothing reached it."""
    dice = random.Random(seed)
    command = [sys.executable, __file__, "--worker", str(store), str(seed)]
    command += ["--canary"] if lies else []
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert worker.stdout is not None
    report, pipe = bytearray(os.read(worker.stdout.fileno(), 1 << 16)), worker.stdout.fileno()
    report += read_until(pipe, time.monotonic() + dice.uniform(0, 0.08))
    what = dice.choice([(True, False), (False, True), (True, True)])
    disk.fail(dice.choice([1, 1, 2, 3]), writes=what[0], flushes=what[1])
    deadline = time.monotonic() + PATIENCE
    while worker.poll() is None and time.monotonic() < deadline:
        report += read_until(pipe, time.monotonic() + 0.02)
    disk.fail(0, writes=False, flushes=False)
    code = worker.poll()
    worker.kill()
    report += worker.stdout.read()
    worker.stdout.close()
    worker.wait()
    return bytes(report), code


# ---- what it must have left ----


def is_writable(folder: Path) -> bool:
    """A file system that lost its own journal is read-only until it is mounted anew."""
    try:
        (folder / "probe").write_bytes(b"")
    except OSError:
        return False
    return True


@contextmanager
def failing_image(kind: str) -> Iterator[tuple[Image, FailingDisk]]:
    """A file system on a disk that works, until it is told to fail; mounted."""
    with (
        tempfile.TemporaryDirectory(prefix="qindex-sync-") as folder,
        failing_disk(MEBIBYTES[kind], Path(folder)) as (disk, file),
    ):
        image = Image(kind, MEBIBYTES[kind], file, Path(folder) / "m")
        image.mounted.mkdir()
        image.make()
        image.mount()
        try:
            yield image, disk
        finally:
            with suppress(Impossible):
                image.unmount()


def fail_syncs(kind: str, times: int, seed: int, lies: bool = False) -> str:
    """So many failures on one file system. AssertionError if something is wrong."""
    account, ends = Account(), Counter[int | None]()
    with failing_image(kind) as (image, disk):
        store = image.mounted / "store"
        for number in range(LIVES_MAX * times):
            if ends[REFUSED] == times:
                break
            report, code = one_life(store, disk, seed * 1000 + number + 1, lies)
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
    found, damage = look(store)
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


def canary(seed: int) -> int:
    try:
        said = fail_syncs("ext4", 60, seed, lies=True)
    except AssertionError as error:
        print(f"the canary was found: {str(error)[:200]}")
        return 0
    except Impossible as why:
        print(f"the canary: NOT TRIED: {why}")
        return 0
    print(f"the canary was NOT found: {said}")
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", choices=[*MEBIBYTES, []], metavar="WHAT")
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--canary", action="store_true")
    parser.add_argument("--worker", nargs=2, metavar=("DIR", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        code = work_on(options.worker[0], int(options.worker[1]), options.canary)
        sys.stdout.flush()
        os._exit(code)  # as a crash would leave it: no close
    if options.canary:
        return canary(options.seed)
    passed = True
    for kind in options.what or MEBIBYTES:
        try:
            print(
                f"failing syncs {kind}: {fail_syncs(kind, options.times, options.seed)}", flush=True
            )
        except Impossible as why:
            print(f"failing syncs {kind}: NOT TRIED: {why}", flush=True)
        except (AssertionError, qindex.QindexError) as error:
            print(f"failing syncs {kind}: FAILED: {error}", flush=True)
            passed = False
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
