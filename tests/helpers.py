"""What tests share: small knobs, a crash, findings, files."""

import asyncio
import contextlib
import functools
import hashlib
import os
import resource
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import qindex
from qindex.cli.demo import hands as demo_run
from qindex.testing import SimulatedDisk
from qindex.testing import abandon as crash  # noqa: F401 - a crash, as the tests call it

DEMO_NODE = (
    Path(qindex.__file__).parent / "cli" / "demo" / "demo_node.tar.xz"
)  # a dead RabbitMQ node

# A few messages cross segments and flushes.
FEW = {"segment_entries": 16, "max_journal_entries": 24}

# Constants so small that twenty publishes cross segments, flushes and message files.
SMALL = {
    "segment_entries": 16,
    "max_journal_entries": 24,
    "embed_below": 64,
    "message_file_size": 4096,
    "idle": 3600,  # nothing happens on its own
}


def without_worker():
    """A disk for a store without a worker.

    Where that has the store's lock for a moment, a call of qindex.aio goes to a thread.
    """
    return SimulatedDisk(seed=1)


def unpack(archive, folder):
    """Unpack an archive of ours; return the folder."""
    demo_run.unpack(archive, folder)
    return folder


def in_child(use):
    """Run `use` in a forked child; what it returned or raised, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = repr(use())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, answer.encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer


def preloaded(folder: Path, shim: str) -> dict[str, str]:
    """An environment in which these functions in C come before those of the C library."""
    source, built = folder / "shim.c", folder / "shim.so"
    source.write_text(shim)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(built), str(source)], check=True)
    preload = [os.environ.get("LD_PRELOAD", ""), str(built)]  # a sanitizer comes first
    return os.environ | {"LD_PRELOAD": ":".join(filter(None, preload))}


def run_tool(tool, *arguments):
    """A module of tools/ as a command of its own. It takes as long as a busy machine needs."""
    command = [sys.executable, tool.__file__, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def twice(content: bytes) -> bytes:
    """store.meta or queue.meta: two copies, each in pages of its own."""
    return content.ljust(-len(content) // 4096 * -4096, b"\0") * 2


def damage(store: qindex.Store) -> list[str]:
    """Findings of severity damage so far, as text."""
    return [str(finding) for finding in store.findings if finding.severity == "damage"]


def content(store: qindex.Store) -> dict[str, list[tuple[int, bytes]]]:
    """Every message of every queue, in order."""
    return {
        name: [(message.req_id, message.body) for message in store.queue(name).browse()]
        for name in store.queues()
    }


def bodies(messages) -> list[bytes]:
    return [message.body for message in messages]


def ids(messages) -> list[int]:
    return [message.req_id for message in messages]


def asked_for(stats):
    """The figures that only calls change: the worker syncs, writes MARKs, flushes and cools."""
    names = ("ready", "unacked", "delayed", "dead", "bytes", "next_due", "next_req_id")
    return {name: getattr(stats, name) for name in names}


def queue_directory(root: str | os.PathLike[str], name: str) -> Path:
    """Where a queue lives: names never become paths."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16)
    return Path(root) / "queues" / digest.hexdigest()


def files_of(root: str | os.PathLike[str]) -> dict[str, bytes]:
    """Every file below, with its bytes. A live store may remove files meanwhile."""
    root, found = Path(root), {}
    for file in sorted(root.rglob("*")):
        if file.is_file() and not file.is_symlink():
            with contextlib.suppress(FileNotFoundError):
                found[str(file.relative_to(root))] = file.read_bytes()
    return found


def put_files(root: Path, files: dict[str, bytes]) -> None:
    """Write a tree that files_of() took."""
    for name, data in files.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def state(queue: qindex.Queue) -> tuple[int, ...]:
    """What a refused call must not change."""
    figures = queue.stats()
    return (figures.ready, figures.unacked, figures.dirty_count, figures.next_req_id)


LONG = 600  # seconds: a wait that something else is to end, longer than the test has PATIENCE
PATIENCE = 30


class Getter(threading.Thread):
    """Calls `get` in a thread; result() is what came of it."""

    def __init__(self, get):
        super().__init__(daemon=True)
        self._get, self._result, self._error = get, None, None
        self.start()

    def run(self):
        try:
            self._result = self._get()
        except BaseException as error:
            self._error = error

    def result(self):
        self.join(PATIENCE)
        assert not self.is_alive(), "it still waits"
        if self._error:
            raise self._error
        return self._result


def asleep(*getters):
    """Let them come to their wait. If it takes them longer, the test shows less, but is right."""
    for getter in getters:
        getter.join(0.02)


ON_A_LOOP = 30


def on_a_loop(test):
    """Run the test as a coroutine; it may take ON_A_LOOP seconds."""

    @functools.wraps(test)
    def run(*arguments, **fixtures):
        asyncio.run(asyncio.wait_for(test(*arguments, **fixtures), ON_A_LOOP))

    return run


async def settle(turns=20):
    """Let the other tasks come to where they wait."""
    for _ in range(turns):
        await asyncio.sleep(0)


def count_syncs(program, folder):
    """Run a program on a store; return how often it synced everything, and single files."""
    trace = folder / "trace"
    words = ["strace", "-f", "-e", "trace=fdatasync,fsync,syncfs", "-o", str(trace)]
    try:
        done = subprocess.run(
            [*words, sys.executable, "-c", textwrap.dedent(program), str(folder / "store")],
            capture_output=True,
            text=True,
            timeout=120,
        )
    except FileNotFoundError:
        pytest.skip("strace is not installed")
    if done.returncode != 0 and "ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    text = trace.read_text()
    if "syncfs" not in text or "EOPNOTSUPP" in text:
        pytest.skip("this file system has no sync of everything that tells of errors")
    return text.count("syncfs("), text.count("fdatasync(") + text.count("fsync(")


def run_with_limit(limit: int, program: str, *words: str) -> str:
    """Run a program that may have so many descriptors; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *words],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
