"""What changes in a machine that holds messages when a later version comes into force."""

from __future__ import annotations

from typing import Any

from qindex.brokers.rabbitmq.quorum.consumers import Consumer
from qindex.brokers.rabbitmq.quorum.held import Held
from qindex.brokers.rabbitmq.quorum.machine import Machine
from qindex.brokers.rabbitmq.quorum.rules import rules_of


def upgrade(machine: Machine, version: int, now_ms: int) -> None:
    """Step by step, as the broker does."""
    old = machine.version
    if old < 2 <= version:
        _enqueue_pending(machine)
        machine.config.handler = _new_handler(machine.config.handler)
    every = [*machine.consumers.values(), *(consumer for _, consumer in machine.waiting)]
    if old < 3 <= version:
        for consumer in machine.consumers.values():
            prefetch = consumer.meta.get("prefetch") if isinstance(consumer.meta, dict) else None
            if consumer.mode == "simple_prefetch" and isinstance(prefetch, int):
                consumer.mode = ("simple_prefetch", prefetch)
    if old < 4 <= version:
        machine.returns = type(machine.returns)(map(_acquired, machine.returns))
        for consumer in machine.consumers.values():
            consumer.checked = {n: _acquired(each) for n, each in consumer.checked.items()}
    if old < 8 <= version:
        for consumer in every:
            _lock(consumer, now_ms)
    if rules_of(version).lines != machine.rules.lines:
        machine.ready = machine.ready.moved_to(rules_of(version).lines)


def _enqueue_pending(machine: Machine) -> None:
    from qindex.brokers.rabbitmq.quorum.deliveries import enqueue

    for waiting in machine.pending.values():
        for number in sorted(waiting):
            enqueue(machine, *waiting[number])
    machine.pending.clear()


def _new_handler(handler: Any) -> Any:
    """Before 3.10 it was {Module, Function, Args}; Args begins with the exchange."""
    match handler:
        case (str(), str(), [exchange, *_]) if handler[0] != "at_most_once":
            return None if exchange == "undefined" else ("at_most_once", handler)
    return handler


def _acquired(message: Held) -> Held:
    return message._replace(acquired=message.deliveries) if message.deliveries else message


def _lock(consumer: Consumer, now_ms: int) -> None:
    consumer.timeout_ms = 1_800_000
    consumer.locks = dict.fromkeys(consumer.checked, now_ms + consumer.timeout_ms)
    if consumer.status == "suspected_down":
        consumer.below = "up"
