"""Commands about messages: published, settled, given back, rejected, purged, expired."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from qindex.brokers.rabbitmq.erlang import LONG_MAX
from qindex.brokers.rabbitmq.quorum.activation import activate_next
from qindex.brokers.rabbitmq.quorum.consumers import SERIALS, Consumer, Key, put_waiting
from qindex.brokers.rabbitmq.quorum.erlang_order import SMALL_MAP, map_order
from qindex.brokers.rabbitmq.quorum.held import DEFAULT_PRIORITY, NEVER, Held
from qindex.brokers.rabbitmq.quorum.machine import At, Machine, command, name_of
from qindex.brokers.rabbitmq.quorum.measure import Measured, measure

# --- publishing -----------------------------------------------------------------------------------


@command("enqueue")
def _enqueue(machine: Machine, at: At, told: Any) -> None:
    match told:
        case (_, pid, number, message):
            publish(machine, at, pid, number, measure(message, machine.version))


@command("e")
def _enqueue_v2(machine: Machine, at: At, told: Any) -> None:
    match told, at.reply:
        case (_, number, message, (int(meta_size), int(body_size))), ("notify", _, pid):
            pass
        case (_, number, message, (int(meta_size), int(body_size))), _:
            pid = "undefined"
        case _:
            return
    measured = measure(message, machine.version)
    if 0 <= meta_size <= LONG_MAX and 0 <= body_size <= LONG_MAX:
        measured = measured._replace(meta_size=meta_size, body_size=body_size)
    publish(machine, at, pid, number, measured)


def publish(machine: Machine, at: At, pid: Any, number: Any, message: Measured) -> None:
    """A message of this publisher. One that it sent before is not taken again."""
    if pid == "undefined":
        enqueue(machine, at, message)
        machine.checkout(at)
        return
    if pid not in machine.enqueuers:
        machine.enqueuers[pid] = 1
        machine.watch(pid)
    expected = machine.enqueuers[pid]
    if number == expected:
        machine.enqueuers[pid] = expected + 1
        enqueue(machine, at, message)
        if machine.rules.keeps_pending:
            _enqueue_following(machine, pid)
        machine.checkout(at)
    elif isinstance(number, int) and number > expected:
        if machine.rules.keeps_pending:
            machine.pending.setdefault(pid, {})[number] = (at, message)
        else:
            last, count = machine.early.get(pid, (0, 0))
            machine.early[pid] = max(last, number), count + 1


def enqueue(machine: Machine, at: At, message: Measured) -> None:
    """Puts it in line."""
    body_size, meta_size, ttl, priority, deliveries = message
    rules, limit = machine.rules, machine.config.ttl_ms
    size = body_size + meta_size if rules.counts_headers else body_size
    if limit is not None:
        ttl = limit if ttl is None else min(ttl, limit)
    expiry = NEVER if ttl is None else min(at.now_ms + (ttl or 1), LONG_MAX)
    machine.found += 1
    machine.ready_bytes += size
    if machine.observer is not None:
        machine.observer("publish", at.index, "")
    if deliveries is not None and rules.counts_from_message:
        machine.ready.put(Held(at.index, size, expiry, deliveries), priority)
    else:
        machine.ready.put_new(at.index, size, expiry, priority)


def _enqueue_following(machine: Machine, pid: Any) -> None:
    """What came too early and has its turn now."""
    early = machine.pending.get(pid, {})
    while machine.enqueuers[pid] in early:
        enqueue(machine, *early.pop(machine.enqueuers[pid]))
        machine.enqueuers[pid] += 1


@command("register_enqueuer")
def _register(machine: Machine, at: At, told: Any) -> None:
    machine.enqueuers.setdefault(told[1], 1)
    machine.watch(told[1])


# --- what consumers say of deliveries -------------------------------------------------------------


def find(machine: Machine, key: Any) -> tuple[Key, Consumer] | None:
    """The consumer by its key, or by tag and pid."""
    found = machine.consumers.get(key) if isinstance(key, (int, tuple)) else None
    if found is not None:
        return key, found
    if machine.rules.finds_by_id and isinstance(key, tuple):
        for other, consumer in machine.consumers.items():
            if consumer.id == key:
                return other, consumer
    return None


def numbers_of(told: Any) -> list[int]:
    return [each for each in told if isinstance(each, int)] if isinstance(told, list) else []


@command("settle")
def _settle(machine: Machine, at: At, told: Any) -> None:
    _, key, numbers = told
    settle(machine, at, key, numbers_of(numbers))


def settle(machine: Machine, at: At, key: Any, numbers: list[int]) -> None:
    """The consumer is done with these."""
    found = find(machine, key)
    if found is None:
        _settle_waiting(machine, at, key, numbers)
        return
    done = _complete(machine, *found, numbers)
    machine.gone["acked"] += len(done)
    if machine.observer is not None:
        for message in done:
            machine.observer("ack", message.index, f"by {name_of(found[1].tag)}")
    _after(machine, at, "settle")


def _complete(machine: Machine, key: Key, consumer: Consumer, numbers: list[int]) -> list[Held]:
    """Takes these deliveries from the consumer, which gets credit for them."""
    if machine.version >= 8:
        _no_longer_late(consumer, numbers)
    taken = [consumer.checked.pop(number) for number in numbers if number in consumer.checked]
    if machine.uncertain:
        machine.maybe += len(taken)
    if consumer.locks:
        for number in numbers:
            consumer.locks.pop(number, None)
    if taken or machine.rules.version >= 8 or len(numbers) != 1:
        consumer.give_credit(len(taken), has_max=machine.rules.has_credit_max)
        machine.keep_or_remove(key, consumer)
    return taken


def _after(machine: Machine, at: At, what: str) -> None:
    if what in machine.rules.activates_after:
        activate_next(machine)
    machine.checkout(at)


@command("discard")
def _discard(machine: Machine, at: At, told: Any) -> None:
    _, key, numbers = told
    found = find(machine, key)
    if found is None or (machine.rules.discard_needs_key and found[0] != key):
        if found is None:
            _settle_waiting(machine, at, key, numbers_of(numbers))
        return
    reject(machine, at, found, numbers_of(numbers), failed=True, notes={})


def reject(
    machine: Machine,
    at: At,
    found: tuple[Key, Consumer],
    numbers: list[int],
    *,
    failed: bool,
    notes: Any,
) -> None:
    """The consumer does not want these again: they are dead-lettered."""
    messages = _complete(machine, *found, numbers)
    if machine.rules.counts_acquired:
        messages = [_counted(machine, each, failed=failed, notes=notes) for each in messages]
    machine.discard(messages, "rejected")
    _after(machine, at, "settle")


@command("return")
def _return(machine: Machine, at: At, told: Any) -> None:
    _, key, numbers = told
    give_back(machine, at, key, numbers_of(numbers), failed=False, notes={})


@command("modify")
def _modify(machine: Machine, at: At, told: Any) -> None:
    match told:
        case (_, key, numbers, failed, elsewhere, notes):
            pass
        case _:
            return
    if elsewhere != "true":
        failing = failed == "true"
        give_back(machine, at, key, numbers_of(numbers), failed=failing, notes=notes)
        return
    found = find(machine, key)
    if found is None:
        _settle_waiting(machine, at, key, numbers_of(numbers))
    else:
        reject(machine, at, found, numbers_of(numbers), failed=failed == "true", notes=notes)


def give_back(
    machine: Machine, at: At, key: Any, numbers: list[int], *, failed: bool, notes: Any
) -> None:
    """The consumer gives these back."""
    found = find(machine, key)
    if found is None:
        _settle_waiting(machine, at, key, numbers)
        return
    key, consumer = found
    if machine.version >= 8:
        _no_longer_late(consumer, numbers)
    as_told = machine.rules.returns_as_told
    if not as_told:
        numbers = map_order(number for number in numbers if number in consumer.checked)
    waited = len(machine.returns)
    count = 0
    for number in numbers:
        if number in consumer.checked:
            return_one(machine, at, key, consumer, number, failed=failed, notes=notes)
            count += 1
    if not as_told and count > SMALL_MAP:
        machine.mixed.mix(islice(machine.returns, waited, None))
    if key in machine.consumers:
        if machine.rules.credit_at_return == "once":
            consumer.give_credit(count, has_max=False)
        machine.keep_or_remove(key, consumer)
    _after(machine, at, "return")


def return_one(
    machine: Machine,
    at: At,
    key: Key,
    consumer: Consumer,
    number: int,
    *,
    failed: bool,
    notes: Any,
) -> None:
    """One delivery ends; the message waits again, or it was tried too often."""
    message = _counted(machine, consumer.checked[number], failed=failed, notes=notes)
    limit = machine.config.delivery_limit
    tries = (message.acquired if machine.rules.limit == "acquired" else message.deliveries) or 0
    if limit is not None and machine.mixed.groups:
        machine.mixed.check_limit(message, tries, limit)
    if limit is not None and tries > limit:
        machine.discard([message], "delivery_limit")
        _complete_one(machine, key, consumer, number)
        return
    del consumer.checked[number]
    consumer.locks.pop(number, None)
    if machine.rules.credit_at_return == "each":
        consumer.give_credit(1, has_max=machine.rules.has_credit_max)
    machine.give_back(at, message, failed=failed, notes=notes)
    if machine.version >= 8:
        machine.keep_or_remove(key, consumer)


def _complete_one(machine: Machine, key: Key, consumer: Consumer, number: int) -> None:
    del consumer.checked[number]
    consumer.locks.pop(number, None)
    consumer.give_credit(1, has_max=machine.rules.has_credit_max)
    machine.keep_or_remove(key, consumer)


def return_all(machine: Machine, at: At, key: Key, consumer: Consumer, *, failed: bool) -> None:
    """Every delivery of the consumer ends, by their numbers."""
    machine.consumers[key] = consumer
    for number in sorted(consumer.checked):
        if number in consumer.checked:
            return_one(machine, at, key, consumer, number, failed=failed, notes={})


def _counted(machine: Machine, message: Held, *, failed: bool, notes: Any) -> Held:
    index, size, expiry, deliveries, acquired, noted = message
    if not machine.rules.counts_acquired:
        return Held(index, size, expiry, (deliveries or 0) + 1, acquired, noted)
    if isinstance(notes, dict) and notes:
        noted = {**(noted or {}), **notes}
    if failed:
        deliveries = (deliveries or 0) + 1
    return Held(index, size, expiry, deliveries, (acquired or 0) + 1, noted)


@command("requeue")
def _requeue(machine: Machine, at: At, told: Any) -> None:
    """A return of a queue without a delivery limit: the message moves to this entry, at the end."""
    _, key, number, _, _, _ = told
    consumer = machine.consumers.get(key) if isinstance(key, (int, tuple)) else None
    if consumer is None or number not in consumer.checked:
        return
    message = _counted(machine, consumer.checked.pop(number), failed=False, notes={})
    machine.mixed.move(message.index, at.index)
    if machine.observer is not None:
        machine.observer("move", message.index, f"given back: it is entry {at.index} from here on")
        machine.observer("publish", at.index, f"it was entry {message.index} before")
    message = message._replace(index=at.index)
    consumer.locks.pop(number, None)
    machine.ready_bytes += message.size
    consumer.give_credit(1, has_max=machine.rules.has_credit_max)
    machine.ready.put(message, DEFAULT_PRIORITY)
    machine.keep_or_remove(key, consumer)
    _after(machine, at, "requeue")


@command("credit")
def _credit(machine: Machine, at: At, told: Any) -> None:
    match told:
        case (_, key, int(credit), int(count), drain):
            pass
        case _:
            return
    consumer = machine.consumers.get(key)
    if consumer is not None:
        consumer.credit = _granted(machine, consumer, count, credit)
        machine.serve(key, consumer)
        machine.checkout(at)
        if drain == "true" and consumer.credit > 0:
            consumer.deliveries += consumer.credit
            consumer.credit = 0
        return
    for other, waiting in machine.waiting:
        if other == key:
            waiting.credit = _granted(machine, waiting, count, credit)
            if drain == "true" and (machine.version >= 8 or waiting.has_serials):
                waiting.deliveries, waiting.credit = waiting.deliveries + waiting.credit, 0
            if machine.rules.sorts_waiting:
                machine.waiting = put_waiting(machine.waiting, key, waiting)
            else:
                others = [each for each in machine.waiting if each[0] != key]
                machine.waiting = [(key, waiting), *others]
            return


def _granted(machine: Machine, consumer: Consumer, count: int, credit: int) -> int:
    if machine.version < 8 and not consumer.has_serials:
        return max(0, count + credit - consumer.deliveries)
    granted = (count + credit - consumer.deliveries) % SERIALS
    return granted if granted < SERIALS // 2 else 0


# --- version 8: deliveries that take too long -----------------------------------------------------


def _no_longer_late(consumer: Consumer, numbers: Iterable[int]) -> None:
    if consumer.status == "timeout":
        done = set(numbers)
        consumer.late = [number for number in consumer.late if number not in done]
        if not consumer.late:
            consumer.status, consumer.below = consumer.below, ""


def _settle_waiting(machine: Machine, at: At, key: Any, numbers: list[int]) -> None:
    """A consumer that lost its place because it took too long is done with some of it."""
    if machine.version < 8 or not machine.config.single_active:
        return
    for other, consumer in machine.waiting:
        if (other == key or consumer.id == key) and consumer.status == "timeout":
            _no_longer_late(consumer, numbers)
            machine.waiting = put_waiting(machine.waiting, other, consumer)
            if consumer.status != "timeout":
                _after(machine, at, "settle")
            return
