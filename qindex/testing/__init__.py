"""Does a message queue keep its promises? For queues of any kind; docs/testing/ is about it.

::

    class MyQueue(Adapter):          # open, publish, get, ack ... of your queue
        promise = Promise(kill="returned", power="synced")

    TestMyQueue = machine_for(MyQueue).TestCase
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qindex.testing.adapter import Adapter, Delivery
from qindex.testing.disk import Disk, DiskRules, Op
from qindex.testing.ground import MemoryAdapter, MemoryDisk, Unrecordable
from qindex.testing.invariants import KINDS, Violation, check_got, check_ids, check_reopened
from qindex.testing.model import Model, Seen, Sent, body_of
from qindex.testing.promise import Level, Promise
from qindex.testing.run import QueueBroken, Run, replay
from qindex.testing.simulated import SimulatedDisk, abandon, tick

if TYPE_CHECKING:
    from qindex.testing.machine import QueueMachine, find, machine_for

__all__ = [
    "KINDS",
    "Adapter",
    "Delivery",
    "Disk",
    "DiskRules",
    "Level",
    "MemoryAdapter",
    "MemoryDisk",
    "Model",
    "Op",
    "Promise",
    "QueueBroken",
    "QueueMachine",
    "Run",
    "Seen",
    "Sent",
    "SimulatedDisk",
    "Unrecordable",
    "Violation",
    "abandon",
    "body_of",
    "check_got",
    "check_ids",
    "check_reopened",
    "find",
    "machine_for",
    "replay",
    "tick",
]


def __getattr__(name: str) -> Any:
    """Load the machine, and with it Hypothesis, only when it is asked for."""
    if name in ("QueueMachine", "find", "machine_for"):
        from qindex.testing import machine

        return getattr(machine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
