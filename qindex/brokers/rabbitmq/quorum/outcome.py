"""What one member's files of a quorum queue give."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from qindex.brokers.rabbitmq.quorum.held import Held
from qindex.brokers.rabbitmq.ra.snapshot import Snapshot
from qindex.brokers.rabbitmq.ra.system import Server

SPARSE_FROM: Final = 7  # the last version of the machine whose log has no gaps


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
    missing: int = 0  # entries that no file has, of those that make the state
    missing_below: int = 0  # the same below the state to begin with: only bodies are lost with them
    missing_end: int = 0  # behind the last one, which add_missing_end() is still to count
    bodiless: int = 0  # a live message that no file has, by its index
    has_state: bool = True  # False: nothing tells the state to begin with
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

    @property
    def lost_is_known(self) -> bool:
        """False: what was in missing entries can only be estimated."""
        return self.has_state and not self.missing

    def is_settled(self, index: int) -> bool:
        """Whether the message is settled, whatever the entries that are left say.

        Up to version 7 a log is cut off only below the last message that is live.
        """
        told = self.snapshot
        cuts = told is not None and told.truncates and told.machine_version <= SPARSE_FROM
        return (
            cuts
            and self.missing + self.missing_end > 0
            and told is not None
            and -1 <= index <= told.index
        )

    def add_missing_end(self, count: int) -> None:
        """So many entries behind the last one are in no file: at most as many messages are lost."""
        self.missing += count
        self.found += count
        self.lost["entry missing"] += count

    def doubt(self, why: str) -> None:
        """It is not exact, for this reason."""
        self.exact = False
        self.why.append(why)

    def messages(self) -> Iterator[Held]:
        """The live ones, in the order in which consumers would get them."""
        for index in self.indexes:
            yield self.odd.get(index) or Held(index)
