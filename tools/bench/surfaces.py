"""What the other ways to a queue cost on this machine: waiting, asyncio, the stand-ins.

    python tools/bench/surfaces.py --dir DIR        a table; --count says how many messages

Each figure is the median of --rounds rounds in one process, 100 bytes a message. run.py measures
the engine itself, queuelib_queues.py qindex.compat.queuelib.
"""

import argparse
import asyncio
import queue
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import qindex
import qindex.aio
import qindex.compat

BODY = b"x" * 100
Figures = dict[str, float]  # messages per second


def rate(count: int, work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return count / (time.perf_counter() - begin)


def repeat(count: int, call: Callable[..., object], *arguments: object) -> Callable[[], None]:
    def work() -> None:
        for _ in range(count):
            call(*arguments)

    return work


def waiting(folder: Path, count: int) -> Iterator[tuple[str, Figures]]:
    """Two threads that answer each other: each message is waited for."""
    with qindex.open(folder / "waiting") as store:
        there, back = store.queue("there"), store.queue("back")

        def answer() -> None:
            for _ in range(count):
                message = there.get(timeout=None)
                there.ack(message)
                back.publish(message.body)

        def ask() -> None:
            there.publish(BODY)
            back.ack(back.get(timeout=None))

        thread = threading.Thread(target=answer)
        thread.start()
        yield (
            "threads that wait for each other",
            {"there and back": rate(count, repeat(count, ask))},
        )
        thread.join()


async def aio(folder: Path, count: int) -> list[tuple[str, Figures]]:
    """The verbs one after the other in one task, then many confirms at a time."""

    async def timed(number: int, work: Awaitable[object]) -> float:
        begin = time.perf_counter()
        await work
        return number / (time.perf_counter() - begin)

    async with qindex.aio.open(folder / "aio") as store:
        jobs = await store.queue("jobs")
        taken: list[Any] = []

        async def put() -> None:
            for _ in range(count):
                await jobs.publish(BODY)

        async def take() -> None:
            while len(taken) < count:
                taken.append(await jobs.get())

        async def settle() -> None:
            for message in taken:
                await jobs.ack(message)

        async def confirm() -> None:
            await asyncio.gather(*(jobs.publish(BODY, confirm=True) for _ in range(1000)))

        one_by_one = {
            "in": await timed(count, put()),
            "out": await timed(count, take()),
            "ack": await timed(count, settle()),
        }
        confirmed = {"in": await timed(1000, confirm())}
    return [("qindex.aio", one_by_one), ("qindex.aio, 1000 confirms at a time", confirmed)]


HEADERS = {"lang": "py", "task": "add", "id": "0" * 36, "retries": 0}
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # of publish() and of get()
    "no options": ({}, {}),
    "four headers": ({"headers": HEADERS}, {}),
    "a lease": ({}, {"lease": 30}),
    "a ttl": ({"ttl": 3600}, {}),
    "events on": ({}, {}),
}


def with_options(folder: Path, count: int) -> Iterator[tuple[str, Figures]]:
    """What the options of most brokers cost, on both surfaces: a pair of rows for each."""
    for number, (name, (how, asked)) in enumerate(OPTIONS.items()):
        with qindex.open(folder / f"options{number}") as store:
            jobs = store.queue("jobs")
            listener = store.events() if name == "events on" else None

            def out(jobs: qindex.Queue = jobs, asked: dict[str, Any] = asked) -> None:
                for _ in range(count):
                    jobs.ack(jobs.get(**asked))  # type: ignore[arg-type]

            def put(jobs: qindex.Queue = jobs, how: dict[str, Any] = how) -> None:
                for _ in range(count):
                    jobs.publish(BODY, **how)

            yield f"qindex, {name}", {"in": rate(count, put), "out and ack": rate(count, out)}
            del listener
        yield (
            f"qindex.aio, {name}",
            asyncio.run(aio_with_options(folder / f"aio{number}", name, count)),
        )


async def aio_with_options(path: Path, name: str, count: int) -> Figures:
    how, asked = OPTIONS[name]
    async with qindex.aio.open(path) as store:
        jobs = await store.queue("jobs")
        listener = await store.events() if name == "events on" else None
        begin = time.perf_counter()
        for _ in range(count):
            await jobs.publish(BODY, **how)
        middle = time.perf_counter()
        for _ in range(count):
            await jobs.ack(await jobs.get(**asked))  # type: ignore[arg-type]
        end = time.perf_counter()
        del listener
    return {"in": count / (middle - begin), "out and ack": count / (end - middle)}


