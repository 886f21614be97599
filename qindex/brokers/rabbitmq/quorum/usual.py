"""The usual entries of a log, many at once: publishes, and settlements of what was delivered.

The scanner in C says what each entry of a block is. What it knows goes through the machine here,
without a value for each entry; where anything is not usual, the entry goes the way of all others,
through machine.py, which alone says what is right. Both ways end in the same state, always: that is
tested with random logs, and `qindex replay --verify` does it with any log.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from qindex._core import ffi, lib
from qindex.brokers.rabbitmq.quorum.consumers import Consumer, Key, read_name
from qindex.brokers.rabbitmq.quorum.deliveries import find
from qindex.brokers.rabbitmq.quorum.machine import Machine
from qindex.brokers.rabbitmq.ra.log import Block

# index, how many deliveries are settled (0: it publishes), whose, number, size, expiry_ms, now_ms,
# priority
Row: TypeAlias = "tuple[int, int, int, int, int, int, int, int]"
Keeper: TypeAlias = "tuple[Key, Consumer, int]"  # and the most credit that it may have
_OTHER: Final = lib.QI_RABBIT_OTHER
_NO_LIMIT: Final = -1
_OWN_CREDIT: Final = -2  # the consumer alone says how much
_NO_PUBLISHER: Final = -1


class Usual:
    """Scans blocks, and takes rows of them."""

    def __init__(self) -> None:
        self._steps = ffi.new("qi_rabbit_steps *")
        self._measure = ffi.new("qi_rabbit_measure *")
        self._numbers = ffi.new("qi_rabbit_names *")
        self.names: list[Any] = []  # publishers and consumers by their numbers in rows

    def rows(self, machine: Machine, block: Block, start: int) -> Iterator[Row]:
        """What the entries of the block say, from the one at `start` on, under today's settings."""
        steps, columns = self._steps, block.columns.part(start, len(block.columns))
        count = len(columns)
        self._forget_names()
        self._set_measure(machine)
        steps.base = block.base
        _put(steps.offsets, columns.offsets)
        _put(steps.sizes, columns.sizes)
        data = block.data
        lib.qi_rabbit_read_steps(data, len(data), count, self._measure, self._numbers, steps)
        counts = ffi.unpack(steps.counts, count)
        for at in block.bad:
            if at >= start:
                counts[at - start] = _OTHER
        self._learn_names()
        return zip(
            columns.indexes,
            counts,
            ffi.unpack(steps.names, count),
            ffi.unpack(steps.numbers, count),
            ffi.unpack(steps.bytes, count),
            ffi.unpack(steps.expiries_ms, count),
            ffi.unpack(steps.times_ms, count),
            ffi.unpack(steps.priorities, count),
            strict=True,
        )

    def _set_measure(self, machine: Machine) -> None:
        limit = machine.config.ttl_ms
        self._measure.ttl_ms = -1 if limit is None else min(limit, (1 << 62))
        self._measure.counts_headers = machine.rules.counts_headers
        self._measure.only_containers = machine.version >= 4

    def _forget_names(self) -> None:
        numbers = self._numbers
        if numbers.count == lib.QI_RABBIT_NAMES_MAX or 2 * numbers.used > lib.QI_RABBIT_NAME_BYTES:
            self._numbers = ffi.new("qi_rabbit_names *")
            self.names.clear()

    def _learn_names(self) -> None:
        numbers, names = self._numbers, self.names
        for number in range(len(names), numbers.count):
            start = numbers.ends[number - 1] if number else 0
            raw = ffi.buffer(numbers.bytes)[start : numbers.ends[number]]
            names.append(read_name(raw))  # None: whoever it is, the entry is not usual

    def take(self, machine: Machine, rows: Iterator[Row]) -> Row | None:
        """Lets the machine do what rows say, up to one that is not usual: that one."""
        if not _is_usual(machine):
            return next(rows, None)
        ready, returns, service = machine.ready, machine.returns, machine.service
        members, limited, put = service.members, machine.has_limits, ready.put_new
        expected: dict[int, int] = {}  # the next number of each publisher
        keepers: dict[int, Keeper] = {}
        last_ms, found, acked, stopped = machine.last_ms, 0, 0, None
        for row in rows:
            index, count, who, number, size, expiry_ms, now_ms, priority = row
            if not count:
                if (expected.get(who) or self._expected(machine, who)) != number:
                    stopped = row
                    break
                expected[who] = number + 1
                found += 1
                if ready.length or returns or not machine.hand_over(index, size, expiry_ms, now_ms):
                    machine.ready_bytes += size
                    put(index, size, expiry_ms, priority)
            else:
                keeper = None if count < 0 else keepers.get(who) or self._keeper(machine, who)
                if keeper is None or not _settle(keeper, number, count):
                    stopped = row
                    break
                keepers[who] = keeper
                acked += count
                key, consumer, _ = keeper
                if consumer.credit > 0 and key not in members:
                    is_alone = consumer.credit == 1 and not members and not returns
                    if not (is_alone and _hand_next(machine, consumer, now_ms)):
                        service.put(key, consumer.priority)
            if now_ms > last_ms:
                last_ms = now_ms
            if returns or (ready.length and (members or ready.expires)):
                machine.deliver(now_ms)
            if limited:
                machine.keep_limits()
        self._end(machine, last_ms, found, acked, expected)
        return stopped

    def _end(
        self, machine: Machine, last_ms: int, found: int, acked: int, expected: dict[int, int]
    ) -> None:
        for who, number in expected.items():
            machine.enqueuers[self.names[who]] = number
        machine.last_ms = last_ms
        machine.found += found
        machine.gone["acked"] += acked
        if machine.config.at_least_once:
            machine.dead.checkout()

    def _expected(self, machine: Machine, who: int) -> int:
        """The number that a publisher's next message has, if nothing of it is kept back."""
        pid = self.names[who]
        if pid is None or machine.pending.get(pid):
            return _NO_PUBLISHER
        return machine.enqueuers.get(pid, _NO_PUBLISHER)

    def _keeper(self, machine: Machine, who: int) -> Keeper | None:
        """The consumer of this number, if it is a usual one."""
        told = self.names[who]
        found = None if told is None else find(machine, told)
        if found is None or found[1].status != "up" or found[1].lifetime == "once":
            return None
        key, consumer = found
        if consumer.has_own_credit:
            return key, consumer, _OWN_CREDIT
        has_max = machine.rules.has_credit_max and type(consumer.mode) is tuple
        most = consumer.mode[1] if has_max else 0
        return key, consumer, most if most > 0 else _NO_LIMIT


