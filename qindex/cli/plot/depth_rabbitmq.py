"""Depth and age of a RabbitMQ queue over its index journal: what was not in the segments yet.

The journal keeps no clock. Messages may: RabbitMQ 3.13 and later note when one was received, and
its publisher may have set the property `timestamp`. A record's time is between those of the two
nearest publishes that tell theirs; where none does, there are no ages.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from qindex.brokers.amqp import AmqpError, decode_properties
from qindex.brokers.rabbitmq.log import FIELDS_BYTES, RabbitMQLog
from qindex.brokers.rabbitmq.message import MessageError, read_message, received_ms
from qindex.cli.plot.depth import POINTS_MAX, Clock, Curve
from qindex.look.screen import CommandError
from qindex.look.sources import NodeSource
from qindex.look.text import printable
from qindex.native.frames import fields_of
from qindex.native.replay import Record, Replay

SECONDS_MAX: Final = 4_102_444_800  # 2100: what is later was no clock
SECONDS_MIN: Final = 946_684_800  # 2000
_HEAD_BYTES: Final = 8 + FIELDS_BYTES  # of a publish in the journal


def curve_of_node(source: NodeSource, name: str, log: RabbitMQLog) -> Curve:
    """Cost: reads the journal and its segments, and the messages that were published in it."""
    curve = Curve(printable(name))
    born = _Births(source, name, log)
    clocks: list[tuple[int, int]] = []
    for number, record in enumerate(log.records((0, 0, 0)), 1):
        curve.records = number
        if record.verb == "publish":
            told = born.add(record)
            if told is not None:
                clocks.append((number, max(told, clocks[-1][1] if clocks else 0)))
    clock = Clock(clocks)
    step = max(1, -(-curve.records // POINTS_MAX))
    replay = Replay(log)
    is_there = True
    while is_there:
        if replay.number % step == 0 or replay.number == curve.records:
            _add_point(curve, replay, born, clock)
        is_there = replay.forward() is not None
    if clock.is_known:
        curve.began, curve.ended = clock.ends()
    return curve


def _add_point(curve: Curve, replay: Replay, born: _Births, clock: Clock) -> None:
    curve.numbers.append(replay.number)
    curve.depth.append(replay.state.live)
    if not clock.is_known:
        return
    now = clock.at(replay.number)
    oldest = next(replay.state.messages(), None)
    then = None if oldest is None else born.at_us(oldest.req_id)
    unknown = now is None or then is None
    curve.age_seconds.append(None if unknown else max(0.0, (now or 0) - (then or 0) / 1e6))
    curve.older.append(False)


class _Births:
    """When messages were published, in microseconds since 1970, as far as they tell."""

    def __init__(self, source: NodeSource, name: str, log: RabbitMQLog) -> None:
        self._tree = source.node.tree
        if name in source.replicated:
            raise CommandError(f"{printable(name)} keeps no journal to plot")
        self._store = source.queues[name].vhost.store
        self._log = log
        self._told: dict[int, int | None] = {}
        self._read: set[int] = set()  # segments

    def add(self, record: Record) -> int | None:
        """That of a publish in the journal."""
        at = (self._log.journal, record.offset + _HEAD_BYTES)
        self._told[record.req_id] = self._time(record.data, *at)
        return self._told[record.req_id]

    def at_us(self, req_id: int) -> int | None:
        if req_id not in self._told and (number := req_id // self._log.slots) not in self._read:
            self._read.add(number)
            for seq, fields, file, offset in self._log.terms_of(number):
                self._told.setdefault(seq, self._time(fields, file, offset))
        return self._told.get(req_id)

    def _time(self, raw: bytes, file: str, offset: int) -> int | None:
        fields = fields_of(raw)
        size = fields.embedded
        if not size:
            place = self._store.find(fields.msg_id)
            if place is None:
                return None
            file, offset, size = place
        source = self._tree.kept_open(file)
        term = source.read(offset, size) if source else b""
        for seconds in _times_in(term):
            if SECONDS_MIN <= seconds < SECONDS_MAX:
                return round(seconds * 1e6)
        return None


def _times_in(term: bytes) -> Iterator[float]:
    """Seconds since 1970: the broker's clock before the publisher's."""
    try:
        received = received_ms(term)
        if received is not None:
            yield received / 1000
        told = decode_properties(read_message(term).properties).timestamp
    except (MessageError, AmqpError):
        return
    if isinstance(told, datetime):
        yield told.timestamp()
