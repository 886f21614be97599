"""What must be in the store after the kill, and what is: message by message, by digests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import qindex
from qindex.brokers.amqp import decode_properties
from qindex.cli.demo.writer import (
    ACKS_PER_ROUND,
    PUBLISHES_PER_ROUND,
    body_of,
    digest_of,
)

# What tells a message from the others of its queue, and all that must be the same about it.
Row: TypeAlias = tuple[int, tuple[Any, ...]]


@dataclass(slots=True)
class Tally:
    """Expected against found. All zero but `expected`: the proof."""

    expected: int = 0
    lost: int = 0
    doubled: int = 0
    altered: int = 0
    unexpected: int = 0  # never published, or acked before
    misplaced: int = 0

    @property
    def is_clean(self) -> bool:
        return not (self.lost + self.doubled + self.altered + self.unexpected + self.misplaced)

    def add(self, other: Tally) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        kinds = ("lost", "doubled", "altered", "unexpected", "misplaced")
        return ", ".join(f"{getattr(self, kind):,} {kind}" for kind in kinds)


def as_json(tally: Tally) -> dict[str, int]:
    return {name: getattr(tally, name) for name in tally.__slots__}


def compare(expected: Sequence[Row], found: Sequence[Row]) -> Tally:
    """Both in order."""
    content = dict(expected)
    seen = Counter(key for key, _ in found)
    wanted_order = [key for key, _ in expected if key in seen]
    found_order = list(dict.fromkeys(key for key, _ in found if key in content))
    return Tally(
        expected=len(expected),
        lost=sum(key not in seen for key in content),
        doubled=sum(times - 1 for times in seen.values()),
        altered=sum(content[key] != told for key, told in found if key in content),
        unexpected=sum(key not in content for key in seen),
        misplaced=sum(a != b for a, b in zip(wanted_order, found_order, strict=True)),
    )


# --- the dead node ------------------------------------------------------------------------------


def read_truth(path: Path) -> dict[str, Any]:
    """demo_node.json: what RabbitMQ itself gave back when that node was booted again."""
    truth: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return truth


def truth_rows(truth: dict[str, Any]) -> dict[tuple[str, str], list[Row]]:
    """By virtual host and queue; a message is told by the number that it was published with."""
    return {
        (queue["vhost"], queue["name"]): [(row[0], tuple(row[1:])) for row in queue["messages"]]
        for queue in truth["queues"]
    }


def without_redelivered(rows: Iterable[Row]) -> list[Row]:
    """After a crash any message may have been delivered: the flag may be set where it was not."""
    return [(key, content[1:]) for key, content in rows]


def redelivered_lost(wanted: Iterable[Row], found: Iterable[Row]) -> int:
    """Messages that were delivered once, by the truth, and do not say so any more."""
    flags = {key: content[0] for key, content in found}
    return sum(bool(content[0]) and not flags.get(key, 1) for key, content in wanted)


def recovered_rows(messages: Iterable[qindex.Message]) -> list[Row]:
    """The same of messages in the store."""
    rows: list[Row] = []
    for message in messages:
        headers = message.headers
        number = decode_properties(headers["properties"]).message_id
        content = (
            int(message.redelivered),
            headers["exchange"],
            headers["routing_keys"][0],
            len(message.body),
            digest_of(message.body),
        )
        rows.append((int(number or -1), content))
    return rows


# --- the killed writer --------------------------------------------------------------------------


@dataclass(slots=True)
class WriterReport:
    """What the writer had reported when it was killed; see writer.py for the lines."""

    published: list[tuple[int, str]] = field(default_factory=list)  # ReqId, digest
    held: list[int] = field(default_factory=list)
    acked: list[int] = field(default_factory=list)
    publish_ns: int = 0
    ack_ns: int = 0
    doubt: str = "p"  # the round that was running: its calls may have happened or not

    def in_doubt(self, happened: int) -> str:
        """How far the last round had come: `happened` is by how much the queue is longer."""
        done, of_all, what = happened, PUBLISHES_PER_ROUND, "publishes"
        if self.doubt == "a":
            done, of_all, what = -happened, ACKS_PER_ROUND, "acks"
        return f"of the round in which it died, {done} of {of_all} {what} had happened"


def parse_report(raw: bytes) -> WriterReport:
    """The whole lines; the last one may be torn, then it never was said."""
    report = WriterReport()
    for line in raw.split(b"\n")[:-1]:
        kind, *words = line.decode().split()
        if kind == "p":
            report.publish_ns += int(words[0])
            pairs = (word.split(":") for word in words[1:])
            report.published += [(int(req_id), digest) for req_id, digest in pairs]
            report.doubt = "a"
        elif kind == "h":
            report.held = [int(word) for word in words]
        elif kind == "a":
            report.ack_ns += int(words[0])
            report.acked += [int(word) for word in words[1:]]
            report.doubt = "p"
    return report


def expected_rows(report: WriterReport, found: Iterable[Row]) -> list[Row]:
    """What must be there: all that was published, but for what was acked.

    Of the round in doubt, a first part happened; `found` tells how much, but not more than a round.
    """
    numbers = {req_id: number for number, (req_id, _) in enumerate(report.published)}
    gone = {numbers[req_id] for req_id in report.acked}
    rows: list[Row] = [
        (number, content) for number, content in enumerate(report.published) if number not in gone
    ]
    present = {key for key, _ in found}
    if report.doubt == "p":
        first, last_req_id = len(report.published), report.published[-1][0]
        more = sum(key >= first for key in present)
        for number in range(first, first + min(more, PUBLISHES_PER_ROUND)):
            req_id = last_req_id + 1 + number - first
            rows.append((number, (req_id, digest_of(body_of(number)))))
        return rows
    held = {numbers[req_id] for req_id in report.held}
    waiting = [number for number, _ in rows if number not in held][:ACKS_PER_ROUND]
    less = sum(number not in present for number in waiting)
    return [row for row in rows if row[0] not in waiting[:less]]


def writer_rows(messages: Iterable[qindex.Message]) -> list[Row]:
    """The writer's messages in the store; a body says its number, and its digest must agree."""
    rows: list[Row] = []
    for message in messages:
        words = message.body[:40].split(b" ", 2)
        number = int(words[1]) if len(words) == 3 and words[1].isdigit() else -1
        rows.append((number, (message.req_id, digest_of(message.body))))
    return rows