FANNED = ("jobs", "two", "three")
VERBS: dict[str, tuple[str, Callable[..., Any]]] = {  # what is needed before, and a call
    "touch": ("taken", lambda store, queue, some: queue.touch(some[0], 60)),
    "nack": ("taken", lambda store, queue, some: queue.nack(some[0])),
    "delayed nack": ("taken", lambda store, queue, some: queue.nack(some[0], delay=3600)),
    "store.ack": ("taken", lambda store, queue, some: store.ack(some[0])),
    "ack_many(10)": ("tens", lambda store, queue, some: queue.ack_many(some)),
    "to 3 queues": ("nothing", lambda store, queue, some: store.publish(FANNED, BODY)),
}


def parts(taken: list[Any], needs: str) -> list[list[Any]]:
    size = 10 if needs == "tens" else 1
    return [taken[i : i + size] for i in range(0, len(taken), size)]


def other_verbs(folder: Path, count: int) -> Iterator[tuple[str, Figures]]:
    """Calls a second of CPU, of all threads, on both surfaces: a pair of rows."""
    figures: Figures = {}
    with qindex.open(folder / "verbs") as store:
        store.create_queues(FANNED)
        for name in FANNED:
            store.queue(name)
        for verb, (needs, call) in VERBS.items():
            jobs = store.queue("jobs")
            jobs.purge()
            jobs.publish_many([BODY] * count)
            some = parts([jobs.get() for _ in range(count)], needs)
            begin = time.process_time()
            for part in some:
                call(store, jobs, part)
            figures[verb] = len(some) / (time.process_time() - begin)
    yield "qindex, the other verbs (CPU)", figures
    yield "qindex.aio, the other verbs (CPU)", asyncio.run(aio_other_verbs(folder, count))


async def aio_other_verbs(folder: Path, count: int) -> Figures:
    figures: Figures = {}
    async with qindex.aio.open(folder / "aio verbs") as store:
        await store.create_queues(FANNED)
        for name in FANNED:
            await store.queue(name)
        for verb, (needs, call) in VERBS.items():
            jobs = await store.queue("jobs")
            await jobs.purge()
            await jobs.publish_many([BODY] * count)
            some = parts([await jobs.get() for _ in range(count)], needs)
            begin = time.process_time()
            for part in some:
                await call(store, jobs, part)
            figures[verb] = len(some) / (time.process_time() - begin)
    return figures


def put_and_get(name: str, count: int, put: Any, get: Any) -> tuple[str, Figures]:
    return name, {
        "in": rate(count, repeat(count, put, BODY)),
        "out": rate(count, repeat(count, get)),
    }


def standard(folder: Path, count: int) -> Iterator[tuple[str, Figures]]:
    plain: queue.Queue[bytes] = queue.Queue()
    yield put_and_get("queue.Queue (memory)", count, plain.put, plain.get)
    for kind in (qindex.compat.Queue, qindex.compat.LifoQueue):
        with kind(folder / kind.__name__) as items:
            yield put_and_get(f"qindex.compat.{kind.__name__}", count, items.put, items.get)


def one_round(folder: Path, count: int) -> Iterator[tuple[str, Figures]]:
    yield from waiting(folder, min(count, 2000))
    yield from asyncio.run(aio(folder, count))
    yield from with_options(folder, count)
    yield from other_verbs(folder, count)
    yield from standard(folder, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", help="a folder on the disk to measure (the temporary one)")
    parser.add_argument("--count", type=int, default=50_000, help="messages (50,000)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rounds: dict[str, list[Figures]] = {}
    for _ in range(options.rounds):
        folder = Path(tempfile.mkdtemp(prefix="qindex-surfaces-", dir=options.dir))
        try:
            for name, figures in one_round(folder, options.count):
                rounds.setdefault(name, []).append(figures)
        finally:
            shutil.rmtree(folder)
    print(f"{'messages per second':<40} figures")
    for name, found in rounds.items():
        medians = {key: statistics.median(each[key] for each in found) for key in found[0]}
        print(f"{name:<40} " + "  ".join(f"{key} {value:>9,.0f}" for key, value in medians.items()))


if __name__ == "__main__":
    main()
