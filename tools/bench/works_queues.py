"""The works for what a queue does besides first in, first out (docs/guide/). works.py runs them."""

import asyncio
import random
import time
from collections.abc import Callable
from itertools import islice, repeat
from pathlib import Path

from loops import Figures, Job, expect_empty, get_and_ack_first, publish_batch, timed
from systems import Qindex, System, aio_cycles

BATCH = 100
HOUR = 3600.0
PRIORITIES = 8
CHECKED = 1000  # messages whose order is looked at


def delay_fill(job: Job) -> Figures:
    """Publish at random times within an hour: the one before now, so that all can be got."""
    system, chance = job.open(), random.Random(1)
    publish, begin = system.publish_due, time.time() - HOUR
    dues = [round(begin + chance.random() * HOUR, 6) for _ in range(job.count)]
    padding = bytes(job.body_bytes - 20)
    left = iter([(b"%020d" % round(due * 1e6) + padding, due) for due in dues])

    def step() -> int:
        done = 0
        for body, due in islice(left, 100):
            publish(body, due=due)
            done += 1
        return done

    filled, seconds = timed(step, job.count, job.seconds_max)
    system.close()
    return {"delay_publish": filled / seconds, "filled": filled}


def delay_drain(job: Job) -> Figures:
    """Get them by their times, in a process that has read nothing yet."""
    system = job.open()
    expect_sorted(system, lambda body: int(body[:20]))
    drained, seconds = timed(get_and_ack_first(system, 100), job.count - CHECKED, job.seconds_max)
    system.close()
    return {"delay_get_ack": drained / seconds}


def priority(job: Job) -> Figures:
    system = job.open()
    publish = system.publish_priority
    bodies = [bytes([255 - n]) + body[1:] for n, body in enumerate(job.bodies(PRIORITIES))]

    def step() -> int:
        for _ in repeat(None, 100):
            for number, body in enumerate(bodies):
                publish(body, priority=number)
        return 100 * PRIORITIES

    published, publish_s = timed(step, job.count, job.seconds_max)
    expect_sorted(system, lambda body: body[0])
    left = (published - CHECKED) // 100 * 100
    drained, get_s = timed(get_and_ack_first(system, 100), left, job.seconds_max)
    system.close()
    return {"priority_publish": published / publish_s, "priority_get_ack": drained / get_s}


def expect_sorted(system: System, key: Callable[[bytes], int]) -> None:
    """The first thousand come in their order; they are taken."""
    messages = []
    for _ in range(CHECKED):
        messages.append(system.get_first())
        system.ack_first(messages[-1])
    keys = [key(system.body(message)) for message in messages]
    if keys != sorted(keys):
        raise AssertionError(f"{system.name} gave messages out of order")


def lease(job: Job) -> Figures:
    system = Qindex(Path(job.directory))
    get, ack = system.queue.get, system.queue.ack
    published, _ = timed(publish_batch(system, job.bodies(BATCH)), job.count, job.seconds_max)

    def step() -> int:
        for _ in repeat(None, 100):
            ack(get(lease=30))
        return 100

    drained, seconds = timed(step, published, job.seconds_max)
    expect_empty(system, published, drained)
    system.close()
    return {"lease_get_ack": drained / seconds}


def dead_letters(job: Job) -> Figures:
    """Reject them one by one, then take all back."""
    system = Qindex(Path(job.directory))
    queue = system.store.queue("bench", dead_letters=True)
    get, nack = queue.get, queue.nack
    published, _ = timed(publish_batch(system, job.bodies(BATCH)), job.count, job.seconds_max)

    def step() -> int:
        for _ in repeat(None, 100):
            nack(get(), requeue=False)
        return 100

    dead, seconds = timed(step, published, job.seconds_max)
    back, redrive_s = timed(queue.redrive, dead, job.seconds_max)
    if back != dead:
        raise AssertionError(f"{dead} were rejected, {back} came back")
    system.close()
    return {"dead_reject": dead / seconds, "dead_redrive": back / redrive_s}


def aio(job: Job) -> Figures:
    seconds = asyncio.run(aio_cycles(Path(job.directory), job.bodies(1)[0], job.count))
    return {"aio_cycle": job.count / seconds}


WORKS: dict[str, Callable[[Job], Figures]] = {
    "delay_fill": delay_fill,
    "delay_drain": delay_drain,
    "priority": priority,
    "lease": lease,
    "dead_letters": dead_letters,
    "aio": aio,
}
