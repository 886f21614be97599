"""What a time record of a store says, in words (c_ext/FORMAT.rst, section 4)."""

from __future__ import annotations

from typing import Final

from qindex.moments import utc
from qindex.native.frames import DEAD_US

TAKEN_BACK: Final = 1
_DELIVERED_AGAIN: Final = 2
REASONS: Final = {1: "expired", 2: "rejected", 3: "delivered too often", 4: "the queue was full"}


def is_burial(due_us: int) -> bool:
    """It makes the message a dead letter."""
    return due_us >= DEAD_US


def is_wait(due_us: int) -> bool:
    """It is a moment that the message waits for."""
    return _DELIVERED_AGAIN < due_us < DEAD_US


def time_text(due_us: int, priority: int) -> str:
    """`due_us` is 56 bits: a time, or one of the values that stand for something else."""
    if is_burial(due_us):
        why = due_us - DEAD_US
        return f"buried as a dead letter: {REASONS.get(why, f'reason {why}')}"
    if due_us == 0:
        return "not held"
    if due_us == TAKEN_BACK:
        held = "taken back from the dead letters, due at once"
    elif due_us == _DELIVERED_AGAIN:
        held = "due at once"
    else:
        held = f"held until {utc(due_us / 1e6)}"
    return f"priority {priority}, {held}" if priority else held
