"""The works with many queues in one store, at 256 open files: `count` is the number of queues."""

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from loops import Figures, Job

OPEN_FILES = 256  # as ulimit -n 256 sets
TURNS = 3


@contextmanager
def open_files_at_most(count: int) -> Iterator[None]:
    """The process's limit, taken back afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def seconds_of(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only their number


def names(job: Job) -> list[str]:
    return [f"queue {i}" for i in range(job.count)]


def open_store(job: Job) -> Any:
    return import_module("qindex").open(Path(job.directory) / "store")


def queues_fill(job: Job) -> Figures:
    """Create them, publish to each in turn, get one of each, close.

    Memory is what the process has got more by it, handles in Python included.
    """
    body = job.bodies(1)[0]
    with open_files_at_most(OPEN_FILES):
        store = open_store(job)
        before = resident_bytes()
        create_s = seconds_of(lambda: store.create_queues(names(job)))
        queues = [store.queue(name) for name in names(job)]

        def publish() -> None:
            for _ in range(TURNS):
                for queue in queues:
                    queue.publish(body)

        def get() -> None:
            for queue in queues:
                queue.ack(queue.get())

        figures: Figures = {
            "queues_create": job.count / create_s,
            "queues_publish": TURNS * job.count / seconds_of(publish),
            "queues_descriptors": descriptors(),
            "queues_get": job.count / seconds_of(get),
            "queues_memory": (resident_bytes() - before) / job.count,
            "queues_close_ms": seconds_of(store.close) * 1e3,
        }
    return figures


def queues_reopen(job: Job) -> Figures:
    """Open the store in a new process, and get one message of each queue."""
    with open_files_at_most(OPEN_FILES):
        start = time.perf_counter()
        store = open_store(job)
        opened_s = time.perf_counter() - start

        def use() -> None:
            for name in names(job):
                queue = store.queue(name)
                queue.ack(queue.get())

        figures: Figures = {
            "queues_reopen_ms": opened_s * 1e3,
            "queues_first_use": job.count / seconds_of(use),
        }
        figures["queues_close_again_ms"] = seconds_of(store.close) * 1e3
    return figures


def queues_kill(job: Job) -> Figures:
    """Publish to each, and leave the files as a kill does: all is in the cache, much not synced."""
    body = job.bodies(1)[0]
    with open_files_at_most(OPEN_FILES):
        store = open_store(job)
        for name in names(job):
            store.queue(name).publish(body)
        import_module("qindex.testing").abandon(store)
    return {}


def queues_after_kill(job: Job) -> Figures:
    """Open what the kill left, and get one message of each queue."""
    reopened = queues_reopen(job)
    return {
        "queues_killed_open_ms": reopened["queues_reopen_ms"],
        "queues_killed_first_use": reopened["queues_first_use"],
    }


WORKS: dict[str, Callable[[Job], Figures]] = {
    "queues_fill": queues_fill,
    "queues_reopen": queues_reopen,
    "queues_kill": queues_kill,
    "queues_after_kill": queues_after_kill,
}
