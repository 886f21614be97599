"""What differs between the versions of the state machine, each as a row of a table.

The version in force is a property of a queue's log, not of the broker: the entry at the start of
each term says it. RabbitMQ 3.8 and 3.9 have 1; 3.10 has 2; 3.11 to 3.13 have 3; 4.0 has 4 or 5, 4.1
has 5 to 7, 4.2 has 7, 4.3 has 8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

VERSION_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Rules:
    version: int
    lines: Literal["one", "two", "many"] = "one"
    """How messages wait: in one line; two, of priorities above 4 and of others; one a priority."""
    limit: Literal["deliveries", "acquired"] = "deliveries"
    """Which count of a returned message is compared with the delivery limit."""
    counts_acquired: bool = False
    """A return adds to the number of times acquired; only a failed one to the delivery count."""
    returns_as_told: bool = False
    """Returned in the order of the command; before, in that of a map of Erlang."""
    sorts_consumers: bool = False
    """Consumers that go at once go in the order of their keys, also if there are many of them."""
    credit_at_return: Literal["once", "each"] = "once"
    """When a return gives a consumer its credit back: for all messages at once, or for each."""
    has_credit_max: bool = False
    """A prefetch consumer's credit is never more than its prefetch."""
    keeps_credit_when_suspected: bool = False
    """A consumer whose node is away gets no credit for what it loses, beyond that for returns."""
    sorts_waiting: bool = False
    """Waiting consumers of a single active one stand by priority; a better one takes over."""
    activates_after: frozenset[str] = frozenset({"cancel"})
    """Commands behind which a waiting consumer may become active."""
    finds_by_id: bool = False
    """A consumer has a number as its key, and is found by tag and pid, too."""
    discard_needs_key: bool = False
    """A discard that names a consumer by tag and pid does nothing if that has a number."""
    keeps_pending: bool = False
    """A publish that comes before its turn is kept until that has come."""
    counts_headers: bool = False
    """A message's size is that of its body and its metadata."""
    suspects_by_pid: bool = False
    """The one process is suspected, not its node; its messages stay until a timeout."""
    needs_handler: bool = False
    """A configuration without a dead letter handler is no configuration."""
    counts_from_message: bool = False
    """A message may come with a delivery count."""


_V0 = Rules(0, keeps_pending=True)
_V1 = replace(_V0, version=1)
_V2 = replace(_V1, version=2, keeps_pending=False, needs_handler=True)
_V3 = replace(
    _V2,
    version=3,
    credit_at_return="each",
    has_credit_max=True,
    keeps_credit_when_suspected=True,
)
_V4 = replace(
    _V3,
    version=4,
    lines="two",
    limit="acquired",
    counts_acquired=True,
    returns_as_told=True,
    sorts_waiting=True,
    activates_after=frozenset({"cancel", "settle"}),
    finds_by_id=True,
    discard_needs_key=True,
    needs_handler=False,
    counts_from_message=True,
)
_V5 = replace(_V4, version=5, discard_needs_key=False)
_V6 = replace(_V5, version=6, sorts_consumers=True)
_V7 = replace(_V6, version=7, activates_after=_V4.activates_after | {"return", "requeue"})
_V8 = replace(
    _V7,
    version=8,
    lines="many",
    limit="deliveries",
    counts_headers=True,
    suspects_by_pid=True,
)

RULES: Final = (_V0, _V1, _V2, _V3, _V4, _V5, _V6, _V7, _V8)


def rules_of(version: int) -> Rules:
    """Those of this version; of an unknown later one those of the last that is known."""
    return RULES[min(max(version, 0), VERSION_MAX)]
