"""Single active consumer: who gets the place when it is free, or when somebody better waits."""

from __future__ import annotations

from qindex.brokers.rabbitmq.quorum.consumers import Consumer, Key, put_waiting
from qindex.brokers.rabbitmq.quorum.machine import Machine


def active(machine: Machine) -> tuple[Key, Consumer] | None:
    """The consumer that has the place."""
    for key, consumer in machine.consumers.items():
        if consumer.is_active:
            return key, consumer
    return None


def activate_next(machine: Machine) -> None:
    """Lets the first of those that wait have the place, if it is free or less urgent."""
    if not machine.config.single_active or not machine.waiting:
        return
    if machine.rules.sorts_waiting:
        at = 0 if machine.waiting[0][1].status == "up" else None
    else:
        ups = [n for n, (_, consumer) in enumerate(machine.waiting) if consumer.status == "up"]
        at = ups[0] if ups else None
    if at is None:
        return
    key, consumer = machine.waiting[at]
    holder = active(machine)
    if holder is None:
        del machine.waiting[at]
        _place(machine, key, consumer)
    elif machine.rules.sorts_waiting and consumer.priority > holder[1].priority:
        if holder[1].checked:
            holder[1].status, holder[1].below = "quiescing", ""
            return
        del machine.waiting[at]
        machine.consumers[key] = consumer
        machine.serve(key, consumer)
        del machine.consumers[holder[0]]
        machine.waiting = put_waiting(machine.waiting, *holder)


def _place(machine: Machine, key: Key, consumer: Consumer) -> None:
    """One that was cancelled and still has deliveries comes back with what is new."""
    existing = machine.consumers.get(key)
    if existing is not None:
        for name in ("tag", "pid", "lifetime", "mode", "priority", "meta", "timeout_ms"):
            setattr(existing, name, getattr(consumer, name))
        consumer = existing
    machine.consumers[key] = consumer
    machine.serve(key, consumer)
