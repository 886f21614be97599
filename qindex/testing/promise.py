"""What a queue promises: it is judged by that and by nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

Keeps = Literal["returned", "synced", "closed", "nothing"]
Crash = Literal["kill", "power"]


class Level(IntEnum):
    """How far a publish or an ack has come."""

    DOUBT = 0
    """The call did not return: it may have happened or not."""
    RETURNED = 1
    """The call has returned."""
    SYNCED = 2
    """A sync() that began later has returned."""
    CLOSED = 3
    """A close() that began later has returned."""


_LEVELS: Final[dict[Keeps, int]] = {
    "returned": Level.RETURNED,
    "synced": Level.SYNCED,
    "closed": Level.CLOSED,
    "nothing": Level.CLOSED + 1,
}


@dataclass(frozen=True, slots=True)
class Promise:
    """What a queue promises its users. The defaults are those of a good durable queue."""

    kill: Keeps = "returned"
    """Which publishes and acks survive `kill -9`. "returned": those whose call returned. "synced":
    those before a sync() or a close(). "closed": those before a close() that returned. "nothing":
    the process is never killed."""
    power: Keeps = "synced"
    """The same for a power cut."""
    order: Literal["fifo", "lifo", "any"] = "fifo"
    """The order in which get() returns messages."""
    requeue: Literal["place", "any"] = "place"
    """Where a message goes that was given back: to its own place, or to any."""
    prefix: bool = True
    """If a publish survives, so do all publishes before it."""
    batches: bool = True
    """publish_many() publishes all or nothing."""
    unique_ids: bool = True
    """The ids that publish() returns are never used again."""
    redelivered: bool = False
    """get() marks a message that a consumer may have had before."""
    barrier: bool = False
    """No later crash takes back what open() has shown."""
    refuses: bool = False
    """ack() of a message that is not delivered raises, and changes nothing."""

    def needed(self, crash: Crash | None) -> int:
        """The level from which a change must survive this crash; None stands for a clean close."""
        if crash is None:
            return Level.RETURNED
        return _LEVELS[self.kill if crash == "kill" else self.power]

    def plays(self, crash: Crash) -> bool:
        """False if the queue promises nothing about this crash, so that it is not played."""
        return (self.kill if crash == "kill" else self.power) != "nothing"
