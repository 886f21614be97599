"""The account of a recovery: what became of the live messages of each queue, and of all."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class RecoveredQueue:
    """live = messages + expired + dead_lettered + unreadable + unstorable"""

    group: str
    name: str
    into: str
    live: int
    messages: int = 0
    body_bytes: int = 0
    redelivered: int = 0
    expired: int = 0
    unreadable: int = 0
    unstorable: int = 0  # the store refused them, whatever was changed
    dead_lettered: int = 0  # the broker would pass them on: they are in other queues
    arrived: int = 0  # the dead letters of other queues that are here, beside `messages`
    kept: int = 0  # of `messages`: what the broker would drop, or nobody knows
    dying: int = 0  # of all that is here: it expires later and would be passed on then

    @property
    def in_store(self) -> int:
        """How many messages the store's queue got."""
        return self.messages + self.arrived

    @property
    def adds_up(self) -> bool:
        parts = self.messages, self.expired, self.dead_lettered, self.unreadable, self.unstorable
        return self.live == sum(parts)


@dataclass(slots=True)
class RecoverReport:
    """The account of a recovery, also while it runs. What was damaged is in `node.findings`."""

    queues: list[RecoveredQueue] = field(default_factory=list)
    live: int = 0  # what the node has
    messages: int = 0  # what the store has got
    body_bytes: int = 0
    redelivered: int = 0
    expired: int = 0
    unreadable: int = 0
    unstorable: int = 0
    dead_lettered: int = 0
    arrived: int = 0  # copies: a dead letter may go to several queues
    kept: int = 0
    dying: int = 0
    reasons: dict[str, int] = field(default_factory=dict)  # how many were kept, by the reason
    changed: int = 0  # of the stored ones: something that came with them could not be stored
    changes: dict[str, int] = field(default_factory=dict)  # how many messages, by what was changed
    now: float = 0.0  # the moment that decided what has expired, in seconds since 1970
    stopped: str = ""  # why it ended before all was published and synced
    seconds: float = 0.0

    @property
    def lost(self) -> bool:
        """Something that was readable is not in the store, or not all of it."""
        return bool(self.unstorable or self.changes or self.stopped)