def _is_usual(machine: Machine) -> bool:
    """Whether the machine is in a state in which usual entries do nothing but what is done here."""
    waits = machine.config.single_active and machine.waiting  # it may get its place
    activates = waits and "settle" in machine.rules.activates_after
    return not machine.uncertain and machine.observer is None and not activates


def _settle(keeper: Keeper, number: int, count: int) -> bool:
    """Takes these deliveries from the consumer. False: it does not have them all."""
    _, consumer, most = keeper
    checked = consumer.checked
    if count == 1:
        if checked.pop(number, None) is None:
            return False
        if consumer.locks:
            consumer.locks.pop(number, None)
    else:
        numbers = range(number, number + count)
        if not all(map(checked.__contains__, numbers)):
            return False
        for each in numbers:
            del checked[each]
            consumer.locks.pop(each, None)
    if most != _OWN_CREDIT:
        credit = consumer.credit + count
        consumer.credit = most if 0 < most < credit else credit
    return True


def _hand_next(machine: Machine, consumer: Consumer, now_ms: int) -> bool:
    """The message whose turn it is goes to a consumer that just got its one credit.

    Only where nobody else has any and nothing came back. The same as giving it a turn and
    delivering, at a third of the cost. False: nothing waits, or something here may have
    expired, and nothing was done.
    """
    ready = machine.ready
    if not ready.length or ready.expires:
        return False
    message = ready.take()
    number = consumer.next_id
    consumer.checked[number] = message
    consumer.next_id = number + 1
    consumer.credit = 0
    consumer.deliveries += 1
    if machine.version >= 8:
        consumer.locks[number] = now_ms + consumer.timeout_ms
    machine.ready_bytes -= message[1]
    return True


def _put(target: Any, values: array[int]) -> None:
    ffi.memmove(target, values, len(values) * values.itemsize)
