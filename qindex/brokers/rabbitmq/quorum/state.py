"""The machine's state out of a snapshot: all versions of the record `rabbit_fifo`.

Positions count from 0, the record's name. Messages are [Index | Header], where Header is a size,
[Size | Expiry], or a map; version 8 packs index and size into one number. Versions 0 and 1 may have
a message's body beside it, and messages of which only the header is left: their entries are gone,
since every such message is settled further up in the log.

The messages that wait may be millions: they are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from qindex.brokers.rabbitmq import erlang
from qindex.brokers.rabbitmq.erlang import ErlangError, ImproperList, is_long
from qindex.brokers.rabbitmq.quorum.attendance import config_of
from qindex.brokers.rabbitmq.quorum.consumers import Consumer, Key, Service
from qindex.brokers.rabbitmq.quorum.held import DEFAULT_PRIORITY, NEVER, PRIORITY_MAX, Held, Ready
from qindex.brokers.rabbitmq.quorum.machine import SENSELESS, At, Machine
from qindex.brokers.rabbitmq.quorum.measure import measure
from qindex.brokers.rabbitmq.quorum.rules import rules_of

_INDEX_BITS: Final = 44
_SIZE_BITS: Final = 15
NO_ENTRY: Final = -1  # the index of a message of which only the header is left

# Of the record: what stands where from version 2 on, and before. Other fields do not matter here.
_CFG, _MESSAGES, _RETURNS, _ENQUEUERS, _CONSUMERS, _SERVICE = 1, 2, 4, 6, 9, 10
_DLX, _WAITING, _DELAYED = 11, 14, 17
_V1_PREFIX, _V1_WAITING = 11, 14
_V0_MESSAGES, _V0_RETURNS, _V0_ENQUEUERS, _V0_CONSUMERS, _V0_SERVICE = 2, 5, 7, 10, 11
_V0_PREFIX, _V0_WAITING = 12, 15
_CFG_NAMES: Final = (
    (4, "dead_letter_handler"), (6, "overflow_strategy"), (7, "max_length"), (8, "max_bytes"),
    (10, "delivery_limit"), (12, "msg_ttl"), (14, "delayed_retry"),
)  # fmt: skip


class StateError(ValueError):
    """The term is no state of this machine."""


def read_state(data: bytes, version: int) -> Machine:
    """The machine as it was. StateError or ErlangError if the term is something else."""
    if data[:1] != b"\x83":
        raise ErlangError("no version byte 131", 0)
    if data[1:2] == b"P":  # in a zip
        raise StateError(f"a state that is {type(erlang.decode(data)).__name__} in a zip")
    places = erlang.elements(data, 1)
    if len(places) < 16 or erlang.decode_at(data, places[0])[0] != "rabbit_fifo":
        raise StateError("the state is not one of a quorum queue")
    reader = _Reader(data, places, version)
    try:
        return reader.machine()
    except SENSELESS as error:
        if isinstance(error, ErlangError):
            raise
        raise StateError(f"the state has another shape: {error}") from None


class _Reader:
    def __init__(self, data: bytes, places: list[int], version: int) -> None:
        self.data = data
        self.places = places
        self.version = version

    def get(self, position: int) -> Any:
        return erlang.decode_at(self.data, self.places[position], nodes_max=len(self.data))[0]

    def machine(self) -> Machine:
        machine = Machine(rules_of(self.version), self.version)
        machine.ready = Ready(machine.rules.lines)
        if self.version < 2:
            self._old(machine)
        else:
            self._new(machine)
        machine.found = machine.live + len(machine.dead)
        return machine

    # --- version 2 and later ----------------------------------------------------------------------

    def _new(self, machine: Machine) -> None:
        self._settings(machine, self.get(_CFG))
        for priority, message in self._waiting_messages(machine):
            machine.ready.put(message, priority)
            machine.ready_bytes += message.size
        for term in self._line(self.places[_RETURNS]):
            message = held(term)
            machine.returns.append(message)
            machine.ready_bytes += message.size
        self._enqueuers(machine, self.get(_ENQUEUERS))
        self._consumers(machine, self.get(_CONSUMERS), self.get(_WAITING), _consumer)
        machine.service = service(self.get(_SERVICE))
        self._dead_letters(machine)
        if self.version >= 8 and len(self.places) > _DELAYED:
            self._delayed(machine, self.get(_DELAYED))

    def _settings(self, machine: Machine, cfg: Any) -> None:
        names = dict(_CFG_NAMES)
        settings: dict[Any, Any] = {names[at]: cfg[at] for at in names if at < len(cfg)}
        match cfg[2]:
            case ("resource", bytes(), "queue", bytes()):
                machine.named = cfg[2][1], cfg[2][3]
        settings["single_active_consumer_on"] = "true" if cfg[9] == "single_active" else "false"
        if self.version < 2:  # other fields stand there
            for name in ("msg_ttl", "delayed_retry"):
                settings.pop(name, None)
        machine.config = config_of(settings)

    def _waiting_messages(self, machine: Machine) -> Iterator[tuple[int, Held]]:
        """(priority, message) of those that wait, in the order of their lines."""
        place = self.places[_MESSAGES]
        if self.version < 4:
            for term in self._line(place):
                yield DEFAULT_PRIORITY, held(term)
            return
        parts = erlang.elements(self.data, place)
        name: Any = erlang.decode_at(self.data, parts[0])[0]
        if name == "rabbit_fifo_q":
            for priority, at in ((9, parts[1]), (DEFAULT_PRIORITY, parts[2])):
                rear, front = erlang.elements(self.data, at)
                for term in self._both(rear, front):
                    yield priority, held(term)
            taken = erlang.decode_at(self.data, parts[4])[0]
            machine.ready.taken = taken if isinstance(taken, int) else 0
        elif name == "pq":
            size = len(self.data)
            buckets: Any = erlang.decode_at(self.data, parts[1], nodes_max=size)[0]
            for key in sorted(buckets):
                _, rear, front = buckets[key]
                for term in [*front, *reversed(rear)]:
                    yield PRIORITY_MAX - key, held(term)
        else:
            raise StateError(f"messages in something else: {name!r}")

    def _line(self, place: int) -> Iterator[Any]:
        """An lqueue: {Len, Rear, Front}, before {Len, {Rear, Front}}; Rear is reversed."""
        parts = erlang.elements(self.data, place)
        if len(parts) == 2:
            parts = [parts[0], *erlang.elements(self.data, parts[1])]
        if len(parts) != 3:
            raise StateError("a line that is none")
        yield from self._both(parts[1], parts[2])

    def _both(self, rear: int, front: int) -> Iterator[Any]:
        yield from erlang.items(self.data, front)
        if self.data[rear : rear + 1] != b"j":
            yield from reversed(list(erlang.items(self.data, rear)))

    def _enqueuers(self, machine: Machine, told: Any) -> None:
        for pid, enqueuer in told.items():
            machine.enqueuers[pid] = _count(enqueuer[1])
            pending = enqueuer[2] if self.version < 2 and len(enqueuer) > 2 else None
            if isinstance(pending, list) and pending:
                machine.pending[pid] = {
                    _count(number): (At(_count(index), 0, None), measure(message, self.version))
                    for number, index, message in pending
                }

    def _consumers(self, machine: Machine, consumers: Any, waiting: Any, read: Any) -> None:
        for key, term in consumers.items():
            machine.consumers[key] = _counted(read(key, term, self.version))
        machine.waiting = [(key, _counted(read(key, term, self.version))) for key, term in waiting]

    def _dead_letters(self, machine: Machine) -> None:
        dlx = self.get(_DLX)
        match dlx:
            case (str(), worker, discards, *_):
                pass
            case _:
                return
        for term in line_items(discards):
            machine.dead.put(*_discarded(term), keeps_counts=True)
        match worker:
            case (_, _, int(prefetch), dict(checked), int(number)):
                machine.dead.has_worker = True
                machine.dead.prefetch, machine.dead.next_id = prefetch, number
                for each, term in checked.items():
                    reason, [message] = _discarded(term)
                    machine.dead.checked[each] = (reason, message)
                    machine.dead.bytes += message.size

    def _delayed(self, machine: Machine, told: Any) -> None:
        """{delayed, {Size, Node}, Next, Tokens}; a node is {Key, Value, Left, Right}."""
        _, (_, top), _, tokens = told
        by_key = {_pair(key): token for token, key in tokens.items()}
        stack = [top]
        while stack:
            match stack.pop():
                case (key, message, less, more):
                    ready_ms = _pair(key)[0]
                    machine.delayed.put(ready_ms, held(message), by_key.get(_pair(key)))
                    stack += [less, more]

    # --- before version 2 -------------------------------------------------------------------------

    def _old(self, machine: Machine) -> None:
        old = self.version == 0 and len(self.places) == 18
        at = {
            "messages": _V0_MESSAGES,
            "returns": _V0_RETURNS if old else _RETURNS,
            "enqueuers": _V0_ENQUEUERS if old else _ENQUEUERS,
            "consumers": _V0_CONSUMERS if old else _CONSUMERS,
            "service": _V0_SERVICE if old else _SERVICE,
            "prefix": _V0_PREFIX if old else _V1_PREFIX,
            "waiting": _V0_WAITING if old else _V1_WAITING,
        }
        self._settings(machine, self.get(_CFG))
        match self.get(at["prefix"]):
            case (int(), returned, int(), waited) | (returned, waited):
                machine.returns.extend(_headers(returned))
                for message in _headers(waited):
                    machine.ready.put(message)
        if old:
            messages = sorted(self.get(at["messages"]).items())
        else:
            messages = list(self._line(self.places[at["messages"]]))
        for _, message in messages:
            machine.ready.put(old_held(message))
        for term in self._line(self.places[at["returns"]]):
            machine.returns.append(old_held(term[1] if isinstance(term[0], int) else term))
        machine.ready_bytes = sum(message.size for message in machine.returns)
        self._enqueuers(machine, self.get(at["enqueuers"]))
        self._consumers(machine, self.get(at["consumers"]), self.get(at["waiting"]), _old_consumer)
        machine.service = service(self.get(at["service"]))


def _pair(term: Any) -> tuple[int, int]:
    """[A | B], also where B is a list itself."""
    match term:
        case ImproperList([first], second):
            return first, second  # type: ignore[return-value]
        case ([first], second) | (first, second):
            return first, second
    raise StateError("no pair")


def line_items(line: Any) -> list[Any]:
    """What stands in an lqueue that is read already."""
    match line:
        case (int(), [*rear], [*front]) | (int(), ([*rear], [*front])):
            return [*front, *reversed(rear)]
    raise StateError("a line that is none")


def held(term: Any) -> Held:
    """A message: [Index | Header], or index and size in one number."""
    if isinstance(term, int):
        return Held(term & (1 << _INDEX_BITS) - 1, term >> _INDEX_BITS & (1 << _SIZE_BITS) - 1)
    match term:
        case ImproperList([index], header):
            return _with_header(index, header)
        case ImproperList([index, int(size)], int(expiry)):
            return _with_header(index, (size, expiry))
    raise StateError("a message of an unknown shape")


def _with_header(index: Any, header: Any) -> Held:
    index = index if isinstance(index, int) else NO_ENTRY
    match header:
        case int(size):
            return _sound(Held(index, size))
        case (int(size), int(expiry)) | ImproperList([int(size)], int(expiry)):
            return _sound(Held(index, size, expiry))
        case {"size": int(size), **rest}:
            counts: Any = rest
            notes = counts.get("anns")
            return _sound(
                Held(
                    index,
                    size,
                    counts.get("expiry") or NEVER,
                    counts.get("delivery_count"),
                    counts.get("acquired_count"),
                    notes if isinstance(notes, dict) else None,
                )
            )
    raise StateError("a message with an unknown header")


def _count(told: Any) -> int:
    if not is_long(told):
        raise StateError("a number that is none")
    return told


def _sound(message: Held) -> Held:
    index, size, *others = message[:5]
    numbers = index, size, *(each for each in others if each is not None)
    if not all(map(is_long, numbers)) or size < 0:
        raise StateError("a message whose numbers are none")
    return message


def old_held(term: Any) -> Held:
    """Of version 0 or 1: {Index, {Header, Message | empty}}, or what is left of one."""
    match term:
        case (int(index), (header, _)):
            return _with_header(index, header)
        case ("$empty_msg" | "$prefix_msg", header):
            return _with_header(None, header)
        case (header, "empty"):
            return _with_header(None, header)
    return _with_header(None, term)


def _headers(told: Any) -> list[Held]:
    return [old_held(each) for each in told] if isinstance(told, list) else []


def _discarded(term: Any) -> tuple[str, list[Held]]:
    """[Reason | Message]: as one list, since a message is a list, too."""
    match term:
        case ImproperList([reason, *items], tail) if items:
            return str(reason), [held(ImproperList(items, tail))]
        case ImproperList([reason], int(packed)):
            return str(reason), [held(packed)]
    raise StateError("a dead letter of an unknown shape")


def _consumer(key: Key, term: Any, version: int) -> Consumer:
    """{consumer, {consumer_cfg, ...}, Status, NextId, Checked, Credit, Deliveries, ...}"""
    _, cfg, status, number, checked, credit, deliveries, *more = term
    _, meta, pid, tag, mode, lifetime, priority, *timeout = cfg
    consumer = Consumer(
        tag, pid, str(lifetime), mode, credit, deliveries, priority, next_id=number, meta=meta
    )
    if isinstance(status, tuple):
        consumer.status, consumer.below = str(status[0]), str(status[1])
    else:
        consumer.status = str(status)
    for each, message in checked.items():
        if version >= 8:
            until, message = _locked(message)
            consumer.locks[each] = until
        consumer.checked[each] = held(message)
    if timeout and isinstance(timeout[0], int):
        consumer.timeout_ms = timeout[0]
    if len(more) > 1 and isinstance(more[1], list):
        consumer.late = more[1]
    return consumer


def _counted(consumer: Consumer) -> Consumer:
    """What is compared and added to later has to be numbers, and what is looked for a key."""
    numbers = consumer.credit, consumer.deliveries, consumer.priority, consumer.next_id
    if not all(map(is_long, (*numbers, *consumer.checked, *consumer.locks.values()))):
        raise StateError("a consumer whose numbers are none")
    match consumer.mode:
        case str() | (str(), int()):
            hash(consumer.id)
        case _:
            raise StateError("a consumer that gets credit in an unknown way")
    return consumer


def _locked(term: Any) -> tuple[int, Any]:
    match term:
        case (int(until), message):
            return until, message
        case ImproperList([int(until), *items], tail) if items:
            return until, ImproperList(items, tail)
    raise StateError("a delivery of an unknown shape")


def _old_consumer(key: Any, term: Any, version: int) -> Consumer:
    """Of version 0 or 1: one flat tuple; checked: {number in the queue, message}."""
    _, meta, checked, number, credit, deliveries, mode, lifetime, status, *priority = term
    tag, pid = key
    consumer = Consumer(
        tag, pid, str(lifetime), mode, credit, deliveries, next_id=number, meta=meta
    )
    consumer.status = str(status)
    consumer.priority = priority[0] if priority and isinstance(priority[0], int) else 0
    for each, message in checked.items():
        marked = isinstance(message, tuple) and isinstance(message[0], str)
        consumer.checked[each] = old_held(message if marked else message[1])
    return consumer


def service(term: Any) -> Service:
    """priority_queue: {queue, In, Out, Len} | {pqueue, [{-Priority | infinity, Queue}]}."""
    found = Service()
    match term:
        case ("queue", [*into], [*out], *_) | ([*into], [*out]):
            lines: list[Any] = [(0, (None, into, out))]
        case ("pqueue", [*lines]):
            pass
        case _:
            raise StateError("a turn of consumers of an unknown shape")
    for negative, line in lines:
        _, into, out, *_ = line
        priority = 1 << 30 if negative == "infinity" else -negative
        for key in [*out, *reversed(into)]:
            found.put(tuple(key) if isinstance(key, list) else key, priority)
    return found
