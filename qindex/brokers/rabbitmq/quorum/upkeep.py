"""Commands about the whole queue: purged, expired, delayed messages, dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qindex.brokers.rabbitmq.quorum.attendance import back_from_suspicion, take_late
from qindex.brokers.rabbitmq.quorum.held import Held, Ready
from qindex.brokers.rabbitmq.quorum.machine import At, Machine, command


@command("purge")
def _purge(machine: Machine, at: At, told: Any) -> None:
    if machine.observer is not None:
        for index in [*(message.index for message in machine.returns), *machine.ready.indexes()]:
            machine.observer("purge", index, "")
    count = len(machine.ready) + len(machine.returns)
    machine.ready = Ready(machine.rules.lines)
    machine.returns.clear()
    machine.ready_bytes = 0
    if machine.version >= 8:
        count += machine.delayed.clear() + machine.dead.clear()
    machine.gone["purged"] += count
    machine.keep_limits()


@command("timeout")
def _timeout(machine: Machine, at: At, told: Any) -> None:
    match told[1]:
        case "expire_msgs" | ("expire_msgs", "shallow"):
            if machine.version >= 8:
                machine.expire_everywhere(at.now_ms)
            machine.checkout(at)
        case ("consumer_disconnected_timeout", key):
            back_from_suspicion(machine, at, key)
        case "evaluate_consumer_timeout":
            take_late(machine, at)
        case other:
            machine.unknown[f"timeout {other}"[:40]] += 1


@command("delayed_cmd")
def _delayed(machine: Machine, at: At, told: Any) -> None:
    match told[1]:
        case ("retry", "all"):
            machine.returns.extend(machine.delayed.take())
            machine.checkout(at)
        case ("retry", int(count)):
            machine.returns.extend(machine.delayed.take(count))
            machine.checkout(at)
        case ("assign_deferred", key, [*tokens]):
            _assign(machine, at, key, tokens)


def _assign(machine: Machine, at: At, key: Any, tokens: list[Any]) -> None:
    """A consumer asks for messages by their tokens."""
    consumer = machine.consumers.get(key)
    found = machine.delayed.find(tokens)
    if consumer is None or consumer.status != "up" or len(found) > consumer.credit:
        return
    for message in _popped(machine, found):
        number = consumer.next_id
        consumer.checked[number] = message
        consumer.locks[number] = at.now_ms + consumer.timeout_ms
        consumer.next_id += 1
        consumer.credit -= 1
        consumer.deliveries += 1
        machine.ready_bytes -= message.size
    machine.keep_or_remove(key, consumer)


def _popped(machine: Machine, found: list[tuple[Any, tuple[int, int]]]) -> Iterator[Held]:
    for token, key in found:
        yield machine.delayed.pop(token, key)


@command("dlx")
def _dead_letters(machine: Machine, at: At, told: Any) -> None:
    if machine.config.at_least_once:
        match told[1]:
            case ("checkout", _, int(prefetch)):
                machine.dead.new_worker(prefetch)
            case ("settle", [*numbers]):
                if machine.observer is not None:
                    for reason, message in machine.dead.of(numbers):
                        machine.observer("dead-letter", message.index, f"published: {reason}")
                machine.gone["dead-lettered"] += machine.dead.settle(numbers)
    machine.checkout(at)


@command("garbage_collection", "nodedown", "machine_version")
def _nothing(machine: Machine, at: At, told: Any) -> None:
    """They change no message."""
