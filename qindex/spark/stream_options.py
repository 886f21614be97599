"""The options of a stream, checked: stream.py says what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from qindex.spark import stream_offsets as offsets
from qindex.spark.options import (
    STREAM,
    choice,
    choice_of,
    known,
    number,
    paths_of,
    seconds,
    truth,
    whole,
)

MESSAGES_PER_TASK: Final = 100_000
MAX_TRIGGER_DELAY: Final = 900.0
# Of spark.read. What they leave out would be acked, and nobody would have seen it.
_NOT_FOR_STREAMS: Final = frozenset(
    ("states", "vhosts", "minreqid", "maxreqid", "expiresafter", "expiresbefore")
)


@dataclass(frozen=True)
class Options:
    """The options of a stream, checked. ValueError for what makes no sense."""

    paths: list[str]
    queues: str  # as it was given
    wants: Callable[[str], bool]  # a queue, by its name
    starting: str | dict[str, Any]
    since_us: int | None  # instead of `starting`
    ending: str | dict[str, Any]
    limit: int
    at_least: int
    delay_max: float
    per_task: int
    fail_on_loss: bool
    ack: str  # false, true or owner
    lock_wait: float
    poll: float

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Options:
        if wrong := [name for name in given if name.lower() in _NOT_FOR_STREAMS]:
            raise ValueError(
                f"a stream has no option {', '.join(sorted(wrong))}: queues chooses queues, and"
                " rows are chosen in the query. Beware with ack: what the query leaves out"
                " (.where()) is acked, too"
            )
        lower = known(given, STREAM)
        if lower.get("table", "messages") != "messages":
            raise ValueError("a stream has the table messages; the others are for spark.read")
        ending = offsets.read_bounds("endingOffsets", lower.get("endingoffsets", "latest"))
        if ending == offsets.EARLIEST:
            raise ValueError("endingOffsets is JSON with a ReqId per queue")
        since = None
        if "startingtimestamp" in lower:
            if "startingoffsets" in lower:
                raise ValueError("give startingOffsets or startingTimestamp, not both")
            since = whole(lower, "startingTimestamp", 0, 0) * 1000
        return cls(
            paths_of(lower),
            lower.get("queues", ""),
            choice_of(lower).wants,
            offsets.read_bounds("startingOffsets", lower.get("startingoffsets", "earliest")),
            since,
            ending,
            whole(lower, "maxMessagesPerTrigger", 0, 0),
            whole(lower, "minMessagesPerTrigger", 1, 0),
            seconds(lower, "maxTriggerDelay", MAX_TRIGGER_DELAY),
            whole(lower, "messagesPerTask", MESSAGES_PER_TASK, 1),
            truth(lower, "failOnDataLoss", True),
            choice(lower, "ack", ("false", "true", "owner")),
            number(lower, "lockWait", 10, 0),
            number(lower, "pollInterval", 0.1, 0),
        )
