"""A plan's users, virtual hosts, exchanges, queues and bindings as entries of the catalogs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from qindex.broker import definitions
from qindex.broker.exchanges import EXCHANGE, QUEUE, TYPES, Binding, Destination
from qindex.broker.rescue.plan import Plan, word_of
from qindex.broker.users import Changes, Permission, Users
from qindex.brokers.rabbitmq.message import text
from qindex.brokers.rabbitmq.topology import Binding as DeadBinding
from qindex.field_table import encode_table

_OWN: Final = frozenset({"", "amq.match", *(f"amq.{kind}" for kind in TYPES)})


def vhosts_of(plan: Plan) -> list[str]:
    """All virtual hosts; "/" if the node's own are not known."""
    return sorted({*plan.accounts.vhosts, *plan.queues}) or ["/"]


def node_entries(plan: Plan) -> Changes:
    """Users, permissions and virtual hosts."""
    changes: Changes = {}
    vhosts = vhosts_of(plan)
    for number, vhost in enumerate(vhosts):
        changes[f"vhost/{vhost}"] = encode_table({"id": str(number)})
    for user in plan.accounts.users:
        changes |= Users.entry_of_rabbitmq(user.name, user.digest, user.algorithm, user.tags)
    known = {user.name for user in plan.accounts.users}
    for each in plan.accounts.permissions:
        if each.user in known and each.vhost in vhosts:
            permission = Permission(each.configure, each.write, each.read)
            changes |= Users.permission_entry(each.vhost, each.user, permission)
    return changes


def vhost_entries(plan: Plan, vhost: str) -> Changes:
    """Exchanges, queues, bindings, and for each queue with messages that they are to come."""
    changes: Changes = {}
    exchanges = {""}
    for (its_vhost, raw), exchange in plan.topology.exchanges.items():
        if text(its_vhost) != vhost or exchange.type not in TYPES:
            continue
        name = text(raw)
        if word_of(vhost, name) in plan.without:
            continue
        exchanges.add(name)
        if name not in _OWN:
            changes |= definitions.exchange_entry(
                name,
                exchange.type,
                auto_delete=exchange.auto_delete,
                internal=exchange.internal,
                arguments=dict(exchange.arguments),
            )
    queues = plan.queues.get(vhost, {})
    for name, taken in queues.items():
        changes |= definitions.queue_entry(
            name, auto_delete=taken.auto_delete, arguments=taken.arguments
        )
    for (its_vhost, source), bindings in plan.topology.bindings.items():
        if text(its_vhost) == vhost and source and text(source) in exchanges:
            changes |= _bindings(text(source), bindings, exchanges, queues)
    for name, taken in queues.items():
        if count := taken.queue.account.live:
            changes |= definitions.arriving_entry(name, count)
    return changes


def _bindings(
    source: str, bindings: Iterable[DeadBinding], exchanges: set[str], queues: Mapping[str, Any]
) -> Changes:
    changes: Changes = {}
    for each in bindings:
        name = text(each.destination)
        if name in (exchanges if each.to_exchange else queues):
            arguments = dict(each.arguments)
            destination = Destination(EXCHANGE if each.to_exchange else QUEUE, name)
            digest = definitions.canonical(arguments)
            binding = Binding(source, destination, text(each.key), digest)
            changes |= definitions.of_binding(binding, arguments)
    return changes
