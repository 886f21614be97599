"""write-rabbitmq of a dead RabbitMQ node: what it would have passed on to dead-letter exchanges.

The new node does that itself when it starts: what has expired is written with its expiry, and
definitions.json has the exchanges, bindings and policies. What the node would drop on that way, or
what is not known, is written without an expiry, so that it stays in its queue; the reason is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

from qindex.brokers.rabbitmq.dead_letters import deaths_of
from qindex.brokers.rabbitmq.message import text
from qindex.brokers.rabbitmq.topology import Topology, Unknown
from qindex.brokers.rabbitmq.topology_files import read_topology
from qindex.brokers.reader import QueueDeaths
from qindex.look.at_time import now_us
from qindex.look.messages import FOR_CONSUMERS, Choice, Found
from qindex.look.sources import NodeSource, Source, chosen, chosen_names
from qindex.moments import utc
from qindex.names import as_bytes

MAX_LENGTHS: Final = ("x-max-length", "x-max-length-bytes")
_NOT_ALL: Final = (
    "definitions.json cannot have its exchanges: other names, or several virtual hosts"
)


class Plan:
    """`passed_on`: messages that the node will pass on; `kept`: messages, by the reason."""

    def __init__(self, source: Source, names: dict[str, str]) -> None:
        self.names = names
        self.topology: Topology | None = None
        self.vhost = b""
        self.now = now_us(source.at_time) / 1e6
        self.passed_on = 0
        self.kept: Counter[str] = Counter()
        self.too_long: Counter[str] = Counter()  # messages beyond the limit of a queue, by name
        self._of: Callable[[str], QueueDeaths | None] = lambda _: None
        if not isinstance(source, NodeSource):
            return
        node = source.node
        queues = {name: source.queues[name] for name in self.names if name in source.queues}
        deaths = deaths_of(node.tree, node.log, list(queues.values()), int(self.now * 1_000_000))
        self._of = lambda name: deaths(queues[name]) if name in queues else None
        groups = {queue.group for queue in queues.values()}
        alike = all(queue.name == self.names[name] for name, queue in queues.items())
        if alike and len(groups) == 1:
            self.vhost = as_bytes(groups.pop())
            self.topology = read_topology(node.tree, node.log)
            try:
                self.definitions("/")
            except (Unknown, UnicodeDecodeError):  # so definitions.json could not have all
                self.topology = None

    @property
    def counts(self) -> dict[str, Any]:
        return {
            "as_of": utc(self.now),
            "passed_on": self.passed_on,
            "kept_by": dict(self.kept),
            "too_long": dict(self.too_long),
        }

    def messages(self, source: Source, choice: Choice) -> Iterator[Found]:
        """The messages to write, queue by queue; what is kept has no expiry, and comes last: the
        node passes on nothing that is behind a message that does not expire."""
        for name in chosen_names(source, choice):
            left = choice.limit
            kept_before = self.kept.total()
            for last in (False, True):
                if last and self.kept.total() == kept_before:
                    break
                for found in self._messages_of(source, name, choice, last=last):
                    if left == 0:
                        break
                    left = None if left is None else left - 1
                    yield found

    def _messages_of(
        self, source: Source, name: str, choice: Choice, *, last: bool
    ) -> Iterator[Found]:
        """Those that are kept if `last`, else the others."""
        every = replace(choice, queues=(name,), states=choice.states | {"expired"}, limit=None)
        deaths = self._of(name) if choice.states.issuperset(FOR_CONSUMERS) else None
        for found in chosen(source, every):
            died_of = message = None
            if deaths is not None:
                message = SimpleNamespace(body=found.body, **_routing(found))
                if deaths.is_over(message):
                    died_of = "maxlen"
                elif found.state == "expired" and deaths.may_die:
                    died_of = "expired"
            if deaths is None or died_of is None:
                if not last and found.state in choice.states:
                    yield found
                continue
            reason = self._why_not(deaths, message, died_of)
            if not last:
                self._count(found, reason, over=died_of == "maxlen")
            if bool(reason) == last:
                if reason and found.state == "expired":
                    found.expiry_us = 0
                yield found

    def _count(self, found: Found, reason: str, *, over: bool) -> None:
        if not reason:
            self.passed_on += 1
            return
        self.kept[reason] += 1
        if over:
            self.too_long[self.names[found.queue]] += 1

    def _why_not(self, deaths: QueueDeaths, message: Any, reason: str) -> str:
        """Why the node would not find a place for the message; empty: it does."""
        sent = deaths.send(message, reason)
        if isinstance(sent, str):
            return sent
        kept = [arrival.kept for arrival in sent if arrival.kept]
        return kept[0] if kept else "" if self.topology is not None else _NOT_ALL

    def limited_by_policy(self, arguments: dict[str, dict[str, Any]]) -> list[str]:
        """Takes the limits out of the arguments of queues in which they would drop something.
        Returns those that a policy limits, too: there the node drops."""
        limited = []
        for name in self.too_long:
            for limit in MAX_LENGTHS:
                arguments[name].pop(limit, None)
            if self.topology is not None:
                queue = self.topology.queues[self.vhost, as_bytes(name)]
                queue.arguments = {k: v for k, v in queue.arguments.items() if k not in MAX_LENGTHS}
                self.topology.rules_of.cache_clear()
                rules = self.topology.rules_of(self.vhost, as_bytes(name))
                if rules.messages_max is not None or rules.bytes_max is not None:
                    limited.append(name)
        return limited

    def definitions(self, vhost: str) -> dict[str, Any]:
        """Exchanges, bindings and policies, as `rabbitmqctl import_definitions` takes them."""
        if self.topology is None:
            return {}
        return _definitions(self.topology, self.vhost, vhost, set(self.names.values()))


def _routing(found: Found) -> dict[str, Any]:
    headers = found.headers
    keys = headers.get("routing_keys")
    if not isinstance(headers.get("properties"), bytes) or not isinstance(keys, list):
        return {}
    return {
        "exchange": _text(headers.get("exchange", "")),
        "routing_keys": [_text(key) for key in keys],
        "properties": headers["properties"],
    }


def _text(value: Any) -> str:
    return text(value) if isinstance(value, bytes) else str(value)


def _definitions(topology: Topology, own: bytes, vhost: str, queues: set[str]) -> dict[str, Any]:
    exchanges, bindings = [], []
    for (place, name), exchange in topology.exchanges.items():
        if place == own and name and not name.startswith(b"amq."):
            told = {"name": name.decode(), "vhost": vhost, "type": exchange.type}
            rest = {"durable": True, "auto_delete": False, "internal": False}
            exchanges.append({**told, **rest, "arguments": _plain(exchange.arguments)})
    for (place, name), bound in topology.bindings.items():
        for binding in bound if place == own else ():
            destination = binding.destination.decode()
            if not binding.to_exchange and destination not in queues:
                continue
            bindings.append(
                {
                    "source": name.decode(),
                    "vhost": vhost,
                    "destination": destination,
                    "destination_type": "exchange" if binding.to_exchange else "queue",
                    "routing_key": binding.key.decode(),
                    "arguments": _plain(binding.arguments),
                }
            )
    policies = [
        {
            "vhost": vhost,
            "name": policy.name.decode(),
            "pattern": policy.pattern.decode(),
            "apply-to": policy.apply_to.decode(),
            "priority": policy.priority,
            "definition": _plain({k.decode(): v for k, v in policy.definition.items()}),
        }
        for policy in topology.policies.get(own, ())
    ]
    return {"exchanges": exchanges, "bindings": bindings, "policies": policies}


def _plain(values: Any) -> dict[str, Any]:
    """What JSON can say. Unknown: something else, or a name that is no UTF-8."""
    plain = {}
    for key, value in values.items():
        value = value.decode() if isinstance(value, bytes) else value
        if not isinstance(value, (bool, int, float, str)) and value is not None:
            raise Unknown(f"a definition has a value of the type {type(value).__name__}")
        plain[key] = value
    return plain
