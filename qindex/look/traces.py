"""What is known of one message, whatever broker's files tell of it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Record:
    """`file` is relative to the directory that is read."""

    file: str
    offset: int
    verb: str
    text: str


@dataclass(slots=True)
class Trace:
    """What is known of one message. queue is empty if no index names it."""

    queue: str
    req_id: int | None
    records: list[Record] = field(default_factory=list)
    state: str = ""
    damaged: bool = False
    priority: int | None = None
