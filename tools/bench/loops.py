"""What every work needs: its job, the clock, and the loops around a system's verbs."""

import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from systems import System, registry

Figures = dict[str, float]


@dataclass(frozen=True)
class Job:
    work: str
    system: str
    directory: str
    body_bytes: int
    count: int
    seconds_max: float  # slow systems stop here; the rate counts what they did
    floor_library: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def open(self, *, durable: bool = False) -> System:
        return registry()[self.system](Path(self.directory), durable=durable)

    def bodies(self, number: int) -> list[bytes]:
        """Different bodies of one size; the same ones in every run."""
        return [random.Random(i).randbytes(self.body_bytes) for i in range(number)]


class Spent(NamedTuple):
    done: int
    seconds: float
    cpu_seconds: float  # of all threads of the process, in the kernel too

    def rates(self, figure: str) -> Figures:
        """Messages a second of wall time, and of CPU time: what others do at once costs less."""
        cpu = max(self.cpu_seconds, 1e-6)
        return {figure: self.done / self.seconds, f"{figure}_cpu": self.done / cpu}


def spend(step: Callable[[], int], count: int, seconds_max: float) -> Spent:
    """Repeat `step` until it has done `count` messages or time is up."""
    done, seconds = 0, 0.0
    start, cpu_start = time.perf_counter(), time.process_time()
    while done < count and seconds < seconds_max:
        done += step()
        seconds = time.perf_counter() - start
    return Spent(done, seconds, time.process_time() - cpu_start)


def timed(step: Callable[[], int], count: int, seconds_max: float) -> tuple[int, float]:
    """The same: messages and seconds."""
    return spend(step, count, seconds_max)[:2]


# The loops. Each returns a step that handles len(bodies) or `size` messages.


def publish_each(system: System, bodies: list[bytes]) -> Callable[[], int]:
    publish = system.publish

    def step() -> int:
        for body in bodies:
            publish(body)
        return len(bodies)

    return step


def get_and_ack_each(system: System, size: int) -> Callable[[], int]:
    get, ack = system.get, system.ack

    def step() -> int:
        for _ in repeat(None, size):
            ack(get())  # type: ignore[misc]
        return size

    def step_without_ack() -> int:
        for _ in repeat(None, size):
            get()
        return size

    return step_without_ack if ack is None else step


def cycle_each(system: System, bodies: list[bytes]) -> Callable[[], int]:
    publish, get, ack = system.publish, system.get, system.ack

    def step() -> int:
        for body in bodies:
            publish(body)
            ack(get())  # type: ignore[misc]
        return len(bodies)

    def step_without_ack() -> int:
        for body in bodies:
            publish(body)
            get()
        return len(bodies)

    return step_without_ack if ack is None else step


def publish_batch(system: System, bodies: list[bytes]) -> Callable[[], int]:
    publish_many = system.publish_many

    def step() -> int:
        publish_many(bodies)
        return len(bodies)

    return step


def get_and_ack_batch(system: System, size: int) -> Callable[[], int]:
    get_many, ack_many = system.get_many, system.ack_many

    def step() -> int:
        messages = get_many(size)  # of long ones, some systems give fewer in one call
        ack_many(messages)
        return len(messages)

    return step


def get_and_ack_first(system: System, size: int) -> Callable[[], int]:
    get, ack = system.get_first, system.ack_first

    def step() -> int:
        for _ in repeat(None, size):
            ack(get())
        return size

    return step


def expect_empty(system: System, published: int, drained: int) -> None:
    """A fast loop over nothing is no result: what was published must have been there to get."""
    if drained == published and system.get() is not None:
        raise AssertionError(f"{system.name} gave more than was published")
