"""Works about bodies: messages with headers or leases, and what is written for each byte."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from loops import Figures, Job, spend, timed
from systems import System

DEPTH, DEPTH_BYTES = 1000, 64 << 20  # that wait meanwhile; fewer of long ones
BATCH = 100
HEADERS: dict[str, Any] = {
    "type": "order.created",
    "tenant": 4711,
    "trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "retry": False,
    "amount": 12.5,
}


def turns(job: Job, figure: str, publish: Callable[[System], Callable[[bytes], object]]) -> Figures:
    """Publish, get and ack in turn, with messages that wait."""
    system = job.open()
    put, ack = publish(system), system.ack
    take = system.get_with_headers if figure == "headers" else system.get_leased
    bodies = job.bodies(100)

    def fill() -> int:
        for body in bodies:
            put(body)
        return len(bodies)

    def step() -> int:
        for body in bodies:
            put(body)
            message = take()
            if ack is not None:
                ack(message)
        return len(bodies)

    timed(fill, min(DEPTH, DEPTH_BYTES // job.body_bytes), float("inf"))
    spent = spend(step, job.count, job.seconds_max)
    system.close()
    return {**spent.rates(figure), "messages": spent.done}


def headers(job: Job) -> Figures:
    """Where a package has no headers, they stand in front of the body."""
    return turns(
        job, "headers", lambda system: lambda body: system.publish_with_headers(body, HEADERS)
    )


def leased(job: Job) -> Figures:
    """Where a package has no leases, as without one."""
    return turns(job, "leased", lambda system: system.publish)


def written_bytes() -> int:
    """What the kernel says that this process made it write, or will make it write."""
    lines = Path("/proc/self/io").read_text().splitlines()
    counts = {name: int(value) for name, value in (line.split(": ") for line in lines)}
    return counts["write_bytes"] - counts["cancelled_write_bytes"]


def written(job: Job) -> Figures:
    """Bytes written for each byte published: while all wait; and in turn, in another directory."""
    bodies, batches = job.bodies(BATCH), job.count // BATCH
    whole = batches * BATCH * job.body_bytes
    before = written_bytes()
    system = job.open()
    for _ in range(batches):
        system.publish_many(bodies)
    system.close()
    waiting = written_bytes() - before
    apart = Path(job.directory) / "turns"
    apart.mkdir()
    before = written_bytes()
    done = turns(replace(job, directory=str(apart)), "leased", lambda system: system.publish)
    waited = min(DEPTH, DEPTH_BYTES // job.body_bytes)
    in_turn = (done["messages"] + waited) * job.body_bytes
    return {"written": waiting / whole, "written_turns": (written_bytes() - before) / in_turn}


WORKS: dict[str, Callable[[Job], Figures]] = {
    "headers": headers,
    "leased": leased,
    "written": written,
}
