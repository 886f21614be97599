"""Exchanges, queues and bindings as entries of a catalog, and back.

The keys are `exchange/<name>`, `queue/<name>`, `binding/<what it joins>`, `arriving/<name>` for a
queue whose messages a rescue has not brought yet, and `hold/<name>` for a paused one; a value is a
table of AMQP, which keeps the types of the arguments.
"""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING, Any, Final

from qindex.broker.arriving import Arrival
from qindex.broker.damaged import DAMAGE
from qindex.broker.errors import Refused
from qindex.broker.exchanges import QUEUE, Binding, Destination, Exchange, make_exchange
from qindex.field_table import decode_table, encode_table

if TYPE_CHECKING:
    import qindex
    from qindex.broker.catalog import Catalog
    from qindex.broker.queues import Queue
    from qindex.broker.vhost import VHost

log: Final = logging.getLogger("qindex.broker")
Changes = dict[str, bytes | None]


def canonical(arguments: dict[str, Any]) -> str:
    """A digest of arguments that is the same for equal ones, whatever their order."""
    if not arguments:
        return ""
    table = encode_table(dict(sorted(arguments.items())))
    return hashlib.blake2b(table, digest_size=16).hexdigest()


def exchange_entry(
    name: str, kind: str, *, auto_delete: bool, internal: bool, arguments: dict[str, Any]
) -> Changes:
    table = {
        "kind": kind,
        "auto_delete": auto_delete,
        "internal": internal,
        "arguments": arguments,
    }
    return {f"exchange/{name}": encode_table(table)}


def of_exchange(exchange: Exchange) -> Changes:
    return exchange_entry(
        exchange.name,
        exchange.kind,
        auto_delete=exchange.auto_delete,
        internal=exchange.internal,
        arguments=exchange.arguments,
    )


def gone_exchange(exchange: Exchange) -> Changes:
    return {f"exchange/{exchange.name}": None} if exchange.durable else {}


def queue_entry(name: str, *, auto_delete: bool, arguments: dict[str, Any]) -> Changes:
    return {f"queue/{name}": encode_table({"auto_delete": auto_delete, "arguments": arguments})}


def of_queue(queue: Queue) -> Changes:
    return queue_entry(queue.name, auto_delete=queue.auto_delete, arguments=queue.arguments)


def arriving_entry(name: str, count: int) -> Changes:
    """The messages of this queue, so many, are still being copied from somewhere else."""
    return {f"arriving/{name}": encode_table({"count": count})}


def gone_arriving(name: str) -> Changes:
    return {f"arriving/{name}": None}


def of_hold(name: str, *, on_hold: bool) -> Changes:
    """An operator has paused the queue, or lets it go on."""
    return {f"hold/{name}": b"" if on_hold else None}


def gone_queue(queue: Queue) -> Changes:
    return {f"hold/{queue.name}": None, f"queue/{queue.name}": None}


def _binding_key(binding: Binding) -> str:
    kind, name = binding.destination
    joined = [binding.source, kind, name, binding.routing_key, binding.arguments]
    return f"binding/{json.dumps(joined)}"


def of_binding(binding: Binding, arguments: dict[str, Any]) -> Changes:
    return {_binding_key(binding): encode_table(arguments)}


def gone_binding(binding: Binding) -> Changes:
    return {_binding_key(binding): None}


def restore(vhost: VHost, catalog: Catalog) -> None:
    """Make what the catalog has. What cannot be made is logged, and stays in the catalog."""
    entries = list(catalog.items())
    for key, value in entries:
        if key.startswith("arriving/"):
            count: Any = decode_table(value)["count"]
            vhost.arriving[key.partition("/")[2]] = Arrival(count)
    for kind, make in (("exchange", _restore_exchange), ("queue", _restore_queue)):
        for key, value in entries:
            if key.startswith(f"{kind}/"):
                try:
                    make(vhost, key.partition("/")[2], decode_table(value))
                except Refused as error:
                    log.error("%s cannot be restored: %s", key, error)
    for key, value in entries:
        if key.startswith("hold/") and (name := key.partition("/")[2]) in vhost.queues:
            vhost.queues[name].on_hold = True
        if key.startswith("binding/"):
            _restore_binding(vhost, key, decode_table(value))


def adopt(vhost: VHost, catalog: Catalog, store: qindex.Store) -> None:
    """Serve the queues that the store has and the catalog does not name.

    The definitions may be lost, or the store may be the work of a salvage. A queue that a crash
    left while it was being made is empty: nobody misses it.
    """
    named = {key for key, _ in catalog.items()}
    for name in store.queues():
        if f"queue/{name}" in named:
            continue
        try:
            count = len(store.queue(name))
        except DAMAGE:
            vhost.restore_queue(name, auto_delete=False, arguments={})
            continue
        if not count:
            continue
        log.warning(
            "queue %r has %d messages and no definition: it is served as a durable queue, without "
            "arguments and bindings",
            name,
            count,
        )
        vhost.restore_queue(name, auto_delete=False, arguments={})
        catalog.apply(of_queue(vhost.queues[name]))


def _restore_exchange(vhost: VHost, name: str, table: dict[str, Any]) -> None:
    vhost.exchanges[name] = make_exchange(
        name,
        table["kind"],
        durable=True,
        auto_delete=table["auto_delete"],
        internal=table["internal"],
        arguments=table["arguments"],
    )


def _restore_queue(vhost: VHost, name: str, table: dict[str, Any]) -> None:
    vhost.restore_queue(name, auto_delete=table["auto_delete"], arguments=table["arguments"])


def _restore_binding(vhost: VHost, key: str, arguments: dict[str, Any]) -> None:
    source, kind, name, routing_key, text = json.loads(key.partition("/")[2])
    binding = Binding(source, Destination(kind, name), routing_key, text)
    there = name in (vhost.queues if kind == QUEUE else vhost.exchanges)
    if source in vhost.exchanges and there:
        vhost.add_binding(binding, arguments)
    else:
        log.error("%s cannot be restored: an end of it is not there", key)
