"""Commands about who is there: consumers come and go, processes and nodes go down and come back."""

from __future__ import annotations

from collections.abc import Sized
from itertools import islice
from typing import Any

from qindex.brokers.rabbitmq.erlang import is_long
from qindex.brokers.rabbitmq.quorum.activation import activate_next, active
from qindex.brokers.rabbitmq.quorum.consumers import (
    Consumer,
    Key,
    pid_node,
    pid_order,
    put_waiting,
    sort_waiting,
    term_order,
)
from qindex.brokers.rabbitmq.quorum.deliveries import find, return_all, return_one, settle
from qindex.brokers.rabbitmq.quorum.erlang_order import SMALL_MAP
from qindex.brokers.rabbitmq.quorum.machine import At, Config, Machine, command

_TIMEOUT_MS = 1_800_000


@command("checkout")
def _checkout(machine: Machine, at: At, told: Any) -> None:
    match told:
        case (_, (tag, pid), ("dequeue", how), meta):
            _dequeue(machine, at, (tag, pid), how, meta)
        case (_, (tag, pid), "cancel" | "remove" as how, *_):
            _leave(machine, at, (tag, pid), how)
        case (_, (tag, pid), (str(life), *spec), meta):
            _join(machine, at, (tag, pid), life, spec, meta)


# --- joining --------------------------------------------------------------------------------------


def _join(machine: Machine, at: At, who: Key, life: str, spec: list[Any], meta: Any) -> None:
    mode, credit = _mode(machine, spec)
    key = _key_of(machine, who)
    if key is None:
        key = at.index if machine.rules.finds_by_id and len(spec) == 1 else who
    new = _consumer(who, life, mode, credit, meta)
    add(machine, key, new)
    machine.watch(new.pid)
    activate_next(machine)
    machine.checkout(at)


def _mode(machine: Machine, spec: list[Any]) -> tuple[Any, int]:
    """How a consumer gets credit, and how much it begins with."""
    match spec:
        case [int(credit), str(mode)] if not machine.rules.finds_by_id:
            if mode == "simple_prefetch" and machine.rules.has_credit_max:
                return ("simple_prefetch", credit), credit
            return mode, credit
        case [int(credit), "simple_prefetch"]:
            return ("simple_prefetch", credit), credit
        case [("simple_prefetch", int(credit)) as mode]:
            return mode, credit
        case [("credited", int()) as mode]:
            return mode, 0
    return "credited", 0


def _key_of(machine: Machine, who: Key) -> Key | None:
    """By which key the consumer is known."""
    if who in machine.consumers or not machine.rules.finds_by_id:
        return who if who in machine.consumers else None
    found = find(machine, who)
    if found is not None:
        return found[0]
    return next((key for key, consumer in machine.waiting if consumer.id == who), None)


def _consumer(who: Any, life: str, mode: Any, credit: int, meta: Any) -> Consumer:
    tag, pid = who
    new = Consumer(tag, pid, lifetime=life, mode=mode, credit=credit, meta=meta)
    if isinstance(mode, tuple) and mode[0] == "credited":
        new.deliveries = mode[1]
    if isinstance(meta, dict):
        new.priority = _priority(meta)
        timeout = meta.get("timeout", _TIMEOUT_MS)
        new.timeout_ms = timeout if isinstance(timeout, int) else _TIMEOUT_MS
    return new


def _priority(meta: dict[Any, Any]) -> int:
    told = meta.get("priority")
    if isinstance(told, int):
        return told
    arguments = meta.get("args")
    for argument in arguments if isinstance(arguments, list) else []:
        match argument:
            case (b"x-priority", _, int(value)):
                return value
    return 0


def add(machine: Machine, key: Key, new: Consumer) -> None:
    """A consumer with this key; one that is known gets what is new."""
    known = machine.consumers.get(key)
    if machine.config.single_active:
        holder = active(machine)
        holds = holder is not None and holder[0] == key and holder[1].status == "up"
        if not holds and (holder is not None or known is None):
            if machine.rules.sorts_waiting:
                machine.waiting = put_waiting(machine.waiting, key, new)
            else:
                machine.waiting.append((key, new))
            return
    if known is not None:
        known.credit = max(0, new.credit - len(known.checked))
        known.priority, known.meta, known.mode = new.priority, new.meta, new.mode
        known.lifetime, known.status, known.below = new.lifetime, "up", ""
        new = known
    machine.keep_or_remove(key, new)


def _dequeue(machine: Machine, at: At, who: Key, how: Any, meta: Any) -> None:
    """basic.get: a consumer of one message."""
    if machine.config.single_active or not (len(machine.ready) or machine.returns):
        return
    if find(machine, who) is not None:
        return
    mode = ("simple_prefetch", 1) if machine.rules.has_credit_max else "simple_prefetch"
    new = _consumer(who, "once", mode, 1, meta)
    new.priority = 0
    add(machine, who, new)
    number = new.next_id
    if machine.deliver_one(at.now_ms) is None:
        machine.consumers.pop(who, None)  # all that waited had expired
    elif how == "settled":
        settle(machine, at, who, [number])
    else:
        machine.watch(new.pid)
    machine.keep_limits()


