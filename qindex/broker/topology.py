"""Exchanges and bindings of a virtual host, by name: declare, bind, unbind, delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qindex.broker import definitions
from qindex.broker.arriving import Arrival, NotIn
from qindex.broker.catalog import Catalog
from qindex.broker.errors import (
    AccessRefused,
    Locked,
    NotFound,
    NotThere,
    Precondition,
    Unknown,
)
from qindex.broker.exchanges import (
    DELAYED,
    EXCHANGE,
    QUEUE,
    TYPES,
    Binding,
    Destination,
    Exchange,
    Headers,
    Router,
    make_exchange,
)
from qindex.broker.limits import check_same_arguments, inequivalent_flag, type_name
from qindex.broker.queues import Queue


class Topology:
    """The part of a virtual host that knows what leads where. VHost adds queues and messages."""

    def __init__(self, name: str, catalog: Catalog) -> None:
        self.name = name
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        self.arriving: dict[str, Arrival] = {}  # queues that a rescue is still bringing
        self.on_wanted: Callable[[str], None] = lambda name: None  # somebody waits for one of them
        self._catalog = catalog
        self._router = Router(self.exchanges)
        self._bound_to: dict[Destination, dict[Binding, None]] = {}
        # Of what leads into stores: it grows when that may have changed. The queues of connections,
        # which live in memory and come and go all the time, change nothing before they are bound.
        self.epoch = 0
        self._make_standard_exchanges()

    def _know(self, queue: Queue) -> None:
        self.queues[queue.name] = queue
        self.epoch += queue.durable

    def _forget(self, queue: Queue) -> None:
        del self.queues[queue.name]
        self.epoch += queue.durable

    def _no_longer_arriving(self, name: str) -> None:
        del self.arriving[name]
        self.epoch += 1

    def _changed(self) -> None:
        self._router.changed()
        self.epoch += 1

    def _make_standard_exchanges(self) -> None:
        names = {"": "direct", "amq.match": "headers"} | {f"amq.{kind}": kind for kind in TYPES}
        for name, kind in names.items():
            options: dict[str, Any] = {"auto_delete": False, "internal": False, "arguments": {}}
            self.exchanges[name] = make_exchange(name, kind, durable=True, **options)

    @property
    def catalog(self) -> Catalog:
        """What is remembered. Other doors keep entries there, under prefixes of their own."""
        return self._catalog

    # --- names ---------------------------------------------------------------------------------

    def describe(self, kind: str, name: str) -> str:
        """As RabbitMQ names it in errors."""
        return f"{kind} '{name}' in vhost '{self.name}'"

    def exchange(self, name: str) -> Exchange:
        """The exchange of this name; NotFound."""
        found = self.exchanges.get(name)
        if found is None:
            raise NotFound(f"no {self.describe('exchange', name)}")
        return found

    def queue(self, name: str, user: object) -> Queue:
        """The queue of this name, which is served; NotFound, or Locked if it is another
        connection's own.
        """
        found = self._named(name, user)
        self._check_readable(found)
        return found

    def _check_readable(self, queue: Queue) -> None:
        if queue.backlog.damage:
            raise NotFound(queue.backlog.damage)

    def _named(self, name: str, user: object) -> Queue:
        """As queue(), but it may be damaged."""
        found = self.queues.get(name)
        if found is None:
            raise NotFound(f"no {self.describe('queue', name)}")
        if found.owner is not None and found.owner is not user:
            raise Locked(
                f"cannot obtain exclusive access to locked {self.describe('queue', name)}. It "
                "could be originally declared on another connection or the exclusive property "
                "value does not match that of the original declaration."
            )
        return found

    def check_arrived(self, name: str) -> None:
        """Raise NotIn while the messages of this queue are coming; Precondition if they do not;
        NotFound if it is damaged.
        """
        found = self.arriving.get(name)
        if found is None:
            if name in self.queues:
                self._check_readable(self.queues[name])
            return
        if found.failed:
            raise Precondition(f"{self.describe('queue', name)} is not served: {found.failed}")
        self.on_wanted(name)
        raise NotIn

    def state_of(self, queue: Queue) -> str:
        """What to call its state: running, arriving or damaged."""
        if queue.name in self.arriving:
            return "arriving"
        return "damaged" if queue.backlog.damage else "running"

    def check_not_default(self, name: str) -> None:
        if not name:
            raise AccessRefused("operation not permitted on the default exchange")

    def _check_name(self, kind: str, name: str) -> None:
        if name.startswith("amq."):
            raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")

    # --- exchanges -----------------------------------------------------------------------------

    def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, Any],
    ) -> None:
        """Make an exchange, or check that the one that is there is the same."""
        if kind not in TYPES and kind != DELAYED:
            raise Unknown(f"unknown exchange type '{kind}'")
        routes_as = arguments.get("x-delayed-type") if kind == DELAYED else kind
        if not isinstance(routes_as, str) or routes_as not in TYPES:
            raise Precondition(
                "Invalid argument, 'x-delayed-type' must be an existing exchange type"
            )
        self.check_not_default(name)
        what = self.describe("exchange", name)
        found = self.exchanges.get(name)
        if found is not None:
            for flag, received, current in (
                ("type", kind, found.kind),
                ("durable", durable, found.durable),
                ("auto_delete", auto_delete, found.auto_delete),
                ("internal", internal, found.internal),
            ):
                if received != current:
                    raise inequivalent_flag(flag, what, received, current)
            names = ["alternate-exchange", *(["x-delayed-type"] if kind == DELAYED else [])]
            check_same_arguments(arguments, found.arguments, what, names)
            return
        self._check_name("exchange", name)
        alternate = arguments.get("alternate-exchange", "")
        if not isinstance(alternate, str):
            wrong = f"invalid type '{type_name(alternate)}' for arg 'alternate-exchange'"
            raise Precondition(f"{wrong} in {what}")
        self._check_not_delayed(name, kind, alternate)
        exchange = make_exchange(
            name,
            kind,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
        )
        if durable:
            self._catalog.apply(definitions.of_exchange(exchange))
        self.exchanges[name] = exchange
        self._changed()

    def _check_not_delayed(self, name: str, kind: str, alternate: str) -> None:
        """Raise NotThere if an alternate exchange would be one that delays. O(exchanges)."""
        alternates = {alternate, *(each.alternate for each in self.exchanges.values())}
        found = self.exchanges.get(alternate)
        if kind == DELAYED and name in alternates:
            what = self.describe("exchange", name)
        elif found is not None and found.delays:
            what = self.describe("exchange", alternate)
        else:
            return
        raise NotThere(f"{what} of type {DELAYED} as an alternate exchange")

    def delete_exchange(self, name: str, *, if_unused: bool) -> None:
        """Delete an exchange and the bindings that begin or end there; none is no error."""
        self.check_not_default(name)
        what = self.describe("exchange", name)
        if name.startswith("amq."):
            raise AccessRefused(f"deletion of system {what} not allowed")
        found = self.exchanges.get(name)
        if found is None:
            return
        if if_unused and found.bindings:
            raise Precondition(f"{what} in use")
        gone = [*found.bindings, *self._bound_to.get(Destination(EXCHANGE, name), ())]
        changes: dict[str, bytes | None] = {}
        self._unbind_all(gone, changes)
        changes.update(definitions.gone_exchange(found))
        self._catalog.apply(changes)
        self.exchanges.pop(name, None)
        self._changed()
        self._delete_unused_sources(gone)

    # --- bindings ------------------------------------------------------------------------------

    def bind(
        self, source: str, kind: str, name: str, key: str, arguments: dict[str, Any], user: object
    ) -> None:
        """Bind a queue or an exchange to an exchange. The same binding again is no error."""
        exchange = self._bindable(source, kind, name, user)
        binding = Binding(source, Destination(kind, name), key, definitions.canonical(arguments))
        if kind == EXCHANGE and self.exchanges[name].delays:
            what = self.describe("exchange", name)
            raise NotThere(f"{what} of type {DELAYED} as the destination of a binding")
        if isinstance(exchange, Headers):
            _check_match(arguments)
        if binding in exchange.bindings:
            return
        if exchange.durable and self._is_durable(kind, name):
            self._catalog.apply(definitions.of_binding(binding, arguments))
        self.add_binding(binding, arguments)

    def unbind(
        self, source: str, kind: str, name: str, key: str, arguments: dict[str, Any], user: object
    ) -> None:
        """Remove a binding; one that is not there is no error, nor is an end that is not there."""
        there = name in (self.queues if kind == QUEUE else self.exchanges)
        if source and not (there and source in self.exchanges):
            return
        exchange = self._bindable(source, kind, name, user)
        binding = Binding(source, Destination(kind, name), key, definitions.canonical(arguments))
        if binding not in exchange.bindings:
            return
        changes: dict[str, bytes | None] = {}
        self._unbind_all([binding], changes)
        self._catalog.apply(changes)
        self._delete_unused_sources([binding])

    def _bindable(self, source: str, kind: str, name: str, user: object) -> Exchange:
        if not source or (kind == EXCHANGE and not name):
            raise AccessRefused("operation not permitted on the default exchange")
        if kind == QUEUE:
            self._named(name, user)
        else:
            self.exchange(name)
        return self.exchange(source)

    def add_binding(self, binding: Binding, arguments: dict[str, Any]) -> None:
        """Add a binding that the catalog has, or that is not durable."""
        self.exchanges[binding.source].add(binding, arguments)
        self._bound_to.setdefault(binding.destination, {})[binding] = None
        self._changed()

    def _unbind_all(self, bindings: list[Binding], changes: dict[str, bytes | None]) -> None:
        for binding in bindings:
            changes.update(definitions.gone_binding(binding))
            source = self.exchanges.get(binding.source)
            if source is not None:
                source.remove(binding)
            same = self._bound_to.get(binding.destination, {})
            same.pop(binding, None)
            if not same:
                self._bound_to.pop(binding.destination, None)
        if bindings:
            self._changed()

    def _delete_unused_sources(self, bindings: list[Binding]) -> None:
        """An auto-delete exchange goes with its last binding."""
        for name in {binding.source for binding in bindings}:
            found = self.exchanges.get(name)
            if found is not None and found.auto_delete and not found.bindings:
                self.delete_exchange(name, if_unused=True)

    def _is_durable(self, kind: str, name: str) -> bool:
        return self.queues[name].durable if kind == QUEUE else self.exchanges[name].durable


def _check_match(arguments: dict[str, Any]) -> None:
    how = arguments.get("x-match", "all")
    if not isinstance(how, str):
        raise Precondition(
            f"Invalid x-match field type {type_name(how)} (value {how}); expected longstr"
        )
    if how not in ("all", "any", "all-with-x", "any-with-x"):
        raise Precondition(
            f'Invalid x-match field value <<"{how}">>; expected all, any, all-with-x, or any-with-x'
        )
