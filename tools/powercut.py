"""Cut the power of real file systems, and fill real disks. Needs root, loop devices and mkfs.

    python tools/powercut.py                       every file system that can be tried here
    python tools/powercut.py ext4 xfs --cuts 500   so many cuts of each
    python tools/powercut.py full                  only the full disks: an image of 4 MB, a tmpfs

A worker publishes, acks and syncs on a file system in an image. At a random moment the file system
is shut down (the ioctl that ext4 and xfs answer; with and without its log), so that what was not
synced is gone; then it is unmounted and mounted anew. What the store shows must agree with what the
worker had reported: confirmed messages with their bytes, no ack that was synced taken back, the
survivors of the others a prefix, no damage, and the same when it is opened once more.

btrfs does not answer that ioctl: its image lies on an ext4 that loses power under it. What happens
when a sync fails and the machine goes on: failing_sync.py.
Exit code 0: all passed, or could not be tried, which is said; 1: something was lost.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from powercut_disks import LOG_FLUSH, MEBIBYTES, NO_LOG_FLUSH, Image, Impossible, file_system  # noqa: E402

import qindex  # noqa: E402
from qindex.cli.torture_kill import read_until  # noqa: E402

KNOBS = {"segment_entries": 64, "max_journal_entries": 200, "embed_below": 300}
KNOBS |= {"message_file_size": 1 << 16, "sync": "never"}
LIVE_MAX = 400


def body_of(number: int) -> bytes:
    dice = random.Random(number)
    return b"%d|" % number + dice.randbytes(dice.choice([0, 20, 100, 900, 5000]))


# ---- the worker ----


def say(*words: object) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


def work(store: qindex.Store, seed: int, lies: bool) -> None:
    """Plays until it is killed, or the disk fails. Says what it will do, does it, says so.

    One that lies says that it synced and does not: whoever checks must notice.
    """
    dice = random.Random(seed)
    queue = store.queue("q")
    held = [message.req_id for message in queue.get_many(LIVE_MAX)]
    number = seed * 1_000_000
    say("ready")
    while True:
        verb = dice.choices(["publish", "ack", "sync", "flush", "compact"], [60, 25, 12, 3, 1])[0]
        if verb == "publish" and len(queue) < LIVE_MAX:
            count = dice.choice([1, 1, 1, 10])
            numbers = list(range(number, number + count))
            number += count
            say("publish", numbers)
            ids = queue.publish_many([body_of(n) for n in numbers])
            say("published", list(ids))
        elif verb == "ack":
            held += [message.req_id for message in queue.get_many(5)]
            dice.shuffle(held)
            ids, held = held[:4], held[4:]
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
        self.__init__(numbers, set(numbers), set(), set(), [], highest)  # type: ignore[misc]


# ---- power cuts ----


def one_life(image: Image, seed: int, dice: random.Random, lies: bool) -> bytes:
    """A worker's life until the power is cut; its report."""
    command = [sys.executable, __file__, "--worker", str(image.mounted / "store"), str(seed)]
    command += ["--canary"] if lies else []
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert worker.stdout is not None
    report, pipe = bytearray(), worker.stdout.fileno()
    try:
        if dice.random() > 0.15:  # else the power goes while it opens, or before
            report += os.read(pipe, 1 << 16)
        deadline = time.monotonic() + dice.uniform(0, 0.08)
        report += read_until(pipe, deadline)
        # What is reported from here on may be of the time after the cut: it is not believed.
        image.cut(dice.choice([LOG_FLUSH, NO_LOG_FLUSH]))
    finally:
        worker.kill()
        after = worker.stdout.read()
        worker.stdout.close()
        worker.wait()
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


def look(path: Path) -> tuple[list[tuple[int, bytes]], list[str]]:
    """What the store shows, and what it reports as damage; left as a crash would leave it."""
    script = (
        "import sys, os, pickle, qindex\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "import powercut\n"
        "store = qindex.open(sys.argv[1], **powercut.KNOBS); queue = store.queue('q')\n"
        "found = [(m.req_id, m.body) for m in queue.browse()]; store.check()\n"
        "damage = [str(f) for f in store.findings if f.severity == 'damage']\n"
        "sys.stdout.buffer.write(pickle.dumps((found, damage))); sys.stdout.flush(); os._exit(0)\n"
    )
    import pickle

    done = subprocess.run(
        [sys.executable, "-c", script, str(path), str(Path(__file__).parent)],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        raise AssertionError(done.stderr.decode()[-2000:])
    return pickle.loads(done.stdout)  # noqa: S301 - from our own child


def cut_power(kind: str, cuts: int, seed: int, lies: bool = False) -> str:
    """So many cuts of one file system. AssertionError if something is wrong."""
    dice = random.Random(seed)
    account, operations, begin = Account(), 0, time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="qindex-power-") as folder,
        file_system(kind, MEBIBYTES[kind], Path(folder)) as image,
    ):
        for number in range(cuts):
            operations += account.follow(one_life(image, seed * 1000 + number + 1, dice, lies))
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
    return f"{cuts} cuts survived, {rate:.1f} a second, {operations} operations"


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


def trials(names: list[str], cuts: int, seed: int) -> Iterator[tuple[str, bool, str]]:
    for name in names:
        kinds = ["ext4", "tmpfs"] if name == "full" else [name]
        for kind in kinds:
            label = f"full {kind}" if name == "full" else f"power cut {kind}"
            try:
                text = fill(kind) if name == "full" else cut_power(kind, cuts, seed)
                yield label, True, text
            except Impossible as why:
                yield label, True, f"NOT TRIED: {why}"
            except (AssertionError, qindex.QindexError) as error:
                yield label, False, str(error)


def canary(seed: int) -> int:
    try:
        said = cut_power("ext4", 40, seed, lies=True)
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
    parser.add_argument("what", nargs="*", choices=[*MEBIBYTES, "full", []], metavar="WHAT")
    parser.add_argument("--cuts", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--canary", action="store_true", help="a worker that lies must be noticed")
    parser.add_argument("--worker", nargs=2, metavar=("DIR", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        store = qindex.open(options.worker[0], **KNOBS)
        work(store, int(options.worker[1]), options.canary)
    if options.canary:
        return canary(options.seed)
    passed = True
    for label, good, text in trials(
        options.what or [*MEBIBYTES, "full"], options.cuts, options.seed
    ):
        print(f"{label}: {'' if good else 'FAILED: '}{text}", flush=True)
        passed &= good
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
