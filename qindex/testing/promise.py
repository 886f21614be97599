"""What a queue promises. It is judged by that, and by nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

Keeps = Literal["returned", "synced", "closed", "nothing"]
Crash = Literal["kill", "power"]


class Level(IntEnum):
    """How far a publish or an ack has come."""

    DOUBT = 0  # the call did not return: it may have happened or not
    RETURNED = 1
    SYNCED = 2  # a sync() that began later has returned
    CLOSED = 3  # a close() that began later has returned


_LEVELS: Final[dict[Keeps, int]] = {
    "returned": Level.RETURNED,
    "synced": Level.SYNCED,
    "closed": Level.CLOSED,
    "nothing": Level.CLOSED + 1,
}


@dataclass(frozen=True, slots=True)
class Promise:
    """What a queue promises its users. The defaults are a good durable queue's.

    ``kill``, ``power``: which publishes and acks outlive ``kill -9`` of the process, and a power
    cut: those that ``returned``; those that were ``synced`` (or closed); those before a ``close()``
    that returned; ``nothing``: then this kind of crash is not played.
    """

    kill: Keeps = "returned"
    power: Keeps = "synced"
    order: Literal["fifo", "lifo", "any"] = "fifo"
    requeue: Literal["place", "any"] = "place"  # where a message goes that was given back
    prefix: bool = True  # if a publish survives, so do all before it
    batches: bool = True  # publish_many() is all or nothing
    unique_ids: bool = True  # the ids that publish() returns are never used again
    redelivered: bool = False  # get() tells of a message whether somebody may have had it before
    barrier: bool = False  # no later crash takes back what open() has shown
    refuses: bool = False  # ack() of what is not delivered raises and changes nothing

    def needed(self, crash: Crash | None) -> int:
        """The level from which this crash must leave a change alone; None: a clean close."""
        if crash is None:
            return Level.RETURNED
        return _LEVELS[self.kill if crash == "kill" else self.power]

    def plays(self, crash: Crash) -> bool:
        """False: the queue promises nothing about this crash."""
        return (self.kill if crash == "kill" else self.power) != "nothing"
