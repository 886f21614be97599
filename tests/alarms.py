"""A signal handler that raises at random places of what a test calls."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ROUNDS = 3000


class Alarm(Exception):
    """What the handler raises."""


@contextmanager
def alarms(seed: int) -> Iterator[Callable[[], None]]:
    """`arm()`: the timer's handler raises Alarm after some microseconds, once."""
    dice = random.Random(seed)

    def ring(number: int, frame: object) -> None:
        raise Alarm

    def arm() -> None:
        signal.setitimer(signal.ITIMER_REAL, dice.uniform(1e-6, 30e-6))

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield arm
    finally:
        for _ in range(5):  # the last one may come now
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
                break
            except Alarm:
                continue


def interrupted(
    take: Callable[[], Any], seen: Callable[[Any], None], seed: int, rounds: int = ROUNDS
) -> int:
    """`take()` again and again under alarms; what it gave is `seen`. How often one was raised."""
    raised = 0
    with alarms(seed) as arm:
        for _ in range(rounds):
            given: Any = None
            try:
                try:
                    arm()
                    given = take()
                    given = take() if given is None else given
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                raised += 1
            while given is not None:
                try:
                    seen(given)
                    given = None
                except Alarm:  # it had been on its way
                    raised += 1
    return raised
