"""What a RabbitMQ node does with messages that die in a queue, while it starts.

A message dies when it has expired, or when its queue has more than x-max-length or
x-max-length-bytes allow: after a crash also what consumers had is in the queue again. If the queue
has a dead-letter exchange, the node publishes the message there, with its death in the headers, and
the queues that it reaches may pass it on in turn. Where the node would drop a message, or where it
is not known what the node would do, the message stays in the last queue that it reached, and the
reason is said.

Headers and order are those of 3.10: x-death (the deaths by queue and reason, the last one first),
x-first-death-exchange, -queue and -reason; the expiration becomes original-expiration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, Protocol

from qindex.brokers.amqp import AmqpError, decode_properties, join_properties
from qindex.brokers.rabbitmq.properties import (
    join_table,
    split_array,
    split_properties,
    split_table,
)
from qindex.brokers.rabbitmq.topology import Rules, Topology, Unknown
from qindex.field_table import FieldValue, decode_table
from qindex.names import as_bytes, written

HOPS_MAX: Final = 1000  # of one message and its copies
_HEADERS: Final = 2  # in a list of properties
_EXPIRATION: Final = 7
_U32: Final = Struct(">I").pack
_LONG: Final = Struct(">cq").pack
_TIME: Final = Struct(">cQ").pack

Fields = dict[bytes, bytes]  # key: the bytes of key, tag and value


class Dying(Protocol):
    """What a message has that dies."""

    @property
    def exchange(self) -> str: ...
    @property
    def routing_keys(self) -> list[str]: ...
    @property
    def properties(self) -> bytes: ...


@dataclass(slots=True)
class Letter:
    """A message on its way, and where it ends: in `queue`."""

    queue: bytes
    exchange: bytes
    routing_keys: tuple[bytes, ...]
    properties: bytes
    expiry_us: int | None = None
    may_die: bool = False  # its queue has a dead-letter exchange
    kept: str = ""  # why it stays there, though the node would not leave it there


@dataclass(slots=True)
class Deaths:
    """Of the messages of one virtual host; `takes` says whether a queue can be put into."""

    topology: Topology
    vhost: bytes
    now_us: int
    takes: Callable[[bytes], bool]

    def rules_of(self, queue: bytes) -> Rules:
        """Unknown: the definitions do not say."""
        return self.topology.rules_of(self.vhost, queue)

    def send(self, message: Dying, queue: bytes, reason: str) -> list[Letter]:
        """Where the message ends, at least in one place: `kept` in `queue` itself if nowhere else.

        The first letter's `kept` is set and its queue is `queue` if and only if it stays there.
        """
        first = Letter(
            queue,
            as_bytes(message.exchange),
            tuple(as_bytes(key) for key in message.routing_keys),
            message.properties,
        )
        ends: list[Letter] = []
        left = [(first, reason)]
        hops = 0
        while left:
            letter, reason = left.pop()
            hops += 1
            try:
                if hops > HOPS_MAX:
                    raise Unknown(f"it would pass more than {HOPS_MAX} queues")
                sent = self._publish(letter, reason)
            except (Unknown, AmqpError, ValueError) as error:
                letter.kept = str(error)
                ends.append(letter)
                continue
            for each in sent:
                if self._stays(each):
                    ends.append(each)
                else:
                    left.append((each, "expired"))
        return ends

    def _stays(self, letter: Letter) -> bool:
        """Sets its expiry; a queue whose messages live for no time passes them on at once."""
        try:
            rules = self.rules_of(letter.queue)
        except Unknown:  # its queue is there: takes() said so
            return True
        letter.may_die = rules.exchange is not None
        if rules.ttl_ms is None:
            return True
        if rules.ttl_ms == 0:
            if letter.may_die:
                return False
            letter.kept = "its queue keeps messages for 0 ms: the node would drop it"
            return True
        letter.expiry_us = self.now_us + rules.ttl_ms * 1000
        return True

    def _publish(self, letter: Letter, reason: str) -> list[Letter]:
        """To the dead-letter exchange of its queue. Unknown if the node would drop it, too."""
        rules = self.rules_of(letter.queue)
        exchange = rules.exchange
        if exchange is None:
            raise Unknown("its queue has no dead-letter exchange: the node would drop it")
        if (self.vhost, exchange) not in self.topology.exchanges:
            missing = f"its dead-letter exchange {_shown(exchange)} is not there"
            raise Unknown(f"{missing}: the node would {rules.fate}")
        died = died_in(letter, reason, self.now_us // 1_000_000, rules.routing_key)
        died.exchange = exchange
        told = decode_properties(died.properties).headers or {}
        targets = self.topology.route(self.vhost, exchange, died.routing_keys, told)
        cycles = [name for name in targets if _is_cycle(name, told)]
        there = [name for name in targets if (self.vhost, name) in self.topology.queues]
        for name in there:
            if not self.takes(name):
                raise Unknown(f"it goes to {_shown(name)}, a queue that is not recovered")
        goes = [name for name in there if name not in cycles]
        if not goes and cycles:
            raise Unknown(
                f"it comes back to {_shown(cycles[0])}, in a circle: the node would {rules.fate}"
            )
        if not goes:
            at = _shown(exchange)
            raise Unknown(f"no queue is bound for it at {at}: the node would {rules.fate}")
        return [Letter(name, exchange, died.routing_keys, died.properties, None) for name in goes]


def _shown(name: bytes) -> str:
    return repr(written(name.decode("utf-8", "surrogateescape")))


# --- the headers ----------------------------------------------------------------------------------


def died_in(letter: Letter, reason: str, seconds: int, new_key: bytes | None) -> Letter:
    """The message as the node publishes it again: another death in its headers, no expiration."""
    parts = split_properties(letter.properties)
    headers = split_table(parts[_HEADERS] or bytes(4))
    keys = [*letter.routing_keys[:1], *_extra_keys(headers)]
    event: Fields = {}
    _set(event, b"reason", _string(reason.encode()))
    _set(event, b"queue", _string(letter.queue))
    _set(event, b"time", _TIME(b"T", seconds))
    _set(event, b"exchange", _string(letter.exchange))
    listed = b"".join(map(_string, keys))
    _set(event, b"routing-keys", b"A" + _U32(len(listed)) + listed)
    expiration = parts[_EXPIRATION]
    if expiration is not None:
        _set(event, b"original-expiration", _string(expiration[1:]))
    _note_death(headers, event, letter, reason.encode())
    routing_keys = letter.routing_keys
    if new_key is not None:
        routing_keys = (new_key,)
        headers.pop(b"CC", None)
    parts[_HEADERS] = join_table(headers)
    parts[_EXPIRATION] = None
    return Letter(letter.queue, letter.exchange, routing_keys, join_properties(parts))


def _note_death(headers: Fields, event: Fields, letter: Letter, reason: bytes) -> None:
    counted = {b"count": _entry(b"count", _LONG(b"l", 1)), **event}
    if b"x-death" not in headers:
        _set(headers, b"x-first-death-reason", _string(reason))
        _set(headers, b"x-first-death-queue", _string(letter.queue))
        _set(headers, b"x-first-death-exchange", _string(letter.exchange))
        _set_deaths(headers, [_table(counted)])
        return
    items = split_array(_value(headers[b"x-death"]))
    if items is None or not all(item[:1] == b"F" for item in items):  # a client's: set anew
        _set_deaths(headers, [_table(counted)])
        return
    deaths = _grouped([split_table(item[1:]) for item in items])
    same = [death for death in deaths if _group(death) == (letter.queue, reason)]
    others = [death for death in deaths if _group(death) != (letter.queue, reason)]
    if same:
        counted = same[0]
        _set(counted, b"count", _LONG(b"l", _count(counted) + 1))
    first = {key: counted[key] for key in sorted(counted)}
    _set_deaths(headers, [_table(first), *map(_table, others)])


def _grouped(deaths: list[Fields]) -> list[Fields]:
    """Each queue and reason once, in the other order, as the node leaves them."""
    if len(deaths) < 2:
        return deaths
    groups: dict[Any, Fields] = {}
    for death in deaths:
        if _group(death) not in groups:
            groups[_group(death)] = death
            if b"count" not in death:
                number = sum(_group(other) == _group(death) for other in deaths)
                entry = _entry(b"count", _LONG(b"l", number))
                groups[_group(death)] = {b"count": entry, **death}
    return list(groups.values())[::-1]


def _group(death: Fields) -> tuple[bytes | None, bytes | None]:
    queue, reason = (
        None if key not in death else _value(death[key])[5:] for key in (b"queue", b"reason")
    )
    return queue, reason


def _count(death: Fields) -> int:
    if b"count" not in death:
        return 0
    entry = death[b"count"]
    number = decode_table(_U32(len(entry)) + entry).get("count")
    return number if isinstance(number, int) and 0 <= number < (1 << 62) else 0


def _extra_keys(headers: Fields) -> list[bytes]:
    """Of the headers CC and BCC: they were routing keys, too."""
    keys: list[bytes] = []
    for name in (b"CC", b"BCC"):
        items = split_array(_value(headers[name])) if name in headers else None
        keys += [item[5:] for item in items or () if item[:1] == b"S"]
    return keys


def _is_cycle(queue: bytes, headers: Mapping[str, FieldValue]) -> bool:
    """Whether the message was in that queue before, with nobody's rejection since then."""
    deaths = headers.get("x-death")
    if not isinstance(deaths, list):
        return False
    for death in deaths:
        if not isinstance(death, dict) or death.get("reason") == "rejected":
            return False
        name = death.get("queue")
        if isinstance(name, (str, bytes)) and queue == (
            as_bytes(name) if isinstance(name, str) else name
        ):
            return True
    return False


def _set(fields: Fields, key: bytes, value: bytes) -> None:
    fields[key] = _entry(key, value)


def _set_deaths(headers: Fields, tables: list[bytes]) -> None:
    items = b"".join(tables)
    _set(headers, b"x-death", b"A" + _U32(len(items)) + items)


def _entry(key: bytes, value: bytes) -> bytes:
    return bytes([len(key)]) + key + value


def _value(entry: bytes) -> bytes:
    """Tag and value."""
    return entry[1 + entry[0] :]


def _string(value: bytes) -> bytes:
    return b"S" + _U32(len(value)) + value


def _table(fields: Fields) -> bytes:
    items = b"".join(fields.values())
    return b"F" + _U32(len(items)) + items