# --- leaving --------------------------------------------------------------------------------------


def _leave(machine: Machine, at: At, who: Key, how: str) -> None:
    key = _key_of(machine, who)
    if key is None and machine.rules.finds_by_id:
        return
    cancel(machine, at, who if key is None else key, how)
    if machine.rules.finds_by_id:
        activate_next(machine)
    machine.checkout(at)


def cancel(machine: Machine, at: At, key: Key, how: str) -> None:
    """cancel: it keeps what it has; remove and down: that goes back."""
    waited = bool(machine.waiting)
    consumer = machine.consumers.get(key)
    if consumer is None:
        if machine.config.single_active:
            machine.waiting = [each for each in machine.waiting if each[0] != key]
        return
    if how == "cancel":
        consumer.lifetime, consumer.credit = "once", 0
        consumer.status, consumer.below = "cancelled", ""
        machine.keep_or_remove(key, consumer)
    else:
        return_all(machine, at, key, consumer, failed=how == "down")
        machine.consumers.pop(key, None)
    if machine.config.single_active and waited and not machine.rules.sorts_waiting:
        activate_next(machine)


@command("down")
def _down(machine: Machine, at: At, told: Any) -> None:
    _, pid, reason = told
    if reason == "noconnection":
        if machine.rules.suspects_by_pid:
            _suspect_process(machine, pid)
        else:
            _suspect_node(machine, at, pid)
    else:
        go_down(machine, at, pid)
        if machine.rules.sorts_waiting:
            activate_next(machine)
    machine.checkout(at)


def go_down(machine: Machine, at: At, pid: Any) -> None:
    """The process is no more: as a publisher it is forgotten, as a consumer all goes back."""
    expected = machine.enqueuers.pop(pid, 1)
    if pid in machine.early and machine.early[pid][0] < expected:
        del machine.early[pid]  # it sent all of them again
    early = machine.pending.pop(pid, {})
    if machine.rules.keeps_pending:
        from qindex.brokers.rabbitmq.quorum.deliveries import enqueue

        for number in sorted(early):
            enqueue(machine, *early[number])
    if machine.config.single_active:
        machine.waiting = [each for each in machine.waiting if each[1].pid != pid]
    keys = [key for key, consumer in machine.consumers.items() if consumer.pid == pid]
    waited = len(machine.returns)
    for key in sorted(keys, key=term_order):
        cancel(machine, at, key, "down")
    _mix_if_many(machine, keys, waited)


def _mix_if_many(machine: Machine, keys: Sized, waited: int) -> None:
    """Of more than 32 consumers only Erlang knows whose messages came back first."""
    if len(keys) > SMALL_MAP and not machine.rules.sorts_consumers:
        machine.mixed.mix(islice(machine.returns, waited, None))


def restart(machine: Machine) -> None:
    """What the first leader after a restart of all nodes finds: no process lives any more."""
    at = At(0, machine.last_ms, None)
    if machine.passed_on is None:
        machine.passed_on = []
    asked = [*(machine.known or ()), *machine.watched]
    rest = sorted(machine.processes().difference(asked), key=pid_order)
    for pid in dict.fromkeys([*asked, *rest]):
        _down(machine, at, ("down", pid, "noproc"))


@command("purge_nodes")
def _purge_nodes(machine: Machine, at: At, told: Any) -> None:
    nodes = {str(node).encode() for node in told[1]} if isinstance(told[1], list) else set()
    pids = [pid for pid in machine.processes() if pid_node(pid) in nodes]
    for pid in sorted(pids, key=pid_order):
        go_down(machine, at, pid)


# --- nodes that cannot be reached -----------------------------------------------------------------


def _suspect_node(machine: Machine, at: At, pid: Any) -> None:
    """Consumers of the pid's node lose what they have; they may come back."""
    node = pid_node(pid)
    waited, keys = len(machine.returns), sorted(machine.consumers, key=term_order)
    for key in keys:
        consumer = machine.consumers.get(key)
        if consumer is None or pid_node(consumer.pid) != node:
            continue
        if not machine.config.single_active and consumer.status != "up":
            continue
        if not machine.rules.keeps_credit_when_suspected:
            consumer.give_credit(len(consumer.checked), has_max=False)
        if not machine.config.single_active:
            consumer.status = "suspected_down"
        return_all(machine, at, key, consumer, failed=True)
        if machine.config.single_active and machine.consumers.pop(key, None) is not None:
            machine.waiting.append((key, consumer))
    _mix_if_many(machine, keys, waited)
    for _, consumer in machine.waiting:
        if pid_node(consumer.pid) == node and consumer.status != "cancelled":
            consumer.status = "suspected_down"
    machine.waiting = [each for each in machine.waiting if each[1].status != "cancelled"]
    if machine.rules.sorts_waiting:
        machine.waiting = sort_waiting(machine.waiting)
    activate_next(machine)


