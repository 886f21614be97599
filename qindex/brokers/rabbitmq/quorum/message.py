"""A message of a quorum queue: out of the entry that published it, with what the queue counted."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from qindex.brokers.amqp import called
from qindex.brokers.rabbitmq.erlang import ErlangError
from qindex.brokers.rabbitmq.message import MessageError, read_message, storable
from qindex.brokers.rabbitmq.quorum.entries import message_of
from qindex.brokers.rabbitmq.quorum.held import Held
from qindex.brokers.rabbitmq.ra.log import Entry, Log
from qindex.brokers.tree import BODY_BYTES_MAX


@dataclass(slots=True)
class Message:
    """A live message. `file` and `offset` tell where its entry is; `index` is that entry's."""

    index: int
    expiry_us: int | None
    redelivered: bool
    exchange: str
    routing_keys: list[str]
    properties: bytes  # as the publisher sent them
    body: bytes
    delivery_count: int
    acquired_count: int | None  # from 4.0 on: how often it was delivered
    file: str
    offset: int
    doubtful: bool = False  # the entry's checksum does not match
    counts: tuple[int, int] | None = None  # the delivery count is not sure: its limits
    orphan: str | None = None  # why no queue has it any more
    reason: str | None = None  # of a dead letter: expired, rejected, delivery_limit

    @property
    def headers(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "exchange": storable(self.exchange),
            "routing_keys": [storable(key) for key in self.routing_keys],
            "properties": self.properties,
        }
        if self.delivery_count:
            told["delivery_count"] = self.delivery_count
        if self.counts is not None:
            told["delivery_count_between"] = list(self.counts)
        if self.acquired_count:
            told["acquired_count"] = self.acquired_count
        if self.reason is not None:
            told["dead_letter_reason"] = self.reason
        if self.doubtful:
            told["doubtful"] = True
        if self.orphan is not None:
            told["orphan"] = self.orphan
        return told


def called_entry(entry: Entry) -> str:
    """Its index, and the message_id if it is a message that has one."""
    with suppress(ErlangError, MessageError):
        content = read_message(message_of(entry.data))
        return called(f"entry {entry.index}", content.properties)
    return f"entry {entry.index}"


def read(log: Log, held: Held, reason: str | None = None) -> Message:
    """MessageError if the entry, or the message in it, cannot be read."""
    entry = log.entry(held.index)
    if entry is None:
        raise MessageError("the entry is not there")
    if len(entry.data) > BODY_BYTES_MAX:
        raise MessageError(f"an entry of {len(entry.data)} bytes, more than {BODY_BYTES_MAX}")
    try:
        content = read_message(message_of(entry.data))
    except ErlangError as error:
        raise MessageError(str(error)) from None
    seen = held.acquired if held.acquired is not None else held.deliveries
    return Message(
        index=held.index,
        expiry_us=held.expiry_ms * 1000 or None,
        redelivered=bool(seen),
        exchange=content.exchange,
        routing_keys=content.routing_keys,
        properties=content.properties,
        body=content.body,
        delivery_count=held.deliveries or 0,
        acquired_count=held.acquired,
        file=entry.where,
        offset=entry.offset,
        doubtful=not entry.sound,
        reason=reason,
    )
