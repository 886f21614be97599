"""The works: plain loops around a system's verbs, each run in a process of its own.

run.py starts `python works.py JOB` for every measurement (JOB is JSON, see Job), so that no system
inherits another's memory, threads or garbage, and so that a work may kill itself. The last line of
standard output is the result: a JSON object of figures.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import works_bodies
import works_format2
import works_many
import works_queues
from floor import Floor
from loops import (
    Figures,
    Job,
    cycle_each,
    expect_empty,
    get_and_ack_batch,
    get_and_ack_each,
    publish_batch,
    publish_each,
    spend,
    timed,
)
from systems import index_alone_bulk, registry

CYCLE_DEPTH = 1000
CYCLE_BYTES = 64 << 20  # a queue of long bodies is less deep
BATCH = 100
SYNC_BATCH = 1000
FILL_BATCH = 1000
INDEX_BATCH = 4096
IN_MEMORY = "/dev/shm"  # noqa: S108 - the file system; what is made there is made safely
FLUSH_BATCH = 65536  # the entries that make a flush due
FLOORS = {"floor": "append_fresh", "floor-recycled": "append_recycled"}


# The works: a fresh directory in, figures out.


def single(job: Job) -> Figures:
    if job.system in FLOORS:
        rates = Floor(Path(job.floor_library), Path(job.directory)).append_and_read(
            job.count, job.bodies(1)[0]
        )
        return {"publish": rates[FLOORS[job.system]], "get_ack": rates["read"]}
    system = job.open()
    # Small steps, so that a system of a thousand messages a second stops in time.
    bodies = job.bodies(100)
    published = spend(publish_each(system, bodies), job.count, job.seconds_max)
    drained = spend(get_and_ack_each(system, 100), published.done, job.seconds_max)
    expect_empty(system, published.done, drained.done)
    system.close()
    rates = {**published.rates("publish"), **drained.rates("get_ack")}
    return {**rates, "messages": published.done}


def cycle(job: Job) -> Figures:
    if job.system in FLOORS:
        floor = Floor(Path(job.floor_library), Path(job.directory))
        return {"cycle": floor.cycle(job.count, CYCLE_DEPTH, job.bodies(1)[0])}
    system = job.open()
    bodies = job.bodies(100)
    depth = min(CYCLE_DEPTH, CYCLE_BYTES // job.body_bytes)
    timed(publish_each(system, bodies[:depth]), depth, float("inf"))
    spent = spend(cycle_each(system, bodies), job.count, job.seconds_max)
    system.close()
    return {**spent.rates("cycle"), "messages": spent.done}


def batches(job: Job) -> Figures:
    if job.system in FLOORS:
        floor = Floor(Path(job.floor_library), Path(job.directory))
        body = job.bodies(1)[0]
        return {"batch_publish": floor.flush(FLUSH_BATCH, job.count, job.seconds_max, body)}
    system = job.open()
    step = publish_batch(system, job.bodies(BATCH))
    published = spend(step, job.count, job.seconds_max)
    drained = spend(get_and_ack_batch(system, BATCH), published.done, job.seconds_max)
    expect_empty(system, published.done, drained.done)
    system.close()
    rates = {**published.rates("batch_publish"), **drained.rates("batch_get_ack")}
    return {**rates, "messages": published.done}


def batches_in_memory(job: Job) -> Figures:
    """The same without a disk below, on Linux: what is missing there is the engine's."""
    if not os.access(IN_MEMORY, os.W_OK) or shutil.disk_usage(IN_MEMORY).free < 1 << 30:
        return {}
    with tempfile.TemporaryDirectory(prefix="qindex-bench-", dir=IN_MEMORY) as directory:
        figures = batches(replace(job, directory=directory))
    return {f"memory_{name}": value for name, value in figures.items()}


