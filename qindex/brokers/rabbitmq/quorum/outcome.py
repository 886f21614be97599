"""What one member's files of a quorum queue give."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from qindex.brokers.rabbitmq.quorum.held import Held
from qindex.brokers.rabbitmq.ra.snapshot import Snapshot
from qindex.brokers.rabbitmq.ra.system import Server


@dataclass(slots=True)
class Outcome:
    """What a member's files give. Live messages in order: `indexes`, and `odd` by index."""

    server: Server
    snapshot: Snapshot | None = None
    exact: bool = True
    why: list[str] = field(default_factory=list)  # sentences: why it is not exact
    scans: bool = True  # entries in usual shapes are not decoded
    version: int = 0
    entries: int = 0  # of the log that were taken
    missing: int = 0  # entries that no file has
    doubtful: set[int] = field(default_factory=set)  # entries whose checksum does not match
    unreadable: set[int] = field(default_factory=set)  # those of them that are no message any more
    deleted: bool = False
    found: int = 0
    gone: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    indexes: array[int] = field(default_factory=lambda: array("q"))
    odd: dict[int, Held] = field(default_factory=dict)  # those of which there is more to say
    dead: list[tuple[str, Held]] = field(default_factory=list)
    delayed: dict[int, int] = field(default_factory=dict)  # until when, in ms, by index
    body_bytes: int = 0
    expiring: int = 0
    redelivered: int = 0
    maybe: int = 0  # messages left out as settled, in whose place others may have been settled
    unordered: int = 0  # messages that came back in an order that only Erlang knows
    counts: dict[int, tuple[int, int]] = field(default_factory=dict)  # see Mixed: limits of counts
    others: int = 0  # live messages in whose place others may be live
    members: int = 1  # of the queue in its cluster, by what these files tell
    named: tuple[bytes, bytes] | None = None  # virtual host and queue, as the snapshot has them
    sizes: array[int] = field(default_factory=lambda: array("Q"))  # see strangers.sizes_of()

    def doubt(self, why: str) -> None:
        """It is not exact, for this reason."""
        self.exact = False
        self.why.append(why)

    def messages(self) -> Iterator[Held]:
        """The live ones, in the order in which consumers would get them."""
        for index in self.indexes:
            yield self.odd.get(index) or Held(index)
