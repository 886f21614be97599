"""A message as commands show it, wherever it was found, and the options that choose messages.

As JSON, one object a line (peek --json, cat and export), a message has these keys:

queue, req_id     its place; in a RabbitMQ directory req_id is RabbitMQ's sequence number
priority          1 to 255, null for none; in a RabbitMQ priority queue that of its sub-queue
state             ready; delayed: not due yet; unacked: a consumer got it, and has not acked it
                  (or gave it back: files do not tell these apart); expired: nobody would get it
                  now; dead: a dead letter, nobody gets it unless redriven
dead              why it is a dead letter (expired, rejected, deliveries), or null
due_at            until when it is, or was, delayed: 2026-11-23T05:00:00Z, or null
redelivered, delivery_count, persistent
expires_at        likewise, or null
published_at      when it was published, as Message.published_at; null: that is not known
entry             of a quorum queue the index of its entry in the log, of a stream its offset, else
                  null
headers           as published; of a message from RabbitMQ: exchange, routing_keys, properties (raw)
properties        the AMQP properties, decoded, if there are any
body              if it is valid UTF-8, else
body_base64
"""

from __future__ import annotations

import argparse
import base64
from dataclasses import dataclass, field
from typing import Any, Final

from qindex.look.screen import tell_former
from qindex.look.text import is_written_id, written_id
from qindex.message import DeadReason
from qindex.moments import utc

STATES: Final = ("ready", "delayed", "unacked", "expired", "dead")
FORMER_STATES: Final = {"delivered": "unacked"}  # accepted for one more version
FOR_CONSUMERS: Final = ("ready", "delayed", "unacked")  # some day, if nobody does anything
REQ_ID_MAX: Final = (1 << 62) - 1


# What the formats of other brokers call the number of deliveries, in their headers.
_COUNTS: Final = ("attempts", "retry", "reserves", "delivery_count")


def deliveries_of(headers: dict[str, Any]) -> int | None:
    """How often a dead broker's message was delivered; None: its format does not say."""
    for name in _COUNTS:
        if isinstance(count := headers.get(name), int):
            return count
    return None


@dataclass(slots=True)
class Found:
    """A live message. `table` is its headers, decoded or as the engine stores them."""

    queue: str
    req_id: int
    state: str
    redelivered: bool
    delivery_count: int
    persistent: bool
    expiry_us: int  # 0: never
    table: bytes | dict[str, Any]
    body: bytes
    part: int = 0  # which of a RabbitMQ queue's directories, in their order
    priority: int | None = None
    due_us: int = 0  # 0: it was not delayed
    dead: DeadReason | None = None  # why it is a dead letter
    published_us: int = 0  # 0: that is not known
    entry: int | None = None  # of a quorum queue the index of its entry, of a stream its offset
    lease_us: int = 0  # its own; 0: it has none, or was not asked for it
    died: bool = False  # of a store of format 2: it has a list of deaths

    @property
    def expires_at(self) -> float | None:
        return self.expiry_us / 1e6 if self.expiry_us else None

    @property
    def due_at(self) -> float | None:
        return self.due_us / 1e6 if self.due_us else None

    @property
    def published_at(self) -> float | None:
        return self.published_us / 1e6 if self.published_us else None

    @property
    def headers(self) -> dict[str, Any]:
        """Decoded anew at each call; of bytes that are no field table: {"undecodable": them}."""
        if isinstance(self.table, dict):
            return dict(self.table)
        if not self.table:
            return {}
        from qindex.calls import decode_headers
        from qindex.field_table import AmqpError, decode_table

        try:
            return decode_headers(self.table) or decode_table(self.table)
        except AmqpError:
            return {"undecodable": self.table}

    def as_json(self, *, with_body: bool = True) -> dict[str, Any]:
        headers = self.headers
        return {
            "queue": self.queue,
            "req_id": written_id(self.req_id),
            "priority": self.priority,
            "state": self.state,
            "dead": self.dead,
            "due_at": self.due_at and utc(self.due_at),
            "redelivered": self.redelivered,
            "delivery_count": self.delivery_count,
            "persistent": self.persistent,
            "expires_at": self.expires_at and utc(self.expires_at),
            "published_at": self.published_at and utc(self.published_at),
            "entry": self.entry,
            "headers": headers,
            "properties": properties_of(headers) or None,
            **(body_as_json(self.body) if with_body else {}),
        }


def body_as_json(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def properties_of(headers: dict[str, Any]) -> dict[str, Any]:
    """The AMQP properties of a message that came from RabbitMQ, decoded; those that are set."""
    raw = headers.get("properties")
    if not isinstance(raw, bytes):
        return {}
    from qindex.brokers.amqp import PROPERTY_NAMES, AmqpError, decode_properties

    try:
        properties = decode_properties(raw)
    except AmqpError:
        return {}
    values = ((name, getattr(properties, name)) for name in PROPERTY_NAMES)
    return {name: value for name, value in values if value is not None}


# --- choosing -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Choice:
    """Which messages. ReqIds from `first` to `last`, both included; `limit` counts per queue."""

    queues: tuple[str, ...] = ()  # empty: all
    states: frozenset[str] = field(default=frozenset(STATES))
    first: int = 0
    last: int = REQ_ID_MAX
    limit: int | None = None

    @property
    def one(self) -> int | None:
        """The ReqId if only one is wanted."""
        return self.first if self.first == self.last else None

    def as_json(self) -> dict[str, Any]:
        return {
            "queues": sorted(self.queues),
            "states": sorted(self.states),
            "req_ids": [written_id(self.first), written_id(self.last)],
            "limit": self.limit,
        }


def add_choice(
    parser: argparse.ArgumentParser,
    *,
    limit: int | None = None,
    states: tuple[str, ...] = STATES,
) -> None:
    """QUEUE ..., --state, --req-id and -n: the same for every command that reads messages."""
    parser.add_argument(
        "queues", metavar="QUEUE", nargs="*", help="the queues to read (default: every queue)"
    )
    parser.add_argument(
        "--state",
        type=_states,
        default=frozenset(states),
        metavar="STATES",
        help=f"of {', '.join(STATES)}: one or more, with commas (default: {','.join(states)})",
    )
    parser.add_argument(
        "--req-id",
        type=_range,
        default=(0, REQ_ID_MAX),
        metavar="N[-M]",
        help="only this message, or those from N to M, or from N on (N-); needs a QUEUE",
    )
    count = "all" if limit is None else limit
    parser.add_argument(
        "-n",
        type=positive,
        default=limit,
        metavar="N",
        help=f"messages per queue (default: {count})",
    )


def choice_of(options: argparse.Namespace) -> Choice:
    from qindex.look.screen import CommandError

    first, last = options.req_id
    if (first, last) != (0, REQ_ID_MAX) and not options.queues:
        raise CommandError("--req-id needs a QUEUE: ReqIds are counted per queue")
    return Choice(tuple(dict.fromkeys(options.queues)), options.state, first, last, options.n)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


def _states(text: str) -> frozenset[str]:
    names = [FORMER_STATES.get(name, name) for name in text.split(",")]
    for former in set(text.split(",")) & FORMER_STATES.keys():
        tell_former(f"the state {former}", FORMER_STATES[former])
    for name in names:
        if name not in STATES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(STATES)}")
    return frozenset(names)


def _range(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not is_written_id(first) or (last and not is_written_id(last)):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a ReqId nor a range like 10-20")
    low = int(first)
    high = int(last) if last else REQ_ID_MAX if dash else low
    if not low <= high <= REQ_ID_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is an empty range, or beyond any ReqId")
    return low, high