def index_alone(job: Job) -> Figures:
    count = max(job.count // INDEX_BATCH, 1) * INDEX_BATCH
    figures: Figures = {"messages": count}
    for figure, deep in (("index_bulk", False), ("index_bulk_deep", True)):
        directory = Path(job.directory) / figure
        directory.mkdir()
        figures[figure] = count / index_alone_bulk(directory, count, INDEX_BATCH, deep=deep)
    return figures


def durable(job: Job) -> Figures:
    if job.system in FLOORS:
        floor = Floor(Path(job.floor_library), Path(job.directory))
        return {
            "sync_each": floor.sync_each(job.count, job.seconds_max),
            "sync_batch": floor.sync_batches(
                SYNC_BATCH, job.count, job.seconds_max, job.bodies(1)[0]
            ),
        }
    system = job.open(durable=True)
    body = job.bodies(1)[0]

    def publish_durably() -> int:
        system.publish_durably(body)
        return 1

    each, each_s = timed(publish_durably, job.count, job.seconds_max)
    bodies = job.bodies(SYNC_BATCH)
    # Where every commit is a sync, a thousand messages per sync are one transaction.
    publish = publish_batch if system.commit_is_sync else publish_each
    publish_thousand = publish(system, bodies)

    def publish_thousand_and_sync() -> int:
        done = publish_thousand()
        system.sync()
        return done

    batch, batch_s = timed(publish_thousand_and_sync, job.count, job.seconds_max)
    system.close()
    return {"sync_each": each / each_s, "sync_batch": batch / batch_s}


# Kill -9. A work that ends in die() prints its figures first.


def die(figures: Figures) -> NoReturn:
    print(json.dumps(figures), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL came back")


def numbered_body(number: int, body_bytes: int) -> bytes:
    return b"%012d" % number + bytes(body_bytes - 12)


def kill9_fill(job: Job) -> NoReturn:
    """Publish one by one, ack the first quarter, die at once."""
    system = job.open()
    published, seconds, start = 0, 0.0, time.perf_counter()
    while published < job.count and seconds < job.seconds_max:
        system.publish(numbered_body(published, job.body_bytes))
        published += 1
        seconds = time.perf_counter() - start
    acked = published // 4
    for _ in range(acked):
        message = system.get()
        if system.ack is not None:
            system.ack(message)
    die({"kill9_published": published, "kill9_acked": acked})


def kill9_read(job: Job) -> Figures:
    """Open what the dead process left and drain it; `count` is not used."""
    system = job.open()
    numbers: list[int] = []
    altered = 0
    while (message := system.get()) is not None:
        body = system.body(message)
        number = int(body[:12])
        altered += body != numbered_body(number, job.body_bytes)
        numbers.append(number)
        if system.ack is not None:
            system.ack(message)
    figures = {"kill9_back": float(len(set(numbers))), "kill9_altered": float(altered)}
    figures["kill9_first"] = float(numbers[0]) if numbers else -1.0
    figures["kill9_in_order"] = float(numbers == sorted(set(numbers)))
    system.close()
    return figures


def waiting_fill(job: Job) -> NoReturn:
    """Leave `count` messages, the journal as full as it gets; say what that costs; die."""
    system = job.open()
    filled, _ = timed(publish_batch(system, job.bodies(FILL_BATCH)), job.count, job.seconds_max)
    if filled < job.count:
        die({"filled": filled})  # Too slow to say anything about so many.
    filled += system.fill_journal(job.bodies(1)[0])
    figures = {"filled": filled, **memory_mb("rss_filled")}
    die({**figures, "disk_per_message": disk_bytes(job.directory) / filled})


def waiting_reopen(job: Job) -> Figures:
    """From open() to the first message, then what the process holds with some messages read."""
    warm_up(job)
    start = time.perf_counter()
    system = job.open()
    message = system.get()
    seconds = time.perf_counter() - start
    if message is None or len(system.body(message)) != job.body_bytes:
        # queuelib as it is comes back empty: an empty queue's opening time is no figure.
        return {}
    system.get_many(1000)
    return {"reopen_ms": seconds * 1e3, **memory_mb("rss_reopened")}


def reopen_floor(job: Job) -> Figures:
    floor = Floor(Path(job.floor_library), Path(job.directory))
    return {"reopen_ms_1m": floor.reopen_ms(job.count, job.bodies(1)[0])}


def bodies_floor(job: Job) -> Figures:
    """The same for one call each and for batches: the floor has no calls to save. A cycle is one
    write and one read."""
    floor = Floor(Path(job.floor_library), Path(job.directory))
    rates = floor.bodies(job.count, job.bodies(1)[0])
    batches = {f"batch_{name}": rate for name, rate in rates.items()}
    cycles = {
        f"{figure}{clock}": 1 / (1 / rates[f"publish{clock}"] + 1 / rates[f"get_ack{clock}"])
        for clock in ("", "_cpu")
        for figure in ("cycle", "headers", "leased")
    }
    return rates | batches | cycles


def warm_up(job: Job) -> None:
    """Open and close an empty queue elsewhere, so that imports are done before the clock starts."""
    elsewhere = Path(job.directory) / "warm-up"
    elsewhere.mkdir()
    registry()[job.system](elsewhere).close()


def compaction(job: Job) -> Figures:
    """Publish, ack a random half, compact: disk against the bytes that still live."""
    system = job.open()
    published, _ = timed(publish_batch(system, job.bodies(FILL_BATCH)), job.count, job.seconds_max)
    chance = random.Random(1)
    kept = seen = 0
    while seen < published:
        messages = system.get_many(FILL_BATCH)  # of long ones, some systems give fewer in one call
        seen += len(messages)
        finished = [message for message in messages if chance.random() < 0.5]
        kept += len(messages) - len(finished)
        system.ack_many(finished)
    before = disk_bytes(job.directory)
    start = time.perf_counter()
    system.compact()
    seconds = time.perf_counter() - start
    live_bytes = kept * job.body_bytes
    figures = {
        "disk_before_compaction": before / live_bytes,
        "disk_after_compaction": disk_bytes(job.directory) / live_bytes,
        "compaction_s": seconds,
        "messages": published,
    }
    system.close()
    return figures


def memory_mb(prefix: str) -> Figures:
    """Resident memory of this process, Python and mapped files included, in MB (10^6 bytes)."""
    kib: dict[str, int] = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        field, _, value = line.partition(":")
        if field in ("VmRSS", "VmHWM", "RssAnon", "RssFile"):
            kib[field] = int(value.split()[0])
    return {
        f"{prefix}_mb": kib["VmRSS"] * 1024 / 1e6,
        f"{prefix}_peak_mb": kib["VmHWM"] * 1024 / 1e6,
        f"{prefix}_anonymous_mb": kib["RssAnon"] * 1024 / 1e6,
        f"{prefix}_file_mb": kib["RssFile"] * 1024 / 1e6,
    }


def disk_bytes(directory: str) -> float:
    """What the directory takes on disk: allocated blocks, preallocation included."""
    files = (Path(parent) / name for parent, _, names in os.walk(directory) for name in names)
    return float(sum(path.stat().st_blocks * 512 for path in files))


WORKS: dict[str, Callable[[Job], Figures]] = {
    "single": single,
    "cycle": cycle,
    "batches": batches,
    "batches_in_memory": batches_in_memory,
    "index_alone": index_alone,
    "durable": durable,
    "kill9_fill": kill9_fill,
    "kill9_read": kill9_read,
    "waiting_fill": waiting_fill,
    "waiting_reopen": waiting_reopen,
    "reopen_floor": reopen_floor,
    "bodies_floor": bodies_floor,
    "compaction": compaction,
    **works_bodies.WORKS,
    **works_queues.WORKS,
    **works_many.WORKS,
    **works_format2.WORKS,
}


def main(arguments: list[str]) -> int:
    job_fields: dict[str, Any] = json.loads(arguments[0])
    job = Job(**job_fields)
    print(json.dumps(WORKS[job.work](job)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