def _suspect_process(machine: Machine, pid: Any) -> None:
    """Version 8: it keeps what it has until a timeout."""
    for consumer in machine.consumers.values():
        if consumer.pid == pid:
            consumer.become("suspected_down")
    _waiting_become(machine, lambda consumer: consumer.pid == pid, "suspected_down")


def _waiting_become(machine: Machine, wanted: Any, status: str) -> None:
    kept = [each for each in machine.waiting if each[1].status != "cancelled"]
    for _, consumer in kept:
        if wanted(consumer):
            consumer.become(status)
    machine.waiting = sort_waiting(kept) if machine.rules.sorts_waiting else kept


@command("nodeup")
def _nodeup(machine: Machine, at: At, told: Any) -> None:
    node = str(told[1]).encode()
    for key in sorted(machine.consumers, key=term_order):
        consumer = machine.consumers[key]
        if pid_node(consumer.pid) != node or consumer.status == "cancelled":
            continue
        if machine.rules.suspects_by_pid:
            if consumer.status != "suspected_down":
                continue
            consumer.become("up")
        else:
            consumer.status = "up"
        machine.keep_or_remove(key, consumer)
    if machine.rules.suspects_by_pid:
        _waiting_become(machine, lambda consumer: pid_node(consumer.pid) == node, "up")
    else:
        for _, consumer in machine.waiting:
            if pid_node(consumer.pid) == node and consumer.status != "cancelled":
                consumer.status = "up"
        if machine.rules.sorts_waiting:
            machine.waiting = sort_waiting(machine.waiting)
    activate_next(machine)
    machine.checkout(at)


def back_from_suspicion(machine: Machine, at: At, key: Any) -> None:
    """Version 8: a suspected consumer did not come back in time."""
    found = find(machine, key)
    if found is None or found[1].status != "suspected_down":
        return
    key, consumer = found
    return_all(machine, at, key, consumer, failed=False)
    if machine.config.single_active:
        if machine.consumers.pop(key, None) is not None and consumer.below != "cancelled":
            consumer.below = "up"
            machine.waiting.append((key, consumer))
        activate_next(machine)
    machine.checkout(at)


def take_late(machine: Machine, at: At) -> None:
    """Version 8: deliveries that took longer than their consumer may take go back."""
    for key in sorted(machine.consumers, key=term_order):
        consumer = machine.consumers.get(key)
        late = [] if consumer is None else [n for n, t in consumer.locks.items() if at.now_ms >= t]
        if consumer is None or not late:
            continue
        consumer.late = sorted([*consumer.late, *late])
        consumer.become("timeout")
        for number in sorted(late):
            if number in consumer.checked:
                return_one(machine, at, key, consumer, number, failed=False, notes={})
    if machine.config.single_active:
        for key in sorted(machine.consumers, key=term_order):
            consumer = machine.consumers[key]
            if consumer.below and not consumer.checked:
                del machine.consumers[key]
                machine.waiting = put_waiting(machine.waiting, key, consumer)
    activate_next(machine)
    machine.checkout(at)


# --- settings -------------------------------------------------------------------------------------


@command("update_config")
def _update_config(machine: Machine, at: At, told: Any) -> None:
    settings = told[1]
    if not isinstance(settings, dict):
        return
    if machine.rules.needs_handler and "dead_letter_handler" not in settings:
        machine.unknown["update_config"] += 1
        return
    before = machine.config
    machine.config = config_of(settings)
    if machine.version >= 4 and "dead_letter_handler" not in settings:
        machine.config.handler = None
    if before.at_least_once and machine.config.handler != before.handler:
        machine.gone["dead letters dropped"] += machine.dead.clear()
        machine.dead.has_worker = False
    machine.checkout(at)


def config_of(settings: dict[Any, Any]) -> Config:
    """The settings that decide what becomes of messages."""

    def number(name: str) -> int | None:
        value = settings.get(name)
        return value if is_long(value) else None

    limit = number("delivery_limit")
    handler = settings.get("dead_letter_handler")
    return Config(
        handler=None if handler == "undefined" else handler,
        overflow=str(settings.get("overflow_strategy", "drop_head")),
        length_max=number("max_length"),
        bytes_max=number("max_bytes"),
        single_active=settings.get("single_active_consumer_on") == "true",
        delivery_limit=None if limit is None or limit < 0 else limit,
        ttl_ms=number("msg_ttl"),
        delayed_retry=settings.get("delayed_retry"),
    )
