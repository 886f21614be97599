"""The works for what stores of format 2 add: one sync for many queues, transactions, moves."""

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import cycle, islice, repeat
from pathlib import Path
from typing import Any

from loops import Figures, Job, spend

SPREAD = (1, 10, 100, 1000, 10_000)  # queues
PER_SYNC = 1000  # messages
CREATORS = 64  # threads that create queues at once
CONFIRMS = 20  # in a block, beside as many raw fdatasyncs


def open_store(job: Job, name: str = "store", **options: Any) -> Any:
    return import_module("qindex").open(Path(job.directory) / name, format=2, **options)


def spread(job: Job) -> Figures:
    """Publish 1000 messages in turn to N queues, and sync(): durable messages a second.

    Figures ending in _ms are of the median sync(), the worst in _worst_ms.
    """
    figures: Figures = {}
    body = job.bodies(1)[0]
    for count in SPREAD:
        if count > 10 * job.count:
            break
        store = open_store(job, f"spread {count}")
        names = [f"queue {i}" for i in range(count)]
        store.create_queues(names)
        turns = cycle([store.queue(name).publish for name in names])
        syncs: list[float] = []

        def step(turns: Any = turns, store: Any = store, syncs: list[float] = syncs) -> int:
            for publish in islice(turns, PER_SYNC):
                publish(body)
            start = time.perf_counter()
            store.sync()
            syncs.append(time.perf_counter() - start)
            return PER_SYNC

        step()
        del syncs[:]
        figures |= spend(step, job.count, job.seconds_max).rates(f"spread_{count}")
        figures[f"spread_{count}_ms"] = statistics.median(syncs) * 1e3
        figures[f"spread_{count}_worst_ms"] = max(syncs) * 1e3
        store.close()
    return figures


def transactions(job: Job) -> Figures:
    """Two publishes and an ack in three queues, committed together; without a confirm."""
    store = open_store(job)
    body = job.bodies(1)[0]
    orders = store.queue("orders")
    store.create_queues(["invoices", "audit"])
    orders.publish_many([body] * job.count)

    def step() -> int:
        for _ in repeat(None, 10):
            order = orders.get()
            with store.transaction() as t:
                t.publish("invoices", body)
                t.publish("audit", body)
                t.ack(order)
        return 10

    figures = spend(step, job.count, job.seconds_max).rates("transactions")
    store.close()
    return figures


def moves(job: Job) -> Figures:
    """Get a message and move it to another queue: one by one, and 100 at a time."""
    store = open_store(job)
    body = job.bodies(1)[0]
    source = store.queue("source")
    store.create_queues(["target"])
    source.publish_many([body] * job.count)

    def one() -> int:
        store.move([source.get()], to="target")
        return 1

    def many() -> int:
        return len(store.move(source.get_many(100), to="target"))

    half = job.count // 2
    figures = spend(one, half, job.seconds_max).rates("moves")
    figures |= spend(many, half // 100 * 100, job.seconds_max).rates("moves_100")
    store.close()
    return figures


def mixed(job: Job) -> Figures:
    """1000 messages, each of its own kind, to 100 queues: one call, and one call for each."""
    outgoing = import_module("qindex").Outgoing
    store = open_store(job)
    body = job.bodies(1)[0]
    names = [f"queue {i}" for i in range(100)]
    store.create_queues(names)
    batch = [
        outgoing(names[i % 100], body, priority=i % 3, headers={"n": i}) for i in range(PER_SYNC)
    ]

    def together() -> int:
        return len(store.publish_many(batch))

    def each() -> int:
        for one in batch:
            store.queue(one.queue).publish(one.body, priority=one.priority, headers=one.headers)
        return len(batch)

    figures = spend(together, job.count, job.seconds_max).rates("mixed")
    figures |= spend(each, job.count, job.seconds_max).rates("mixed_each")
    store.close()
    return figures


def aio_confirm(job: Job) -> Figures:
    """One message at a time, confirmed one by one, in blocks beside raw fdatasyncs.

    The share is of the medians, since other programs' syncs make single ones slow.
    """
    seconds: dict[str, list[float]] = {"raw": [], "aio": []}
    body, block = job.bodies(1)[0], os.urandom(4096)
    path = Path(job.directory) / "raw"
    path.write_bytes(bytes(4 << 20))
    raw = os.open(path, os.O_RDWR)
    os.fsync(raw)

    async def main() -> None:
        aio = import_module("qindex.aio")
        async with await aio.open(Path(job.directory) / "store", format=2) as store:
            queue = await store.queue("bench")
            until = time.perf_counter() + job.seconds_max
            while time.perf_counter() < until or not seconds["aio"]:
                for number in range(CONFIRMS):
                    start = time.perf_counter()
                    os.pwrite(raw, block, number * 4096)
                    os.fdatasync(raw)
                    seconds["raw"].append(time.perf_counter() - start)
                for _ in range(CONFIRMS):
                    start = time.perf_counter()
                    await queue.publish(body, confirm=True)
                    seconds["aio"].append(time.perf_counter() - start)

    asyncio.run(main())
    os.close(raw)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        "aio_confirm": 1 / medians["aio"],
        "aio_confirm_share": medians["raw"] / medians["aio"],
    }


def created(job: Job) -> Figures:
    """Store.queue() of queues that are not there, each durable: by 64 threads, and by one."""
    store = open_store(job)

    def create(thread: int, count: int) -> None:
        for number in range(count):
            store.queue(f"{thread} {number}")

    each = max(1, job.count // CREATORS)
    with ThreadPoolExecutor(CREATORS) as pool:
        start = time.perf_counter()
        list(pool.map(create, range(CREATORS), repeat(each)))
        at_once_s = time.perf_counter() - start
    start = time.perf_counter()
    create(CREATORS, each)
    alone_s = time.perf_counter() - start
    store.close()
    return {"created": each * CREATORS / at_once_s, "created_alone": each / alone_s}


def dirty_kill(job: Job) -> Figures:
    """Create queues, publish to each, and leave the files as a kill does: all of them are dirty."""
    body = job.bodies(1)[0]
    store = open_store(job)
    names = [f"queue {i}" for i in range(job.count)]
    start = time.perf_counter()
    store.create_queues(names)
    create_s = time.perf_counter() - start
    for name in names:
        store.queue(name).publish(body)
    import_module("qindex.testing").abandon(store)
    return {"dirty_create": job.count / create_s}


def dirty_open(job: Job) -> Figures:
    """Open what the kill left; then the first get of one queue."""
    cpu, start = time.process_time(), time.perf_counter()
    store = open_store(job)
    opened, used = time.perf_counter() - start, time.process_time() - cpu
    first = store.queue("queue 0").get()
    first_s = time.perf_counter() - start
    if first is None:
        raise AssertionError("a message that was published is not there")
    store.close()
    return {
        "dirty_open_ms": opened * 1e3,
        "dirty_open_cpu_ms": used * 1e3,
        "dirty_first_ms": first_s * 1e3,
    }


WORKS: dict[str, Callable[[Job], Figures]] = {
    "spread": spread,
    "transactions": transactions,
    "moves": moves,
    "mixed": mixed,
    "aio_confirm": aio_confirm,
    "created": created,
    "dirty_kill": dirty_kill,
    "dirty_open": dirty_open,
}
