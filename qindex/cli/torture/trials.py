"""The trials of `qindex torture` that are not the kill loop: each takes a folder of its own.

A trial returns a line about what it saw, or raises: Broken if the engine broke a promise,
NotPossible if this system does not allow the trial.
"""

from __future__ import annotations

import hashlib
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import qindex
from qindex.cli.torture.kill import child_environment, damage
from qindex.cli.torture.ledger import Broken, require

FILE_SIZE_LIMIT: Final = 4 << 20
BODY: Final = b"b" * 5000
CHILD_SECONDS: Final = 60


class NotPossible(Exception):
    """This system does not allow it; says why."""


def two_openers(folder: Path) -> str:
    """A second writer is refused, here and in another process; a reader is welcome."""
    with qindex.open(folder / "store") as store:
        store.queue("a").publish(b"first")
        _refused(folder / "store")
        script = (
            "import sys, qindex\n"
            "try: qindex.open(sys.argv[1])\n"
            "except qindex.StoreLocked: print('locked')\n"
        )
        said = _child(script, str(folder / "store"))
        require(said == "locked", f"another process opened the store too: {said!r}")
        with qindex.open(folder / "store", read_only=True) as reader:
            bodies = [message.body for message in reader.queue("a").browse()]
        require(bodies == [b"first"], "a reader beside the writer does not see the message")
        _refused(folder / "store")  # the reader's close did not drop the lock
        store.queue("a").publish(b"second")
    return "a second writer is refused in this process and in another; a reader is not"


def _refused(path: Path) -> None:
    try:
        second = qindex.open(path)
    except qindex.StoreLocked:
        return
    second.close()
    raise Broken("a second writer opened the store in the same process")


def fork(folder: Path) -> str:
    """A forked child may not use the parent's store, and its end takes no lock away."""
    script = (
        "import os, sys, qindex\n"
        "store = qindex.open(sys.argv[1]); queue = store.queue('a'); queue.publish(b'parent')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try: queue.publish(b'child'); os._exit(3)\n"
        "    except qindex.QindexError: store.close(); os._exit(0)\n"
        "code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "queue.publish(b'parent again')\n"
        "try: qindex.open(sys.argv[1]); print('the lock was lost')\n"
        "except qindex.StoreLocked: print(code, [m.body for m in queue.browse()])\n"
    )
    said = _child(script, str(folder / "store"))
    require(said == "0 [b'parent', b'parent again']", f"after a fork: {said}")
    return "the child's use raises; the parent keeps its lock and goes on"


def disk_full(folder: Path) -> str:
    """A limit on the size of files stands for a full disk: an error, nothing lost, acks go on."""
    script = (
        "import os, sys, resource, signal, qindex\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "size = int(sys.argv[2])\n"
        "store = qindex.open(sys.argv[1], embed_below=0); queue = store.queue('a')\n"
        "queue.publish(b'b' * 5000, confirm=True)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))\n"
        "count, error = 1, None\n"
        "while error is None and count < 20000:\n"
        "    try: queue.publish(b'b' * 5000); count += 1\n"
        "    except (qindex.QindexError, OSError) as e: error = e\n"
        "print(count, type(error).__name__, flush=True)\n"
        "os._exit(0)\n"
    )
    said = _child(script, str(folder / "store"), str(FILE_SIZE_LIMIT)).split()
    require(len(said) == 2 and said[1] != "NoneType", f"no limit was felt: {said}")
    count = int(said[0])
    with qindex.open(folder / "store") as store:
        queue = store.queue("a")
        require(len(queue) == count, f"{count} were published, {len(queue)} are there")
        store.check()
        require(not damage(store), f"damage: {damage(store)}")
        while batch := queue.get_many(500):
            require(all(m.body == BODY for m in batch), "a body was altered")
            queue.ack_many(batch)
        require(len(queue) == 0, "acks did not empty the queue")
    return f"at {FILE_SIZE_LIMIT >> 20} MiB a publish raises {said[1]}; all {count} before it stay"


def readers_change_nothing(folder: Path) -> str:
    """Looking at a store that was not closed leaves every byte as it was."""
    script = (
        "import os, sys, qindex\n"
        "store = qindex.open(sys.argv[1]); queue = store.queue('a')\n"
        "queue.publish_many([b'x' * (i % 7000) for i in range(300)])\n"
        "queue.ack_many(queue.get_many(100)); store.sync(); os._exit(0)\n"
    )
    _child(script, str(folder / "store"))
    before = _digests(folder / "store")
    with qindex.open(folder / "store", read_only=True) as reader:
        count = sum(1 for _ in reader.queue("a").browse())
        reader.check()
        require(not damage(reader), f"damage: {damage(reader)}")
    require(count == 200, f"200 messages were left, a reader sees {count}")
    require(_digests(folder / "store") == before, "a reader changed a file")
    return f"{len(before)} files of a store that was not closed: the same bytes before and after"


def _digests(root: Path) -> dict[str, str]:
    files = sorted(file for file in root.rglob("*") if file.is_file())
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _child(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, *arguments],
        capture_output=True,
        text=True,
        env=child_environment(),
        timeout=CHILD_SECONDS,
    )
    if done.returncode == -signal.SIGBUS:
        raise Broken("the process died of SIGBUS: an I/O error must be an exception")
    require(done.returncode == 0, f"exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


def open_files(folder: Path) -> str:
    """With no file descriptor left an open is an error, and the next one works."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with qindex.open(folder / "store") as store:
        store.queue("a").publish(b"x")
    opened = Path("/proc/self/fd")
    if not opened.is_dir():
        raise NotPossible(f"{opened} is not there to count open files")
    used = len(list(opened.iterdir())) - 1  # one is the listing itself
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
        try:
            qindex.open(folder / "store").close()
        except (qindex.QindexError, OSError) as error:
            said = type(error).__name__
        else:
            raise Broken("a store was opened without a file descriptor")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with qindex.open(folder / "store") as store:
        require(len(store.queue("a")) == 1, "the message is gone")
    return f"an open raises {said}, the next one works"


TRIALS: Final[dict[str, Callable[[Path], str]]] = {
    "two openers": two_openers,
    "fork": fork,
    "no space": disk_full,
    "no file descriptors": open_files,
    "readers": readers_change_nothing,
}

# What needs root, a disk of its own or another clock, and where it is tried instead.
NOT_HERE: Final = {
    "power cut": "needs root and a disk of its own: tools/disks.py cut",
    "failing sync": "needs a disk that fails: tests/unit/test_failing_disk.py",
    "full disk": "would fill yours: tools/disks.py full fills an image of 4 MB",
    "clock set back": "needs root: tests/unit/test_rules_h15_to_h21.py moves the clock in the file",
}
